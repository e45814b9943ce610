//! Properties of convolution, pooling and interpolation.

use cutlet::test::{Draw, Function, HostArray, Input, Output, Values};
use cutlet_kernels::images::{Convolution, Window, average_pool, max_pool, resize_bilinear};

use super::{holds, sum};

/// Shape of images: batch, rows, columns, channels.
fn shape(draw: &mut Draw<'_>) -> [usize; 4] {
    let (rows, columns) = (draw.range("height", 3..=9), draw.range("width", 3..=9));
    [draw.range("batch", 1..=2), rows, columns, draw.range("channels", 1..=17)]
}

fn images(shape: [usize; 4]) -> Input<f32, 4> {
    Input::new(shape).values(Values::numbers())
}

#[test]
fn convolutions() {
    let property = Function::new("convolution")
        .shapes(|draw| {
            let (x, outputs) = (shape(draw), draw.range("outputs", 1..=9));
            let w = [draw.range("taps", 1..=3), draw.range("wide", 1..=3), x[3], outputs];
            let form = [draw.range("stride", 1..=2), draw.range("padding", 0..=1)];
            let y = convolution(form).output_shape(x, w);
            (images(x), images(w), Output::<f32, 4>::new(y), cutlet::Constant(form))
        })
        .call(|stream, (x, w, y, form)| convolution(form).forward(stream, x, w, y));
    let property = property.reference(|(x, w, y, [stride, padding])| {
        let ([_, rows, columns, channels], [high, wide, ..]) = (x.shape(), w.shape());
        y.fill(|[b, r, c, o]| {
            sum(high * wide, |tap| {
                let (u, v) = (tap / wide, tap % wide);
                let (row, column) = (r * stride + u, c * stride + v);
                let is_inside =
                    (padding..rows + padding).contains(&row) && (padding..columns + padding).contains(&column);
                if !is_inside {
                    return 0.0;
                }
                sum(channels, |j| x[[b, row - padding, column - padding, j]] * w[[u, v, j, o]])
            })
        });
    });
    holds(property.tolerance(1e-4, 1e-4).linear_in(1).splits_along("outputs"));
}

/// A convolution of a stride and a padding.
fn convolution([stride, padding]: [usize; 2]) -> Convolution {
    Convolution { stride: [stride; 2], padding: [padding; 2], ..Convolution::default() }
}

const WINDOW: Window = Window { size: [3, 2], stride: [2, 1], padding: [1, 0] };

/// The elements of a window.
fn window(x: &HostArray<f32, 4>, [b, r, c, j]: [usize; 4]) -> Vec<f64> {
    let [_, rows, columns, _] = x.shape();
    let places = (0..6).map(|tap| (2 * r + tap / 2, c + tap % 2));
    let inside = places.filter(|&(row, column)| (1..=rows).contains(&row) && column < columns);
    inside.map(|(row, column)| x[[b, row - 1, column, j]]).collect()
}

#[test]
fn pools() {
    let shapes = |draw: &mut Draw<'_>| {
        let shape = shape(draw);
        (images(shape), Output::<f32, 4>::new(WINDOW.output_shape(shape)))
    };
    let property = Function::new("max_pool").shapes(shapes).call(|stream, (x, y)| max_pool(stream, WINDOW, x, y));
    holds(property.reference(|(x, y)| {
        y.fill(|at| window(x, at).into_iter().fold(f64::NEG_INFINITY, f64::max));
    }));
    let property =
        Function::new("average_pool").shapes(shapes).call(|stream, (x, y)| average_pool(stream, WINDOW, x, y));
    let property = property.reference(|(x, y)| {
        y.fill(|at| {
            let elements = window(x, at);
            elements.iter().sum::<f64>() / elements.len() as f64
        });
    });
    holds(property.linear_in(0));
}

#[test]
fn interpolations() {
    let property = Function::new("resize_bilinear")
        .shapes(|draw| {
            let x = shape(draw);
            let y = [x[0], draw.range("rows", 1..=12), draw.range("columns", 1..=12), x[3]];
            (images(x), Output::<f32, 4>::new(y))
        })
        .call(|stream, (x, y)| resize_bilinear(stream, x, y));
    let property = property.reference(|(x, y)| {
        let ([_, rows, columns, _], [_, to_rows, to_columns, _]) = (x.shape(), y.shape());
        // The two neighbours of a place, and the weight of the second one.
        let neighbours = |at: usize, from: usize, to: usize| {
            let place = ((at as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
            let first = (place.floor() as usize).min(from - 1);
            (first, (first + 1).min(from - 1), place - first as f64)
        };
        y.fill(|[b, r, c, j]| {
            let (r0, r1, down) = neighbours(r, rows, to_rows);
            let (c0, c1, right) = neighbours(c, columns, to_columns);
            let along = |row: usize| x[[b, row, c0, j]] * (1.0 - right) + x[[b, row, c1, j]] * right;
            along(r0) * (1.0 - down) + along(r1) * down
        });
    });
    holds(property.tolerance(1e-4, 1e-4).linear_in(0));
}
