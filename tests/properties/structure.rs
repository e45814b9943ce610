//! Mistakes of structure: axes, strides, carried values, tiles; and laws in place of a reference.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{Input, Kernel, Output, Values};

use crate::Outcome;

/// The sum is that of the other axis of a square tile.
pub fn wrong_axis(fault: bool) -> Outcome {
    fn totals(x: Array<f32, 2>, y: ArrayMut<f32, 1>, fault: bool) {
        let x = x.load((ct::bid(0), 0), [32, 32]);
        let sums = if fault { x.sum(0).squeeze(0) } else { x.sum(1).squeeze(1) };
        y.store(ct::bid(0), sums);
    }
    Kernel::new(totals)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 32), draw.extent("columns", 10)];
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows.div_ceil(32), (x, Output::new([rows]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i]| (0..x.shape()[1]).map(|j| x[[i, j]]).sum()))
        .without_corpus()
        .check()
}

/// A transposed tile is stored at the position of the original.
pub fn transposed_store(fault: bool) -> Outcome {
    fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let x = x.load((i, j), [8, 8]).transpose();
        let options = ct::StoreOptions::new().clipped();
        if fault {
            y.store_with((i, j), x, options)
        } else {
            y.store_with((j, i), x, options)
        };
    }
    Kernel::new(transpose)
        .shapes(|draw| {
            let (m, n) = (draw.extent("m", 8), draw.extent("n", 8));
            ([m.div_ceil(8), n.div_ceil(8)], (Input::new([m, n]), Output::new([n, m]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, j]| x[[j, i]]))
        .without_corpus()
        .check()
}

/// Rows of a flat array have the stride of columns.
pub fn wrong_stride(fault: bool) -> Outcome {
    fn row_sums(x: Array<i32, 1>, y: ArrayMut<i32, 1>, m: Scalar<i32>, n: Scalar<i32>, fault: bool) {
        let (i, j) = (ct::bid(0), ct::arange(0..64));
        let at = if fault { i * m + j } else { i * n + j };
        let x = j.lt(n).select(x.gather(at), 0);
        y.store_scalar(i, x.sum(0).item());
    }
    Kernel::new(row_sums)
        .shapes(|draw| {
            let (m, n) = (draw.extent("m", 4), draw.extent("n", 16));
            (m, (Input::new([m * n]), Output::new([m]), m as i32, n as i32, Constant(fault)))
        })
        .reference(|(x, y, _, n, _)| {
            let n = n as usize;
            y.fill(|[i]| (0..n).map(|j| x[[i * n + j]]).sum());
        })
        .without_corpus()
        .check()
}

/// An online softmax does not rescale the sum to a new maximum.
pub fn missing_rescale(fault: bool) -> Outcome {
    fn log_sum_exp(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let start = (ct::full([1, 1], f32::NEG_INFINITY), ct::zeros([1, 1]));
        let padding = || ct::LoadOptions::new().padding(Padding::NegInf);
        let (max, sum) = ct::fold(..x.num_tiles(1, [1, 16]), start, |(max, sum), k| {
            let x = x.load_with((ct::bid(0), k), [1, 16], padding());
            let new = max.max(x.reduce_max(1));
            let before = if fault { sum } else { sum * (max - new).exp() };
            (new, before + (x - new).exp().sum(1))
        });
        y.store((ct::bid(0), 0), max + sum.log());
    }
    Kernel::new(log_sum_exp)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows, (x, Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]].exp()).sum::<f64>().ln()))
        .without_corpus()
        .check()
}

/// A scan over chunks forgets the sum of the chunks before.
pub fn lost_carry(fault: bool) -> Outcome {
    fn scan(x: Array<i32, 2>, y: ArrayMut<i32, 2>, fault: bool) {
        let i = ct::bid(0);
        ct::fold(..x.num_tiles(1, [1, 16]), ct::zeros([1, 1]), |carry, k| {
            let x = x.load((i, k), [1, 16]);
            y.store((i, k), x.cumsum(1) + carry);
            if fault { x.sum(1) } else { carry + x.sum(1) }
        });
    }
    Kernel::new(scan)
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.extent("columns", 16)];
            (shape[0], (Input::new(shape), Output::new(shape), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, j]| (0..=j).map(|k| x[[i, k]]).sum()))
        .without_corpus()
        .check()
}

/// The index of a maximum counts from the beginning of its chunk.
pub fn offset_of_argmax(fault: bool) -> Outcome {
    argmax(fault, false)
}

/// The last of equal elements wins.
pub fn tie_of_argmax(fault: bool) -> Outcome {
    argmax(false, fault)
}

