//! Properties of sorts, prefix sums, compaction, histograms and selection.

use cutlet::test::{Function, HostArray, Input, Output, Values};
use cutlet_kernels::order::{
    Combine, Direction, Prefix, Selected, argsort, compact, histogram, prefix, segmented_sort_keys, sort_keys, top_k,
};

use super::{holds, holds_in};

#[test]
fn prefix_sums() {
    for form in [Prefix::Inclusive, Prefix::Exclusive] {
        let property = Function::new("prefix")
            .shapes(|draw| {
                let n = draw.extent("n", 1024);
                (Input::<i32, 1>::new([n]), Output::<i32, 1>::new([n]))
            })
            .call(move |stream, (x, y)| prefix(stream, x, y, (Combine::Sum, form)));
        holds(property.reference(move |(x, y)| {
            let mut sum = 0;
            for i in 0..x.shape()[0] {
                let before = sum;
                sum += x[[i]];
                y[[i]] = if form == Prefix::Inclusive { sum } else { before };
            }
        }));
    }
}

#[test]
fn selected_elements() {
    let property = Function::new("compact")
        .shapes(|draw| {
            let n = draw.extent("n", 1024);
            let mask = Input::<u8, 1>::new([n]).values(Values::between(0.0, 1.0));
            (Input::<f32, 1>::new([n]), mask, Output::<f32, 1>::new([n]), Output::<i32, 1>::new([1]))
        })
        .call(|stream, (x, mask, y, count)| compact(stream, (x, mask), (y, count)));
    holds(property.reference(|(x, mask, y, count)| {
        let kept: Vec<f64> = (0..x.shape()[0]).filter(|&i| mask[[i]] != 0).map(|i| x[[i]]).collect();
        count[[0]] = kept.len() as i64;
        kept.iter().enumerate().for_each(|(i, &x)| y[[i]] = x);
    }));
}

#[test]
fn counts() {
    let property = Function::new("histogram")
        .shapes(|draw| {
            let (n, bins) = (draw.extent("n", 1024), draw.extent("bins", 16));
            let x = Input::<i32, 1>::new([n]).values(Values::between(-2.0, bins as f64 + 1.0));
            (x, Output::<i32, 1>::new([bins]))
        })
        .call(|stream, (x, counts)| histogram(stream, x, counts));
    holds(property.reference(|(x, counts)| {
        counts.fill(|[bin]| x.values().iter().filter(|&&x| x == bin as i64).count() as i64);
    }));
}

/// The keys in ascending order.
fn sorted(keys: &[i64]) -> Vec<i64> {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted
}

#[test]
fn sorted_keys() {
    let property = Function::new("sort_keys")
        .shapes(|draw| {
            let n = draw.extent("n", 100);
            (Input::<i32, 1>::new([n]).values(Values::extremes()), Output::<i32, 1>::new([n]))
        })
        .call(|stream, (keys, out)| sort_keys(stream, keys, out, Direction::Ascending));
    holds_in(
        3,
        property.reference(|(keys, out)| {
            let sorted = sorted(keys.values());
            out.fill(|[i]| sorted[i]);
        }),
    );
    let property = Function::new("argsort")
        .shapes(|draw| {
            let n = draw.extent("n", 100);
            let keys = Input::<u32, 1>::new([n]).values(Values::between(0.0, 40.0));
            (keys, Output::<u32, 1>::new([n]), Output::<i32, 1>::new([n]))
        })
        .call(|stream, (keys, out, positions)| argsort(stream, keys, (out, positions), Direction::Descending));
    holds_in(
        3,
        property.reference(|(keys, out, positions)| {
            let mut order: Vec<usize> = (0..keys.shape()[0]).collect();
            order.sort_by_key(|&i| -keys[[i]]);
            out.fill(|[i]| keys[[order[i]]]);
            positions.fill(|[i]| order[i] as i64);
        }),
    );
}

#[test]
fn sorted_segments() {
    let property = Function::new("segmented_sort_keys")
        .shapes(|draw| {
            let n = draw.extent("n", 100);
            let mut cuts = [draw.range("first", 0..=n), draw.range("second", 0..=n)];
            cuts.sort_unstable();
            let offsets = cutlet::Constant([0, cuts[0] as i32, cuts[1] as i32, n as i32]);
            (Input::<i32, 1>::new([n]).values(Values::extremes()), offsets, Output::<i32, 1>::new([n]))
        })
        .call(|stream, (keys, offsets, out)| {
            let offsets = stream.device().array(&offsets, [4])?;
            segmented_sort_keys(stream, keys, offsets.view(), out, Direction::Ascending)
        });
    holds(property.reference(|(keys, offsets, out)| {
        for ends in offsets.windows(2) {
            let (first, end) = (ends[0] as usize, ends[1] as usize);
            let segment = sorted(&keys.values()[first..end]);
            segment.iter().enumerate().for_each(|(i, &key)| out[[first + i]] = key);
        }
    }));
}

fn largest(x: &HostArray<f32, 2>, values: &mut HostArray<f32, 2>, positions: &mut HostArray<i32, 2>) {
    let order = |i: usize| {
        let mut order: Vec<usize> = (0..x.shape()[1]).collect();
        order.sort_by(|&a, &b| x[[i, b]].total_cmp(&x[[i, a]]));
        order
    };
    values.fill(|[i, j]| x[[i, order(i)[j]]]);
    positions.fill(|[i, j]| order(i)[j] as i64);
}

#[test]
fn largest_elements() {
    let property = Function::new("top_k")
        .shapes(|draw| {
            let [m, n] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 64)];
            let k = draw.range("k", 1..=n.min(9));
            let x = Input::<f32, 2>::new([m, n]).values(Values::numbers());
            (x, Output::<f32, 2>::new([m, k]), Output::<i32, 2>::new([m, k]))
        })
        .call(|stream, (x, values, positions)| top_k(stream, x, (values, positions), Selected::Sorted));
    holds(property.reference(|(x, values, positions)| largest(x, values, positions)).splits_along("rows"));
}
