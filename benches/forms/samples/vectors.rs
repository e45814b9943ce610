//! Sum of vectors, and transpose.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, some};

fn sum(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
}

fn sum_gather(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::bid(0) * tile + ct::arange(0..tile);
    c.scatter(at, a.gather(at) + b.gather(at));
}

fn sum_matrix(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>, tile: [usize; 2]) {
    let at = [ct::bid(0), ct::bid(1)];
    c.store(at, a.load(at, tile) + b.load(at, tile));
}

fn sum_matrix_gather(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let i = (ct::bid(0) * rows + ct::arange(0..rows)).unsqueeze(1);
    let j = (ct::bid(1) * columns + ct::arange(0..columns)).unsqueeze(0);
    let at = || (i.broadcast_to([rows, columns]), j.broadcast_to([rows, columns]));
    c.scatter(at(), a.gather(at()) + b.gather(at()));
}

struct Vectors {
    a: DeviceArray<f32, 1>,
    b: DeviceArray<f32, 1>,
    c: DeviceArray<f32, 1>,
}

fn of_vectors([m, n]: [usize; 2], tile: usize) -> Family<Vectors> {
    let matrix = [1, tile];
    let grid = [m, n.div_ceil(tile), 1];
    let blocks = [(m * n).div_ceil(tile), 1, 1];
    Family {
        name: format!("samples, vector sum f32 {}", m * n),
        flops: 0.0,
        bytes: (12 * m * n) as f64,
        tolerance: 0.0,
        arrays: Box::new(move |source| {
            Ok(Vectors {
                a: source.normal([m * n], 1, 1.0)?,
                b: source.normal([m * n], 2, 1.0)?,
                c: source.zeros([m * n])?,
            })
        }),
        result: |arrays| some(&arrays.c),
        cases: vec![
            Case::new("vector", 0, move |call, Vectors { a, b, c }| {
                call.run(blocks, sum, (&*a, &*b, c, Constant(tile)))
            }),
            Case::new("vector, gather", 0, move |call, Vectors { a, b, c }| {
                call.run(blocks, sum_gather, (&*a, &*b, c, Constant(tile)))
            }),
            Case::new("matrix", 0, move |call, Vectors { a, b, c }| {
                let [a, b] = [a.reshape([m, n])?, b.reshape([m, n])?];
                call.run(grid, sum_matrix, (a, b, c.view_mut().reshape([m, n])?, Constant(matrix)))
            }),
            Case::new("matrix, gather", 0, move |call, Vectors { a, b, c }| {
                let [a, b] = [a.reshape([m, n])?, b.reshape([m, n])?];
                call.run(grid, sum_matrix_gather, (a, b, c.view_mut().reshape([m, n])?, Constant(matrix)))
            }),
        ],
    }
}

fn transpose<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store([j, i], x.load([i, j], tile).transpose());
}

fn transpose_array<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, [rows, columns]: [usize; 2]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store([j, i], x.transpose().load([j, i], [columns, rows]));
}

fn transpose_result<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
    let at = [ct::bid(0), ct::bid(1)];
    y.transpose().store(at, x.load(at, tile));
}

fn of_transpose<T: Element>([m, n]: [usize; 2], tile: [usize; 2], other: [usize; 2]) -> Family<[DeviceArray<T, 2>; 2]> {
    let grid = move |[rows, columns]: [usize; 2]| [m.div_ceil(rows), n.div_ceil(columns), 1];
    let [a, b] = tile;
    Family {
        name: format!("samples, transpose {} {m}x{n}", T::NAME),
        flops: 0.0,
        bytes: (2 * m * n * size_of::<T>()) as f64,
        tolerance: 0.0,
        arrays: Box::new(move |source| Ok([source.normal([m, n], 1, 1.0)?, source.zeros([n, m])?])),
        result: |[_, y]| some(y),
        cases: vec![
            Case::new(
                if [a, b] == [128, 128] { "128x128" } else { "32x32" },
                0,
                move |call, [x, y]: &mut [DeviceArray<T, 2>; 2]| {
                    call.run(grid(tile), transpose::<T>, (&*x, y, Constant(tile)))
                },
            ),
            Case::new("array transposed", 0, move |call, [x, y]: &mut [DeviceArray<T, 2>; 2]| {
                call.run(grid(tile), transpose_array::<T>, (&*x, y, Constant(tile)))
            }),
            Case::new("result transposed", 0, move |call, [x, y]: &mut [DeviceArray<T, 2>; 2]| {
                call.run(grid(tile), transpose_result::<T>, (&*x, y, Constant(tile)))
            }),
            Case::new("64x64", 0, move |call, [x, y]: &mut [DeviceArray<T, 2>; 2]| {
                call.run(grid(other), transpose::<T>, (&*x, y, Constant(other)))
            }),
        ],
    }
}

pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let ((vectors, tile), shape) = match size {
        Size::Full => (([32768, 1024], 1024), [8192, 8192]),
        Size::Small => (([6, 64], 32), [128, 256]),
    };
    vec![
        Box::new(of_vectors(vectors, tile)),
        Box::new(of_transpose::<f16>(shape, [128, 128], [64, 64])),
        Box::new(of_transpose::<f32>(shape, [32, 32], [64, 64])),
    ]
}
