//! Checks on request: each fault planted and found, with what is said of it; kernels without faults run as without checks.

use cutlet as ct;
use cutlet::prelude::*;

fn all(grid: usize) -> ct::Launch<'static> {
    ct::Launch::new(grid).check(ct::Checks::all())
}

fn only(name: &str) -> ct::Launch<'static> {
    ct::Launch::new(1).check(name.parse().unwrap())
}

/// What an error says, with the places of this file as `<line>`, counted from that of the caller.
#[track_caller]
fn said(result: ct::Result<()>) -> String {
    let here = std::panic::Location::caller();
    let mut text = result.expect_err("a fault is planted").to_string();
    let place = format!("{}:", here.file());
    while let Some(at) = text.find(&place) {
        let rest = &text[at + place.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let line: i64 = rest[..digits].parse().unwrap();
        let end = at + place.len() + digits;
        text.replace_range(at..end, &format!("<{}>", line - i64::from(here.line())));
    }
    text
}

/// `x op y` of four elements, of which the fourth lies outside of the arrays and is 0.
fn combined<T: ct::Whole + ct::Number>(
    name: &str,
    op: impl Fn(Tile<T, 1>, Tile<T, 1>) -> Tile<T, 1> + Copy,
    x: [T; 3],
    y: [T; 3],
) -> [ct::Result<()>; 2] {
    let device = ct::Device::cpu();
    let (x, y, mut z) =
        (device.array(&x, [3]).unwrap(), device.array(&y, [3]).unwrap(), device.array(&x, [3]).unwrap());
    let kernel = |x: Array<T, 1>, y: Array<T, 1>, z: ArrayMut<T, 1>| z.store(0, op(x.load(0, [4]), y.load(0, [4])));
    [only(name).launch(kernel, (&x, &y, &mut z)), ct::launch(kernel, 1, (&x, &y, &mut z))]
}

#[test]
fn division() {
    let [checked, plain] = combined("division", |x, y| x / y, [7, 8, 9], [1, 0, 2]);
    assert!(plain.is_ok());
    let text = checked.unwrap_err().to_string();
    println!("{text}");
    assert!(
        text.contains("division by zero: 8 / 0 in i32 at [1] of the tile, and a store at tests/checks.rs:"),
        "{text}"
    );
    assert!(text.contains("in tile block (0, 0, 0)"));
    for op in [|x, y| x % y, |x: Tile<u8, 1>, y| x.floor_div(y), |x, y| x.ceil_div(y), |x, y| x.modulo(y)] {
        let [checked, plain] = combined("division", op, [7u8, 8, 9], [1, 0, 2]);
        assert!(plain.is_ok() && checked.is_err());
        let [checked, _] = combined("division", op, [7u8, 8, 9], [1, 5, 2]);
        checked.unwrap();
        let [checked, _] = combined("overflow", op, [7u8, 8, 9], [1, 0, 2]);
        checked.unwrap();
    }
    let [checked, _] = combined("overflow", |x, y| x / y, [i32::MIN, 8, 9], [-1, 0, 2]);
    assert!(checked.unwrap_err().to_string().contains("overflow: -2147483648 / -1 does not fit i32"));
}
