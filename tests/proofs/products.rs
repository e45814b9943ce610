//! Products of symbols in proofs for all extents: kernels of flat arrays and numbered tiles,
//! planted mistakes, and products that wrap.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;
use cutlet::{ArraySpec, Proof, Symbol, Verdict};

fn size(name: &'static str, most: i64) -> Symbol {
    Symbol::new(name, 1..=most)
}

/// Tile blocks are rows and columns of an array that is stored in one dimension.
fn flat(rows: i32, y: ArrayMut<f32, 1>, width: Scalar<i32>) {
    let (row, column) = (ct::bid(1) + rows, ct::bid(0));
    y.scatter(row * width + column, ct::scalar(1.0f32));
}

fn is_proved(proof: &Proof, property: Property) -> bool {
    proof.verdict(property) == Some(&Verdict::Proved)
}

/// Tiles of 16 x 16, numbered along one axis of the grid.
fn numbered(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let columns = x.num_tiles(1, [16, 16]);
    let (i, j) = (ct::bid(0) / columns, ct::bid(0) % columns);
    y.store((i, j), x.load((i, j), [16, 16]));
}

#[test]
fn numbered_tiles_are_proved_for_all_extents() {
    let (m, n) = (size("m", 1 << 15), size("n", 1 << 15));
    let x = ArraySpec::<f32, 2>::symbolic([m, n]);
    let grid = m.div_ceil(16) * n.div_ceil(16);
    let proof = ct::prove_for_all(numbered, [grid], (x, x.mutable()), Property::ALL).unwrap();
    println!("{proof}");
    proof.require().unwrap_or_else(|problem| panic!("{problem}"));
}

#[test]
fn mistakes_of_numbered_tiles_are_refused() {
    let (m, n) = (size("m", 1 << 15), size("n", 1 << 15));
    let x = ArraySpec::<f32, 2>::symbolic([m, n]);
    let (rows, columns) = (m.div_ceil(16), n.div_ceil(16));
    // One tile block too many, one row of tiles too few, and the wrong number of columns.
    let prove = |grid: Symbol, property| ct::prove_for_all(numbered, [grid], (x, x.mutable()), [property]).unwrap();
    for (grid, property) in [(rows * columns + 1, Bounds), (rows * columns - columns, Covers), (rows * rows, Covers)] {
        let proof = prove(grid, property);
        assert!(matches!(proof.verdict(property), Some(Verdict::Refuted(_))), "{proof}");
    }
    let wrong = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let rows = x.num_tiles(0, [16, 16]);
        let (i, j) = (ct::bid(0) / rows, ct::bid(0) % rows);
        y.store((i, j), x.load((i, j), [16, 16]));
    };
    let proof = ct::prove_for_all(wrong, [rows * columns], (x, x.mutable()), Property::ALL).unwrap();
    assert!(matches!(proof.verdict(Bounds), Some(Verdict::Refuted(_))), "{proof}");
    assert!(!is_proved(&proof, Covers), "{proof}");
}

/// Rows of a flat array, in pieces of 64 elements; the last piece of a row is masked.
fn pieces(x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Array<f32, 2>, wide: bool) {
    let width = n.extent(1);
    let column = ct::bid(0) * 64 + ct::arange(0..64);
    let at = ct::bid(1) * width + column;
    let limit = if wide { width + 1 } else { width + 0 };
    let mask = column.lt(limit);
    let value = x.gather_with(at, ct::GatherOptions::new().mask(mask));
    y.scatter_with(at, value, ct::ScatterOptions::new().mask(mask));
}

#[test]
fn rows_of_a_flat_array_are_disjoint() {
    let (height, width) = (size("height", 1 << 15), size("width", 1 << 15));
    let x = ArraySpec::<f32, 1>::symbolic([height * width]);
    let n = ArraySpec::<f32, 2>::symbolic([height, width]);
    let grid = [width.div_ceil(64), height];
    let prove = |wide: bool| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Array<f32, 2>| pieces(x, y, n, wide);
        ct::prove_for_all(kernel, grid, (x, x.mutable(), n), Property::ALL).unwrap()
    };
    let proof = prove(false);
    println!("{proof}");
    proof.require().unwrap_or_else(|problem| panic!("{problem}"));
    // The first element of the next row is stored twice.
    let proof = prove(true);
    assert!(matches!(proof.verdict(UniqueWrites), Some(Verdict::Refuted(_))), "{proof}");
}

#[test]
fn products_that_wrap_are_unknown() {
    // Positions exceed 32 bits with 2^20 rows and columns.
    let (height, width) = (size("height", 1 << 20), size("width", 1 << 20));
    let x = ArraySpec::<f32, 1>::symbolic([height * width]);
    let n = ArraySpec::<f32, 2>::symbolic([height, width]);
    let kernel = |x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Array<f32, 2>| pieces(x, y, n, false);
    let proof =
        ct::prove_for_all(kernel, [width.div_ceil(64), height], (x, x.mutable(), n), [UniqueWrites, Covers]).unwrap();
    assert!(!is_proved(&proof, UniqueWrites) && !is_proved(&proof, Covers), "{proof}");
}

#[test]
fn a_column_of_the_next_row_is_found() {
    let (height, width) = (size("height", 1000), size("width", 1000));
    let y = ArraySpec::<f32, 1>::symbolic([height * width]).mutable();
    let n = ArraySpec::<f32, 2>::symbolic([height, width]);
    let prove = |rows: i32, columns: Symbol| {
        let kernel = move |y: ArrayMut<f32, 1>, n: Array<f32, 2>| flat(rows, y, n.extent(1));
        ct::prove_for_all(kernel, [columns, height], (y, n), Property::ALL).unwrap()
    };
    prove(0, width).require().unwrap_or_else(|problem| panic!("{problem}"));
    // One row too far: row 0 is missing. One column too many: the first element of the next row.
    for (proof, property) in [(prove(1, width), Covers), (prove(0, width + 1), UniqueWrites)] {
        assert!(matches!(proof.verdict(property), Some(Verdict::Refuted(_))), "{property}: {proof}");
    }
}
