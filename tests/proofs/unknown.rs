//! Verdicts that depend on data: the operation and its line, and properties that data cannot
//! change.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::Verdict;
use cutlet::prelude::*;

#[test]
fn a_table_decides_with_its_line() {
    let kernel = |table: Array<i32, 1>, y: ArrayMut<f32, 2>| {
        let row = table.load_scalar(ct::bid(0));
        y.store((row, 0), ct::ones([1, 16]));
    };
    let line = line!() - 3;
    let (table, y) = (ct::ArraySpec::<i32, 1>::new([9]), ct::ArraySpec::<f32, 2>::new([20, 16]).mutable());
    let proof = ct::prove(kernel, 9, (table, y), Property::ALL).unwrap();
    for property in Property::ALL {
        let Some(Verdict::Unknown(reason)) = proof.verdict(property) else { panic!("{proof}") };
        assert_eq!(reason.location.as_ref().map(|place| place.line), Some(line), "{proof}");
    }
}

#[test]
fn a_column_of_the_own_row_is_unique() {
    let kernel = |table: Array<i32, 1>, x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let row = ct::bid(0);
        let column = table.load_scalar(row);
        y.store((row, column), x.load((row, column), [1, 1]));
    };
    let (table, x) = (ct::ArraySpec::<i32, 1>::new([9]), ct::ArraySpec::<f32, 2>::new([9, 16]));
    let proof = ct::prove(kernel, 9, (table, x, x.mutable()), [UniqueWrites, NoRace]).unwrap();
    proof.require().unwrap();
}

#[test]
fn a_gather_by_a_table_is_inside() {
    let kernel = |table: Array<i32, 1>, x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        y.store(ct::bid(0), x.gather(table.load(ct::bid(0), [16])));
    };
    let (table, x) = (ct::ArraySpec::<i32, 1>::new([96]), ct::ArraySpec::<f32, 1>::new([50]));
    let y = ct::ArraySpec::<f32, 1>::new([96]).mutable();
    ct::prove(kernel, 6, (table, x, y), Property::ALL).unwrap().require().unwrap();
}

#[test]
fn a_condition_of_data_is_no_counterexample() {
    let kernel = |flags: Array<i32, 1>, y: ArrayMut<f32, 1>| {
        ct::if_then(flags.load_scalar(ct::bid(0)).gt(0), || y.store(0, ct::ones([16])));
    };
    let (flags, y) = (ct::ArraySpec::<i32, 1>::new([9]), ct::ArraySpec::<f32, 1>::new([16]).mutable());
    let proof = ct::prove(kernel, 9, (flags, y), [UniqueWrites, Covers, Bounds]).unwrap();
    assert!(matches!(proof.verdict(UniqueWrites), Some(Verdict::Unknown(_))), "{proof}");
    assert!(matches!(proof.verdict(Covers), Some(Verdict::Unknown(_))), "{proof}");
    assert_eq!(proof.verdict(Bounds), Some(&Verdict::Proved));
}
