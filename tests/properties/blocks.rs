//! Mistakes between tile blocks: overlap, races, order, stale memory, missing parts.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{InOut, Input, Kernel, Output, Values};

use crate::Outcome;

/// Blocks store to overlapping ranges.
pub fn overlapping_stores(fault: bool) -> Outcome {
    fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>, step: usize) {
        let first = ct::bid(0) * step;
        y.store(ct::at(first), x.load(ct::at(first), [16]));
    }
    Kernel::new(copy)
        .shapes(|draw| {
            let (n, step) = (draw.extent("n", 16), if fault { 15 } else { 16 });
            (n.div_ceil(step), (Input::new([n]), Output::new([n]), Constant(step)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i]))
        .without_corpus()
        .check()
}

/// Blocks add to one element without atomics.
pub fn lost_updates(fault: bool) -> Outcome {
    fn total(x: Array<i32, 1>, y: ArrayMut<i32, 1>, fault: bool) {
        let sum = x.load(ct::bid(0), [16]).sum(0);
        match fault {
            true => y.store(0, y.load(0, [1]) + sum),
            false => drop(y.entry(0).atomic_add(sum.item())),
        }
    }
    Kernel::new(total)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), InOut::new([1]), Constant(fault)))
        })
        .reference(|(x, y, _)| y[[0]] += x.values().iter().sum::<i64>())
        .without_corpus()
        .check()
}

/// A block reads the sum that the block before it stores.
pub fn running_sum_through_memory(fault: bool) -> Outcome {
    fn running(x: Array<i32, 1>, y: ArrayMut<i32, 1>, fault: bool) {
        let i = ct::bid(0);
        let before = if fault {
            ct::if_else(i.gt(0), || y.load_scalar(i * 16 - 1), || ct::scalar(0))
        } else {
            ct::fold(..i, ct::scalar(0), |sum, k| sum + x.load(k, [16]).sum(0).item())
        };
        y.store(i, x.load(i, [16]).cumsum(0) + before);
    }
    Kernel::new(running)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i]| x.values()[..=i].iter().sum()))
        .without_corpus()
        .check()
}

/// The block that comes last determines the result, in atomics that no race detector reports. There
/// is no reference.
pub fn last_block_wins(fault: bool) -> Outcome {
    fn largest(x: Array<i32, 1>, y: ArrayMut<i32, 1>, fault: bool) {
        let max = x.load(ct::bid(0), [16]).reduce_max(0).item();
        let entry = y.entry(0);
        let _ = if fault { entry.atomic_xchg(max) } else { entry.atomic_max(max) };
    }
    Kernel::new(largest)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), InOut::new([1]), Constant(fault)))
        })
        .without_corpus()
        .check()
}

/// A reversal in place overwrites elements that another block has not read yet.
pub fn reversal_in_place(fault: bool) -> Outcome {
    fn reversed(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let i = ct::arange(0..16) + ct::bid(0) * 16;
        let from = x.extent(0) - 1 - i;
        let values = if fault { y.gather(from) } else { x.gather(from) };
        y.store(ct::bid(0), values);
    }
    Kernel::new(reversed)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), InOut::new([n]), Constant(fault)))
        })
        .reference(move |(x, y, _)| {
            let before = if fault { y.values().to_vec() } else { x.values().to_vec() };
            y.fill(|[i]| before[before.len() - 1 - i]);
        })
        .without_corpus()
        .check()
}

/// The kernel adds to an output that nothing has cleared. There is no reference.
pub fn stale_output(fault: bool) -> Outcome {
    fn scaled(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let i = ct::bid(0);
        let x = x.load(i, [16]) * 2.0;
        y.store(i, if fault { y.load(i, [16]) + x } else { x });
    }
    Kernel::new(scaled)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .without_corpus()
        .check()
}

/// The second half of the scratch is read and was not written.
pub fn stale_scratch(fault: bool) -> Outcome {
    fn rotated(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let own = ct::scratch::<f32, 1>([32]);
        let x = x.load(ct::bid(0), [16]);
        own.store(0, x);
        if !fault {
            own.store(1, x);
        }
        y.store(ct::bid(0), own.gather(ct::arange(0..16) + 8));
    }
    Kernel::new(rotated)
        .shapes(|draw| {
            let n = draw.extent("tiles", 2) * 16;
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i]| x[[i / 16 * 16 + (i + 8) % 16]]))
        .without_corpus()
        .check()
}

