//! Float operations with exact results: minima, remainders, halves, comparisons.

use super::evaluator::Thread;
use super::{Lowered, op, random};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass};
use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, Flag, Opcode, Rounding};
use crate::target::Target;
use crate::types::float_codec::{decode, encode};
use crate::util::test_sample::one_in;

const BASE: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

/// Returns specials, neighbours of 1, and random patterns.
fn samples(dtype: DType) -> Vec<u64> {
    let mut state = 17;
    let values = [0.0, 1.0, 1.5, 2.0, 3.0, 7.25, 1e-3, 1000.0, f64::INFINITY, f64::NAN, 1e-40, 65504.0, 6e-8];
    let mut list: Vec<u64> = values.iter().map(|&v| encode(dtype, v, Rounding::NearestEven)).collect();
    list.push(1);
    list.extend((0..50).map(|_| random(&mut state)));
    let one = encode(dtype, 1.0, Rounding::NearestEven);
    list.extend((0..30).map(|_| one.wrapping_add(random(&mut state) % 4096).wrapping_sub(2048)));
    let bits = dtype.bits();
    list.extend(list.clone().iter().map(|x| x ^ 1 << (bits - 1)));
    list.iter().map(|x| x & (u64::MAX >> (64 - bits))).collect()
}

fn same(dtype: DType, ours: u64, expected: f64) -> bool {
    let value = decode(dtype, ours);
    (value.is_nan() && expected.is_nan()) || ours == encode(dtype, expected, Rounding::NearestEven)
}

fn check(code: Opcode, attrs: &[Attr], dtype: DType, reference: impl Fn(&[f64]) -> f64) {
    let operands = code.spec().operands.len();
    for target in TARGETS {
        let lowered = Lowered::new(target, &op(code, attrs), &vec![dtype; operands], dtype);
        let mut thread = lowered.thread();
        let list = samples(dtype);
        let mut state = 23;
        let mut pick = || list[random(&mut state) as usize % list.len()];
        for a in &list {
            for _ in 0..if operands == 1 { 1 } else { 60 } {
                let inputs: Vec<u64> = [*a, pick(), pick()][..operands].to_vec();
                let values: Vec<f64> = inputs.iter().map(|&b| decode(dtype, b)).collect();
                let ours = lowered.eval(&mut thread, &inputs);
                let expected = reference(&values);
                let got = decode(dtype, ours);
                assert!(
                    same(dtype, ours, expected),
                    "{code:?} {dtype} of {values:?} on {target}: {got:e}, not {expected:e}"
                );
            }
        }
    }
}

fn minimum(propagate: bool, max: bool, a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => f64::NAN,
        (true, _) | (_, true) if propagate => f64::NAN,
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() != max {
                a
            } else {
                b
            }
        }
        _ => {
            if (a < b) != max {
                a
            } else {
                b
            }
        }
    }
}

#[test]
fn minima_and_maxima() {
    for dtype in BASE {
        for (code, max) in [(Opcode::MinF, false), (Opcode::MaxF, true)] {
            check(code, &[], dtype, |x| minimum(false, max, x[0], x[1]));
            check(code, &[Attr::Flag(Flag::PropagateNan)], dtype, |x| minimum(true, max, x[0], x[1]));
        }
    }
}

#[test]
fn sums_products_and_parts() {
    for dtype in BASE {
        check(Opcode::AddF, &[], dtype, |x| x[0] + x[1]);
        check(Opcode::SubF, &[], dtype, |x| x[0] - x[1]);
        check(Opcode::MulF, &[], dtype, |x| x[0] * x[1]);
        check(Opcode::DivF, &[], dtype, |x| x[0] / x[1]);
        check(Opcode::Sqrt, &[], dtype, |x| x[0].sqrt());
        check(Opcode::Floor, &[], dtype, |x| x[0].floor());
        check(Opcode::Ceil, &[], dtype, |x| x[0].ceil());
        check(Opcode::NegF, &[], dtype, |x| -x[0]);
        check(Opcode::AbsF, &[], dtype, |x| x[0].abs());
    }
}

#[test]
fn remainders_are_exact() {
    // The remainder of f64 is exact, so this is the definition.
    for dtype in BASE {
        check(Opcode::RemF, &[], dtype, |x| x[0] % x[1]);
    }
}

