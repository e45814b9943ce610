//! Products of matrices: of integers, and of whole numbers so small that the sums are exact in
//! every type.

use super::row::*;
use super::{Forms, Step, Typing};

/// [m, k] and [k, n].
fn product(args: &[Form], kind: Kind) -> Forms {
    let ([m, k], [l, n]) = (args[0].shape, args[1].shape);
    // Few bits hold the sums of few terms.
    (k == l && (kind == Kind::I32 || k <= 128)).then(|| vec![Form::new(kind, [m, n])])
}

fn dot(e: &Eval<'_, '_>, factor: impl Fn(Number) -> i128, start: impl Fn(usize, usize) -> i128) -> Vec<Values> {
    let (a, b, k) = (e.arg(0), e.arg(1), e.form(0).kind);
    let terms = a.shape[1];
    e.build(|i, j| {
        let sum: i128 = (0..terms).map(|n| factor(a.at(i, n)) * factor(b.at(n, j))).sum::<i128>() + start(i, j);
        if k.is_float() { Number::Float(sum as f64) } else { k.wrapped(sum) }
    })
}

/// Two bits of a factor.
fn low(x: Number) -> i128 {
    x.int() & 3
}

/// Batches of rows: [batches r, k], the second one with one batch or as many.
fn batched(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let ([rows, k], [l, n]) = (args[0].shape, args[1].shape);
    let batches = 1 << step.numbers[0];
    let shared = step.numbers[1] == 1;
    let of_right = if shared { l } else { l / batches };
    (rows % batches == 0 && (shared || l % batches == 0) && of_right == k)
        .then(|| vec![Form::new(Kind::I32, [rows, n])])
}

fn vector(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(Kind::I32, [args[0].shape[0], 1])])
}

fn from_vector(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(Kind::I32, [1, args[0].shape[1]])])
}

/// Factors of the kind of the step, sums of the kind that it has.
macro_rules! whole {
    ($name:literal $ty:ident into $acc:ident $acc_kind:ident) => {
        op! { $name in "products", 3; args [Of(bytes), Of(|k| k == Kind::U8)]; numbers []; |_, _, args| product(args, Kind::$acc_kind);
            [T: byte] |x: Tile<T, 2>, y: Tile<u8, 2>;;| {
                let (a, b) = ((x & <T as Element>::from_f64(3.0)).cast::<$ty>(), (y & 3).cast::<$ty>());
                ct::mma(a, b, ct::zeros::<$acc, 2>([x.shape()[0], y.shape()[1]]))
            }
            |e| dot(e, low, |_, _| 0) }
    };
}

