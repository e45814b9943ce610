//! Mistakes at the edges of arrays: grids, padding, masks, identities, chunks, indices.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{Input, Kernel, Output, Values};

use crate::Outcome;

/// The grid covers whole tiles only.
pub fn short_grid(fault: bool) -> Outcome {
    fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
        let i = ct::bid(0);
        c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
    }
    Kernel::new(vadd)
        .shapes(|draw| {
            let tile = draw.pick("tile", [16, 32]);
            let n = draw.extent("n", tile);
            let blocks = if fault { (n / tile).max(1) } else { n.div_ceil(tile) };
            (blocks, (Input::new([n]), Input::new([n]), Output::new([n]), Constant(tile)))
        })
        .reference(|(a, b, c, _)| c.fill(|i| a[i] + b[i]))
        .without_corpus()
        .check()
}

/// The padding of a softmax is zero, which adds to the sum.
pub fn padding_of_softmax(fault: bool) -> Outcome {
    fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, padding: Padding) {
        let at = (ct::bid(0), 0);
        let x = x.load_with(at, [1, 64], ct::LoadOptions::new().padding(padding));
        let e = (x - x.reduce_max(1)).exp();
        y.store(at, e / e.sum(1));
    }
    Kernel::new(softmax)
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new(shape).values(Values::numbers());
            (shape[0], (x, Output::new(shape), Constant(if fault { Padding::Zero } else { Padding::NegInf })))
        })
        .reference(|(x, y, _)| {
            let [_, columns] = x.shape();
            let sum = |i| (0..columns).map(|j| x[[i, j]].exp()).sum::<f64>();
            y.fill(|[i, j]| x[[i, j]].exp() / sum(i));
        })
        .without_corpus()
        .check()
}

/// The padding counts for the variance.
pub fn unmasked_variance(fault: bool) -> Outcome {
    fn variance(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let n = x.extent(1);
        let inside = ct::indices([1, 64], 1).lt(n);
        let x = x.load((ct::bid(0), 0), [1, 64]);
        let n = n.cast::<f32>();
        let distance = x - x.sum(1) / n;
        let distance = if fault { distance } else { inside.select(distance, 0.0) };
        y.store((ct::bid(0), 0), (distance * distance).sum(1) / n);
    }
    Kernel::new(variance)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows, (x, Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            let n = x.shape()[1];
            let mean = |i| (0..n).map(|j| x[[i, j]]).sum::<f64>() / n as f64;
            y.fill(|[i, _]| (0..n).map(|j| (x[[i, j]] - mean(i)).powi(2)).sum::<f64>() / n as f64);
        })
        .without_corpus()
        .check()
}

/// A maximum over chunks begins with 0.
pub fn identity_of_maximum(fault: bool) -> Outcome {
    fn maximum(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let start = ct::full([1, 1], if fault { 0.0 } else { f32::NEG_INFINITY });
        let padding = || ct::LoadOptions::new().padding(Padding::NegInf);
        let max = ct::fold(..x.num_tiles(1, [1, 16]), start, |max, k| {
            max.max(x.load_with((ct::bid(0), k), [1, 16], padding()).reduce_max(1))
        });
        y.store((ct::bid(0), 0), max);
    }
    Kernel::new(maximum)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new([rows, columns]).values(Values::numbers());
            (rows, (x, Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]]).fold(f64::NEG_INFINITY, f64::max));
        })
        .without_corpus()
        .check()
}

/// A loop over chunks counts whole chunks only.
pub fn dropped_last_tile(fault: bool) -> Outcome {
    fn total(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let n = x.extent(1);
        let chunks = if fault { n / 16 } else { n.ceil_div(16) };
        let sum = ct::fold(..chunks, ct::zeros([1, 1]), |sum, k| sum + x.load((ct::bid(0), k), [1, 16]).sum(1));
        y.store((ct::bid(0), 0), sum);
    }
    sums(Kernel::new(total).shapes(|draw| {
        let [rows, columns] = [draw.extent("rows", 2), draw.extent("columns", 16)];
        (rows, (Input::new([rows, columns]).values(Values::numbers()), Output::new([rows, 1]), Constant(fault)))
    }))
}

/// Chunks overlap by one element.
pub fn overlapping_chunks(fault: bool) -> Outcome {
    fn total(x: Array<f32, 2>, y: ArrayMut<f32, 2>, step: usize) {
        let sum = ct::fold(..x.num_tiles(1, [1, 16]), ct::zeros([1, 1]), |sum, k| {
            sum + x.load((ct::bid(0), ct::at(k * step)), [1, 16]).sum(1)
        });
        y.store((ct::bid(0), 0), sum);
    }
    sums(Kernel::new(total).shapes(|draw| {
        let [rows, columns] = [draw.extent("rows", 2), draw.extent("columns", 16)];
        let step = if fault { 15 } else { 16 };
        (rows, (Input::new([rows, columns]).values(Values::numbers()), Output::new([rows, 1]), Constant(step)))
    }))
}

