//! Tests that partial sums equal the original sums, bit for bit for numbers whose sums are exact.

use super::{optimize, random, well_formed};
use crate::dtype::DType::{self, F32, I32};
use crate::ir::*;
use crate::pass::thread_local_reduction;
use crate::pass::transform::thread_local_reduction::{ReductionAxis, ReductionDistribution};

const ROWS: i64 = 2;
const COLUMNS: i64 = 128;
const NONE: Attr = Attr::Overflow(Overflow::None);
const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);

/// Factor of the sum of a row in each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    Nothing,
    /// Exponential of the difference to the maximum so far, which is not positive.
    OfLargest,
    /// The same, times a nonnegative number.
    Scaled,
    /// A constant.
    Half,
    /// A constant above one.
    Two,
    /// Exponential of a number that may be positive.
    Unknown,
    /// Exponential of a difference to another number than the maximum.
    OfSmallest,
    /// As [`Factor::Scaled`], by a number that is negative if another one is NaN.
    ScaledByUnknown,
}

struct Kernel {
    b: Builder,
    args: Vec<Value>,
}

impl Kernel {
    fn op(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
        let ty = self.b.module.intern(Type::tile(dtype, shape));
        self.b.simple(code, operands, attrs, ty)
    }

    fn float(&mut self, value: f32, shape: &[i64]) -> Value {
        self.b.splat(F32, value.to_bits().into(), shape)
    }

    fn column(&mut self, code: Opcode, operands: &[Value]) -> Value {
        let attrs = if matches!(code, Opcode::AddF | Opcode::SubF | Opcode::MulF) { vec![NEAREST] } else { vec![] };
        self.op(code, operands, attrs, F32, &[ROWS, 1])
    }

    /// Makes small integers that differ among the iterations.
    fn numbers(&mut self, counter: Value) -> Value {
        let shape = [ROWS, COLUMNS];
        let mut total = self.op(Opcode::Reshape, &[counter], vec![], I32, &[1, 1]);
        total = self.op(Opcode::Broadcast, &[total], vec![], I32, &shape);
        for (extents, along) in [([ROWS, 1], ROWS), ([1, COLUMNS], COLUMNS)] {
            let iota = self.op(Opcode::Iota, &[], vec![], I32, &[along]);
            let iota = self.op(Opcode::Reshape, &[iota], vec![], I32, &extents);
            let iota = self.op(Opcode::Broadcast, &[iota], vec![], I32, &shape);
            total = self.op(Opcode::AddI, &[total, iota], vec![NONE], I32, &shape);
        }
        let five = self.b.splat(I32, 5, &shape);
        total = self.op(Opcode::MulI, &[total, five], vec![NONE], I32, &shape);
        let seven = self.b.splat(I32, 7, &shape);
        total = self.op(Opcode::AndI, &[total, seven], vec![], I32, &shape);
        self.op(Opcode::IToF, &[total], vec![Attr::Sign(Sign::Signed), NEAREST], F32, &shape)
    }

    fn reduce(&mut self, code: Opcode, tile: Value, identity: f32) -> Value {
        let scalar = self.b.module.intern(Type::scalar(F32));
        let body = self.b.begin_block(&[scalar, scalar]);
        let args = self.b.module.block(body).args.clone();
        let attrs = if code == Opcode::AddF { vec![NEAREST] } else { vec![] };
        let both = self.b.simple(code, &args, attrs, scalar);
        self.b.op(Opcode::Yield, &[&[both]], vec![], vec![], &[]);
        self.b.end_block();
        let identity = Literal { dtype: F32, bits: identity.to_bits().into() };
        let ty = self.b.module.intern(Type::tile(F32, [ROWS]));
        let attrs = vec![Attr::Dim(1), Attr::Identities(vec![identity])];
        let id = self.b.op(Opcode::Reduce, &[&[tile]], attrs, vec![body], &[ty]);
        let result = self.b.module.op(id).results[0];
        self.op(Opcode::Reshape, &[result], vec![], F32, &[ROWS, 1])
    }

