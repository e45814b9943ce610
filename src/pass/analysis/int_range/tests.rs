//! Tests of the transfer functions with all members of random states, and of whole kernels.

use super::lattice::{RangeState, two_power};
use super::{IntRange, IntRanges, transfer};
use crate::dtype::DType::{self, *};
use crate::ir::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns a random state of an i8, with its members.
fn claim(random: &mut Random) -> (RangeState, Vec<i64>) {
    loop {
        let (a, b) = (random.below(256) as i64 - 128, random.below(256) as i64 - 128);
        let (lo, hi) = match random.below(4) {
            0 => (a, a),
            1 => (a.clamp(0, 8), a.clamp(0, 8) + 3),
            _ => (a.min(b), a.max(b)),
        };
        let div = 1u64 << random.below(5);
        let members: Vec<i64> = (lo..=hi).filter(|v| v % div as i64 == 0).collect();
        if !members.is_empty() {
            return (RangeState::wrapped(lo.into(), hi.into(), div, 8), members);
        }
    }
}

#[track_caller]
fn holds(state: RangeState, value: i64, what: &str) {
    let inside = (state.lo..=state.hi).contains(&value);
    assert!(inside && two_power(value.into()) >= state.div.min(1 << 61), "{what}: {value} against {state:?}");
}

fn op_with(code: Opcode, attrs: Vec<Attr>) -> Op {
    Op { code, operands: vec![], segments: vec![], results: vec![], attrs, regions: vec![], loc: Loc::UNKNOWN }
}

fn sign_of(op: &Op, v: i64) -> i128 {
    if op.sign() == Sign::Signed { v.into() } else { (v as u8).into() }
}

/// Returns the result of the op for two i8, `None` if undefined.
fn reference(op: &Op, a: i64, b: i64) -> Option<i64> {
    let (x, y) = (sign_of(op, a), sign_of(op, b));
    let amount = i64::from(b as u8);
    let wide = match op.code {
        Opcode::AddI => x + y,
        Opcode::SubI => x - y,
        Opcode::MulI => x * y,
        Opcode::MaxI => x.max(y),
        Opcode::MinI => x.min(y),
        Opcode::AndI => x & y,
        Opcode::OrI => x | y,
        Opcode::XorI => x ^ y,
        Opcode::ShlI => {
            if amount < 8 {
                x << amount
            } else {
                0
            }
        }
        Opcode::ShrI => x >> amount.min(100),
        Opcode::DivI if y == 0 => 0,
        Opcode::RemI if y == 0 => x,
        Opcode::DivI => match op.rounding() {
            Rounding::NegInf => (x as f64 / y as f64).floor() as i128,
            Rounding::PosInf => (x as f64 / y as f64).ceil() as i128,
            _ => x / y,
        },
        Opcode::RemI => x % y,
        Opcode::MulHiI => (i128::from(a as u8) * i128::from(b as u8)) >> 8,
        Opcode::CmpI => {
            let answer = match op.cmp_pred() {
                CmpPred::Eq => x == y,
                CmpPred::Ne => x != y,
                CmpPred::Lt => x < y,
                CmpPred::Le => x <= y,
                CmpPred::Gt => x > y,
                CmpPred::Ge => x >= y,
            };
            return Some(-i64::from(answer));
        }
        other => panic!("{other:?}"),
    };
    Some(i64::from(wide as i8))
}

#[test]
fn integer_rules_hold_for_every_member() {
    let mut random = Random(1);
    let mut cases: Vec<Op> = Vec::new();
    for sign in [Sign::Signed, Sign::Unsigned] {
        use Opcode::*;
        let s = || Attr::Sign(sign);
        for code in [AddI, SubI, MulI, AndI, OrI, XorI, ShlI, MulHiI] {
            cases.push(op_with(code, vec![]));
        }
        for code in [MaxI, MinI, ShrI, RemI] {
            cases.push(op_with(code, vec![s()]));
        }
        for mode in [Rounding::Zero, Rounding::NegInf, Rounding::PosInf] {
            cases.push(op_with(DivI, vec![s(), Attr::Rounding(mode)]));
        }
        for &pred in CmpPred::ALL {
            cases.push(op_with(CmpI, vec![Attr::CmpPred(pred), s()]));
        }
    }
    for op in &cases {
        for _ in 0..40 {
            let ((a, xs), (b, ys)) = (claim(&mut random), claim(&mut random));
            let Some(state) = transfer::binary(op, a, b) else { continue };
            for &x in &xs {
                for &y in &ys {
                    if let Some(value) = reference(op, x, y) {
                        holds(state, value, &format!("{:?} {:?} of {x} and {y} ({a:?}, {b:?})", op.code, op.attrs));
                    }
                }
            }
        }
    }
}