fn argmax(loses_offset: bool, prefers_last: bool) -> Outcome {
    fn argmax(x: Array<f32, 2>, y: ArrayMut<i32, 2>, loses_offset: bool, prefers_last: bool) {
        let padding = || ct::LoadOptions::new().padding(Padding::NegInf);
        let start = (ct::full([1, 1], f32::NEG_INFINITY), ct::full([1, 1], 0));
        let (_, at) = ct::fold(..x.num_tiles(1, [1, 16]), start, |(max, at), k| {
            let (index, value) = x.load_with((ct::bid(0), k), [1, 16], padding()).argmax_with_value(1);
            let index = if loses_offset { index } else { index + k * 16 };
            let better = if prefers_last { value.ge(max) } else { value.gt(max) };
            (better.select(value, max), better.select(index, at))
        });
        y.store((ct::bid(0), 0), at);
    }
    Kernel::new(argmax)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows, (x, Output::new([rows, 1]), Constant(loses_offset), Constant(prefers_last)))
        })
        .reference(|(x, y, _, _)| {
            let first = |i: usize| (0..x.shape()[1]).fold(0, |best, j| if x[[i, j]] > x[[i, best]] { j } else { best });
            y.fill(|[i, _]| first(i) as i64);
        })
        .without_corpus()
        .check()
}

/// A bias of columns is added to rows.
pub fn axis_of_bias(fault: bool) -> Outcome {
    fn add_bias(x: Array<f32, 2>, bias: Array<f32, 1>, y: ArrayMut<f32, 2>, fault: bool) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let bias = bias.load(j, [8]);
        let bias = if fault { bias.unsqueeze(1) } else { bias.unsqueeze(0) };
        y.store((i, j), x.load((i, j), [8, 8]) + bias);
    }
    Kernel::new(add_bias)
        .shapes(|draw| {
            let (m, n) = (draw.extent("m", 8), draw.extent("n", 8));
            let grid = [m.div_ceil(8), n.div_ceil(8)];
            (grid, (Input::new([m, n]), Input::new([n]), Output::new([m, n]), Constant(fault)))
        })
        .reference(|(x, bias, y, _)| y.fill(|[i, j]| x[[i, j]] + bias[[j]]))
        .without_corpus()
        .check()
}

/// The loop of a product runs over the tiles of the wrong axis.
pub fn extent_of_product(fault: bool) -> Outcome {
    fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, fault: bool) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let steps = a.num_tiles(usize::from(!fault), [16, 16]);
        let clipped = || ct::LoadOptions::new().clipped();
        let acc = ct::fold(..steps, ct::zeros::<f32, 2>([16, 16]), |acc, k| {
            ct::mma(a.load_with((i, k), [16, 16], clipped()), b.load_with((k, j), [16, 16], clipped()), acc)
        });
        c.store((i, j), acc);
    }
    Kernel::new(matmul)
        .shapes(|draw| {
            let [m, n, k] = [draw.extent("m", 16), draw.extent("n", 16), draw.extent("k", 16)];
            let (a, b) = (Input::new([m, k]), Input::new([k, n]));
            let (a, b) = (a.values(Values::numbers()), b.values(Values::numbers()));
            ([m.div_ceil(16), n.div_ceil(16)], (a, b, Output::new([m, n]), Constant(fault)))
        })
        .reference(|(a, b, c, _)| c.fill(|[i, j]| (0..a.shape()[1]).map(|k| a[[i, k]] * b[[k, j]]).sum()))
        .without_corpus()
        .check()
}

/// A mean is divided by the extent of the tile. The law finds it without a reference.
pub fn tile_in_result(fault: bool) -> Outcome {
    fn mean(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize, fault: bool) {
        let n = if fault { ct::scalar(tile as i32) } else { x.extent(1) };
        let sum = x.load((ct::bid(0), 0), [1, tile]).sum(1);
        y.store((ct::bid(0), 0), sum / n.cast::<f32>());
    }
    Kernel::new(mean)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 10)];
            let tile = draw.pick("tile", [32, 64]);
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows, (x, Output::new([rows, 1]), Constant(tile), Constant(fault)))
        })
        .independent_of("tile")
        .without_corpus()
        .check()
}

/// The maximum of a tile of rows is that of all of them. The law finds it without a reference.
pub fn dependent_rows(fault: bool) -> Outcome {
    fn shifted(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let at = (ct::bid(0), 0);
        let x = x.load_with(at, [4, 16], ct::LoadOptions::new().padding(Padding::NegInf));
        let max = x.reduce_max(1);
        let max = if fault { max.reduce_max(0) } else { max };
        y.store(at, (x - max).exp());
    }
    Kernel::new(shifted)
        .shapes(|draw| {
            let rows = draw.extent("rows", 4);
            let x = Input::new([rows, 16]).values(Values::numbers());
            (rows.div_ceil(4), (x, Output::new([rows, 16]), Constant(fault)))
        })
        .splits_along("rows")
        .without_corpus()
        .check()
}

/// A product is rounded to integers on its way. The law finds it without a reference.
pub fn nonlinear_scale(fault: bool) -> Outcome {
    fn scaled(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let x = x.load(ct::bid(0), [16]) * 3.0;
        y.store(ct::bid(0), if fault { x.round_ties_even() } else { x });
    }
    Kernel::new(scaled)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .linear_in(0)
        .without_corpus()
        .check()
}

#[test]
#[should_panic(expected = "an array of a property is two of its arguments")]
fn an_array_is_one_argument() {
    let both = |x: ArrayMut<f32, 1>, y: ArrayMut<f32, 1>| y.store(0, x.load(0, [8]));
    let property = Kernel::new(both).shapes(|_| {
        let x = Output::new([8]);
        (1, (x.clone(), x))
    });
    property.run();
}
