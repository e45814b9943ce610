//! Elementwise float and integer ops against f64 and i128.

use super::*;

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const INTS: [DType; 5] = [DType::I1, DType::I8, DType::I16, DType::I32, DType::I64];
const N: usize = 256;

fn float_op(code: Opcode, dtype: DType, attrs: Vec<Attr>, inputs: &[Vec<u64>]) -> Vec<u64> {
    eval(|b| {
        let tiles: Vec<Value> = inputs.iter().map(|bits| tile(b, dtype, &[N as i64], bits)).collect();
        op(b, code, &tiles, attrs, dtype, &[N as i64])
    })
}

fn decode(dtype: DType, bits: &[u64]) -> Vec<f64> {
    bits.iter().map(|&b| float_codec::decode(dtype, b)).collect()
}

#[test]
fn exact_float_ops_round_once() {
    let mut random = Random(1);
    type Binary = fn(f64, f64) -> f64;
    let ops: [(Opcode, Binary); 4] = [
        (Opcode::AddF, |x, y| x + y),
        (Opcode::SubF, |x, y| x - y),
        (Opcode::MulF, |x, y| x * y),
        (Opcode::DivF, |x, y| x / y),
    ];
    for dtype in FLOATS {
        for (code, reference) in ops {
            let inputs = [random.floats(dtype, N), random.floats(dtype, N)];
            let ours = float_op(code, dtype, vec![Attr::Rounding(Rounding::NearestEven)], &inputs);
            let (x, y) = (decode(dtype, &inputs[0]), decode(dtype, &inputs[1]));
            for i in 0..N {
                let expected = float_codec::encode(dtype, reference(x[i], y[i]), Rounding::NearestEven);
                assert!(same_float(dtype, ours[i], expected), "{code:?} {dtype} {:e} {:e}", x[i], y[i]);
            }
        }
    }
}

#[test]
fn directed_rounding_brackets() {
    let mut random = Random(2);
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for code in [Opcode::AddF, Opcode::SubF, Opcode::MulF, Opcode::DivF, Opcode::Fma, Opcode::Sqrt] {
            let count = match code {
                Opcode::Fma => 3,
                Opcode::Sqrt => 1,
                _ => 2,
            };
            let inputs: Vec<Vec<u64>> = (0..count).map(|_| random.floats(dtype, N)).collect();
            let values: Vec<Vec<f64>> = inputs.iter().map(|bits| decode(dtype, bits)).collect();
            for mode in [Rounding::Zero, Rounding::NegInf, Rounding::PosInf] {
                let ours = float_op(code, dtype, vec![Attr::Rounding(mode)], &inputs);
                for i in 0..N {
                    let v = |n: usize| values[n][i];
                    // Computed in f64. If f64 also rounds, the tests of `directed_rounding` cover
                    // the case.
                    let (wide, inexact) = match code {
                        Opcode::AddF => (v(0) + v(1), (v(0) + v(1)) - v(0) != v(1) || (v(0) + v(1)) - v(1) != v(0)),
                        Opcode::SubF => (v(0) - v(1), (v(0) - v(1)) + v(1) != v(0) || v(0) - (v(0) - v(1)) != v(1)),
                        Opcode::MulF => (v(0) * v(1), false),
                        Opcode::DivF => (v(0) / v(1), (v(0) / v(1)).mul_add(v(1), -v(0)) != 0.0),
                        Opcode::Sqrt => (v(0).sqrt(), v(0).sqrt().mul_add(v(0).sqrt(), -v(0)) != 0.0),
                        _ => {
                            let (p, s) = (v(0) * v(1), v(0) * v(1) + v(2));
                            (s, s - p != v(2) || s - v(2) != p)
                        }
                    };
                    let expected = float_codec::encode(dtype, wide, mode);
                    let nudged = [wide.next_up(), wide.next_down()].map(|w| float_codec::encode(dtype, w, mode));
                    let zero = wide == 0.0 && mode == Rounding::NegInf;
                    let fine = same_float(dtype, ours[i], expected)
                        || (inexact && wide.is_finite() && nudged.contains(&ours[i]))
                        || (zero && float_codec::decode(dtype, ours[i]) == 0.0);
                    assert!(fine, "{code:?} {dtype} {mode:?} {wide:e}: {:e}", float_codec::decode(dtype, ours[i]));
                }
            }
        }
    }
}