#[test]
fn assumptions_and_conversions_hold_for_every_member() {
    let mut random = Random(2);
    for _ in 0..2000 {
        let ((a, xs), (b, ys)) = (claim(&mut random), claim(&mut random));
        for (code, f) in [(Opcode::AddI, i64::wrapping_add as fn(i64, i64) -> i64), (Opcode::MulI, i64::wrapping_mul)] {
            let op = op_with(code, vec![Attr::Overflow(Overflow::Nsw)]);
            let state = transfer::binary(&op, a, b).expect("a rule");
            for &x in &xs {
                for &y in ys.iter().filter(|&&y| (-128..128).contains(&f(x, y))) {
                    holds(state, f(x, y), &format!("{code:?} of {x} and {y}"));
                }
            }
        }
        for &x in &xs {
            let one = |code, attrs, to: DType| transfer::unary(&op_with(code, attrs), a, to).expect("a rule");
            holds(one(Opcode::NegI, vec![], I8), i64::from((x as i8).wrapping_neg()), "negi");
            holds(one(Opcode::AbsI, vec![], I8), i64::from((x as i8).wrapping_abs()), "absi");
            holds(one(Opcode::ExtI, vec![Attr::Sign(Sign::Signed)], I32), x, "signed exti");
            holds(one(Opcode::ExtI, vec![Attr::Sign(Sign::Unsigned)], I16), i64::from(x as u8), "unsigned exti");
            holds(one(Opcode::TruncI, vec![Attr::Overflow(Overflow::None)], I4), (x << 60) >> 60, "trunci");
            holds(one(Opcode::TruncI, vec![Attr::Overflow(Overflow::None)], I1), (x << 63) >> 63, "trunci to i1");
        }
    }
}

struct Kernel {
    b: Builder,
    i32_ty: TypeId,
}

fn kernel(params: &[Type]) -> (Kernel, Vec<Value>) {
    let mut b = Builder::new();
    let args = b.begin_entry("k", params);
    let i32_ty = b.module.intern(Type::scalar(I32));
    (Kernel { b, i32_ty }, args)
}

impl Kernel {
    fn constant(&mut self, value: i32) -> Value {
        self.b.splat(I32, u64::from(value as u32), &[])
    }

    fn arith(&mut self, code: Opcode, x: Value, y: Value) -> Value {
        self.b.simple(code, &[x, y], vec![Attr::Overflow(Overflow::None)], self.i32_ty)
    }

    fn assume(&mut self, value: Value, predicate: Predicate) -> Value {
        let ty = self.b.module.ty_id(value);
        self.b.simple(Opcode::Assume, &[value], vec![Attr::Predicate(predicate)], ty)
    }

    fn extent(&mut self, value: Value, divisor: u64) -> Value {
        let value = self.assume(value, Predicate::Bounded { lower: Some(0), upper: None });
        self.assume(value, Predicate::DivBy { divisor, every: None, along: None })
    }

    fn ranges(mut self) -> (IntRanges, Module) {
        self.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        let module = self.b.module;
        verify(&module).expect("a well-formed kernel");
        (IntRanges::analyze(&module, &module.entries[0]), module)
    }
}