/// Checks that the second argument has the sums of rows of the first one.
fn sums<X: ct::kernel::ConstantValue + std::fmt::Debug>(
    property: ct::test::Runner<'_, (Input<f32, 2>, Output<f32, 2>, Constant<X>)>,
) -> Outcome {
    let property = property.reference(|(x, y, _)| y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]]).sum()));
    property.without_corpus().check()
}

/// The neighbour of the last element is one beyond the end.
pub fn edge_of_stencil(fault: bool) -> Outcome {
    fn neighbours(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let (i, n) = (ct::arange(0..16) + ct::bid(0) * 16, x.extent(0));
        let last = if fault { n } else { n - 1 };
        let right = (i + 1).min(last);
        let left = (i - 1).max(0);
        y.store(ct::bid(0), x.gather(left) + x.gather(right));
    }
    Kernel::new(neighbours)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            let last = x.values().len().saturating_sub(1);
            y.fill(|[i]| x[[i.saturating_sub(1)]] + x[[(i + 1).min(last)]]);
        })
        .without_corpus()
        .check()
}

/// A query does not see its own key.
pub fn causal_mask(fault: bool) -> Outcome {
    fn masked_sums(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let shape = [16, 64];
        let rows = ct::indices(shape, 0) + ct::bid(0) * 16;
        let columns = ct::indices(shape, 1);
        let visible = if fault { columns.lt(rows) } else { columns.le(rows) };
        y.store((ct::bid(0), 0), visible.select(x.load((ct::bid(0), 0), shape), 0.0).sum(1));
    }
    Kernel::new(masked_sums)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            let x = Input::new([n, n]).values(Values::numbers());
            (n.div_ceil(16), (x, Output::new([n, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, _]| (0..=i).map(|j| x[[i, j]]).sum()))
        .without_corpus()
        .check()
}

/// The largest value has no bin.
pub fn last_bin(fault: bool) -> Outcome {
    fn histogram(x: Array<i32, 1>, bins: ArrayMut<i32, 1>, fault: bool) {
        let inside = (ct::arange(0..16) + ct::bid(0) * 16).lt(x.extent(0));
        let bin = x.load(ct::bid(0), [16]);
        let bin = if fault { bin } else { bin.min(7) };
        bins.atomic_add_with(bin, 1, ct::AtomicOptions::new().mask(inside));
    }
    Kernel::new(histogram)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            let x = Input::new([n]).values(Values::between(0.0, 8.0));
            (n.div_ceil(16), (x, ct::test::InOut::new([8]), Constant(fault)))
        })
        .reference(|(x, bins, _)| x.values().iter().for_each(|&x| bins[[x.min(7) as usize]] += 1))
        .without_corpus()
        .check()
}

/// Numbers of rows count from 1.
pub fn index_of_table(fault: bool) -> Outcome {
    fn rows(table: Array<f32, 2>, ids: Array<i32, 1>, y: ArrayMut<f32, 2>, fault: bool) {
        let id = ids.load_scalar(ct::bid(0));
        let id = if fault { id - 1 } else { id };
        y.store((ct::bid(0), 0), table.gather((id, ct::arange(0..64))).unsqueeze(0));
    }
    Kernel::new(rows)
        .shapes(|draw| {
            let (count, columns) = (draw.extent("count", 4), draw.nonzero_extent("columns", 16));
            let ids = Input::new([count]).values(Values::between(0.0, 4.0));
            (count, (Input::new([5, columns]), ids, Output::new([count, columns]), Constant(fault)))
        })
        .reference(|(table, ids, y, _)| y.fill(|[i, j]| table[[ids[[i]] as usize, j]]))
        .without_corpus()
        .check()
}

/// The mean of no numbers is a division by zero.
pub fn mean_of_nothing(fault: bool) -> Outcome {
    fn mean(x: Array<i32, 2>, y: ArrayMut<i32, 2>, fault: bool) {
        let n = x.extent(1);
        let n = if fault { n } else { n.max(1) };
        let sum = x.load_with((ct::bid(0), 0), [1, 64], ct::LoadOptions::new()).sum(1);
        y.store((ct::bid(0), 0), sum / n);
    }
    Kernel::new(mean)
        .shapes(|draw| {
            let [rows, columns] = [draw.nonzero_extent("rows", 2), draw.extent("columns", 16)];
            (rows, (Input::new([rows, columns]), Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            let n = x.shape()[1];
            y.fill(|[i, _]| (0..n).map(|j| x[[i, j]]).sum::<i64>() / n.max(1) as i64);
        })
        .without_corpus()
        .check()
}