pub const OPS: &[Op] = &[
    op! { "matmul u8" in "products", 6; args [Of(|k| k == Kind::U8), Of(|k| k == Kind::U8)]; numbers [];
    |_, _, args| product(args, Kind::I32);
    [] |x: Tile<u8, 2>, y: Tile<u8, 2>;;| { ct::matmul(x, y) } |e| dot(e, Number::int, |_, _| 0) },
    op! { "matmul i8 u8" in "products", 4; args [Of(|k| k == Kind::I8), Of(|k| k == Kind::U8)]; numbers [];
    |_, _, args| product(args, Kind::I32);
    [] |x: Tile<i8, 2>, y: Tile<u8, 2>;;| { ct::matmul(x, y) } |e| dot(e, Number::int, |_, _| 0) },
    op! { "mma u8 i8" in "products", 4; args [Of(|k| k == Kind::U8), Of(|k| k == Kind::I8), Of(i32s)]; numbers [];
    |_, _, args| product(args, Kind::I32).filter(|forms| forms[0] == args[2]);
    [] |x: Tile<u8, 2>, y: Tile<i8, 2>, z: Tile<i32, 2>;;| { ct::mma(x, y, z) }
    |e| {
        let c = e.arg(2);
        dot(e, Number::int, |i, j| c.at(i, j).int())
    } },
    op! { "matmul i8" in "products", 4; args [Of(|k| k == Kind::I8), Same]; numbers [];
    |_, _, args| Some(vec![Form::new(Kind::I32, [args[0].shape[0]; 2])]);
    [] |x: Tile<i8, 2>, y: Tile<i8, 2>;;| { ct::matmul(x, y.transpose()) }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        e.build(|i, j| {
            Kind::I32.wrapped((0..a.shape[1]).map(|n| a.at(i, n).int() * b.at(j, n).int()).sum())
        })
    } },
    op! { "matmul batched" in "products", 4; args [Of(|k| k == Kind::I8), Of(|k| k == Kind::I8)]; numbers [(0, 2), (0, 1)];
    batched;
    [] |x: Tile<i8, 2>, y: Tile<i8, 2>; batches: usize, shared: usize; shape: Shape| {
        let ([rows, k], n, count) = (x.shape(), y.shape()[1], 1 << batches);
        let left = x.reshape([count, rows / count, k]);
        ct::matmul(left, y.reshape([if shared == 1 { 1 } else { count }, k, n])).reshape(shape)
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        let (k, rows) = (a.shape[1], a.shape[0] >> e.n(0));
        let shared = e.n(1) == 1;
        e.build(|i, j| {
            let first = if shared { 0 } else { i / rows * k };
            Kind::I32.wrapped((0..k).map(|n| a.at(i, n).int() * b.at(first + n, j).int()).sum())
        })
    } },
    op! { "matvec" in "products", 3; args [Of(|k| k == Kind::U8), Same]; numbers []; vector;
    [] |x: Tile<u8, 2>, y: Tile<u8, 2>;;| {
        let row = y.extract([0, 0], [1, y.shape()[1]]).squeeze(0);
        ct::matvec(x, row).unsqueeze(1)
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        e.build(|i, _| Kind::I32.wrapped((0..a.shape[1]).map(|n| a.at(i, n).int() * b.at(0, n).int()).sum()))
    } },
    op! { "vecmat" in "products", 3; args [Of(|k| k == Kind::I8), Same]; numbers []; from_vector;
    [] |x: Tile<i8, 2>, y: Tile<i8, 2>;;| {
        let column = y.extract([0, 0], [y.shape()[0], 1]).squeeze(1);
        ct::vecmat(column, x).unsqueeze(0)
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        e.build(|_, j| Kind::I32.wrapped((0..a.shape[0]).map(|n| a.at(n, j).int() * b.at(n, 0).int()).sum()))
    } },
    whole!("mma f16" f16 into f32 F32),
    whole!("mma f16 f16" f16 into f16 F16),
    whole!("mma bf16" bf16 into f32 F32),
    whole!("mma tf32" tf32 into f32 F32),
    whole!("mma f32" f32 into f32 F32),
    whole!("mma f64" f64 into f64 F64),
    whole!("mma e4m3" f8e4m3fn into f32 F32),
    whole!("mma e5m2" f8e5m2 into f32 F32),
    whole!("mma e4m3 f16" f8e4m3fn into f16 F16),
    op! { "mma_fast_acc" in "products", 2; args [Of(bytes), Of(|k| k == Kind::U8)]; numbers []; |_, _, args| product(args, Kind::F32);
    [T: byte] |x: Tile<T, 2>, y: Tile<u8, 2>;;| {
        let (a, b) = ((x & <T as Element>::from_f64(3.0)).cast::<f8e4m3fn>(), (y & 3).cast::<f8e4m3fn>());
        ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([x.shape()[0], y.shape()[1]]))
    }
    |e| dot(e, low, |_, _| 0) },
    op! { "mma_scaled" in "products", 20; args [Of(|k| k == Kind::U8), Same]; numbers [];
    |_, _, args| {
        let [m, k] = args[0].shape;
        (k % 32 == 0 && k <= 128).then(|| vec![Form::new(Kind::F32, [m, m])])
    };
    [] |x: Tile<u8, 2>, y: Tile<u8, 2>;;| {
        let [m, k] = x.shape();
        let (a, b) = ((x & 3).cast::<f8e4m3fn>(), (y & 3).cast::<f8e4m3fn>().transpose());
        let scales = |shape: [usize; 2]| (ct::indices(shape, 0) % 2 + 1).cast::<f8e8m0fnu>();
        ct::mma_scaled(a, scales([m, k / 32]), b, scales([k / 32, m]), ct::zeros::<f32, 2>([m, m]))
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        e.build(|i, j| {
            let term = |n: usize| low(a.at(i, n)) * low(b.at(j, n)) * (1 + i as i128 % 2) * (1 + n as i128 / 32 % 2);
            Number::Float((0..a.shape[1]).map(term).sum::<i128>() as f64)
        })
    } },
];
