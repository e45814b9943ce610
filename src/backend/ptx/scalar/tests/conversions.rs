//! Casts against the exact codec.

use super::{Lowered, op, random};
use crate::backend::ptx::isa::inst::RegClass;
use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Rounding, Sign};
use crate::target::Target;
use crate::types::float_codec::{Exact, decode, encode, round};
use crate::util::test_sample::one_in;

const FLOATS: [DType; 10] = [
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::TF32,
    DType::F64,
    DType::F8E4M3FN,
    DType::F8E5M2,
    DType::F8E8M0FNU,
    DType::F4E2M1FN,
    DType::F8E5M3FNU,
];
const INTS: [DType; 6] = [DType::I1, DType::I4, DType::I8, DType::I16, DType::I32, DType::I64];
const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

/// Returns all codes of small types. For wide types: edges, neighbourhoods of every narrower value,
/// random bits.
fn samples(dtype: DType) -> Vec<u64> {
    if dtype.bits() <= 8 {
        return (0..1 << dtype.bits()).collect();
    }
    if dtype.bits() == 16 {
        return (0..1 << 16).step_by(7 * one_in(13)).chain(0..300).chain(0x7b00..0x7d00).collect();
    }
    let mut state = 11;
    let mut values =
        vec![0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN, 5e-324, 448.0, 464.0, 65520.0];
    for small in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E5M3FNU, DType::F4E2M1FN, DType::F8E8M0FNU] {
        let codes: Vec<f64> = (0..1 << small.bits()).map(|c| decode(small, c)).collect();
        values.extend(codes.windows(2).map(|w| (w[0] + w[1]) / 2.0));
        values.extend(codes);
    }
    for half in [DType::F16, DType::BF16, DType::F32] {
        for _ in 0..300 {
            let code = random(&mut state) & (u64::MAX >> (64 - half.bits())) & !1;
            let (low, high) = (decode(half, code), decode(half, code + 1));
            values.extend([low, (low + high) / 2.0]);
        }
    }
    let mut bits: Vec<u64> = values.iter().map(|&v| encode(dtype, v, Rounding::Zero)).collect();
    let unit = if dtype == DType::TF32 { 1 << 13 } else { 1 };
    bits.extend(bits.clone().iter().flat_map(|b| [b.wrapping_add(unit), b.wrapping_sub(unit)]));
    bits.extend((0..2000).map(|_| random(&mut state)));
    let sign = 1u64 << (if dtype == DType::F64 { 63 } else { 31 });
    bits.extend(bits.clone().iter().map(|b| b ^ sign));
    let mask = if dtype == DType::F64 { u64::MAX } else { 0xffff_ffff };
    bits.iter().map(|b| b & mask & !(unit - 1)).collect()
}

fn supported(from: DType, to: DType, rounding: Rounding) -> bool {
    let lowered = std::panic::catch_unwind(|| {
        let op = op(Opcode::FToF, &[Attr::Rounding(rounding)]);
        let mut b = super::Builder::new(Target::SM_80, "k", 32);
        let x = b.fresh(super::repr::class(from)).into();
        super::lower(&mut b, &op, super::ScalarTypes { operands: &[from], result: to }, &[x]).is_ok()
    });
    lowered.expect("no panic")
}

/// Returns the modes that the verifier accepts and that are not trivially exact.
fn required(from: DType, to: DType) -> Vec<Rounding> {
    use Rounding::*;
    match (from, to) {
        (_, DType::F8E8M0FNU) => vec![Zero, PosInf],
        (DType::F64, DType::F32) => vec![NearestEven, Zero, NegInf, PosInf],
        (DType::F32, DType::TF32) => vec![NearestEven, Zero, NearestAway],
        (_, to) if to.bits() <= 8 => vec![NearestEven],
        _ => vec![NearestEven, Zero],
    }
}

