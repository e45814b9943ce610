//! Mistakes of numbers: widths, overflow, special values, rounding.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{Input, Kernel, Output, Values};

use crate::Outcome;

/// Sums of i8 are computed in i8.
pub fn narrow_sum(fault: bool) -> Outcome {
    fn total(x: Array<i8, 2>, y: ArrayMut<i32, 2>, fault: bool) {
        let x = x.load((ct::bid(0), 0), [1, 64]);
        y.store((ct::bid(0), 0), if fault { x.sum(1).cast::<i32>() } else { x.cast::<i32>().sum(1) });
    }
    Kernel::new(total)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new([rows, columns]).values(Values::between(-100.0, 100.0));
            (rows, (x, Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]]).sum()))
        .without_corpus()
        .check()
}

/// A square of an i32 is computed in i32.
pub fn overflowing_square(fault: bool) -> Outcome {
    fn squares(x: Array<i32, 1>, y: ArrayMut<i64, 1>, fault: bool) {
        let x = x.load(ct::bid(0), [16]);
        y.store(ct::bid(0), if fault { (x * x).cast::<i64>() } else { x.cast::<i64>() * x.cast::<i64>() });
    }
    Kernel::new(squares)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]).values(Values::extremes()), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i] * x[i]))
        .without_corpus()
        .check()
}

/// Sums of f16 are computed in f16.
pub fn half_accumulator(fault: bool) -> Outcome {
    fn total(x: Array<f16, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let x = x.load((ct::bid(0), 0), [1, 256]);
        y.store((ct::bid(0), 0), if fault { x.sum(1).cast::<f32>() } else { x.cast::<f32>().sum(1) });
    }
    Kernel::new(total)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 64)];
            let x = Input::new([rows, columns]).values(Values::between(0.0, 100.0));
            (rows, (x, Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]]).sum()))
        .without_corpus()
        .check()
}

/// A maximum ignores NaN.
pub fn ignored_nan(fault: bool) -> Outcome {
    fn largest(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let x = x.load_with((ct::bid(0), 0), [1, 64], ct::LoadOptions::new().padding(Padding::NegInf));
        y.store((ct::bid(0), 0), if fault { x.reduce_max(1) } else { x.reduce_max_nan(1) });
    }
    Kernel::new(largest)
        .shapes(|draw| {
            let [rows, columns] = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            (rows, (Input::new([rows, columns]), Output::new([rows, 1]), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
            y.fill(|[i, _]| (0..x.shape()[1]).map(|j| x[[i, j]]).fold(f64::NEG_INFINITY, larger));
        })
        .without_corpus()
        .check()
}

/// A difference of unsigned numbers is negative.
pub fn unsigned_difference(fault: bool) -> Outcome {
    fn distance(a: Array<u32, 1>, b: Array<u32, 1>, c: ArrayMut<u32, 1>, fault: bool) {
        let i = ct::bid(0);
        let (a, b) = (a.load(i, [16]), b.load(i, [16]));
        c.store(i, if fault { a - b } else { a.max(b) - a.min(b) });
    }
    Kernel::new(distance)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(a, b, c, _)| c.fill(|i| (a[i] - b[i]).abs()))
        .without_corpus()
        .check()
}

/// Quotients of negative numbers are rounded toward zero.
pub fn truncated_quotient(fault: bool) -> Outcome {
    fn tile_of(x: Array<i32, 1>, y: ArrayMut<i32, 1>, fault: bool) {
        let x = x.load(ct::bid(0), [16]);
        y.store(ct::bid(0), if fault { x / 4 } else { x.floor_div(4) });
    }
    Kernel::new(tile_of)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i].div_euclid(4)))
        .without_corpus()
        .check()
}

/// A mask of 32 bits is a shift by the width.
pub fn shift_by_width(fault: bool) -> Outcome {
    fn low_bits(x: Array<u32, 1>, y: ArrayMut<u32, 1>, fault: bool) {
        let n = x.load(ct::bid(0), [16]);
        let mask = |n: Tile<u32, 1>| (ct::full([16], 1u32) << n).wrapping_sub(1);
        let all = n.ge(32);
        y.store(ct::bid(0), if fault { mask(n) } else { all.select(u32::MAX, mask(n.min(31))) });
    }
    Kernel::new(low_bits)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]).values(Values::between(0.0, 32.0)), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| (1 << x[i]) - 1))
        .without_corpus()
        .check()
}