#[test]
fn loops_are_solved() {
    let (mut k, args) = kernel(&[Type::scalar(I32)]);
    let upper = k.assume(args[0], Predicate::Bounded { lower: Some(0), upper: Some(1 << 20) });
    let (zero, eight, forty) = (k.constant(0), k.constant(8), k.constant(48));
    let body = k.b.begin_block(&[k.i32_ty; 3]);
    let inner = k.b.module.block(body).args.clone();
    let (counter, up, same) = (inner[0], inner[1], inner[2]);
    let next = k.arith(Opcode::AddI, up, forty);
    let half = k.arith(Opcode::AddI, same, zero);
    let start = k.arith(Opcode::MulI, counter, eight);
    k.b.op(Opcode::Continue, &[&[next, half]], vec![], vec![], &[]);
    k.b.end_block();
    let types = [k.i32_ty; 2];
    let id = k.b.op(Opcode::For, &[&[zero], &[upper], &[eight], &[zero, forty]], vec![], vec![body], &types);
    let results = k.b.module.op(id).results.clone();
    let (ranges, _) = k.ranges();
    assert_eq!(ranges.range(counter), Some(IntRange { lo: 0, hi: (1 << 20) - 8 }));
    assert_eq!((ranges.divisor(counter), ranges.divisor(start)), (8, 64));
    assert_eq!((ranges.divisor(up), ranges.divisor(results[0])), (16, 16));
    assert_eq!((ranges.constant(same), ranges.constant(results[1])), (Some(48), Some(48)));
    assert_eq!(ranges.constant(up), None);
}

#[test]
fn branches_and_endless_loops_join() {
    let (mut k, args) = kernel(&[Type::scalar(I1)]);
    let (four, twelve, one) = (k.constant(4), k.constant(12), k.constant(1));
    let then = k.b.begin_block(&[]);
    k.b.op(Opcode::Yield, &[&[four]], vec![], vec![], &[]);
    k.b.end_block();
    let otherwise = k.b.begin_block(&[]);
    k.b.op(Opcode::Yield, &[&[twelve]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::If, &[&[args[0]]], vec![], vec![then, otherwise], &[k.i32_ty]);
    let either = k.b.module.op(id).results[0];
    let body = k.b.begin_block(&[k.i32_ty]);
    let state = k.b.module.block(body).args[0];
    let leave = k.b.begin_block(&[]);
    k.b.op(Opcode::Break, &[&[state, either]], vec![], vec![], &[]);
    k.b.end_block();
    let stay = k.b.begin_block(&[]);
    k.b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::If, &[&[args[0]]], vec![], vec![leave, stay], &[]);
    let more = k.arith(Opcode::AddI, state, one);
    k.b.op(Opcode::Continue, &[&[more]], vec![], vec![], &[]);
    k.b.end_block();
    let types = [k.i32_ty; 2];
    let id = k.b.op(Opcode::Loop, &[&[four]], vec![], vec![body], &types);
    let results = k.b.module.op(id).results.clone();
    let (ranges, _) = k.ranges();
    assert_eq!(ranges.range(either), Some(IntRange { lo: 4, hi: 12 }));
    assert_eq!(ranges.divisor(either), 4);
    assert_eq!(ranges.range(results[0]), Some(IntRange { lo: i32::MIN.into(), hi: i32::MAX.into() }));
    assert_eq!(ranges.range(results[1]), Some(IntRange { lo: 4, hi: 12 }));
}

#[test]
fn addresses_and_elementwise_tiles() {
    let (mut k, args) = kernel(&[Type::ptr(F16), Type::scalar(I32)]);
    let base = k.assume(args[0], Predicate::DivBy { divisor: 16, every: None, along: None });
    let row = k.extent(args[1], 32);
    let moved = k.b.simple(Opcode::Offset, &[base, row], vec![], k.b.module.ty_id(base));
    let three = k.constant(3);
    let odd = k.b.simple(Opcode::Offset, &[base, three], vec![], k.b.module.ty_id(base));
    let tile_ty = k.b.module.intern(Type::tile(I32, [16]));
    let iota = k.b.simple(Opcode::Iota, &[], vec![], tile_ty);
    let eight = k.b.splat(I32, 8, &[16]);
    let scaled = k.b.simple(Opcode::MulI, &[iota, eight], vec![Attr::Overflow(Overflow::None)], tile_ty);
    let (ranges, _) = k.ranges();
    assert_eq!((ranges.divisor(moved), ranges.divisor(odd)), (16, 2));
    assert_eq!(ranges.range(scaled), Some(IntRange { lo: 0, hi: 120 }));
    assert_eq!(ranges.divisor(scaled), 8);
    assert_eq!(ranges.range(args[0]), None);
}