#[test]
fn floats_to_floats() {
    for from in FLOATS {
        let list = samples(from);
        for to in FLOATS.into_iter().filter(|&to| to != from) {
            for rounding in required(from, to) {
                assert!(supported(from, to, rounding), "{from} to {to} {rounding:?}");
                let op = op(Opcode::FToF, &[Attr::Rounding(rounding)]);
                for target in TARGETS {
                    let lowered = Lowered::new(target, &op, &[from], to);
                    let mut thread = lowered.thread();
                    for &bits in &list {
                        let value = decode(from, bits);
                        let (ours, expected) = (lowered.eval(&mut thread, &[bits]), encode(to, value, rounding));
                        let nan = decode(to, ours).is_nan() && decode(to, expected).is_nan();
                        assert!(
                            ours == expected || nan,
                            "{from} {bits:#x} = {value:e} to {to} {rounding:?} on {target}: {ours:#x}, not {expected:#x}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn halves_round_in_every_direction() {
    for to in [DType::F16, DType::BF16] {
        for rounding in [Rounding::NegInf, Rounding::PosInf] {
            let op = op(Opcode::FToF, &[Attr::Rounding(rounding)]);
            let lowered = Lowered::new(Target::SM_80, &op, &[DType::F32], to);
            let mut thread = lowered.thread();
            for bits in samples(DType::F32) {
                let (ours, value) = (lowered.eval(&mut thread, &[bits]), decode(DType::F32, bits));
                let expected = encode(to, value, rounding);
                assert!(ours == expected || value.is_nan() && decode(to, ours).is_nan(), "{value:e} {rounding:?}");
            }
        }
    }
}

fn read(dtype: DType, signed: bool, bits: u64) -> i128 {
    let shift = 64 - dtype.bits();
    if signed { i128::from(((bits << shift) as i64) >> shift) } else { i128::from(bits & (u64::MAX >> shift)) }
}

fn int_samples(dtype: DType) -> Vec<u64> {
    let mask = u64::MAX >> (64 - dtype.bits());
    if dtype.bits() <= 16 {
        let step = if dtype.bits() == 16 { one_in(31) } else { 1 };
        return (0..=mask).step_by(step).chain([mask]).collect();
    }
    let mut state = 3;
    let mut list: Vec<u64> = Vec::new();
    for bit in 0..dtype.bits() {
        for delta in [-1i64, 0, 1] {
            list.push((1u64 << bit).wrapping_add_signed(delta));
            // Ties of every precision.
            list.push((3u64 << bit >> 1).wrapping_add_signed(delta));
            list.push(((1u64 << bit) | (1 << (bit / 2))).wrapping_add_signed(delta));
        }
    }
    list.extend((0..2000).map(|_| random(&mut state) >> (random(&mut state) % 64)));
    list.extend(list.clone().iter().map(|x| x.wrapping_neg()));
    list.iter().map(|x| x & mask).collect()
}

#[test]
fn integers_to_floats() {
    for from in INTS.into_iter().filter(|&t| t != DType::I4) {
        for to in FLOATS.into_iter().filter(|&t| t != DType::F8E8M0FNU) {
            for sign in [Sign::Signed, Sign::Unsigned] {
                let op = op(Opcode::IToF, &[Attr::Sign(sign), Attr::Rounding(Rounding::NearestEven)]);
                for target in TARGETS {
                    let lowered = Lowered::new(target, &op, &[from], to);
                    let mut thread = lowered.thread();
                    for bits in int_samples(from) {
                        let value = read(from, sign == Sign::Signed, bits);
                        let expected = match value {
                            0 => 0,
                            _ => round(to, Exact::of_integer(value), Rounding::NearestEven),
                        };
                        let ours = lowered.eval(&mut thread, &[bits]);
                        assert_eq!(ours, expected, "{from} {value} to {to} {sign:?} on {target}");
                    }
                }
            }
        }
    }
}

#[test]
fn floats_to_integers() {
    for from in FLOATS {
        for to in INTS {
            for sign in [Sign::Signed, Sign::Unsigned] {
                let op = op(Opcode::FToI, &[Attr::Sign(sign), Attr::Rounding(Rounding::IntToZero)]);
                let lowered = Lowered::new(Target::SM_80, &op, &[from], to);
                let mut thread = lowered.thread();
                let bits = to.bits();
                let (low, high) = match sign {
                    Sign::Signed => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                    Sign::Unsigned => (0, (1i128 << bits) - 1),
                };
                for code in samples(from) {
                    let value = decode(from, code);
                    let expected = (value as i128).clamp(low, high) as u64 & (u64::MAX >> (64 - bits));
                    let ours = lowered.eval(&mut thread, &[code]);
                    assert_eq!(ours, expected, "{from} {value:e} to {to} {sign:?}");
                }
            }
        }
    }
}

#[test]
fn integers_to_integers() {
    for from in INTS {
        for to in INTS.into_iter().filter(|&to| to != from) {
            for sign in [Sign::Signed, Sign::Unsigned] {
                let code = if to.bits() > from.bits() { Opcode::ExtI } else { Opcode::TruncI };
                let lowered = Lowered::new(Target::SM_80, &op(code, &[Attr::Sign(sign)]), &[from], to);
                let mut thread = lowered.thread();
                for bits in int_samples(from) {
                    let expected = read(from, sign == Sign::Signed, bits) as u64 & (u64::MAX >> (64 - to.bits()));
                    assert_eq!(lowered.eval(&mut thread, &[bits]), expected, "{code:?} {from} {bits:#x} to {to}");
                }
            }
        }
    }
}

#[test]
fn bit_casts() {
    use DType::*;
    let groups: [&[DType]; 5] =
        [&[I4, F4E2M1FN], &[I8, F8E4M3FN, F8E5M2, F8E8M0FNU, F8E5M3FNU], &[I16, F16, BF16], &[I32, F32], &[I64, F64]];
    let mut state = 1;
    for group in groups {
        for &from in group {
            for &to in group {
                let lowered = Lowered::new(Target::SM_80, &op(Opcode::Bitcast, &[]), &[from], to);
                let mut thread = lowered.thread();
                for _ in 0..50 {
                    let bits = random(&mut state) & (u64::MAX >> (64 - from.bits()));
                    assert_eq!(lowered.eval(&mut thread, &[bits]), bits, "{from} to {to}");
                }
            }
        }
    }
}

/// Pairs of bytes are converted exactly, whether they are fields of words or words of their own.
#[test]
fn pairs_of_bytes_to_pairs_of_halves() {
    use super::super::cast::byte_pair;
    use super::evaluator::Thread;
    for from in [DType::I8, DType::F8E4M3FN, DType::F8E5M2] {
        for (to, sign) in [(DType::F16, Sign::Signed), (DType::F16, Sign::Unsigned), (DType::BF16, Sign::Signed)] {
            let code = if from == DType::I8 { Opcode::IToF } else { Opcode::FToF };
            let op = op(code, &[Attr::Sign(sign), Attr::Rounding(Rounding::NearestEven)]);
            for numbers in [Some([0u32, 1]), Some([3, 1]), None] {
                let mut b = super::Builder::new(Target::SM_90A, "pair", 32);
                let words = [(); 2].map(|()| b.fresh(RegClass::B32));
                let bytes = match numbers {
                    Some(numbers) => {
                        numbers.map(|number| super::repr::from_word(&mut b, from, words[0].into(), number))
                    }
                    None => words.map(Into::into),
                };
                let pair = byte_pair(&mut b, &op, from, to, bytes).expect("a form");
                let function = b.finish();
                let mut thread = Thread::new(&function);
                for first in 0..256u64 {
                    for second in [0, 1, 0x7e, 0x80, 0xff, first ^ 0x55] {
                        let values = match numbers {
                            Some([low, high]) => [first << (8 * low) | second << (8 * high) | 0xa5 << 16, 0],
                            None => [first, second],
                        };
                        words.iter().zip(values).for_each(|(&word, value)| thread.set(word, value));
                        thread.run();
                        let word = thread.get(pair, 32);
                        for (byte, bits) in [(first, word & 0xffff), (second, word >> 16)] {
                            let value = match from {
                                DType::I8 => read(from, sign == Sign::Signed, byte) as f64,
                                _ => decode(from, byte),
                            };
                            let same = bits == encode(to, value, Rounding::NearestEven);
                            let nan = value.is_nan() && decode(to, bits).is_nan();
                            assert!(same || nan, "{from} {byte:#x} to {to} {sign:?}: {bits:#x}, not {value}");
                        }
                    }
                }
            }
        }
    }
}
