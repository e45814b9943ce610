//! QR factorization of large matrices by blocks of columns (Schreiber and Van Loan, 1989, the
//! compact WY representation; LAPACK's `geqrf` and `orgqr`). The product of the reflections of a
//! panel is I - V T Vᵀ. For each panel of columns:
//!
//! 1. One tile block has all rows of the panel in registers. It computes R, V, and the inverse of
//!    T: the products of the vectors above the diagonal, and the inverses of the factors on it.
//! 2. The transposed product is applied to the columns after the panel.
//!
//! Q is the product of all panels, applied to the identity from the last one on.

use cutlet as ct;
use cutlet::ops::MatrixFloat;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, TriangularOptions};

use super::columns;
use super::tiles::{panel_hints, panel_width};
use crate::launch::Run;

/// Rows and columns of a tile.
const TILE: usize = 64;

/// Copies a tile.
fn copy<T: MatrixFloat>(a: Array<T, 3>, packed: ArrayMut<T, 3>) {
    let at = (ct::bid(2), ct::bid(1), ct::bid(0));
    packed.store(at, a.load(at, [1, TILE, TILE]));
}

/// Writes a tile of the identity.
fn identity<T: MatrixFloat>(q: ArrayMut<T, 3>) {
    let shape = [1, TILE, TILE];
    let row = ct::bid(1) * TILE + ct::indices(shape, 1);
    q.store((ct::bid(2), ct::bid(1), ct::bid(0)), row.eq(ct::bid(0) * TILE + ct::indices(shape, 2)).cast::<T>());
}

/// Copies a tile of the upper triangle.
fn upper<T: MatrixFloat>(packed: Array<T, 3>, r: ArrayMut<T, 3>) {
    let (shape, at) = ([1, TILE, TILE], (ct::bid(2), ct::bid(1), ct::bid(0)));
    let row = ct::bid(1) * TILE + ct::indices(shape, 1);
    let is_upper = row.le(ct::bid(0) * TILE + ct::indices(shape, 2));
    r.store(at, is_upper.select(packed.load(at, shape), T::from_f64(0.0)));
}

/// Factors the columns from `first` on.
fn factor_panel<T: MatrixFloat>(
    packed: ArrayMut<T, 3>,
    t: ArrayMut<T, 4>,
    first: Scalar<i32>,
    [height, width]: [usize; 2],
) {
    let (batch, at) = (ct::bid(0), ct::at(first));
    let (panel, inverse) = columns::packed_reflections(packed.load((batch, at, at), [1, height, width]));
    packed.store((batch, at, at), panel);
    let shape = [1, width, width];
    let one = ct::indices(shape, 1).eq(ct::indices(shape, 2)).cast::<T>();
    let product = inverse.solve_triangular(one, TriangularOptions::new().upper());
    t.store((batch, first / width as i32, 0, 0), product.reshape([1, 1, width, width]));
}

/// Subtracts V T Vᵀ x from columns x, those of `target` from `start` on, or V Tᵀ Vᵀ x.
fn apply<T: MatrixFloat>(
    packed: Array<T, 3>,
    t: Array<T, 4>,
    target: ArrayMut<T, 3>,
    [first, start]: [Scalar<i32>; 2],
    (width, is_transposed): (usize, bool),
) {
    let (batch, column) = (ct::bid(1), ct::at(start + ct::bid(0) * TILE as i32));
    let blocks = (target.extent(1) - first).ceil_div(TILE as i32);
    let (shape, square) = ([1, TILE, TILE], [1, width, width]);
    let vectors = |i: Scalar<i32>| {
        let own = [1, TILE, width];
        let (row, column) = (i * TILE + ct::indices(own, 1), ct::indices(own, 2));
        let below = packed.load((batch, ct::at(first + i * TILE as i32), ct::at(first)), own);
        row.gt(column).select(below, row.eq(column).cast::<T>())
    };
    let row = |i: Scalar<i32>| ct::at(first + i * TILE as i32);
    let products = ct::fold(..blocks, ct::zeros([1, width, TILE]), |sum: Tile<T, 3>, i| {
        ct::mma(vectors(i).transpose(), target.load((batch, row(i), column), shape), sum)
    });
    let t = t.load((batch, first / width as i32, 0, 0), [1, 1, width, width]).reshape(square);
    let t = if is_transposed { t.transpose() } else { t };
    let factors = -ct::mma(t, products, ct::zeros([1, width, TILE]));
    ct::fold(..blocks, (), |(), i| {
        let at = (batch, row(i), column);
        target.store(at, ct::mma(vectors(i), factors, target.load(at, shape)));
    });
}

/// Queues the factorizations of matrices (batch, m, n): as [`super::qr`].
#[track_caller]
pub fn qr<T: MatrixFloat>(
    stream: &Stream,
    a: DeviceView<T, 3>,
    mut q: DeviceViewMut<T, 3>,
    r: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let [count, m, n] = a.shape();
    let (width, device) = (panel_width::<T>("qr", m)?, stream.device());
    let [rows, columns] = [m, n].map(|extent| extent.div_ceil(TILE));
    let mut packed = device.unspecified::<T, 3>([count, m, n])?;
    let mut t = device.unspecified::<T, 4>([count, n.div_ceil(width), width, width])?;
    let launch = |grid: [usize; 3]| ct::Launch::new(grid).stream(stream);
    launch([columns, rows, count]).run(copy::<T>, (a, &mut packed))?;
    for first in (0..n).step_by(width) {
        let (at, height) = (first as i32, (m - first).next_power_of_two().max(width));
        let hints = panel_hints::<T>(height, width);
        let arguments = (&mut packed, &mut t, at, ct::Constant([height, width]));
        launch([count, 1, 1]).hints(hints).run(factor_panel::<T>, arguments)?;
        if first + width < n {
            // The columns of the vectors are not those of the target.
            let grid = [(n - first - width).div_ceil(TILE), count, 1];
            let kernel = |packed: ArrayMut<T, 3>, t: Array<T, 4>, at: [Scalar<i32>; 2], form: (usize, bool)| {
                apply(*packed, t, packed, at, form);
            };
            launch(grid).run(kernel, (&mut packed, &t, [at, at + width as i32], ct::Constant((width, true))))?;
        }
    }
    launch([columns, columns, count]).run(upper::<T>, (&packed, r))?;
    launch([columns, rows, count]).run(identity::<T>, (q.reborrow(),))?;
    for first in (0..n).step_by(width).rev() {
        let arguments = (&packed, &t, q.reborrow(), [first as i32, 0], ct::Constant((width, false)));
        launch([columns, count, 1]).run(apply::<T>, arguments)?;
    }
    Ok(())
}
