//! Properties of the kernels of `examples/`: no case fails.

#[path = "../../examples/argmax.rs"]
#[allow(dead_code)]
mod argmax;
#[path = "../../examples/attention.rs"]
#[allow(dead_code)]
mod attention;
#[path = "../../examples/batched_matmul.rs"]
#[allow(dead_code)]
mod batched_matmul;
#[path = "../../examples/dropout.rs"]
#[allow(dead_code)]
mod dropout;
#[path = "../../examples/embedding.rs"]
#[allow(dead_code)]
mod embedding;
#[path = "../../examples/histogram.rs"]
#[allow(dead_code)]
mod histogram;
#[path = "../../examples/layernorm.rs"]
#[allow(dead_code)]
mod layernorm;
#[path = "../../examples/matmul.rs"]
#[allow(dead_code)]
mod matmul;
#[path = "../../examples/padding.rs"]
#[allow(dead_code)]
mod padding;
#[path = "../../examples/prefix_sum.rs"]
#[allow(dead_code)]
mod prefix_sum;
#[path = "../../examples/saxpy.rs"]
#[allow(dead_code)]
mod saxpy;
#[path = "../../examples/softmax.rs"]
#[allow(dead_code)]
mod softmax;
#[path = "../../examples/stencil.rs"]
#[allow(dead_code)]
mod stencil;
#[path = "../../examples/transpose.rs"]
#[allow(dead_code)]
mod transpose;
#[path = "../../examples/vadd.rs"]
#[allow(dead_code)]
mod vadd;
#[path = "../../examples/welford.rs"]
#[allow(dead_code)]
mod welford;

use std::time::Instant;

use cutlet::prelude::*;
use cutlet::test::{HostArray, InOut, Input, Kernel, Output, Runner, TestArg, Values};

/// Checks a property, and prints its time.
fn holds<A: TestArg>(name: &str, property: Runner<'_, A>) {
    let start = Instant::now();
    let summary = property.without_corpus().check().unwrap_or_else(|finding| panic!("{finding}"));
    println!("{name}: {summary:?}, {:.2} s", start.elapsed().as_secs_f64());
    assert!(summary.cases > 0);
}

#[test]
fn vector_sum() {
    let property = Kernel::new(vadd::vadd).shapes(|draw| {
        let tile = draw.pick("tile", [16, 64]);
        let n = draw.extent("n", tile);
        (n.div_ceil(tile), (Input::new([n]), Input::new([n]), Output::new([n]), Constant(tile)))
    });
    holds("vadd", property.reference(|(a, b, c, _)| c.fill(|i| a[i] + b[i])));
}

#[test]
fn multiple_added_in_place() {
    let property = Kernel::new(saxpy::saxpy).shapes(|draw| {
        let (n, alpha) = (draw.extent("n", 16), draw.pick("alpha", [1.0f32, -2.5, 0.0]));
        (n.div_ceil(16), (alpha, Input::new([n]), InOut::new([n]), Constant(16)))
    });
    holds(
        "saxpy",
        property.reference(|(alpha, x, y, _)| {
            let sums: Vec<f64> = x.values().iter().zip(y.values()).map(|(x, y)| f64::from(alpha) * x + y).collect();
            y.fill(|[i]| sums[i]);
        }),
    );
}

#[test]
fn transposed_matrix() {
    let property = Kernel::new(transpose::transpose).shapes(|draw| {
        let ([m, n], tile) = ([draw.extent("m", 8), draw.extent("n", 16)], draw.pick("tile", [[8, 16], [16, 8]]));
        ([m.div_ceil(tile[0]), n.div_ceil(tile[1])], (Input::new([m, n]), Output::new([n, m]), Constant(tile)))
    });
    holds("transpose", property.reference(|(x, y, _)| y.fill(|[i, j]| x[[j, i]])));
}

