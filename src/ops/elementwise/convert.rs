//! Conversion of element types: by value (`cast`) and by bits (`bitcast`).
//!
//! `cast` accepts every pair of element types and selects the ops of the conversion. No conversion
//! is implicit.

use super::compare::mask;
use crate::dtype::DType;
use crate::element::{AnyFloat, BitcastTo, CastTo, Element};
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Overflow, Rounding, Sign, Value};
use crate::ops::support::operand::{elementwise, methods, value};
use crate::tile::{Handle, Scalar, Tile, TileLike, Trace, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Default rounding of a float conversion. `f8e8m0fnu` has only directed roundings.
fn default_rounding(to: DType) -> Rounding {
    if to == DType::F8E8M0FNU { Rounding::Zero } else { Rounding::NearestEven }
}

fn float_to_float(t: &mut Trace, x: Value, to: DType, rounding: Rounding, shape: &[i64]) -> Value {
    t.put(Opcode::FToF, &[x], vec![Attr::Rounding(rounding)], to, shape)
}

/// `value != 0`; NaN counts as true.
fn to_bool(t: &mut Trace, x: Value, from: Kind, shape: &[i64]) -> Value {
    let (x, dtype) = match from.dtype.is_float() && !from.dtype.is_base_float() {
        true => (float_to_float(t, x, DType::F32, Rounding::NearestEven, shape), DType::F32),
        false => (x, from.dtype),
    };
    let zero = t.splat(dtype, 0, shape);
    mask(t, CmpPred::Ne, CmpOrder::Unordered, dtype, from.signed, x, zero, shape)
}

/// Element type with its signedness. It is a value and not a type parameter, so that `convert` is
/// compiled once and not for each pair of types.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub dtype: DType,
    pub signed: bool,
}

impl Kind {
    pub(crate) fn of<T: Element>() -> Kind {
        Kind { dtype: T::DTYPE, signed: T::SIGNED }
    }

    fn sign(self) -> Attr {
        Attr::Sign(self.reading())
    }

    fn reading(self) -> Sign {
        if self.signed { Sign::Signed } else { Sign::Unsigned }
    }
}

pub(crate) fn convert(t: &mut Trace, x: Value, source: Kind, target: Kind, shape: &[i64]) -> Value {
    let (from, to) = (source.dtype, target.dtype);
    let (source_sign, target_sign) = (source.sign(), target.sign());
    let nearest = Attr::Rounding(Rounding::NearestEven);
    match (from.is_float(), to.is_float()) {
        _ if from == to => x,
        (_, false) if to == DType::I1 => to_bool(t, x, source, shape),
        (true, true) => float_to_float(t, x, to, default_rounding(to), shape),
        (true, false) => t.put(Opcode::FToI, &[x], vec![target_sign, Attr::Rounding(Rounding::IntToZero)], to, shape),
        (false, true) if to == DType::F8E8M0FNU => {
            let wide = t.put(Opcode::IToF, &[x], vec![source_sign, nearest], DType::F32, shape);
            float_to_float(t, wide, to, default_rounding(to), shape)
        }
        (false, true) => t.put(Opcode::IToF, &[x], vec![source_sign, nearest], to, shape),
        (false, false) if to.bits() > from.bits() => t.put(Opcode::ExtI, &[x], vec![source_sign], to, shape),
        (false, false) => t.put(Opcode::TruncI, &[x], vec![Attr::Overflow(Overflow::None)], to, shape),
    }
}

/// Returns true if every value of `from` is a value of `to`.
fn is_widening(from: DType, to: DType) -> bool {
    use DType::*;
    let small = matches!(from, F8E4M3FN | F8E5M2 | F4E2M1FN);
    let wide = small || from == F8E5M3FNU;
    match to {
        F64 => true,
        F32 => wide || matches!(from, F16 | BF16 | TF32),
        TF32 => wide || matches!(from, F16 | BF16),
        BF16 => wide,
        F16 => small,
        _ => false,
    }
}

/// Roundings that a float conversion accepts, as in the verifier of Tile IR.
fn allowed_roundings(from: DType, to: DType) -> &'static [Rounding] {
    use Rounding::*;
    match (from, to) {
        (_, DType::F8E8M0FNU) => &[Zero, PosInf],
        _ if to.bits() <= 8 => &[NearestEven],
        _ if is_widening(from, to) => &[NearestEven, Zero, NegInf, PosInf, NearestAway],
        (DType::F64, DType::F32) => &[NearestEven, Zero, NegInf, PosInf],
        (DType::F32, DType::TF32) => &[NearestEven, Zero, NearestAway],
        _ => &[NearestEven, Zero],
    }
}