#[test]
fn covered_dimensions_and_indices_inside() {
    let (mut k, args) = kernel(&[Type::ptr(F32), Type::scalar(I32), Type::scalar(I32)]);
    let (rows, columns) = (k.extent(args[1], 1), k.extent(args[2], 16));
    let view = Type::TensorView { elem: F32, shape: vec![None; 2], strides: vec![None, Some(1)], ptr_attr: None };
    let view_ty = k.b.module.intern(view);
    let id = k.b.op(Opcode::MakeTensorView, &[&[args[0]], &[rows, columns], &[columns]], vec![], vec![], &[view_ty]);
    let view = k.b.module.op(id).results[0];
    let cut = |k: &mut Kernel, tile: [i32; 2], dim_map: [i32; 2]| {
        let ty = Type::PartitionView { tile: tile.into(), view: view_ty, dim_map: dim_map.into(), padding: None };
        let ty = k.b.module.intern(ty);
        k.b.simple(Opcode::MakePartitionView, &[view], vec![], ty)
    };
    let fine = cut(&mut k, [8, 16], [0, 1]);
    let turned = cut(&mut k, [16, 8], [1, 0]);
    let coarse = cut(&mut k, [8, 32], [0, 1]);
    let id = k.b.op(Opcode::GetIndexSpaceShape, &[&[fine]], vec![], vec![], &[k.i32_ty; 2]);
    let counts = k.b.module.op(id).results.clone();
    let (zero, one) = (k.constant(0), k.constant(1));
    let body = k.b.begin_block(&[k.i32_ty]);
    let counter = k.b.module.block(body).args[0];
    let shifted = k.arith(Opcode::AddI, counter, one);
    k.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::For, &[&[zero], &[counts[1]], &[one], &[]], vec![], vec![body], &[]);
    let (ranges, module) = k.ranges();
    assert_eq!([0, 1].map(|d| ranges.covers(fine, d)), [false, true]);
    assert_eq!([0, 1].map(|d| ranges.covers(turned, d)), [true, false]);
    assert_eq!([0, 1].map(|d| ranges.covers(coarse, d)), [false, false]);
    assert!(ranges.is_inside(&module, fine, 1, counter));
    assert!(ranges.is_inside(&module, turned, 0, counter));
    assert!(!ranges.is_inside(&module, fine, 0, counter));
    assert!(!ranges.is_inside(&module, coarse, 1, counter));
    assert!(!ranges.is_inside(&module, fine, 1, shifted));
    assert!(!ranges.is_inside(&module, fine, 1, zero));
}

#[test]
fn block_indices_end_with_the_grid() {
    let mut b = Builder::new();
    b.begin_entry("k", &[]);
    let ty = b.module.intern(Type::scalar(I32));
    let [ids, counts] = [Opcode::GetTileBlockId, Opcode::GetNumTileBlocks].map(|code| {
        let id = b.op(code, &[], vec![], vec![], &[ty; 3]);
        b.module.op(id).results.clone()
    });
    b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    for most in [MAX_GRID, [1 << 24, 5, 1]] {
        let ranges = IntRanges::analyze_for_grid(&b.module, &b.module.entries[0], most);
        for (axis, most) in most.into_iter().map(i64::from).enumerate() {
            assert_eq!(ranges.range(ids[axis]), Some(IntRange { lo: 0, hi: most - 1 }));
            assert_eq!(ranges.range(counts[axis]), Some(IntRange { lo: 1, hi: most }));
        }
    }
    let ranges = IntRanges::analyze(&b.module, &b.module.entries[0]);
    assert_eq!(ranges.range(ids[0]).map(|range| range.hi), Some(i64::from(i32::MAX) - 1));
}
