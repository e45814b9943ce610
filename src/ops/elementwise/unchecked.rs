//! Integer arithmetic with the assumption that no operation overflows.

use crate::element::{Element, Int};
use crate::ir::{Attr, Opcode, Overflow};
use crate::ops::support::operand::{BroadcastOperand, arg_of, methods, uniform, value};
use crate::tile::{Arg, Place, Scalar, Tile, TileLike, caller_location};

#[track_caller]
fn promised<X: TileLike>(place: Place, name: &str, code: Opcode, operands: &[Arg]) -> X {
    let promise = if X::Elem::SIGNED { Overflow::Nsw } else { Overflow::Nuw };
    uniform(place, name, code, vec![Attr::Overflow(promise)], operands)
}

methods! { [Int]
    /// `self + other`, with the assumption that every sum fits the type.
    ///
    /// The compiler may derive bounds of the result from it, for example that an index is less than
    /// 2^31. The cpu back end checks the assumption and returns an error if it is false.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn next(x: ArrayMut<i32, 1>) {
    ///     // SAFETY: no launch passes an array with `i32::MAX` in it.
    ///     x.store(0, unsafe { x.load(0, [2]).unchecked_add(1) });
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let mut x = device.array(&[1, i32::MAX - 1], [2])?;
    /// ct::launch(next, 1, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [2, i32::MAX]);
    /// let error = ct::launch(next, 1, (&mut x,)).unwrap_err().to_string();
    /// assert!(error.contains("2147483647 + 1 was assumed to fit 32 bits, signed"), "{error}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Safety
    /// Every sum fits the type. Otherwise the behavior is undefined, except on the cpu back end.
    #[track_caller]
    #[must_use]
    pub unsafe fn unchecked_add(self, other: impl BroadcastOperand<Self>) -> Self {
        promised(caller_location(), "unchecked_add", Opcode::AddI, &[value(self), arg_of::<Self>(other)])
    }

    /// `self - other`, with the assumption that every difference fits the type; see
    /// [`Self::unchecked_add`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// // SAFETY: 5 and 7 are not less than 5.
    /// ct::assert!(unsafe { ct::astile([5u8, 7]).unchecked_sub(5) }.eq(ct::astile([0, 2])));
    /// # });
    /// ```
    ///
    /// # Safety
    /// Every difference fits the type. Otherwise the behavior is undefined, except on the cpu back
    /// end.
    #[track_caller]
    #[must_use]
    pub unsafe fn unchecked_sub(self, other: impl BroadcastOperand<Self>) -> Self {
        promised(caller_location(), "unchecked_sub", Opcode::SubI, &[value(self), arg_of::<Self>(other)])
    }

    /// `self * factor`, with the assumption that every product fits the type; see
    /// [`Self::unchecked_add`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// // SAFETY: products of such numbers are far below 2^31.
    /// ct::assert!(unsafe { ct::astile([5, -7]).unchecked_mul(3) }.eq(ct::astile([15, -21])));
    /// # });
    /// ```
    ///
    /// # Safety
    /// Every product fits the type. Otherwise the behavior is undefined, except on the cpu back
    /// end.
    #[track_caller]
    #[must_use]
    pub unsafe fn unchecked_mul(self, factor: impl BroadcastOperand<Self>) -> Self {
        promised(caller_location(), "unchecked_mul", Opcode::MulI, &[value(self), arg_of::<Self>(factor)])
    }

    /// `self << n`, with the assumption that `n` is less than the width and that `self * 2^n` fits
    /// the type; see [`Self::unchecked_add`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// // SAFETY: 3 and -4 times 8 are far below 2^31.
    /// ct::assert!(unsafe { ct::astile([3, -4]).unchecked_shl(3) }.eq(ct::astile([24, -32])));
    /// # });
    /// ```
    ///
    /// # Safety
    /// Both conditions hold for every element. Otherwise the behavior is undefined, except on the
    /// cpu back end.
    #[track_caller]
    #[must_use]
    pub unsafe fn unchecked_shl(self, n: impl BroadcastOperand<Self>) -> Self {
        promised(caller_location(), "unchecked_shl", Opcode::ShlI, &[value(self), arg_of::<Self>(n)])
    }
}