methods! { [Element]
    /// Converts the values to another element type.
    ///
    /// * Float to float rounds to nearest even, to `f8e8m0fnu` toward zero; see
    ///   [`Tile::cast_with`].
    /// * Float to integer rounds toward zero and saturates. NaN becomes 0.
    /// * Integer to float rounds to nearest even.
    /// * Integer to integer keeps the low bits, or extends by the signedness of the source type.
    /// * To bool is `value != 0`; from bool is 0 or 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.75f32, -1e30, f32::NAN, 3.0]).cast::<i32>().eq(ct::astile([2, i32::MIN, 0, 3])));
    /// ct::assert!(ct::astile([300i32, -1]).cast::<u8>().eq(ct::astile([44, 255])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    #[doc(alias("astype", "to", "convert"))]
    pub fn cast<U: Element>(self) -> <Self as TileLike>::With<U>
    where
        T: CastTo<U>,
    {
        let (source, target) = (Kind::of::<T>(), Kind::of::<U>());
        elementwise(caller_location(), "cast", &[value(self)], |t, v, shape| {
            let result = convert(t, v[0], source, target, shape);
            if !target.dtype.is_float() && target.dtype != DType::I1 && result != v[0] {
                t.written(result, [source, target].map(Kind::reading));
            }
            result
        })
    }

    /// Converts floats to another float type with an explicit rounding.
    ///
    /// Most pairs accept `NearestEven` and `Zero`, and some pairs accept further roundings. Targets
    /// of 8 and 4 bits accept only `NearestEven`; `f8e8m0fnu` accepts `Zero` and `PosInf`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (near, down) = (ct::scalar(0.9999f32), ct::scalar(0.9999f32).cast_with::<f16>(Rounding::Zero));
    /// ct::assert!(near.cast::<f16>().eq(1.0) & down.lt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_with<U: AnyFloat>(self, rounding: Rounding) -> <Self as TileLike>::With<U>
    where
        T: AnyFloat,
    {
        let (from, to, place) = (T::DTYPE, U::DTYPE, caller_location());
        let allowed = allowed_roundings(from, to);
        if from != to && !allowed.contains(&rounding) {
            let names: Vec<String> = allowed.iter().map(|r| format!("`{r:?}`")).collect_vec();
            let message = format!("`cast_with` from {} to {} cannot round `{rounding:?}`", T::NAME, U::NAME);
            record(|t| t.report(place, message, &[&format!("this conversion takes {}", names.join(", "))]));
        }
        elementwise(place, "cast_with", &[value(self)], |t, v, shape| match from == to {
            true => v[0],
            false => float_to_float(t, v[0], to, rounding, shape),
        })
    }

    /// Reinterprets the bits as another element type of the same width.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, -0.0]).bitcast::<u32>().eq(ct::astile([0x3f80_0000, 0x8000_0000])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn bitcast<U: Element>(self) -> <Self as TileLike>::With<U>
    where
        T: BitcastTo<U>,
    {
        if T::DTYPE == U::DTYPE {
            return Handle::from_raw(self.raw());
        }
        elementwise(caller_location(), "bitcast", &[value(self)], |t, v, shape| {
            t.put(Opcode::Bitcast, v, vec![], U::DTYPE, shape)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Type, verify};

    fn verifier_accepts(from: DType, to: DType, rounding: Rounding) -> bool {
        let mut b = Builder::new();
        b.begin_entry("kernel", &[]);
        let x = b.splat(from, 0, &[2]);
        let ty = b.module.intern(Type::tile(to, [2]));
        b.simple(Opcode::FToF, &[x], vec![Attr::Rounding(rounding)], ty);
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        verify(&b.module).is_ok()
    }

    #[test]
    fn roundings_are_those_of_the_verifier() {
        let floats = DType::ALL.into_iter().filter(|d| d.is_float());
        for from in floats.clone() {
            for to in floats.clone().filter(|to| *to != from) {
                for &rounding in Rounding::ALL {
                    let ours = allowed_roundings(from, to).contains(&rounding);
                    assert_eq!(ours, verifier_accepts(from, to, rounding), "{from} to {to}, {rounding:?}");
                }
            }
        }
    }
}
