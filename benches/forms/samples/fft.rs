//! Fourier transforms by products with the matrices of three factors.

use std::f64::consts::TAU;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::math::{ComplexArray, ComplexArrayMut, Interleaved};
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, Source, some};

/// Matrices of the three factors, and the twiddles between them, each of pairs of numbers.
type Matrices = (Array<f32, 3>, Array<f32, 3>, Array<f32, 3>, Array<f32, 3>, Array<f32, 3>);

/// Real and imaginary part.
type Pair<const R: usize> = (Tile<f32, R>, Tile<f32, R>);

/// Returns both parts of a matrix of pairs.
fn parts(matrix: Array<f32, 3>, [rows, columns]: [usize; 2]) -> Pair<3> {
    let both = matrix.load([0, 0, 0], [rows, columns, 2]);
    let part = |which| both.extract([0, 0, which], [rows, columns, 1]).reshape([1, rows, columns]);
    (part(0), part(1))
}

fn matmul(w: Pair<3>, x: Pair<3>) -> Pair<3> {
    (ct::matmul(w.0, x.0) - ct::matmul(w.1, x.1), ct::matmul(w.1, x.0) + ct::matmul(w.0, x.1))
}

fn twiddle(t: Pair<3>, x: Pair<3>) -> Pair<3> {
    (t.0 * x.0 - t.1 * x.1, t.1 * x.0 + t.0 * x.1)
}

fn by_products(x: Array<f32, 3>, y: ArrayMut<f32, 3>, matrices: Matrices, [a, b, c]: [usize; 3], packing: usize) {
    let row = ct::bid(0);
    let n = a * b * c;
    let packed = [1, 2 * n / packing, packing];
    let both = x.load((row, 0, 0), packed).reshape([1, n, 2]);
    let part = |which| both.extract([0, 0, which], [1, n, 1]);
    let shaped = |x: Pair<3>, shape: [usize; 3]| (x.0.reshape(shape), x.1.reshape(shape));
    let turned = |x: Pair<3>, shape: [usize; 4], order: [usize; 4], next: [usize; 3]| {
        let turn = |part: Tile<f32, 3>| part.reshape(shape).permute(order).reshape(next);
        (turn(x.0), turn(x.1))
    };
    let x = shaped((part(0), part(1)), [1, a, b * c]);
    let x = matmul(parts(matrices.0, [a, a]), x);
    let x = twiddle(parts(matrices.3, [a, b * c]), x);
    let x = turned(x, [1, a, b, c], [0, 2, 3, 1], [1, b, c * a]);
    let x = matmul(parts(matrices.1, [b, b]), x);
    let t = parts(matrices.4, [b, c]);
    let x = twiddle(shaped(t, [1, b * c, 1]), shaped(x, [1, b * c, a]));
    let x = turned(x, [1, b, c, a], [0, 2, 3, 1], [1, c, a * b]);
    let x = matmul(parts(matrices.2, [c, c]), x);
    let x = turned(x, [1, c, a, b], [0, 1, 3, 2], [1, n, 1]);
    y.store((row, 0, 0), ct::cat([x.0, x.1], 2).reshape(packed));
}

fn by_fft(x: ComplexArray<f32, 2>, y: ComplexArrayMut<f32, 2>, tile: [usize; 2]) {
    let at = (ct::bid(0), 0);
    y.store(at, ct::math::fft(x.load(at, tile), 1));
}

struct Arrays {
    x: DeviceArray<f32, 2>,
    y: DeviceArray<f32, 2>,
    matrices: [DeviceArray<f32, 3>; 5],
}

/// Returns the powers of the root of unity of an order, row times column, as pairs.
fn powers(source: Source, [rows, columns]: [usize; 2], order: usize) -> ct::Result<DeviceArray<f32, 3>> {
    source.numbers([rows, columns, 2], |at| {
        let (row, column) = (at / 2 / columns, at / 2 % columns);
        let angle = -TAU * (row * column % order) as f64 / order as f64;
        if at % 2 == 0 { angle.cos() } else { angle.sin() }
    })
}

fn of_rows(m: usize, [a, b, c]: [usize; 3], packing: usize, rows: usize) -> Family<Arrays> {
    let n = a * b * c;
    Family {
        name: format!("samples, fft c64 {m}x{n}"),
        flops: 0.0,
        bytes: (16 * m * n) as f64,
        tolerance: 1e-3,
        arrays: Box::new(move |source| {
            Ok(Arrays {
                x: source.normal([m, 2 * n], 1, 1.0)?,
                y: source.zeros([m, 2 * n])?,
                matrices: [
                    powers(source, [a, a], a)?,
                    powers(source, [b, b], b)?,
                    powers(source, [c, c], c)?,
                    powers(source, [a, b * c], n)?,
                    powers(source, [b, c], b * c)?,
                ],
            })
        }),
        result: |arrays| some(&arrays.y),
        cases: vec![
            Case::new("products", 0, move |call, Arrays { x, y, matrices: [w0, w1, w2, t0, t1] }| {
                let packed = [m, 2 * n / packing, packing];
                let (x, y) = (x.reshape(packed)?, y.view_mut().reshape(packed)?);
                let matrices = (&*w0, &*w1, &*w2, &*t0, &*t1);
                call.run([m, 1, 1], by_products, (x, y, matrices, Constant([a, b, c]), Constant(packing)))
            }),
            Case::new("operation fft", 0, move |call, Arrays { x, y, .. }| {
                let grid = [m.div_ceil(rows), 1, 1];
                call.run(grid, by_fft, (Interleaved(&*x), Interleaved(y), Constant([rows, n])))
            }),
        ],
    }
}

pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    vec![match size {
        Size::Full => Box::new(of_rows(4096, [4, 8, 8], 64, 8)),
        Size::Small => Box::new(of_rows(4, [2, 4, 4], 16, 2)),
    }]
}
