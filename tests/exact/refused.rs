//! Operations without a form in the ring, and generated code.

use cutlet as ct;
use cutlet::prelude::*;

use super::exact;

#[test]
fn an_operation_without_a_form_is_named_with_its_line() -> ct::Result<()> {
    let (line, kernel) = (line!() + 1, |y: ArrayMut<f16, 1>| {
        let _before = y.entry(0).atomic_add(1.0);
    });
    let mut y = ct::Device::cpu().zeros([1])?;
    let error = exact(1, ct::Backend::Cpu).launch(kernel, (&mut y,)).unwrap_err().to_string();
    let expected = format!("refused.rs:{line}:");
    assert!(error.contains(&expected) && error.contains("exact mode: `atomic_rmw_tko`"), "{error}");
    assert!(error.contains("compare-and-swap of f16"), "{error}");
    Ok(())
}

/// Sums of rows, exponentials, products and atomic additions.
fn mixed(a: Array<f16, 2>, out: ArrayMut<f32, 2>) {
    let a = a.load_with((ct::bid(0), 0), [32, 32], ct::LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let weights = (a - a.reduce_max(1)).exp();
    let weights = (weights / weights.sum(1)).cast::<f16>();
    out.atomic_store_add((ct::bid(0), 0), ct::mma(weights, weights.transpose(), ct::zeros::<f32, 2>([32, 32])));
}

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
    }
    Ok(())
}
