//! Conversion of two operands to their common element type.

use super::operand::{elementwise, value};
use crate::element::{Element, bf16, f16};
use crate::ops::elementwise::convert::{Kind, convert};
use crate::tile::{TileLike, caller_location};

/// Element types with a common type for arithmetic.
///
/// The common type of two integers of one sign, or of two floats, is the wider one. The common type
/// of an integer and a float is the float. The common type of bool and another type is the other
/// type. A signed and an unsigned integer have none, and f16 and bf16 have none. Types that are
/// only stored or multiplied (`tf32`, 8- and 4-bit floats) have none. Such operands need a `cast`.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn mean<T: Float + ct::math::Promote<U, Output = T>, U: Element>(x: Tile<T, 1>, y: Tile<U, 1>) -> Tile<T, 1> {
///     let (x, y) = ct::math::promote(x, y);
///     (x + y) * T::from_f64(0.5)
/// }
/// ct::assert!(mean(ct::astile([1.0f32, 2.0]), ct::astile([2i8, 2])).eq(ct::astile([1.5, 2.0])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no common type of `{Self}` and `{Other}` that holds what both of them mean",
    note = "say which one is meant: `.cast::<T>()`"
)]
pub trait Promote<Other: Element>: Element {
    /// The common type.
    type Output: Element;
}

macro_rules! promotions {
    ($($small:ident: $($large:ident)*;)+) => {$(
        impl Promote<$small> for $small {
            type Output = $small;
        }
        $(
            impl Promote<$large> for $small {
                type Output = $large;
            }
            impl Promote<$small> for $large {
                type Output = $large;
            }
        )*
    )+};
}
promotions! {
    bool: i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64;
    i8: i16 i32 i64 f16 bf16 f32 f64;
    i16: i32 i64 f16 bf16 f32 f64;
    i32: i64 f16 bf16 f32 f64;
    i64: f16 bf16 f32 f64;
    u8: u16 u32 u64 f16 bf16 f32 f64;
    u16: u32 u64 f16 bf16 f32 f64;
    u32: u64 f16 bf16 f32 f64;
    u64: f16 bf16 f32 f64;
    f16: f32 f64;
    bf16: f32 f64;
    f32: f64;
    f64: ;
}

/// Returns both operands, tiles or scalars, in their common element type ([`Promote`]). An integer
/// combined with a float is converted to the type of the float, also a narrow one, which may round
/// it.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(x: Array<f16, 1>, n: Array<u8, 1>, y: ArrayMut<f16, 1>) {
///     let (x, n) = ct::math::promote(x.load(0, [4]), n.load(0, [4]));
///     y.store(0, x * n);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, n) = (device.full([4], f16::from_f32(0.5))?, device.array(&[1u8, 2, 3, 4], [4])?);
/// let mut y = device.zeros([4])?;
/// ct::launch(kernel, 1, (&x, &n, &mut y))?;
/// assert_eq!(y.to_vec()?, [0.5, 1.0, 1.5, 2.0].map(f16::from_f32));
/// # Ok::<(), ct::Error>(())
/// ```
#[allow(clippy::type_complexity)]
#[track_caller]
#[must_use]
pub fn promote<A, B, O>(a: A, b: B) -> (A::With<O>, B::With<O>)
where
    A: TileLike,
    B: TileLike,
    O: Element,
    A::Elem: Promote<B::Elem, Output = O>,
{
    (converted::<A, O>(a), converted::<B, O>(b))
}

#[track_caller]
fn converted<X: TileLike, O: Element>(x: X) -> X::With<O> {
    let (from, to) = (Kind::of::<X::Elem>(), Kind::of::<O>());
    elementwise(caller_location(), "promote", &[value(x)], |t, v, shape| convert(t, v[0], from, to, shape))
}