/// The norm of zeros is divided by.
pub fn missing_epsilon(fault: bool) -> Outcome {
    fn normalized(x: Array<f32, 2>, y: ArrayMut<f32, 2>, epsilon: Scalar<f32>) {
        let at = (ct::bid(0), 0);
        let x = x.load(at, [1, 64]);
        y.store(at, x * ((x * x).sum(1) + epsilon).rsqrt());
    }
    Kernel::new(normalized)
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new(shape).values(Values::numbers());
            (shape[0], (x, Output::new(shape), if fault { 0.0f32 } else { 1e-6 }))
        })
        .reference(|(x, y, _)| {
            let [_, columns] = x.shape();
            let squares = |i| (0..columns).map(|j| x[[i, j]].powi(2)).sum::<f64>();
            y.fill(|[i, j]| x[[i, j]] / (squares(i) + 1e-6).sqrt());
        })
        .without_corpus()
        .check()
}

/// The maximum is not subtracted before the exponential.
pub fn unscaled_exponential(fault: bool) -> Outcome {
    fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, fault: bool) {
        let at = (ct::bid(0), 0);
        let x = x.load_with(at, [1, 64], ct::LoadOptions::new().padding(Padding::NegInf));
        let e = if fault { x.exp() } else { (x - x.reduce_max(1)).exp() };
        y.store(at, e / e.sum(1));
    }
    Kernel::new(softmax)
        .shapes(|draw| {
            let shape = [draw.extent("rows", 2), draw.nonzero_extent("columns", 16)];
            let x = Input::new(shape).values(Values::between(-200.0, 200.0));
            (shape[0], (x, Output::new(shape), Constant(fault)))
        })
        .reference(|(x, y, _)| {
            let [_, columns] = x.shape();
            let max = |i| (0..columns).map(|j| x[[i, j]]).fold(f64::NEG_INFINITY, f64::max);
            let sum = |i| (0..columns).map(|j| (x[[i, j]] - max(i)).exp()).sum::<f64>();
            y.fill(|[i, j]| (x[[i, j]] - max(i)).exp() / sum(i));
        })
        .without_corpus()
        .check()
}

/// Negative numbers become bytes.
pub fn negative_to_unsigned(fault: bool) -> Outcome {
    fn bytes(x: Array<f32, 1>, y: ArrayMut<u8, 1>, fault: bool) {
        let x = x.load(ct::bid(0), [16]).round_ties_even();
        y.store(ct::bid(0), if fault { x.cast::<u8>() } else { x.clamp(0.0, 255.0).cast::<u8>() });
    }
    Kernel::new(bytes)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]).values(Values::between(-20.0, 300.0)), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i].round_ties_even().clamp(0.0, 255.0) as i64))
        .without_corpus()
        .check()
}

/// The sign of -0 is that of a comparison.
pub fn negative_zero(fault: bool) -> Outcome {
    fn signs(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let x = x.load(ct::bid(0), [16]);
        let one = ct::ones([16]);
        y.store(ct::bid(0), if fault { x.lt(0.0).select(-one, one) } else { one.copysign(x) });
    }
    Kernel::new(signs)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| 1f64.copysign(x[i])))
        .without_corpus()
        .check()
}

/// Subnormal numbers are flushed to zero.
pub fn flushed_subnormals(fault: bool) -> Outcome {
    fn doubled(x: Array<f32, 1>, y: ArrayMut<f32, 1>, fault: bool) {
        let mode = if fault { ct::FloatMode::new().flush_to_zero() } else { ct::FloatMode::new() };
        let x = x.load(ct::bid(0), [16]);
        y.store(ct::bid(0), ct::with_mode(mode, || x * 2.0));
    }
    Kernel::new(doubled)
        .shapes(|draw| {
            let n = draw.extent("n", 16);
            (n.div_ceil(16), (Input::new([n]), Output::new([n]), Constant(fault)))
        })
        .reference(|(x, y, _)| y.fill(|i| x[i] * 2.0))
        .tolerance(1e-6, 0.0)
        .without_corpus()
        .check()
}