#[test]
fn five_points() {
    let property = Kernel::new(stencil::stencil).shapes(|draw| {
        let ([m, n], tile) = ([draw.extent("m", 8), draw.extent("n", 16)], [8, 16]);
        let x = Input::new([m, n]).values(Values::numbers());
        ([n.div_ceil(tile[1]), m.div_ceil(tile[0])], (x, Output::new([m, n]), Constant(tile)))
    });
    let reference = |(x, y, _): (&HostArray<f32, 2>, &mut HostArray<f32, 2>, _)| {
        let [m, n] = x.shape();
        let at = |i: Option<usize>, j: Option<usize>| match (i, j) {
            (Some(i), Some(j)) if i < m && j < n => x[[i, j]],
            _ => 0.0,
        };
        y.fill(|[i, j]| {
            let vertical = at(i.checked_sub(1), Some(j)) + at(Some(i + 1), Some(j));
            let horizontal = at(Some(i), j.checked_sub(1)) + at(Some(i), Some(j + 1));
            vertical + horizontal - 4.0 * x[[i, j]]
        });
    };
    holds("stencil", property.reference(reference).linear_in(0));
}

/// Softmax of the rows of `x`.
fn softmax_of(x: &HostArray<f32, 2>, y: &mut HostArray<f32, 2>) {
    let [_, columns] = x.shape();
    let max = |i| (0..columns).map(|j| x[[i, j]]).fold(f64::NEG_INFINITY, f64::max);
    let sum = |i| (0..columns).map(|j| (x[[i, j]] - max(i)).exp()).sum::<f64>();
    y.fill(|[i, j]| (x[[i, j]] - max(i)).exp() / sum(i));
}

#[test]
fn softmax_of_rows() {
    let property = Kernel::new(softmax::softmax).shapes(|draw| {
        let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
        (shape[0], (Input::new(shape), Output::new(shape), Constant(64)))
    });
    holds("softmax", property.reference(|(x, y, _)| softmax_of(x, y)).splits_along("rows"));
}

#[test]
fn softmax_of_padded_and_exact_rows() {
    let property = Kernel::new(padding::softmax_padded).shapes(|draw| {
        let shape = [draw.extent("rows", 4), draw.nonzero_extent("columns", 12)];
        let x = Input::new(shape).values(Values::between(-80.0, 80.0));
        (shape[0].div_ceil(4), (x, Output::new(shape), Constant([4, shape[1]])))
    });
    holds("padding, padded", property.reference(|(x, y, _)| softmax_of(x, y)));
    let property = Kernel::new(padding::softmax_exact).shapes(|draw| {
        let shape = [draw.extent("rows", 4), draw.pick("columns", [24, 16, 56])];
        (shape[0].div_ceil(4), (Input::new(shape), Output::new(shape), Constant([4, shape[1]])))
    });
    let property = property.reference(|(x, y, _)| softmax_of(x, y)).splits_along("rows");
    // Each extent of rows is another kernel.
    holds("padding, exact", property.cases(24));
}

#[test]
fn layer_norm() {
    let property = Kernel::new(layernorm::layernorm).shapes(|draw| {
        let [m, n] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
        let (weight, bias) = (Input::new([n]), Input::new([n]));
        (m, (Input::new([m, n]), weight, bias, Output::new([m, n]), layernorm::EPSILON, Constant(n)))
    });
    let property = property.reference(|(x, weight, bias, y, epsilon, _)| {
        let [_, n] = x.shape();
        let mean = |i| (0..n).map(|j| x[[i, j]]).sum::<f64>() / n as f64;
        let variance = |i| (0..n).map(|j| (x[[i, j]] - mean(i)).powi(2)).sum::<f64>() / n as f64;
        y.fill(|[i, j]| (x[[i, j]] - mean(i)) / (variance(i) + f64::from(epsilon)).sqrt() * weight[[j]] + bias[[j]]);
    });
    // A variance near epsilon magnifies the rounding of the mean.
    holds("layernorm", property.tolerance(1e-4, 1e-3));
}

