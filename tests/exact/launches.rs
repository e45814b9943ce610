//! Launches and compilations in exact mode: errors, checks, environment, and generated code.

use cutlet as ct;
use cutlet::prelude::*;

use super::exact;

/// Sums of rows, exponentials, products and atomic additions.
fn mixed(a: Array<f16, 2>, out: ArrayMut<f32, 2>) {
    let a = a.load_with((ct::bid(0), 0), [32, 32], ct::LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let weights = (a - a.reduce_max(1)).exp();
    let weights = (weights / weights.sum(1)).cast::<f16>();
    out.atomic_store_add((ct::bid(0), 0), ct::mma(weights, weights.transpose(), ct::zeros::<f32, 2>([32, 32])));
}

/// The assemblers of `CUTLET_PTXAS` and `CUTLET_TILEIRAS` accept the code, too.
#[test]
fn both_code_generators_accept_rewritten_kernels() -> ct::Result<()> {
    let (a, out) = (ct::ArraySpec::<f16, 2>::new([100, 24]), ct::ArraySpec::<f32, 2>::new([100, 32]));
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        let code = ct::inspect(mixed, (a, out.mutable())).exact().target(target);
        let ptx = code.ptx()?;
        assert!(ptx.contains("mma.sync") || ptx.contains("wgmma"), "{ptx}");
        for float in [".f32 ", ".f16 ", ".rn.f32"] {
            assert!(!ptx.contains(float), "{float} in {ptx}");
        }
        assert!(code.tile_ir()?.contains("mmai"));
        let formats = [("CUTLET_PTXAS", ct::aot::Format::Ptx), ("CUTLET_TILEIRAS", ct::aot::Format::TileIr(None))];
        for (_, format) in formats.into_iter().filter(|(variable, _)| std::env::var_os(variable).is_some()) {
            let exported = exact(1, ct::Backend::Cpu).export(mixed, (a, out.mutable()), target, format)?;
            assert!(exported.assemble(target)?.starts_with(b"\x7FELF"));
        }
    }
    Ok(())
}

/// Sums of rows of tiles, in two orders.
fn row_sums(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    y.store(ct::bid(0), x.load((ct::bid(0), 0), [1, 64]).sum(1).reshape([1]));
}

#[test]
fn kernels_without_the_mode_are_refused_and_with_it_reusable() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([3, 50], 0.1f32)?, device.zeros([3])?);
    let plain = ct::compile(row_sums, (&x, &mut y))?;
    let error = exact(3, ct::Backend::Cpu).launch_compiled(&plain, (&x, &mut y)).unwrap_err().to_string();
    assert!(error.contains("compiled without exact mode"), "{error}");
    let compiled = exact(1, ct::Backend::Cpu).compile(row_sums, (&x, &mut y))?;
    compiled.launch(3, (&x, &mut y))?;
    let sums = y.to_vec()?;
    // All checks of the cpu back end find nothing in the rewritten kernel.
    exact(3, ct::Backend::Cpu).checks(ct::Checks::all()).launch(row_sums, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, sums);
    ct::launch(row_sums, 3, (&x, &mut y))?;
    assert_ne!(y.to_vec()?, sums);
    Ok(())
}

/// A function selects the mode for its launches, and the one around it has it again after it.
#[test]
fn a_function_selects_the_mode() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let x = device.from_fn([3, 50], |[i, j]| super::noise(i * 50 + j, 1))?;
    let (mut expected, mut y) = (device.zeros([3])?, device.zeros([3])?);
    exact(3, ct::Backend::Cpu).launch(row_sums, (&x, &mut expected))?;
    ct::with_exact_mode(|| ct::launch(row_sums, 3, (&x, &mut y)))?;
    assert_eq!(super::bits(&y)?, super::bits(&expected)?);
    let is_of_ring = |code: ct::Inspection| Ok::<bool, ct::Error>(!code.ptx()?.contains(".f32"));
    assert!(ct::with_exact_mode(|| is_of_ring(ct::inspect(row_sums, (&x, &mut y))))?);
    assert!(!is_of_ring(ct::inspect(row_sums, (&x, &mut y)))?);
    ct::launch(row_sums, 3, (&x, &mut y))?;
    assert_ne!(super::bits(&y)?, super::bits(&expected)?);
    Ok(())
}

const CHILD: &str = "CUTLET_EXACT_OF_CHILD";

/// With the variable `CHILD`: prints the sums of a launch without options.
#[test]
fn child() -> ct::Result<()> {
    if std::env::var_os(CHILD).is_some() {
        let device = ct::Device::cpu();
        let (x, mut y) = (device.from_fn([3, 50], |[i, j]| super::noise(i * 50 + j, 1))?, device.zeros([3])?);
        let result = ct::launch(row_sums, 3, (&x, &mut y));
        println!("child: {result:?} {:?}", super::bits(&y)?);
    }
    Ok(())
}

#[test]
fn the_environment_selects_the_mode() -> ct::Result<()> {
    let run = |value: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        child.args(["launches::child", "--exact", "--nocapture"]).env(CHILD, "1").env("CUTLET_EXACT", value);
        let text = String::from_utf8(child.output().expect("the child runs").stdout).expect("text");
        text.lines().find(|line| line.contains("child: ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let device = ct::Device::cpu();
    let (x, mut y) = (device.from_fn([3, 50], |[i, j]| super::noise(i * 50 + j, 1))?, device.zeros([3])?);
    exact(3, ct::Backend::Cpu).launch(row_sums, (&x, &mut y))?;
    let expected = format!("child: Ok(()) {:?}", super::bits(&y)?);
    assert!(run("1").contains(&expected), "{} and not {expected}", run("1"));
    assert!(!run("0").contains(&expected) && run("0").contains("Ok(())"));
    assert!(run("yes").contains("CUTLET_EXACT=yes"), "{}", run("yes"));
    Ok(())
}