#[test]
fn float_functions() {
    let mut random = Random(3);
    type Unary = fn(f64) -> f64;
    let ops: [(Opcode, Unary); 14] = [
        (Opcode::Ceil, f64::ceil),
        (Opcode::Floor, f64::floor),
        (Opcode::Sqrt, f64::sqrt),
        (Opcode::Rsqrt, |x| 1.0 / x.sqrt()),
        (Opcode::Sin, f64::sin),
        (Opcode::Cos, f64::cos),
        (Opcode::Tan, f64::tan),
        (Opcode::Sinh, f64::sinh),
        (Opcode::Cosh, f64::cosh),
        (Opcode::Tanh, f64::tanh),
        (Opcode::Exp, f64::exp),
        (Opcode::Exp2, f64::exp2),
        (Opcode::Log, f64::ln),
        (Opcode::Log2, f64::log2),
    ];
    for dtype in FLOATS {
        for (code, reference) in ops {
            let input = random.floats(dtype, N);
            let ours = float_op(code, dtype, vec![], std::slice::from_ref(&input));
            for (x, y) in decode(dtype, &input).into_iter().zip(decode(dtype, &ours)) {
                let expected = reference(x);
                close(dtype, y, expected, &format!("{code:?} {dtype} {x:e}"));
            }
        }
        for (code, reference) in [
            (Opcode::PowF, f64::powf as fn(f64, f64) -> f64),
            (Opcode::Atan2, f64::atan2),
            (Opcode::RemF, |x, y| x % y),
        ] {
            let inputs = [random.floats(dtype, N), random.floats(dtype, N)];
            let ours = decode(dtype, &float_op(code, dtype, vec![], &inputs));
            let (x, y) = (decode(dtype, &inputs[0]), decode(dtype, &inputs[1]));
            for i in 0..N {
                close(dtype, ours[i], reference(x[i], y[i]), &format!("{code:?} {dtype} {:e} {:e}", x[i], y[i]));
            }
        }
    }
}

/// Asserts a distance of at most four units in the last place of the result, and at least those of
/// subnormal numbers.
fn close(dtype: DType, ours: f64, expected: f64, what: &str) {
    let rounded = float_codec::decode(dtype, float_codec::encode(dtype, expected, Rounding::NearestEven));
    if ours.is_nan() && rounded.is_nan() || ours == rounded {
        return;
    }
    let digits = match dtype {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F32 => 23,
        _ => 52,
    };
    let smallest = float_codec::decode(dtype, 1);
    let unit = (expected.abs() * 2f64.powi(-digits)).max(smallest);
    assert!((ours - expected).abs() <= 4.0 * unit, "{what}: {ours:e}, expected {expected:e}");
}

#[test]
fn signs_minima_and_maxima() {
    let mut random = Random(4);
    for dtype in FLOATS {
        let sign = 1u64 << (dtype.bits() - 1);
        let input = random.floats(dtype, N);
        let ours = float_op(Opcode::NegF, dtype, vec![], std::slice::from_ref(&input));
        assert!(ours.iter().zip(&input).all(|(a, b)| a ^ b == sign));
        let ours = float_op(Opcode::AbsF, dtype, vec![], std::slice::from_ref(&input));
        assert!(ours.iter().zip(&input).all(|(a, b)| *a == b & !sign));

        let inputs = [random.floats(dtype, N), random.floats(dtype, N)];
        let (x, y) = (decode(dtype, &inputs[0]), decode(dtype, &inputs[1]));
        for propagate in [false, true] {
            let attrs = if propagate { vec![Attr::Flag(Flag::PropagateNan)] } else { vec![] };
            let high = float_op(Opcode::MaxF, dtype, attrs.clone(), &inputs);
            let low = float_op(Opcode::MinF, dtype, attrs, &inputs);
            for i in 0..N {
                let [high, low] = [high[i], low[i]].map(|bits| float_codec::decode(dtype, bits));
                let nan = if propagate { x[i].is_nan() || y[i].is_nan() } else { x[i].is_nan() && y[i].is_nan() };
                if nan {
                    assert!(high.is_nan() && low.is_nan());
                } else if x[i].is_nan() || y[i].is_nan() {
                    let number = if x[i].is_nan() { y[i] } else { x[i] };
                    assert_eq!((high, low), (number, number));
                } else {
                    // `total_cmp` orders -0 before +0.
                    let (a, b) = if x[i].total_cmp(&y[i]).is_lt() { (x[i], y[i]) } else { (y[i], x[i]) };
                    assert_eq!((low.to_bits(), high.to_bits()), (a.to_bits(), b.to_bits()));
                }
            }
        }
    }
}

