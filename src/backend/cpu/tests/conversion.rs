//! Conversions between every pair of element types.

use super::*;

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
const INTS: [DType; 5] = [DType::I1, DType::I8, DType::I16, DType::I32, DType::I64];
const N: usize = 128;

fn convert(code: Opcode, from: DType, to: DType, attrs: Vec<Attr>, bits: &[u64]) -> Vec<u64> {
    let shape = [bits.len() as i64];
    eval(|b| {
        let x = tile(b, from, &shape, bits);
        op(b, code, &[x], attrs, to, &shape)
    })
}

/// Returns valid patterns of the type (tf32 words have 13 zero bits).
fn patterns(random: &mut Random, dtype: DType) -> Vec<u64> {
    if dtype.bits() <= 8 {
        return (0..N as u64).map(|i| (i * 2 + (random.next() & 1)) & (u64::MAX >> (64 - dtype.bits()))).collect();
    }
    match dtype {
        DType::TF32 => random.floats(DType::F32, N).into_iter().map(|b| b & !0x1fff).collect(),
        _ => random.floats(dtype, N),
    }
}

#[test]
fn float_to_float() {
    let mut random = Random(1);
    for from in FLOATS {
        for to in FLOATS.into_iter().filter(|&to| to != from) {
            let bits = patterns(&mut random, from);
            for mode in
                [Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf, Rounding::NearestAway]
            {
                let ours = convert(Opcode::FToF, from, to, vec![Attr::Rounding(mode)], &bits);
                for (x, y) in bits.iter().zip(ours) {
                    let value = float_codec::decode(from, *x);
                    let expected = float_codec::encode(to, value, mode);
                    assert!(same_float(to, y, expected), "{from} {x:#x} to {to} {mode:?}: {y:#x}, not {expected:#x}");
                }
            }
        }
    }
}

#[test]
fn float_to_int_saturates() {
    let mut random = Random(2);
    for from in FLOATS {
        for to in INTS {
            for sign in [Sign::Signed, Sign::Unsigned] {
                let bits = patterns(&mut random, from);
                let attrs = vec![Attr::Sign(sign), Attr::Rounding(Rounding::IntToZero)];
                let ours = convert(Opcode::FToI, from, to, attrs, &bits);
                let width = to.bits();
                let (low, high) = match sign {
                    Sign::Signed => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
                    Sign::Unsigned => (0, (1i128 << width) - 1),
                };
                for (x, y) in bits.iter().zip(ours) {
                    let value = float_codec::decode(from, *x);
                    let expected = (value as i128).clamp(low, high) as u64 & (u64::MAX >> (64 - width));
                    assert_eq!(y, expected, "{from} {value:e} to {sign:?} {to}");
                }
            }
        }
    }
}

#[test]
fn int_to_float_rounds_once() {
    let mut random = Random(3);
    for from in INTS {
        for to in FLOATS.into_iter().filter(|&to| to != DType::F8E8M0FNU) {
            for sign in [Sign::Signed, Sign::Unsigned] {
                let bits = random.ints(from, N);
                let attrs = vec![Attr::Sign(sign), Attr::Rounding(Rounding::NearestEven)];
                let ours = convert(Opcode::IToF, from, to, attrs, &bits);
                let up = 64 - from.bits();
                for (x, y) in bits.iter().zip(ours) {
                    let value = match sign {
                        Sign::Signed => ((x << up) as i64 >> up) as i128,
                        Sign::Unsigned => *x as i128,
                    };
                    // f64 may round i64 first, so the reference jams: an odd last bit preserves the
                    // direction.
                    let wide = value as f64;
                    let odd = match (wide as i128).cmp(&value) {
                        std::cmp::Ordering::Equal => wide,
                        _ if wide.to_bits() & 1 == 1 => wide,
                        std::cmp::Ordering::Less => wide.next_up(),
                        std::cmp::Ordering::Greater => wide.next_down(),
                    };
                    let expected = match to {
                        DType::F64 => wide.to_bits(),
                        _ => float_codec::encode(to, odd, Rounding::NearestEven),
                    };
                    assert_eq!(y, expected, "{sign:?} {from} {value} to {to}");
                }
            }
        }
    }
}

#[test]
fn widths_of_integers() {
    let mut random = Random(4);
    for from in INTS {
        for to in INTS {
            let bits = random.ints(from, N);
            let mask = u64::MAX >> (64 - to.bits());
            if from.bits() < to.bits() {
                let up = 64 - from.bits();
                let signed = convert(Opcode::ExtI, from, to, vec![Attr::Sign(Sign::Signed)], &bits);
                let unsigned = convert(Opcode::ExtI, from, to, vec![Attr::Sign(Sign::Unsigned)], &bits);
                for i in 0..N {
                    assert_eq!(signed[i], ((bits[i] << up) as i64 >> up) as u64 & mask);
                    assert_eq!(unsigned[i], bits[i]);
                }
            } else if from.bits() > to.bits() {
                let ours = convert(Opcode::TruncI, from, to, vec![Attr::Overflow(Overflow::None)], &bits);
                assert!(ours.iter().zip(&bits).all(|(y, x)| *y == x & mask));
            }
        }
    }
    // i4 values exist between conversions only.
    let ours = eval(|b| {
        let x = tile(b, DType::I8, &[4], &[0x17, 0x18, 0xff, 0x00]);
        let small = op(b, Opcode::TruncI, &[x], vec![], DType::I4, &[4]);
        op(b, Opcode::ExtI, &[small], vec![Attr::Sign(Sign::Signed)], DType::I8, &[4])
    });
    assert_eq!(ours, [7, 0xf8, 0xff, 0]);
}

#[test]
fn bitcast_keeps_the_bits() {
    let mut random = Random(5);
    for (from, to) in [
        (DType::F32, DType::I32),
        (DType::I64, DType::F64),
        (DType::F16, DType::BF16),
        (DType::F8E4M3FN, DType::I8),
        (DType::I16, DType::F16),
    ] {
        let bits = random.ints(if from.is_int() { from } else { to }, N);
        assert_eq!(convert(Opcode::Bitcast, from, to, vec![], &bits), bits);
    }
}

#[test]
fn pack_and_unpack() {
    let cases: [(DType, &[u64], &[u64]); 5] = [
        (DType::I1, &[1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0], &[0x81, 0x02]),
        (DType::F4E2M1FN, &[1, 2, 15, 0], &[0x21, 0x0f]),
        (DType::I16, &[0x1234, 0xabcd], &[0x34, 0x12, 0xcd, 0xab]),
        (DType::TF32, &[0x3f80_2000], &[0x00, 0x20, 0x80, 0x3f]),
        (DType::I64, &[0x0102_0304_0506_0708], &[8, 7, 6, 5, 4, 3, 2, 1]),
    ];
    for (dtype, elements, bytes) in cases {
        let results = try_eval(|b| {
            let x = tile(b, dtype, &[elements.len() as i64], elements);
            let packed = op(b, Opcode::Pack, &[x], vec![], DType::I8, &[bytes.len() as i64]);
            vec![packed, op(b, Opcode::Unpack, &[packed], vec![], dtype, &[elements.len() as i64])]
        })
        .unwrap();
        assert_eq!(results, [bytes.to_vec(), elements.to_vec()], "{dtype}");
    }
}
