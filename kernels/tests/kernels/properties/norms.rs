//! Properties of softmax, norms, gates and the rotary embedding.

use cutlet::element::{bf16, f16};
use cutlet::test::{Draw, Function, HostArray, Input, Output, TestElement, Values};
use cutlet_kernels::Pairs;
use cutlet_kernels::norms;

use super::{holds, row, sum};

/// Rows and columns of a matrix.
fn rows(draw: &mut Draw<'_>) -> [usize; 2] {
    [draw.extent("rows", 3), draw.nonzero_extent("columns", 24)]
}

fn numbers<const R: usize>(shape: [usize; R]) -> Input<f32, R> {
    Input::new(shape).values(Values::numbers())
}

/// The largest element of a row, and the sum of its exponentials.
fn exponentials(row: &[f64]) -> (f64, f64) {
    // NaN is an element of both.
    let max = row.iter().fold(f64::NEG_INFINITY, |max, x| if x.is_nan() { *x } else { max.max(*x) });
    (max, row.iter().map(|x| (x - max).exp()).sum())
}

/// Softmax of the rows of `x`.
pub fn softmax_of<T: TestElement<Wide = f64>>(x: &HostArray<T, 2>, y: &mut HostArray<T, 2>) {
    let of_rows: Vec<_> = (0..x.shape()[0]).map(|i| exponentials(row(x, i))).collect();
    y.fill(|[i, j]| (x[[i, j]] - of_rows[i].0).exp() / of_rows[i].1);
}

