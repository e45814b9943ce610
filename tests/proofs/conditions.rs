//! Conditions of `require!` in proofs.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;
use cutlet::{ArraySpec, Symbol, Verdict};

/// Whole tiles, without a check of the edge.
fn doubled<const REQUIRES: bool>(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    if REQUIRES {
        ct::require!(x.extent(0).eq(y.extent(0)), "{} and {} elements", x.extent(0), y.extent(0));
        ct::require!(ct::num_blocks(0).eq(x.num_tiles(0, [64])), "{} tile blocks", ct::num_blocks(0));
    }
    y.store(ct::bid(0), x.load(ct::bid(0), [64]) * 2.0);
}

#[test]
fn conditions_are_facts_for_all_extents() {
    let (m, n) = (Symbol::new("m", 1..=1 << 30), Symbol::new("n", 1..=1 << 30));
    let blocks = Symbol::new("blocks", 1..=1 << 24);
    let arrays = (ArraySpec::symbolic([m]), ArraySpec::symbolic([n]).mutable());
    // Any grid and any two extents.
    let proof = ct::prove_for_all(doubled::<true>, [blocks], arrays, Property::ALL).unwrap();
    proof.require().unwrap_or_else(|problem| panic!("{problem}"));
    let proof = ct::prove_for_all(doubled::<false>, [blocks], arrays, Property::ALL).unwrap();
    for property in [Bounds, Covers] {
        assert!(matches!(proof.verdict(property), Some(Verdict::Refuted(_))), "{property}: {proof}");
    }
}

#[test]
fn a_condition_that_is_too_weak_is_refuted() {
    let (n, blocks) = (Symbol::new("n", 1..=1 << 20), Symbol::new("blocks", 1..=1 << 20));
    let y = ArraySpec::<f32, 1>::symbolic([n]).mutable();
    let kernel = |more: i32| {
        move |y: ArrayMut<f32, 1>| {
            ct::require!((y.extent(0) % 16).eq(0));
            ct::require!((ct::num_blocks(0) * 16).le(y.extent(0) + more));
            // SAFETY: for the proof alone; `more` is planted.
            let unchecked = unsafe { ct::StoreOptions::new().check_bounds(false) };
            y.store_with(ct::bid(0), ct::ones([16]), unchecked);
        }
    };
    let prove = |more| ct::prove_for_all(kernel(more), [blocks], (y,), [Bounds, UniqueWrites]).unwrap();
    prove(0).require().unwrap_or_else(|problem| panic!("{problem}"));
    prove(15).require().unwrap_or_else(|problem| panic!("{problem}"));
    let proof = prove(16);
    let Some(Verdict::Refuted(case)) = proof.verdict(Bounds) else { panic!("{proof}") };
    assert!(case.diagnostic.to_string().contains("for "), "{}", case.diagnostic);
}

#[test]
fn products_that_a_condition_bounds_do_not_wrap() {
    let (height, width) = (Symbol::new("height", 1..=1 << 20), Symbol::new("width", 1..=1 << 20));
    let y = ArraySpec::<f32, 1>::symbolic([height * width]).mutable();
    let shape = ArraySpec::<f32, 2>::symbolic([height, width]);
    let kernel = |least: i64| {
        move |y: ArrayMut<f32, 1>, shape: Array<f32, 2>| {
            let (height, width) = (shape.extent(0), shape.extent(1));
            ct::require!((height.cast::<i64>() * width.cast::<i64>()).lt(1 << least), "too many elements");
            y.scatter(ct::bid(1) * width + ct::bid(0), ct::scalar(1.0f32));
        }
    };
    let prove = |least| ct::prove_for_all(kernel(least), [width, height], (y, shape), [Bounds, UniqueWrites]).unwrap();
    let proof = prove(31);
    proof.require().unwrap_or_else(|problem| panic!("{problem}"));
    // Positions of 33 bits wrap.
    let proof = prove(33);
    assert!(matches!(proof.verdict(UniqueWrites), Some(Verdict::Unknown(_))), "{proof}");
}

#[test]
fn launches_that_no_condition_permits_are_errors() {
    let x = |n| ArraySpec::<f32, 1>::new([n]);
    let refused = |result: ct::Result<ct::Proof>, text: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, ct::Error::Argument(_)) && error.to_string().contains(text), "{error}");
    };
    ct::prove(doubled::<true>, 4, (x(200), x(200).mutable()), Property::ALL).unwrap().require().unwrap();
    refused(ct::prove(doubled::<true>, 4, (x(200), x(199).mutable()), Property::ALL), "200 and 199 elements");
    refused(ct::prove(doubled::<true>, 5, (x(200), x(200).mutable()), Property::ALL), "5 tile blocks");
    // A proof about no launch would be one of everything.
    let n = Symbol::new("n", 1..=100);
    let arrays = (ArraySpec::symbolic([n]), ArraySpec::symbolic([n + 1]).mutable());
    refused(ct::prove_for_all(doubled::<true>, [n], arrays, Property::ALL), "no launch with grid (n, 1, 1)");
}

#[test]
fn proved_launches_name_the_failed_condition() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([200], 1.5f32)?, device.zeros([200])?);
    ct::Launch::new(4).proved().launch(doubled::<true>, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, [3.0; 200]);
    let error = ct::Launch::new(5).proved().launch(doubled::<true>, (&x, &mut y)).unwrap_err().to_string();
    assert!(error.contains("5 tile blocks"), "{error}");
    Ok(())
}