/// The last tile is stored without a mask, through a pointer.
pub fn store_beyond_the_end(fault: bool) -> Outcome {
    fn ones(y: ct::Ptr<f32>, n: Scalar<i32>, fault: bool) {
        let i = ct::arange(0..16) + ct::bid(0) * 16;
        let options = ct::ScatterOptions::new();
        let options = if fault { options } else { options.mask(i.lt(n)) };
        // SAFETY: with the mask, all elements are in the array. Without it, the test expects an
        // error.
        unsafe { y.offset(i).store_with(ct::ones([16]), options) };
    }
    Kernel::new(ones)
        .shapes(|draw| {
            let n = draw.range("n", 9..=40);
            (n.div_ceil(16), (ct::ByPointer(Output::new([n]).contiguous()), n as i32, Constant(fault)))
        })
        .reference(|(y, ..)| y.fill(|_| 1.0))
        .without_corpus()
        .check()
}

/// The kernel computes addresses for an array without gaps.
pub fn assumed_row_major(fault: bool) -> Outcome {
    fn doubled(x: ct::Ptr<f32>, y: ArrayMut<f32, 2>) {
        let (i, n) = (ct::bid(0), y.extent(1));
        let j = ct::arange(0..64);
        let options = ct::GatherOptions::new().mask(j.lt(n));
        // SAFETY: the elements are in the array, if it has no gaps.
        let x = unsafe { x.offset(i * n + j).load_with(options) };
        y.store((i, 0), x.unsqueeze(0) * 2.0);
    }
    Kernel::new(doubled)
        .shapes(|draw| {
            let shape = [draw.extent("m", 4), draw.extent("n", 16)];
            let x = Input::new(shape);
            (shape[0], (ct::ByPointer(if fault { x } else { x.contiguous() }), Output::new(shape)))
        })
        .reference(|(x, y)| y.fill(|i| x[i] * 2.0))
        .without_corpus()
        .check()
}

/// Every block reads the first matrix of the batch.
pub fn missing_batch(fault: bool) -> Outcome {
    fn halves(x: Array<f32, 3>, y: ArrayMut<f32, 3>, fault: bool) {
        let (j, i, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let of = if fault { ct::scalar(0) } else { batch };
        y.store((batch, i, j), x.load((of, i, j), [1, 8, 8]) * 0.5);
    }
    Kernel::new(halves)
        .shapes(|draw| {
            let shape = [draw.range("batch", 0..=3), draw.extent("m", 8), draw.extent("n", 8)];
            let grid = [shape[2].div_ceil(8), shape[1].div_ceil(8), shape[0]];
            (grid, (Input::new(shape), Output::new(shape), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i] * 0.5))
        .without_corpus()
        .check()
}

/// Parts of a sum have rounded-down lengths.
pub fn missing_part(fault: bool) -> Outcome {
    fn dot(x: Array<i32, 1>, y: Array<i32, 1>, sum: ArrayMut<i32, 1>, fault: bool) {
        let chunks = x.num_tiles(0, [8]);
        let parts = ct::num_blocks(0);
        let length = if fault { chunks / parts } else { chunks.ceil_div(parts) };
        let first = ct::bid(0) * length;
        let last = (first + length).min(chunks);
        let part = ct::fold(first..last, ct::scalar(0), |sum, k| sum + (x.load(k, [8]) * y.load(k, [8])).sum(0).item());
        sum.atomic_add(0, part);
    }
    Kernel::new(dot)
        .shapes(|draw| {
            let (n, parts) = (draw.extent("n", 24), draw.pick("parts", [1, 2, 3]));
            (parts, (Input::new([n]), Input::new([n]), InOut::new([1]), Constant(fault)))
        })
        .reference(|(x, y, sum, _)| sum[[0]] += x.values().iter().zip(y.values()).map(|(x, y)| x * y).sum::<i64>())
        .without_corpus()
        .check()
}

/// The flag of finished data is published without release.
pub fn publication_without_release(fault: bool) -> Outcome {
    fn produced(data: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>, fault: bool) {
        let (release, acquire) = (ct::AtomicOptions::new().release(ct::Scope::Device), ct::AtomicOptions::new());
        let publish = if fault { ct::AtomicOptions::new().relaxed(ct::Scope::Device) } else { release };
        ct::if_else(
            ct::bid(0).eq(0),
            || {
                data.store(0, ct::arange(0..16));
                flag.entry(0).atomic_xchg_with(1, publish);
            },
            || {
                ct::while_loop((), |()| flag.entry(0).atomic_add_with(0, acquire).eq(0), |()| ());
                y.store(ct::bid(0) - 1, data.load(0, [16]) * 2);
            },
        );
    }
    Kernel::new(produced)
        .shapes(|draw| {
            let readers = draw.range("readers", 1..=3);
            let flag = InOut::new([1]).values(Values::between(0.0, 0.0)).unchecked();
            (readers + 1, (Output::new([16]), flag, Output::new([16 * readers]), Constant(fault)))
        })
        .reference(|(data, _, y, _)| {
            data.fill(|[i]| i as i64);
            y.fill(|[i]| 2 * (i % 16) as i64);
        })
        .without_corpus()
        .check()
}