#[test]
fn softmax() {
    let property = Function::new("softmax")
        .shapes(|draw| {
            let shape = rows(draw);
            (Input::<f32, 2>::new(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, y)| norms::softmax(stream, x, y));
    holds(property.reference(|(x, y)| softmax_of(x, y)).splits_along("rows"));
    let property = Function::new("log_softmax")
        .shapes(|draw| {
            let shape = rows(draw);
            (Input::<bf16, 2>::new(shape), Output::<bf16, 2>::new(shape))
        })
        .call(|stream, (x, y)| norms::log_softmax(stream, x, y));
    holds(property.reference(|(x, y)| {
        let of_rows: Vec<_> = (0..x.shape()[0]).map(|i| exponentials(row(x, i))).collect();
        y.fill(|[i, j]| x[[i, j]] - of_rows[i].0 - of_rows[i].1.ln());
    }));
}

#[test]
fn gradients_of_softmax() {
    let property = Function::new("softmax_backward")
        .shapes(|draw| {
            let shape = rows(draw);
            (numbers(shape).values(Values::between(0.0, 1.0)), numbers(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (y, dy, dx)| norms::softmax_backward(stream, [y, dy], dx));
    let property = property.reference(|(y, dy, dx)| {
        let along = |i| sum(y.shape()[1], |j| y[[i, j]] * dy[[i, j]]);
        dx.fill(|[i, j]| y[[i, j]] * (dy[[i, j]] - along(i)));
    });
    holds(property.linear_in(1));
    let property = Function::new("log_softmax_backward")
        .shapes(|draw| {
            let shape = rows(draw);
            (numbers(shape).values(Values::between(-6.0, 0.0)), numbers(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (y, dy, dx)| norms::log_softmax_backward(stream, [y, dy], dx));
    let property = property.reference(|(y, dy, dx)| {
        dx.fill(|[i, j]| dy[[i, j]] - y[[i, j]].exp() * sum(y.shape()[1], |k| dy[[i, k]]));
    });
    holds(property.tolerance(1e-4, 1e-4));
}

/// Subtrahend of a row, and the reciprocal of its deviation.
fn moments(row: &[f64], is_centered: bool, epsilon: f32) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = if is_centered { row.iter().sum::<f64>() / n } else { 0.0 };
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, (variance + f64::from(epsilon)).sqrt().recip())
}

const EPSILON: f32 = 1e-2;

#[test]
fn norms_of_rows() {
    let property = Function::new("rms_norm")
        .shapes(|draw| {
            let shape = rows(draw);
            (Input::<f16, 2>::new(shape), Input::<f16, 1>::new([shape[1]]), Output::<f16, 2>::new(shape))
        })
        .call(|stream, (x, weight, y)| norms::rms_norm(stream, x, weight, y, EPSILON));
    let property = property.reference(|(x, weight, y)| {
        let scales: Vec<_> = (0..x.shape()[0]).map(|i| moments(row(x, i), false, EPSILON).1).collect();
        y.fill(|[i, j]| x[[i, j]] * scales[i] * weight[[j]]);
    });
    holds(property.splits_along("rows"));
    let property = Function::new("layer_norm")
        .shapes(|draw| {
            let shape = rows(draw);
            (numbers(shape), Input::<f32, 1>::new([shape[1]]), numbers([shape[1]]), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, weight, bias, y)| norms::layer_norm(stream, x, [weight, bias], y, EPSILON));
    let property = property.reference(|(x, weight, bias, y)| {
        let of_rows: Vec<_> = (0..x.shape()[0]).map(|i| moments(row(x, i), true, EPSILON)).collect();
        y.fill(|[i, j]| (x[[i, j]] - of_rows[i].0) * of_rows[i].1 * weight[[j]] + bias[[j]]);
    });
    holds(property.tolerance(1e-4, 1e-4).splits_along("rows"));
}

/// Gradients of a norm: of the operand, of the weight, and of the bias.
fn gradients(
    (x, dy, weight): (&HostArray<f32, 2>, &HostArray<f32, 2>, &HostArray<f32, 1>),
    dx: &mut HostArray<f32, 2>,
    dweight: &mut HostArray<f32, 1>,
    is_centered: bool,
) {
    let [m, n] = x.shape();
    let of_rows: Vec<_> = (0..m).map(|i| moments(row(x, i), is_centered, EPSILON)).collect();
    let normal = |i: usize, j: usize| (x[[i, j]] - of_rows[i].0) * of_rows[i].1;
    let weighted = |i: usize, j: usize| dy[[i, j]] * weight[[j]];
    let mean = |term: &dyn Fn(usize) -> f64| sum(n, term) / n as f64;
    dx.fill(|[i, j]| {
        let level = if is_centered { mean(&|k| weighted(i, k)) } else { 0.0 };
        (weighted(i, j) - level - normal(i, j) * mean(&|k| weighted(i, k) * normal(i, k))) * of_rows[i].1
    });
    dweight.fill(|[j]| sum(m, |i| dy[[i, j]] * normal(i, j)));
}

#[test]
fn gradients_of_norms() {
    let property = Function::new("rms_norm_backward")
        .shapes(|draw| {
            let shape = rows(draw);
            let results = (Output::<f32, 2>::new(shape), Output::<f32, 1>::new([shape[1]]));
            (numbers(shape), numbers(shape), numbers([shape[1]]), results)
        })
        .call(|stream, (x, dy, weight, results)| {
            norms::rms_norm_backward(stream, [x, dy], None, weight, results, EPSILON)
        });
    let property = property.reference(|(x, dy, weight, (dx, dweight))| gradients((x, dy, weight), dx, dweight, false));
    holds(property.tolerance(1e-4, 1e-3).linear_in(1));
    let property = Function::new("layer_norm_backward")
        .shapes(|draw| {
            let (shape, vector) = (rows(draw), Output::<f32, 1>::new);
            let results = (Output::<f32, 2>::new(shape), vector([shape[1]]), vector([shape[1]]));
            (numbers(shape), numbers(shape), numbers([shape[1]]), results)
        })
        .call(|stream, (x, dy, weight, (dx, dweight, dbias))| {
            norms::layer_norm_backward(stream, [x, dy], None, weight, (dx, [dweight, dbias]), EPSILON)
        });
    let property = property.reference(|(x, dy, weight, (dx, dweight, dbias))| {
        gradients((x, dy, weight), dx, dweight, true);
        dbias.fill(|[j]| sum(x.shape()[0], |i| dy[[i, j]]));
    });
    holds(property.tolerance(1e-4, 1e-3));
}

#[test]
fn norms_of_groups() {
    let property = Function::new("group_norm")
        .shapes(|draw| {
            let (groups, of_group) = (draw.range("groups", 1..=3), draw.range("channels", 1..=4));
            let shape = [draw.extent("images", 2), groups * of_group, draw.nonzero_extent("positions", 16)];
            let x = numbers(shape).contiguous();
            (x, numbers([shape[1]]), numbers([shape[1]]), Output::<f32, 3>::new(shape).contiguous(), groups as u32)
        })
        .call(|stream, (x, weight, bias, y, groups)| {
            norms::group_norm(stream, x, groups as usize, [weight, bias], y, EPSILON)
        });
    let property = property.reference(|(x, weight, bias, y, groups)| {
        let [_, channels, positions] = x.shape();
        let of_group = channels / groups as usize;
        let group = |i: usize, c: usize| {
            let first = (i * channels + c / of_group * of_group) * positions;
            moments(&x.values()[first..][..of_group * positions], true, EPSILON)
        };
        y.fill(|[i, c, p]| {
            let (mean, scale) = group(i, c);
            (x[[i, c, p]] - mean) * scale * weight[[c]] + bias[[c]]
        });
    });
    holds(property.tolerance(1e-4, 1e-4));
}

#[test]
fn gates() {
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let property = Function::new("gated")
        .shapes(|draw| {
            let shape = [draw.extent("batch", 2), draw.extent("rows", 4), draw.extent("columns", 16)];
            (numbers(shape), Input::<f32, 3>::new(shape), Output::<f32, 3>::new(shape))
        })
        .call(|stream, (a, b, y)| norms::gated(stream, [a, b], y, norms::Gate::Silu));
    holds(property.reference(move |(a, b, y)| y.fill(|at| silu(a[at]) * b[at])).splits_along("rows").linear_in(1));
    let property = Function::new("gated_backward")
        .shapes(|draw| {
            let shape = [draw.extent("rows", 4), draw.extent("columns", 16)];
            let results = (Output::<f32, 2>::new(shape), Output::<f32, 2>::new(shape));
            (numbers(shape), numbers(shape), numbers(shape), results)
        })
        .call(|stream, (a, b, dy, (da, db))| norms::gated_backward(stream, [a, b, dy], [da, db], norms::Gate::Sigmoid));
    let property = property.reference(|(a, b, dy, (da, db))| {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        da.fill(|at| dy[at] * b[at] * sigmoid(a[at]) * (1.0 - sigmoid(a[at])));
        db.fill(|at| dy[at] * sigmoid(a[at]));
    });
    holds(property.linear_in(2));
}

#[test]
fn rotations() {
    for pairs in [Pairs::Halves, Pairs::Adjacent] {
        let places = move |j: usize, half: usize| match pairs {
            Pairs::Halves => (j % half, j % half + half, j < half, j % half),
            Pairs::Adjacent => (j / 2 * 2, j / 2 * 2 + 1, j.is_multiple_of(2), j / 2),
        };
        let property = Function::new("rotary")
            .shapes(|draw| {
                let (tokens, half) = (draw.extent("tokens", 8), draw.nonzero_extent("pairs", 8));
                let shape = [draw.range("batch", 1..=2), draw.extent("heads", 2), tokens, 2 * half];
                let angles = [tokens, half];
                (numbers(shape), numbers(angles), numbers(angles), Output::<f32, 4>::new(shape))
            })
            .call(move |stream, (x, cos, sin, y)| norms::rotary(stream, x, [cos, sin], y, pairs));
        let property = property.reference(move |(x, cos, sin, y)| {
            let half = x.shape()[3] / 2;
            y.fill(|[b, h, t, j]| {
                let (first, second, is_first, angle) = places(j, half);
                let (first, second) = (x[[b, h, t, first]], x[[b, h, t, second]]);
                let (cos, sin) = (cos[[t, angle]], sin[[t, angle]]);
                if is_first { first * cos - second * sin } else { second * cos + first * sin }
            });
        });
        holds(property.linear_in(0).splits_along("tokens"));
    }
}

#[test]
fn projections_onto_the_simplex() {
    let property = Function::new("sparsemax")
        .shapes(|draw| {
            let shape = rows(draw);
            (numbers(shape), Output::<f32, 2>::new(shape))
        })
        .call(|stream, (x, y)| norms::sparsemax(stream, x, y));
    let property = property.reference(|(x, y)| {
        let level = |i: usize| {
            let mut sorted = row(x, i).to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let levels = (1..=sorted.len()).map(|k| (sorted[..k].iter().sum::<f64>() - 1.0) / k as f64);
            levels.fold(f64::NEG_INFINITY, f64::max)
        };
        y.fill(|[i, j]| (x[[i, j]] - level(i)).max(0.0));
    });
    holds(property.splits_along("rows"));
}
