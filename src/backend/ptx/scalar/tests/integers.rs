//! Integer ops and comparisons of every width, both signs, all roundings, against i128.

use super::{Lowered, op, random};
use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Opcode, Rounding, Sign};
use crate::target::Target;

const TYPES: [DType; 5] = [DType::I1, DType::I8, DType::I16, DType::I32, DType::I64];

fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bits())
}

fn read(dtype: DType, sign: Sign, bits: u64) -> i128 {
    let shift = 64 - dtype.bits();
    if sign == Sign::Signed { i128::from(((bits << shift) as i64) >> shift) } else { i128::from(bits & mask(dtype)) }
}

/// Returns edge patterns and random ones, some of them small.
fn samples(dtype: DType) -> Vec<u64> {
    let mask = mask(dtype);
    let mut state = 5;
    let mut list: Vec<u64> = vec![0, 1, 2, 3, 7, 8, mask, mask - 1, mask >> 1, (mask >> 1) + 1, (mask >> 1) + 2];
    list.extend((0..20).map(|_| random(&mut state)));
    list.extend((0..20).map(|_| random(&mut state) % 70));
    list.extend((0..10).map(|_| (random(&mut state) % 70).wrapping_neg()));
    list.iter().map(|x| x & mask).collect()
}

/// Returns the result, if it is defined.
fn reference(code: Opcode, dtype: DType, sign: Sign, rounding: Rounding, a: u64, b: u64) -> Option<i128> {
    let (x, y) = (read(dtype, sign, a), read(dtype, sign, b));
    let (ux, uy) = (read(dtype, Sign::Unsigned, a), read(dtype, Sign::Unsigned, b));
    let bits = dtype.bits();
    let lowest = -(1i128 << (bits - 1));
    Some(match code {
        Opcode::AddI => x + y,
        Opcode::SubI => x - y,
        Opcode::MulI => x.wrapping_mul(y),
        Opcode::AndI => x & y,
        Opcode::OrI => x | y,
        Opcode::XorI => x ^ y,
        Opcode::MaxI => x.max(y),
        Opcode::MinI => x.min(y),
        Opcode::MulHiI => ((ux as u128 * uy as u128) >> bits) as i128,
        Opcode::ShlI if uy >= i128::from(bits) => 0,
        Opcode::ShlI => ux << uy,
        Opcode::ShrI => x >> uy.min(i128::from(bits)),
        Opcode::DivI if y == 0 => 0,
        Opcode::RemI if y == 0 => x,
        Opcode::DivI | Opcode::RemI if sign == Sign::Signed && x == lowest && y == -1 => return None,
        Opcode::RemI => x % y,
        Opcode::DivI => match rounding {
            Rounding::NegInf => x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0),
            Rounding::PosInf => -((-x).div_euclid(y) - i128::from(y < 0 && (-x).rem_euclid(y) != 0)),
            _ => x / y,
        },
        Opcode::NegI => -x,
        Opcode::AbsI => read(dtype, Sign::Signed, a).abs(),
        other => panic!("{other:?}"),
    })
}

fn check(code: Opcode, dtype: DType, sign: Sign, rounding: Rounding) {
    let op = op(code, &[Attr::Sign(sign), Attr::Rounding(rounding)]);
    let unary = matches!(code, Opcode::NegI | Opcode::AbsI);
    let list = samples(dtype);
    let types = if unary { vec![dtype] } else { vec![dtype; 2] };
    let lowered = Lowered::new(Target::SM_80, &op, &types, dtype);
    let mut thread = lowered.thread();
    for &b in &list {
        // The same with a constant second operand, for which cheaper code exists.
        let known = (!unary).then(|| Lowered::with_constant(Target::SM_80, &op, &types, dtype, Some(b)));
        let mut known_thread = known.as_ref().map(Lowered::thread);
        for &a in &list {
            let Some(expected) = reference(code, dtype, sign, rounding, a, b) else { continue };
            let expected = expected as u64 & mask(dtype);
            let inputs = [a, b];
            let ours = lowered.eval(&mut thread, &inputs[..types.len()]);
            assert_eq!(ours, expected, "{code:?} {dtype} {sign:?} {rounding:?} of {a:#x}, {b:#x}");
            if let (Some(known), Some(thread)) = (&known, &mut known_thread) {
                let ours = known.eval(thread, &inputs[..1]);
                assert_eq!(
                    ours & mask(dtype),
                    expected,
                    "{code:?} {dtype} {sign:?} {rounding:?} of {a:#x}, constant {b:#x}"
                );
            }
        }
    }
}

#[test]
fn arithmetic_and_logic() {
    use Opcode::*;
    for dtype in TYPES {
        for sign in [Sign::Signed, Sign::Unsigned] {
            for code in [AddI, SubI, MulI, AndI, OrI, XorI, MaxI, MinI, MulHiI, ShlI, ShrI, RemI, DivI, NegI, AbsI] {
                check(code, dtype, sign, Rounding::Zero);
            }
            check(DivI, dtype, sign, Rounding::PosInf);
        }
        check(DivI, dtype, Sign::Signed, Rounding::NegInf);
    }
}

#[test]
fn comparisons() {
    for dtype in TYPES {
        for sign in [Sign::Signed, Sign::Unsigned] {
            for &pred in CmpPred::ALL {
                let op = op(Opcode::CmpI, &[Attr::CmpPred(pred), Attr::Sign(sign)]);
                let lowered = Lowered::new(Target::SM_80, &op, &[dtype; 2], DType::I1);
                let mut thread = lowered.thread();
                for &a in &samples(dtype) {
                    for &b in &samples(dtype) {
                        let (x, y) = (read(dtype, sign, a), read(dtype, sign, b));
                        let expected = match pred {
                            CmpPred::Eq => x == y,
                            CmpPred::Ne => x != y,
                            CmpPred::Lt => x < y,
                            CmpPred::Le => x <= y,
                            CmpPred::Gt => x > y,
                            CmpPred::Ge => x >= y,
                        };
                        let ours = lowered.eval(&mut thread, &[a, b]);
                        assert_eq!(ours, u64::from(expected), "{pred:?} {dtype} {sign:?} of {a:#x}, {b:#x}");
                    }
                }
            }
        }
    }
}
