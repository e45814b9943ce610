//! Wrapping integer arithmetic: the results of the operators, without overflow checks.

use super::convert::{Kind, convert};
use crate::element::{CastTo, Int};
use crate::ir::{Attr, Opcode, Overflow};
use crate::ops::support::operand::{BroadcastOperand, arg_of, elementwise, methods, uniform, value};
use crate::tile::{Arg, Place, Scalar, Tile, TileLike, caller_location};

#[track_caller]
fn wrapping<X: TileLike>(place: Place, name: &str, code: Opcode, operands: &[Arg]) -> X {
    uniform(place, name, code, vec![Attr::Overflow(Overflow::None)], operands)
}

methods! { [Int]
    /// `self + other` modulo 2^width, as `+`, without the check of
    /// [`Checks::overflow`](crate::Checks::overflow).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).checks(ct::Checks::all()).launch(|| {
    /// ct::assert!(ct::astile([250u8, 5]).wrapping_add(10).eq(ct::astile([4, 15])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn wrapping_add(self, other: impl BroadcastOperand<Self>) -> Self {
        wrapping(caller_location(), "wrapping_add", Opcode::AddI, &[value(self), arg_of::<Self>(other)])
    }

    /// `self - other` modulo 2^width, as `-`, without the check of
    /// [`Checks::overflow`](crate::Checks::overflow).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).checks(ct::Checks::all()).launch(|| {
    /// ct::assert!(ct::astile([0u32, 5]).wrapping_sub(1).eq(ct::astile([u32::MAX, 4])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn wrapping_sub(self, other: impl BroadcastOperand<Self>) -> Self {
        wrapping(caller_location(), "wrapping_sub", Opcode::SubI, &[value(self), arg_of::<Self>(other)])
    }

    /// `self * factor` modulo 2^width, as `*`, without the check of
    /// [`Checks::overflow`](crate::Checks::overflow).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).checks(ct::Checks::all()).launch(|| {
    /// let hash = ct::arange_from::<u32>(4, 0, 1).wrapping_mul(0x9e37_79b9);
    /// ct::assert!(hash.eq(ct::astile([0, 0x9e37_79b9, 0x3c6e_f372, 0xdaa6_6d2b])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn wrapping_mul(self, factor: impl BroadcastOperand<Self>) -> Self {
        wrapping(caller_location(), "wrapping_mul", Opcode::MulI, &[value(self), arg_of::<Self>(factor)])
    }

    /// The low bits as another integer type, as [`cast`](Tile::cast), without the check of
    /// [`Checks::casts`](crate::Checks::casts).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).checks(ct::Checks::all()).launch(|| {
    /// ct::assert!(ct::astile([300i32, -1]).wrapping_cast::<u8>().eq(ct::astile([44, 255])));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn wrapping_cast<U: Int>(self) -> <Self as TileLike>::With<U>
    where
        T: CastTo<U>,
    {
        let (source, target) = (Kind::of::<T>(), Kind::of::<U>());
        elementwise(caller_location(), "wrapping_cast", &[value(self)], |t, v, shape| convert(t, v[0], source, target, shape))
    }
}