    fn factor(&mut self, factor: Factor, [most, above]: [Value; 2]) -> Option<Value> {
        let power = |k: &mut Kernel, of: Value| k.column(Opcode::Exp2, &[of]);
        Some(match factor {
            Factor::Nothing => return None,
            Factor::Half => self.float(0.5, &[ROWS, 1]),
            Factor::Two => self.float(2.0, &[ROWS, 1]),
            Factor::OfLargest => {
                let below = self.column(Opcode::SubF, &[most, above]);
                power(self, below)
            }
            Factor::Scaled => {
                let below = self.column(Opcode::SubF, &[most, above]);
                let (scale, zero) = (self.float(1.0, &[ROWS, 1]), self.float(0.0, &[ROWS, 1]));
                let scale = self.column(Opcode::MaxF, &[scale, zero]);
                let below = self.column(Opcode::MulF, &[scale, below]);
                power(self, below)
            }
            Factor::Unknown => power(self, most),
            Factor::ScaledByUnknown => {
                let below = self.column(Opcode::SubF, &[most, above]);
                let size = self.column(Opcode::AbsF, &[most]);
                let scale = self.column(Opcode::MaxF, &[size, most]);
                let below = self.column(Opcode::MulF, &[scale, below]);
                power(self, below)
            }
            Factor::OfSmallest => {
                let least = self.column(Opcode::MinF, &[most, above]);
                let below = self.column(Opcode::SubF, &[most, least]);
                power(self, below)
            }
        })
    }
}

/// Makes a loop over `count` tiles that carries the maximum of each row and a sum, with operands in
/// this order.
fn kernel(factor: Factor, count: i32, begin: f32, swapped: bool) -> Module {
    kernel_of(factor, false, count, begin, swapped)
}

