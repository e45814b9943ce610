//! A failing case as a Rust test of a few lines.

use super::arrays::element::Tolerance;
use super::failure::{Failure, Kind};
use super::instance::{Prepared, name_of};

/// Returns a test that fails as the case does; as comments, if the failure needs several launches.
/// `kernel` is the name of the kernel, `case` the seed
/// and the permitted difference.
pub(super) fn program(
    kernel: &str,
    prepared: &Prepared<'_>,
    failure: &Failure,
    case: (u64, Option<Tolerance>),
) -> String {
    let (seed, tolerance) = case;
    let device = if failure.kind == Kind::Device { "gpu(0)?" } else { "cpu()" };
    let mut lines = vec![format!("let device = ct::Device::{device};")];
    prepared.for_each_array(|number, array| lines.push(array.statements(&name_of(number))));
    let (mut number, grid) = (0, prepared.instance.grid);
    let args = (prepared.instance.expression)(&mut || {
        number += 1;
        let argument = prepared.with_array(number - 1, |array| array.argument(&name_of(number - 1)));
        let argument = argument.unwrap_or_default();
        if grid.is_some() { argument } else { view_of(&argument) }
    });
    let is_checked = failure.kind == Kind::Launch;
    match grid {
        Some(grid) => {
            let checks = if is_checked { ".checks(ct::Checks::all())" } else { "" };
            lines.push(format!("ct::Launch::new({:?}){checks}.launch({kernel}, {args})?;", grid.extents()));
        }
        None => {
            if is_checked {
                lines.push("// With the environment variable CUTLET_CHECK=all.".to_owned());
            }
            lines.push(format!("{kernel}(&device.default_stream(), {args})?;"));
        }
    }
    if matches!(failure.kind, Kind::Order | Kind::Memory | Kind::Padding | Kind::Law) {
        let lines = lines.join("\n").replace("\n    ", "\n").replace('\n', "\n//     ");
        return format!(
            "// The property with `.seed({seed:#x})` repeats this case, in launches like this one:\n//     {lines}"
        );
    }
    if let Some(line) = comparison(prepared, failure, tolerance) {
        lines.push(line);
    }
    lines.push("Ok(())".to_owned());
    format!("#[test]\nfn {kernel}_{seed:x}() -> ct::Result<()> {{\n    {}\n}}", lines.join("\n    "))
}

/// Returns the view of an argument that borrows an array: the argument of a function.
fn view_of(argument: &str) -> String {
    let (array, view) = match argument.strip_prefix("&mut ") {
        Some(array) => (array, ".view_mut()"),
        None => (argument.trim_start_matches('&'), ".view()"),
    };
    if array.contains(view) { array.to_owned() } else { format!("{array}{view}") }
}

/// Returns the statement that compares the element that differs.
fn comparison(prepared: &Prepared<'_>, failure: &Failure, tolerance: Option<Tolerance>) -> Option<String> {
    let (number, difference) = failure.place.as_ref()?;
    let want = difference.want?;
    prepared.with_array(*number, |array| {
        let (name, view) =
            (name_of(*number), array.argument("").replace("&mut ", "").replace(".view_mut()", ".view()"));
        let element = format!("{name}{view}.to_vec()?[{}]", difference.flat);
        match array.bound(want, tolerance) {
            _ if array.literal(want).contains("NAN") => format!("assert!({element}.is_nan());"),
            Some((want, bound)) => format!("assert!((f64::from({element}) - {want:?}).abs() <= {bound:?});"),
            None => format!("assert_eq!({element}, {});", array.literal(want)),
        }
    })
}
