//! Inputs: random, with special values. Equal seeds mean equal inputs.

use cutlet::dtype::DType;
use cutlet::element::Element;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::format::Format;

/// Distribution of the values of an input.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    /// Every bit pattern of the type: NaNs, infinities, subnormals, all magnitudes.
    Any,
    /// The corners of the type alone: see [`specials`].
    Corners,
    /// Around 1 in both directions and of both signs, without special values.
    Moderate,
    /// Uniform between two numbers.
    Between(f64, f64),
    /// Small whole numbers, so that sums and products are exact.
    Whole(i32),
}

/// The format of a floating-point element type.
pub fn format_of(dtype: DType) -> Option<Format> {
    Some(match dtype {
        DType::F64 => Format::F64,
        DType::F32 => Format::F32,
        DType::TF32 => Format::TF32,
        DType::BF16 => Format::BF16,
        DType::F16 => Format::F16,
        DType::F8E4M3FN => Format::F8E4M3FN,
        DType::F8E5M2 => Format::F8E5M2,
        DType::F8E8M0FNU => Format::F8E8M0FNU,
        DType::F4E2M1FN => Format::F4E2M1FN,
        _ => return None,
    })
}

/// Bits that a value of this type takes (tf32 as an f32 pattern).
fn pattern_bits(dtype: DType) -> u32 {
    if dtype == DType::TF32 { 32 } else { dtype.bits() }
}

/// `count` values of type `T`.
pub fn random<T: Element>(seed: u64, count: usize, spread: Spread) -> Vec<T> {
    let mut random = SmallRng::seed_from_u64(seed);
    let specials = specials::<T>();
    let mut value = || match spread {
        Spread::Any => match random.random_range(0..4) {
            0 => specials[random.random_range(0..specials.len())],
            1 => moderate::<T>(&mut random),
            _ => any_bits::<T>(&mut random),
        },
        Spread::Corners => specials[random.random_range(0..specials.len())],
        Spread::Moderate => moderate::<T>(&mut random),
        Spread::Between(low, high) => T::from_f64(random.random_range(low..=high)),
        Spread::Whole(limit) => {
            let low = if T::SIGNED || T::DTYPE.is_float() { -limit } else { 0 };
            T::from_f64(random.random_range(low..=limit).into())
        }
    };
    (0..count).map(|_| value()).collect()
}

fn any_bits<T: Element>(random: &mut impl Rng) -> T {
    let bits = random.next_u64();
    match T::DTYPE {
        // The low 13 bits of a tf32 are zero.
        DType::TF32 => T::from_bits(bits & 0xffff_e000),
        dtype if dtype.bits() == 64 => T::from_bits(bits),
        dtype => T::from_bits(bits & ((1 << pattern_bits(dtype)) - 1)),
    }
}

fn moderate<T: Element>(random: &mut impl Rng) -> T {
    if T::DTYPE.is_int() {
        let low = if T::SIGNED { -100.0 } else { 0.0 };
        return T::from_f64(random.random_range::<f64, _>(low..100.0).floor());
    }
    let magnitude = random.random_range(-3.0..3.0f64).exp2();
    T::from_f64(if random.random() { magnitude } else { -magnitude })
}

/// The corners of a type.
pub fn specials<T: Element>() -> Vec<T> {
    let Some(format) = format_of(T::DTYPE) else {
        let top = 1u64.checked_shl(T::DTYPE.bits() - 1).unwrap();
        let mask = top | (top - 1);
        return [0, 1, 2, mask, mask - 1, top, top - 1, top | 1].map(|bits| T::from_bits(bits & mask)).to_vec();
    };
    let tiny = format.smallest_normal();
    let magnitudes = [
        0.0,
        1.0,
        0.5,
        2.0,
        1.5,
        3.0,
        1e-3,
        tiny,
        tiny / 2.0,
        tiny * 1.5,
        format.largest(),
        format.largest() / 2.0,
        f64::INFINITY,
    ];
    magnitudes.iter().flat_map(|&x| [x, -x]).chain([f64::NAN]).map(T::from_f64).collect()
}