#[test]
fn flush_to_zero_flushes_both_ends() {
    let tiny = f32::from_bits(1).to_bits() as u64;
    let small = (f32::MIN_POSITIVE).to_bits() as u64;
    let half = 0.5f32.to_bits() as u64;
    let minus = (-0.5f32).to_bits() as u64;
    for mode in [Rounding::NearestEven, Rounding::Zero] {
        let run = |x: u64, y: u64| {
            let attrs = vec![Attr::Flag(Flag::FlushToZero), Attr::Rounding(mode)];
            float_op(Opcode::MulF, DType::F32, attrs, &[vec![x; N], vec![y; N]])[0]
        };
        assert_eq!(run(small, half), 0);
        assert_eq!(run(small, minus), 0x8000_0000);
        assert_eq!(run(tiny, 1e30f32.to_bits() as u64), 0);
    }
}

#[test]
fn float_comparison_and_select() {
    let mut random = Random(5);
    for dtype in FLOATS {
        let inputs = [random.floats(dtype, N), random.floats(dtype, N)];
        let (x, y) = (decode(dtype, &inputs[0]), decode(dtype, &inputs[1]));
        for &pred in CmpPred::ALL {
            for &order in CmpOrder::ALL {
                let results = try_eval(|b| {
                    let [p, q] = [0, 1].map(|i| tile(b, dtype, &[N as i64], &inputs[i]));
                    let attrs = vec![Attr::CmpPred(pred), Attr::CmpOrder(order)];
                    let c = op(b, Opcode::CmpF, &[p, q], attrs, DType::I1, &[N as i64]);
                    vec![c, op(b, Opcode::Select, &[c, p, q], vec![], dtype, &[N as i64])]
                })
                .unwrap();
                for i in 0..N {
                    let holds = match x[i].partial_cmp(&y[i]) {
                        None => order == CmpOrder::Unordered,
                        Some(o) => match pred {
                            CmpPred::Eq => o.is_eq(),
                            CmpPred::Ne => o.is_ne(),
                            CmpPred::Lt => o.is_lt(),
                            CmpPred::Le => o.is_le(),
                            CmpPred::Gt => o.is_gt(),
                            CmpPred::Ge => o.is_ge(),
                        },
                    };
                    assert_eq!(results[0][i], holds as u64);
                    assert_eq!(results[1][i], inputs[usize::from(!holds)][i]);
                }
            }
        }
    }
}

#[test]
fn integer_powers() {
    for dtype in FLOATS {
        for (base, power, expected) in
            [(2.0, 3, 8.0), (2.0, -2, 0.25), (-3.0, 3, -27.0), (5.0, 0, 1.0), (0.0, -1, f64::INFINITY)]
        {
            let ours = eval(|b| {
                let x = b.splat(dtype, float_codec::encode(dtype, base, Rounding::NearestEven), &[4]);
                let n = b.splat(DType::I32, power as u32 as u64, &[4]);
                op(b, Opcode::PowI, &[x, n], vec![], dtype, &[4])
            });
            assert_eq!(float_codec::decode(dtype, ours[3]), expected, "{dtype} {base} {power}");
        }
    }
}

// Integers: every op against i128.

fn signed(dtype: DType, bits: u64) -> i128 {
    let up = 64 - dtype.bits();
    ((bits << up) as i64 >> up) as i128
}

fn read(dtype: DType, sign: Sign, bits: u64) -> i128 {
    if sign == Sign::Signed { signed(dtype, bits) } else { bits as i128 }
}

fn int_op(code: Opcode, dtype: DType, attrs: Vec<Attr>, x: &[u64], y: &[u64]) -> Vec<u64> {
    eval(|b| {
        let (p, q) = (tile(b, dtype, &[N as i64], x), tile(b, dtype, &[N as i64], y));
        op(b, code, &[p, q], attrs, dtype, &[N as i64])
    })
}