#[test]
fn largest_of_rows() {
    let property = Kernel::new(argmax::argmax).shapes(|draw| {
        let [m, n] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
        let x = Input::new([m, n]).values(Values::numbers());
        (m, (x, Output::new([m, 1]), Output::new([m, 1]), Constant(64)))
    });
    let reference = |(x, at, value, _): (&HostArray<f32, 2>, &mut HostArray<i32, 2>, &mut HostArray<f32, 2>, _)| {
        let first = |i: usize| (0..x.shape()[1]).fold(0, |best, j| if x[[i, j]] > x[[i, best]] { j } else { best });
        at.fill(|[i, _]| first(i) as i64);
        value.fill(|[i, _]| x[[i, first(i)]]);
    };
    holds("argmax", property.reference(reference));
}

#[test]
fn moments_of_rows() {
    let moments = |(x, mean, variance): (&HostArray<f32, 2>, &mut HostArray<f32, 2>, &mut HostArray<f32, 2>)| {
        let n = x.shape()[1];
        let of_row = |i| (0..n).map(|j| x[[i, j]]).sum::<f64>() / n as f64;
        mean.fill(|[i, _]| of_row(i));
        variance.fill(|[i, _]| (0..n).map(|j| (x[[i, j]] - of_row(i)).powi(2)).sum::<f64>() / n as f64);
    };
    let shapes = |draw: &mut cutlet::test::Draw<'_>| {
        let [m, n] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
        let x = Input::new([m, n]).values(Values::numbers());
        (m, (x, Output::new([m, 1]), Output::new([m, 1]), Constant(64)))
    };
    let property = Kernel::new(welford::moments).shapes(shapes);
    holds("welford, two passes", property.reference(move |(x, mean, variance, _)| moments((x, mean, variance))));
    let property = Kernel::new(welford::welford).shapes(shapes);
    holds("welford", property.reference(move |(x, mean, variance, _)| moments((x, mean, variance))));
}

#[test]
fn products() {
    let form = matmul::Form { tile: [16, 16, 16], persistent: false, fast_sums: false };
    let property = Kernel::new(matmul::matmul::<f16, f16, f32, f32>).shapes(move |draw| {
        let [m, n, k] = [draw.extent("m", 16), draw.extent("n", 16), draw.extent("k", 16)];
        let persistent = draw.pick("persistent", [false, true]);
        let tiles = m.div_ceil(16) * n.div_ceil(16);
        let (a, b) = (Input::new([m, k]), Input::new([k, n]));
        let (a, b) = (a.values(Values::numbers()), b.values(Values::numbers()));
        let form = matmul::Form { persistent, ..form };
        let blocks = if persistent { tiles.min(2) } else { tiles };
        (blocks, (a, b, Output::new([m, n]), Constant(form)))
    });
    let property =
        property.reference(|(a, b, c, _)| c.fill(|[i, j]| (0..a.shape()[1]).map(|k| a[[i, k]] * b[[k, j]]).sum()));
    holds("matmul", property);
}

#[test]
fn batched_products() {
    let property = Kernel::new(batched_matmul::batched_matmul::<f16, f16>).shapes(|draw| {
        let [m, n, k] = [draw.extent("m", 16), draw.extent("n", 16), draw.extent("k", 16)];
        let batch = draw.range("batch", 0..=3);
        let (a, b) = (Input::new([batch, m, k]), Input::new([batch, k, n]));
        let (a, b) = (a.values(Values::numbers()), b.values(Values::numbers()));
        let grid = [m.div_ceil(16), n.div_ceil(16), batch];
        (grid, (a, b, Output::new([batch, m, n]), Constant([16, 16, 16])))
    });
    let property = property.reference(|(a, b, c, _)| {
        c.fill(|[l, i, j]| (0..a.shape()[2]).map(|k| a[[l, i, k]] * b[[l, k, j]]).sum());
    });
    holds("batched_matmul", property.splits_along("batch").cases(32));
}