/// As [`kernel`]; with `absolute`, the terms are magnitudes, which are not negative.
fn kernel_of(factor: Factor, absolute: bool, count: i32, begin: f32, swapped: bool) -> Module {
    let mut b = Builder::new();
    let params =
        [Type::ptr(I32), Type::ptr(I32), Type::ptr(F32), Type::scalar(I32), Type::scalar(I32), Type::scalar(I32)];
    let args = b.begin_entry("sums", &params);
    let mut k = Kernel { b, args };
    let [zero, one, count] = [0, 1, count].map(|number| k.b.splat(I32, number as u64, &[]));
    let (most, start) = (k.float(0.0, &[ROWS, 1]), k.float(begin, &[ROWS, 1]));
    let (int, column) = (k.b.module.ty_id(zero), k.b.module.ty_id(start));
    let body = k.b.begin_block(&[int, column, column]);
    let carried = k.b.module.block(body).args.clone();
    let numbers = k.numbers(carried[0]);
    let largest = k.reduce(Opcode::MaxF, numbers, f32::NEG_INFINITY);
    let above = k.column(Opcode::MaxF, &[carried[1], largest]);
    let scaled = match k.factor(factor, [carried[1], above]) {
        Some(by) if swapped => k.column(Opcode::MulF, &[by, carried[2]]),
        Some(by) => k.column(Opcode::MulF, &[carried[2], by]),
        None => carried[2],
    };
    let terms = if absolute { k.op(Opcode::AbsF, &[numbers], vec![], F32, &[ROWS, COLUMNS]) } else { numbers };
    let added = k.reduce(Opcode::AddF, terms, 0.0);
    let sum = if swapped { [added, scaled] } else { [scaled, added] };
    let sum = k.column(Opcode::AddF, &sum);
    k.b.op(Opcode::Continue, &[&[above, sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[most, start]], vec![], vec![body], &[column, column]);
    let results = k.b.module.op(id).results.clone();

    let ty = Type::TensorView { elem: F32, shape: vec![Some(64)], strides: vec![Some(1)], ptr_attr: None };
    let ty = k.b.module.intern(ty);
    let made = k.b.op(Opcode::MakeTensorView, &[&[k.args[2]], &[], &[]], vec![], vec![], &[ty]);
    let array = k.b.module.op(made).results[0];
    let ty = Type::PartitionView { tile: vec![ROWS as i32], view: ty, dim_map: vec![0], padding: None };
    let ty = k.b.module.intern(ty);
    let view = k.b.simple(Opcode::MakePartitionView, &[array], vec![], ty);
    let token = k.b.module.intern(Type::Token);
    for (place, result) in [zero, one].into_iter().zip(results) {
        let row = k.op(Opcode::Reshape, &[result], vec![], F32, &[ROWS]);
        let order = vec![Attr::MemOrder(MemOrder::Weak)];
        k.b.op(Opcode::StoreView, &[&[row], &[view], &[place], &[]], order, vec![], &[token]);
    }
    k.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    k.b.module
}

/// Distribution of a row over four threads, each with pairs of adjacent elements.
fn in_four(module: &Module, id: OpId) -> Option<ReductionDistribution> {
    let sums = module.block(module.op(id).regions[0]).ops[0];
    let layout = Distribution { slots: [].into(), threads: [1, 2, 4, 0, 0].into() };
    let axes = [(COLUMNS / 8, false), (4, true), (2, false)];
    let axes = axes.map(|(extent, is_shared)| ReductionAxis { extent, is_shared }).into();
    let shared = ReductionDistribution { axes, crosses_warps: false, layout };
    (module.op(sums).code == Opcode::AddF).then_some(shared)
}

/// Converts the sums of a kernel to partial sums. Returns false if there is none to convert.
fn uses_partial_sums(module: &Module, what: &str) -> bool {
    well_formed(module, what);
    let (mut changed, expected) = (module.clone(), random::run(module));
    if !thread_local_reduction(&mut changed, &|id| in_four(module, id)) {
        return false;
    }
    well_formed(&changed, &format!("{what}, in partial sums"));
    assert_eq!(random::run(&changed), expected, "{what}\n{module}\n{changed}");
    optimize(&mut changed);
    well_formed(&changed, &format!("{what}, in partial sums and optimized"));
    assert_eq!(random::run(&changed), expected, "{what}, optimized\n{module}\n{changed}");
    let text = changed.to_string();
    // A loop with at most one iteration has been removed.
    if let Some(start) = text.find("for %") {
        let body = &text[start..];
        assert_eq!(body[..body.find("continue").expect("its end")].matches("addf").count(), 32, "{what}\n{text}");
    }
    true
}

#[test]
fn partial_sums_keep_the_results() {
    for factor in [Factor::Nothing, Factor::OfLargest, Factor::Scaled, Factor::Half] {
        for (count, begin, swapped) in [(0, 3.0, false), (1, 0.0, true), (2, -0.0, false), (5, 24.0, true)] {
            let module = kernel(factor, count, begin, swapped);
            let what = format!("{factor:?}, {count} tiles, from {begin}");
            assert!(uses_partial_sums(&module, &what), "{what}: kept whole\n{module}");
            let mut optimized = module;
            optimize(&mut optimized);
            // A loop with one iteration has been removed.
            assert!(uses_partial_sums(&optimized, &what) || count < 2, "{what}: kept whole\n{optimized}");
        }
    }
}

#[test]
fn sums_without_negative_numbers_need_no_bounded_factors() {
    for factor in [Factor::Two, Factor::Unknown, Factor::OfSmallest, Factor::ScaledByUnknown] {
        // An initial value below zero could cancel a part of the sum.
        for (begin, is_converted) in [(0.0, true), (3.0, true), (-1.0, false)] {
            let module = kernel_of(factor, true, 2, begin, false);
            assert_eq!(uses_partial_sums(&module, "magnitudes"), is_converted, "{factor:?}, {begin}\n{module}");
        }
    }
}

#[test]
fn unbounded_factors_prevent_partial_sums() {
    for factor in [Factor::Two, Factor::Unknown, Factor::OfSmallest, Factor::ScaledByUnknown] {
        let module = kernel(factor, 3, 1.0, false);
        assert!(!uses_partial_sums(&module, "a factor"), "{factor:?}\n{module}");
    }
}