#[test]
fn quotients_of_f16_round_once() {
    let lowered = Lowered::new(Target::SM_90A, &op(Opcode::DivF, &[]), &[DType::F16; 2], DType::F16);
    for ulps in [-1, 0, 1] {
        let mut thread = lowered.thread();
        thread.approx_ulps = ulps;
        let mut state = 1;
        for _ in 0..200_000 / one_in(10) {
            let (a, b) = (random(&mut state) & 0xffff, random(&mut state) & 0xffff);
            let expected = decode(DType::F16, a) / decode(DType::F16, b);
            let ours = lowered.eval(&mut thread, &[a, b]);
            assert!(same(DType::F16, ours, expected), "{a:#x} / {b:#x}, reciprocal off by {ulps} ulp");
        }
    }
}

#[test]
fn quotients_by_a_common_divisor_round_once() {
    const COUNT: usize = 6;
    let mut b = Builder::new(Target::SM_90A, "quotients", 32);
    let inputs: Vec<Reg> = (0..=COUNT).map(|_| b.fresh(RegClass::F32)).collect();
    let dividends: Vec<Operand> = inputs[1..].iter().map(|&reg| reg.into()).collect();
    let outputs = super::super::float::quotients(&mut b, &dividends, inputs[0].into());
    let function = b.finish();
    let mut thread = Thread::new(&function);
    let list = samples(DType::F32);
    let mut state = 29;
    for round in 0..60_000 / one_in(10) {
        // Most operands are in the range of the products.
        let mut pick = |most: i32| -> f32 {
            let bits = random(&mut state);
            if (bits >> 40).is_multiple_of(24) {
                return f32::from_bits(list[bits as usize % list.len()] as u32);
            }
            let exponent = (bits >> 24) as i32 % (most + 1) * if bits >> 63 == 1 { 1 } else { -1 };
            let sign = if most > 32 && (bits >> 62) & 1 == 1 { -1.0 } else { 1.0 };
            sign * f32::from_bits((127 + exponent).cast_unsigned() << 23 | (bits as u32 & 0x7f_ffff))
        };
        let values: Vec<f32> = (0..=COUNT).map(|at| pick(if at == 0 { 25 } else { 101 })).collect();
        let values = if round % 3 == 0 { values.iter().map(|x| x.abs()).collect() } else { values };
        for (&reg, value) in inputs.iter().zip(&values) {
            thread.set(reg, u64::from(value.to_bits()));
        }
        thread.run();
        for (&output, &dividend) in outputs.iter().zip(&values[1..]) {
            let (ours, expected) = (f32::from_bits(thread.get(output, 32) as u32), dividend / values[0]);
            let is_same = ours.to_bits() == expected.to_bits() || ours.is_nan() && expected.is_nan();
            assert!(is_same, "{dividend:e} / {:e}: {ours:e}, not {expected:e}", values[0]);
        }
    }
}

#[test]
fn float_comparisons() {
    for dtype in BASE {
        for &pred in CmpPred::ALL {
            for &order in CmpOrder::ALL {
                let op = op(Opcode::CmpF, &[Attr::CmpPred(pred), Attr::CmpOrder(order)]);
                for target in TARGETS {
                    let lowered = Lowered::new(target, &op, &[dtype; 2], DType::I1);
                    let mut thread = lowered.thread();
                    let list = samples(dtype);
                    for (&a, &b) in list.iter().flat_map(|a| list.iter().step_by(5).map(move |b| (a, b))) {
                        let (x, y) = (decode(dtype, a), decode(dtype, b));
                        let expected = match pred {
                            _ if x.is_nan() || y.is_nan() => order == CmpOrder::Unordered,
                            CmpPred::Eq => x == y,
                            CmpPred::Ne => x != y,
                            CmpPred::Lt => x < y,
                            CmpPred::Le => x <= y,
                            CmpPred::Gt => x > y,
                            CmpPred::Ge => x >= y,
                        };
                        let ours = lowered.eval(&mut thread, &[a, b]) == 1;
                        assert_eq!(ours, expected, "{x:e} {pred:?} {y:e} {order:?} {dtype}");
                    }
                }
            }
        }
    }
}