#[test]
fn rows_of_a_table() {
    let property = Kernel::new(embedding::embedding).shapes(|draw| {
        let (ids, columns) = (draw.extent("ids", 4), draw.extent("columns", 16));
        let numbers = Input::new([ids]).values(Values::between(0.0, 6.0));
        let grid = [ids, columns.div_ceil(16)];
        (grid, (Input::new([7, columns]), numbers, Output::new([ids, columns]), Constant(16)))
    });
    let property = property.reference(|(table, ids, out, _)| out.fill(|[i, j]| table[[ids[[i]] as usize, j]]));
    holds("embedding", property.splits_along("ids"));
}

#[test]
fn counts_of_bytes() {
    let property = Kernel::new(histogram::histogram).shapes(|draw| {
        let (n, blocks) = (draw.extent("n", 32), draw.pick("blocks", [1, 2, 3]));
        (blocks, (Input::new([n]).values(Values::between(0.0, 255.0)), InOut::new([256]), Constant(32)))
    });
    let property = property.reference(|(x, bins, _)| x.values().iter().for_each(|&x| bins[[x as usize]] += 1));
    holds("histogram", property.independent_of("blocks"));
}

#[test]
fn dropped_elements() {
    let property = Kernel::new(dropout::dropout).shapes(|draw| {
        let (n, keep) = (draw.extent("n", 16), draw.pick("keep", [1.0f32, 0.5]));
        let mask = (keep, draw.range("seed", 0..=9) as u64, 5u64);
        (n.div_ceil(16), (Input::new([n]), Output::new([n]), mask, Constant(16)))
    });
    holds("dropout", property.linear_in(0));
}

#[test]
fn prefix_sums() {
    let property = Kernel::new(prefix_sum::prefix_sum::<i32>).shapes(|draw| {
        let n = draw.extent("n", 16);
        let blocks = n.div_ceil(16);
        let zeros = Values::between(0.0, 0.0);
        let next = InOut::new([1]).values(zeros).unchecked();
        let tiles = InOut::new([blocks]).values(zeros).unchecked();
        (blocks, (Input::new([n]), Output::new([n]), next, tiles, Constant(16)))
    });
    holds("prefix_sum", property.reference(|(x, y, ..)| y.fill(|[i]| x.values()[..=i].iter().sum())));
}

#[test]
fn attention_of_queries() {
    let property = Kernel::new(attention::attention::<f16>).shapes(|draw| {
        let [heads, queries, keys] = [2, draw.extent("queries", 16), draw.nonzero_extent("keys", 16)];
        let causal = draw.pick("causal", [false, true]);
        draw.assume(!causal || queries <= keys);
        let array = |n: usize| Input::new([1, heads, n, 16]).values(Values::between(-1.0, 1.0));
        let form = attention::Form { tile: [16, 16, 16], group: 1, causal };
        let outputs = (Output::new([1, heads, queries, 16]), Some(Output::new([1, heads, queries])));
        let grid = [queries.div_ceil(16), heads, 1];
        (grid, ((array(queries), array(keys), array(keys)), outputs, 0.25 * std::f32::consts::LOG2_E, Constant(form)))
    });
    let property = property.reference(|((q, k, v), (out, logs), scale, form)| {
        let [_, _, keys, d] = k.shape();
        let weight = |h: usize, i: usize, j: usize| {
            let score: f64 = (0..d).map(|x| q[[0, h, i, x]] * k[[0, h, j, x]]).sum();
            if form.causal && j > i { 0.0 } else { (score * f64::from(scale)).exp2() }
        };
        let sum = |h, i| (0..keys).map(|j| weight(h, i, j)).sum::<f64>();
        out.fill(|[_, h, i, x]| (0..keys).map(|j| weight(h, i, j) * v[[0, h, j, x]]).sum::<f64>() / sum(h, i));
        if let Some(logs) = logs {
            logs.fill(|[_, h, i]| sum(h, i).log2());
        }
    });
    holds("attention", property.tolerance(2e-3, 2e-3).cases(16));
}
