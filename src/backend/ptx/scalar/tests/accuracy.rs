//! Error bounds of the transcendental functions, in units in the last place.

use super::{Lowered, op, random};
use crate::dtype::DType;
use crate::ir::{Attr, Op, Opcode, Rounding};
use crate::target::Target;
use crate::util::test_sample::one_in;

/// Returns the error of `ours` in ulps of the type at `expected`; subnormal results count in the
/// smallest ulp.
fn error32(ours: f32, expected: f64) -> f64 {
    let rounded = expected as f32;
    if ours.is_nan() || expected.is_nan() || ours.is_infinite() || rounded.is_infinite() {
        let near_overflow = ours.is_infinite() && expected.abs() > f64::from(f32::MAX) * (1.0 - 3e-7);
        let same = (ours.is_nan() && expected.is_nan()) || ours == rounded;
        return if same || near_overflow { 0.0 } else { f64::INFINITY };
    }
    if ours == 0.0 && rounded == 0.0 && expected == 0.0 && ours.is_sign_negative() != expected.is_sign_negative() {
        return f64::INFINITY;
    }
    let exponent = (expected.abs().max(f64::from(f32::MIN_POSITIVE))).log2().floor() as i32;
    (f64::from(ours) - expected).abs() / 2f64.powi(exponent - 23)
}

fn error64(ours: f64, expected: f64) -> f64 {
    if ours.is_nan() || expected.is_nan() || ours.is_infinite() || expected.is_infinite() {
        let same = (ours.is_nan() && expected.is_nan()) || ours == expected;
        return if same { 0.0 } else { f64::INFINITY };
    }
    if ours == 0.0 && expected == 0.0 && ours.is_sign_negative() != expected.is_sign_negative() {
        return f64::INFINITY;
    }
    let order = |x: f64| i128::from(if x < 0.0 { -(x.abs().to_bits() as i64) } else { x.abs().to_bits() as i64 });
    (order(ours) - order(expected)).abs() as f64
}

struct Sweep {
    dtype: DType,
    count: usize,
}

impl Sweep {
    /// Returns the maximum error over random arguments of [low, high] (uniform) and over all
    /// magnitudes.
    fn run(&self, op: &Op, low: f64, high: f64, reference: &dyn Fn(f64, f64) -> f64) -> f64 {
        let operands = op.code.spec().operands.len();
        let lowered = Lowered::new(Target::SM_90A, op, &vec![self.dtype; operands], self.dtype);
        let mut worst = (0.0, 0.0, 0.0);
        for ulps in if self.dtype == DType::F32 { vec![-1, 0, 1] } else { vec![0] } {
            let mut thread = lowered.thread();
            thread.approx_ulps = ulps;
            let mut state = 99;
            for i in 0..self.count {
                let mut draw = |uniform: bool| {
                    let bits = random(&mut state);
                    match uniform {
                        true => low + (high - low) * (bits >> 11) as f64 / 2f64.powi(53),
                        false if self.dtype == DType::F32 => f64::from(f32::from_bits(bits as u32)),
                        false => f64::from_bits(bits),
                    }
                };
                let (x, y) = (draw(i % 4 != 0), draw(i % 8 != 0));
                let (x, y, error) = match self.dtype {
                    DType::F32 => {
                        let (x, y) = (x as f32, y as f32);
                        let inputs = [u64::from(x.to_bits()), u64::from(y.to_bits())];
                        let ours = f32::from_bits(lowered.eval(&mut thread, &inputs[..operands]) as u32);
                        (x.into(), y.into(), error32(ours, reference(x.into(), y.into())))
                    }
                    _ => {
                        let ours = lowered.eval(&mut thread, &[x.to_bits(), y.to_bits()][..operands]);
                        (x, y, error64(f64::from_bits(ours), reference(x, y)))
                    }
                };
                if error > worst.0 {
                    worst = (error, x, y);
                }
            }
        }
        println!("{} {}: {:.3} ulp at {:e}, {:e}", op.code.spec().name, self.dtype, worst.0, worst.1, worst.2);
        worst.0
    }
}

type Case = (Opcode, f64, f64, f64, f64, fn(f64, f64) -> f64);

/// Op, interval, bound for f32, bound for f64 (beyond the reference's own error of about 1),
/// reference.
const CASES: [Case; 13] = [
    (Opcode::Exp, -110.0, 90.0, 2.5, 2.0, |x, _| x.exp()),
    (Opcode::Exp2, -160.0, 130.0, 2.0, 2.0, |x, _| x.exp2()),
    (Opcode::Log, 0.0, 3.0, 1.5, 2.0, |x, _| x.ln()),
    (Opcode::Log2, 0.0, 3.0, 2.0, 2.0, |x, _| x.log2()),
    (Opcode::Sin, -20.0, 20.0, 2.0, 2.0, |x, _| x.sin()),
    (Opcode::Cos, -20.0, 20.0, 2.0, 2.0, |x, _| x.cos()),
    (Opcode::Tan, -20.0, 20.0, 4.0, 3.0, |x, _| x.tan()),
    (Opcode::Sinh, -5.0, 5.0, 4.0, 3.0, |x, _| x.sinh()),
    (Opcode::Cosh, -5.0, 5.0, 3.0, 3.0, |x, _| x.cosh()),
    (Opcode::Tanh, -5.0, 5.0, 3.0, 3.0, |x, _| x.tanh()),
    (Opcode::Atan2, -5.0, 5.0, 3.0, 3.0, |x, y| x.atan2(y)),
    (Opcode::PowF, 0.0, 30.0, 4.0, 2.0, |x, y| x.powf(y)),
    (Opcode::Rsqrt, 0.0, 30.0, 2.0, 2.0, |x, _| 1.0 / x.sqrt()),
];