#[test]
fn integer_ops() {
    let mut random = Random(6);
    for dtype in INTS {
        let bits = dtype.bits();
        let mask = u64::MAX >> (64 - bits);
        for sign in [Sign::Signed, Sign::Unsigned] {
            let x = random.ints(dtype, N);
            let mut y = random.ints(dtype, N);
            y.rotate_left(1);
            type Reference = Box<dyn Fn(i128, i128) -> i128>;
            let wide_shift = move |n: i128| (n & mask as i128).min(64);
            let ops: Vec<(Opcode, Reference)> = vec![
                (Opcode::AddI, Box::new(|a, b| a + b)),
                (Opcode::SubI, Box::new(|a, b| a - b)),
                (Opcode::MulI, Box::new(|a, b| a.wrapping_mul(b))),
                (Opcode::AndI, Box::new(|a, b| a & b)),
                (Opcode::OrI, Box::new(|a, b| a | b)),
                (Opcode::XorI, Box::new(|a, b| a ^ b)),
                (Opcode::MaxI, Box::new(|a, b| a.max(b))),
                (Opcode::MinI, Box::new(|a, b| a.min(b))),
                (Opcode::ShlI, Box::new(move |a, b| a << wide_shift(b))),
                (Opcode::ShrI, Box::new(move |a, b| a >> wide_shift(b))),
            ];
            for (code, reference) in ops {
                let ours = int_op(code, dtype, vec![Attr::Sign(sign)], &x, &y);
                for i in 0..N {
                    let expected = reference(read(dtype, sign, x[i]), read(dtype, sign, y[i])) as u64 & mask;
                    assert_eq!(ours[i], expected, "{code:?} {dtype} {sign:?} {:#x} {:#x}", x[i], y[i]);
                }
            }
            for &pred in CmpPred::ALL {
                let ours = eval(|b| {
                    let (p, q) = (tile(b, dtype, &[N as i64], &x), tile(b, dtype, &[N as i64], &y));
                    op(b, Opcode::CmpI, &[p, q], vec![Attr::CmpPred(pred), Attr::Sign(sign)], DType::I1, &[N as i64])
                });
                for i in 0..N {
                    let (a, b) = (read(dtype, sign, x[i]), read(dtype, sign, y[i]));
                    let holds = match pred {
                        CmpPred::Eq => a == b,
                        CmpPred::Ne => a != b,
                        CmpPred::Lt => a < b,
                        CmpPred::Le => a <= b,
                        CmpPred::Gt => a > b,
                        CmpPred::Ge => a >= b,
                    };
                    assert_eq!(ours[i], holds as u64, "{pred:?} {dtype} {sign:?} {a} {b}");
                }
            }
        }
    }
}

#[test]
fn division() {
    let mut random = Random(7);
    for dtype in INTS {
        let mask = u64::MAX >> (64 - dtype.bits());
        for sign in [Sign::Signed, Sign::Unsigned] {
            let x = random.ints(dtype, N);
            let y: Vec<u64> = random.ints(dtype, N).into_iter().rev().collect();
            for rounding in [Rounding::Zero, Rounding::NegInf, Rounding::PosInf] {
                let ours = int_op(Opcode::DivI, dtype, vec![Attr::Sign(sign), Attr::Rounding(rounding)], &x, &y);
                let rest = int_op(Opcode::RemI, dtype, vec![Attr::Sign(sign)], &x, &y);
                for i in 0..N {
                    let (a, b) = (read(dtype, sign, x[i]), read(dtype, sign, y[i]));
                    if b == 0 {
                        assert_eq!((ours[i], rest[i]), (0, x[i]), "{dtype} {sign:?} {rounding:?} {a} / 0");
                        continue;
                    }
                    let floor = a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0);
                    let exact = a % b == 0;
                    let quotient = match rounding {
                        Rounding::NegInf => floor,
                        Rounding::PosInf => floor + i128::from(!exact),
                        _ => a / b,
                    };
                    assert_eq!(ours[i], quotient as u64 & mask, "{dtype} {sign:?} {rounding:?} {a} / {b}");
                    assert_eq!(rest[i], (a % b) as u64 & mask, "{dtype} {sign:?} {a} % {b}");
                }
            }
        }
    }
}

#[test]
fn one_operand_and_high_products() {
    let mut random = Random(8);
    for dtype in INTS {
        let mask = u64::MAX >> (64 - dtype.bits());
        let (x, y) = (random.ints(dtype, N), random.ints(dtype, N));
        let high = int_op(Opcode::MulHiI, dtype, vec![], &x, &y);
        let results = try_eval(|b| {
            let p = tile(b, dtype, &[N as i64], &x);
            [Opcode::AbsI, Opcode::NegI].map(|code| op(b, code, &[p], vec![], dtype, &[N as i64])).to_vec()
        })
        .unwrap();
        for i in 0..N {
            assert_eq!(high[i], ((x[i] as u128 * y[i] as u128) >> dtype.bits()) as u64);
            assert_eq!(results[0][i], signed(dtype, x[i]).unsigned_abs() as u64 & mask);
            assert_eq!(results[1][i], -signed(dtype, x[i]) as u64 & mask);
        }
    }
}