#[test]
fn single_precision() {
    let sweep = Sweep { dtype: DType::F32, count: 20_000 / one_in(20) };
    for (code, low, high, bound, _, reference) in CASES {
        let error = sweep.run(&op(code, &[]), low, high, &reference);
        assert!(error <= bound, "{code:?}: {error} ulp");
    }
}

#[test]
fn double_precision() {
    let sweep = Sweep { dtype: DType::F64, count: 20_000 / one_in(20) };
    for (code, low, high, _, bound, reference) in CASES {
        let error = sweep.run(&op(code, &[]), low, high, &reference);
        assert!(error <= bound, "{code:?}: {error} ulp");
    }
}

/// Arguments next to multiples of π/2, with the most cancellation in the reduction.
#[test]
fn angles_near_quadrants() {
    let lowered = Lowered::new(Target::SM_90A, &op(Opcode::Sin, &[]), &[DType::F32], DType::F32);
    let mut thread = lowered.thread();
    let mut state = 4;
    for _ in 0..100_000 / one_in(10) {
        let exponent = (random(&mut state) % 64) as f64 / 64.0 * 100.0;
        let x = (exponent.exp2().round() * std::f64::consts::FRAC_PI_2) as f32;
        let ours = f32::from_bits(lowered.eval(&mut thread, &[x.to_bits().into()]) as u32);
        let error = error32(ours, f64::from(x).sin());
        assert!(error <= 2.0, "sin({x:e}) = {ours:e}: {error} ulp");
    }
}

#[test]
fn special_values() {
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    let values =
        [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e30, -1e30, inf, -inf, nan, 1e-40, 88.0, -104.0];
    for (code, .., bound32, bound64, reference) in CASES {
        for (dtype, bound) in [(DType::F32, bound32), (DType::F64, bound64)] {
            let operands = code.spec().operands.len();
            let lowered = Lowered::new(Target::SM_80, &op(code, &[]), &vec![dtype; operands], dtype);
            let mut thread = lowered.thread();
            for (x, y) in values.into_iter().flat_map(|x| values.map(|y| (x, y))) {
                let inputs = [x, y].map(|v| crate::types::float_codec::encode(dtype, v, Rounding::NearestEven));
                let [x, y] = inputs.map(|bits| crate::types::float_codec::decode(dtype, bits));
                let bits = lowered.eval(&mut thread, &inputs[..operands]);
                let error = match dtype {
                    DType::F32 => error32(f32::from_bits(bits as u32), reference(x, y)),
                    _ => error64(f64::from_bits(bits), reference(x, y)),
                };
                let ours = crate::types::float_codec::decode(dtype, bits);
                assert!(error <= bound, "{code:?} {dtype} of {x:e}, {y:e}: {ours:e}, not {:e}", reference(x, y));
            }
        }
    }
}

/// Integer powers: all parities, signs, and exponents that f32 cannot hold.
#[test]
fn integer_powers() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let lowered = Lowered::new(Target::SM_80, &op(Opcode::PowI, &[]), &[dtype, DType::I32], dtype);
        let mut thread = lowered.thread();
        let mut state = 8;
        for i in 0..20_000 / one_in(10) {
            let n = match i % 4 {
                0 => (random(&mut state) % 41) as i32 - 20,
                1 => 0x7fff_ffff - (random(&mut state) % 3) as i32,
                2 => i32::MIN + (random(&mut state) % 3) as i32,
                _ => random(&mut state) as i32 >> (random(&mut state) % 32),
            };
            let spread = 2f64.powi(-((random(&mut state) % 30) as i32));
            let x = (1.0 + spread * (random(&mut state) >> 11) as f64 / 2f64.powi(53))
                * if i % 3 == 0 { -1.0 } else { 1.0 };
            let bits = crate::types::float_codec::encode(dtype, x, Rounding::NearestEven);
            let x = crate::types::float_codec::decode(dtype, bits);
            let ours = lowered.eval(&mut thread, &[bits, u64::from(n as u32)]);
            let expected = x.powf(f64::from(n));
            let error = match dtype {
                DType::F32 => error32(f32::from_bits(ours as u32), expected),
                DType::F64 => error64(f64::from_bits(ours), expected),
                _ => {
                    let rounded = crate::types::float_codec::encode(dtype, expected, Rounding::NearestEven);
                    (ours as f64 - rounded as f64).abs()
                }
            };
            assert!(error <= 4.0, "{dtype} {x:e}^{n}: {error} ulp");
        }
    }
}

#[test]
fn approximations() {
    let approx = [Attr::Rounding(Rounding::Approx)];
    let sweep = Sweep { dtype: DType::F32, count: 0 };
    assert_eq!(sweep.run(&op(Opcode::Exp, &approx), -1.0, 1.0, &|x, _| x.exp()), 0.0);
    let lowered = Lowered::new(Target::SM_80, &op(Opcode::Exp, &approx), &[DType::F32], DType::F32);
    let mut thread = lowered.thread();
    for i in -80..80 {
        let x = i as f32 * 0.1;
        let ours = f32::from_bits(lowered.eval(&mut thread, &[x.to_bits().into()]) as u32);
        assert!((ours / x.exp() - 1.0).abs() < 1e-5, "exp({x})");
    }
}
