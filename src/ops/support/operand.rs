//! Operands of elementwise ops: tiles, scalars and host values.

use crate::dtype::DType;
use crate::element::{Element, bf16, f16};
use crate::ir::{Attr, Opcode, Sign, Value};
use crate::sealed::Sealed;
use crate::tile::{Arg, ElementwiseBody, Handle, Place, Scalar, Source, Tile, TileLike, Trace, ValueHandle, record};

/// Values that can be combined with an `O` (a [`Tile`] or a [`Scalar`]).
///
/// Operands of a `Tile<T, R>` are a `Tile<T, R>` (with equal extents, or broadcast extents of 1), a
/// `Scalar<T>`, and a host value of type `T`. Operands of a `Scalar<T>` are a `Scalar<T>` and a
/// host value. Two conversions exist: float literals to f16 and bf16 (rounded once, from f64), and
/// host `usize` values, the type of tile extents, to i32.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn shifted<const R: usize>(x: Tile<f32, R>, by: impl Operand<Tile<f32, R>>) -> Tile<f32, R> {
///     x + by
/// }
/// fn kernel(y: ArrayMut<f32, 1>) {
///     let x = ct::astile([1.0f32, 2.0]);
///     y.store(0, shifted(shifted(x, 10.0), x)); // a number, a tile
/// }
///
/// let mut y = ct::Device::cpu().zeros([2])?;
/// ct::launch(kernel, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [12.0, 14.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with `{O}`",
    note = "a literal has the element type of the tile: `2.0` for floats, `2` for integers",
    note = "element types and ranks must agree: convert with `.cast::<T>()`, change the rank with `.reshape(..)`, \
            `.unsqueeze(axis)` or `.squeeze(axis)`; a `Scalar` and a host value of the element type combine with any rank \
            (`y as f32` of an f64); \
            see docs/common_errors.md"
)]
pub trait Operand<O>: Sealed + Copy {
    #[doc(hidden)]
    fn source(self) -> Source;
}

/// Second operand of operators and methods of an `O`, with broadcasting: its [`Operand`]s, and
/// tiles of a lower rank, which get leading axes of extent 1 (up to 4 axes).
///
/// This trait is sealed.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(y: ArrayMut<f32, 2>) {
///     let (matrix, row) = (ct::astile([[1.0f32, 2.0], [3.0, 4.0]]), ct::astile([10.0f32, 20.0]));
///     let sums = row + matrix; // in either order
///     y.store((0, 0), (sums - row).max(row / 10.0));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2, 2])?;
/// ct::launch(kernel, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with `{O}`",
    note = "a literal has the element type of the tile: `2.0` for floats, `2` for integers",
    note = "element types must agree: convert with `.cast::<T>()`; in methods the tile with more axes is first: \
            `wide.max(narrow)`; a `Scalar` and a host value of the element type combine with any rank (`y as f32` of an f64); \
            see docs/common_errors.md"
)]
pub trait BroadcastOperand<O>: Sealed + Copy {
    #[doc(hidden)]
    fn broadcast_source(self) -> Source;
}

#[diagnostic::do_not_recommend]
impl<O, B: Operand<O>> BroadcastOperand<O> for B {
    fn broadcast_source(self) -> Source {
        self.source()
    }
}

macro_rules! fewer_axes {
    ($($few:literal < $many:literal;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Element> BroadcastOperand<Tile<T, $many>> for Tile<T, $few> {
            fn broadcast_source(self) -> Source {
                Source::Value(self.raw())
            }
        }
    )+};
}
fewer_axes! { 1 < 2; 1 < 3; 1 < 4; 2 < 3; 2 < 4; 3 < 4; }

impl<T: Element, const R: usize> Operand<Tile<T, R>> for Tile<T, R> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl<T: Element, const R: usize> Operand<Tile<T, R>> for Scalar<T> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl<T: Element> Operand<Scalar<T>> for Scalar<T> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl<T: Element, const R: usize> Operand<Tile<T, R>> for T {
    fn source(self) -> Source {
        Source::Literal(self.to_bits())
    }
}
impl<T: Element> Operand<Scalar<T>> for T {
    fn source(self) -> Source {
        Source::Literal(self.to_bits())
    }
}

macro_rules! half_literals {
    ($($name:ident)+) => {$(
        impl<const R: usize> Operand<Tile<$name, R>> for f64 {
            fn source(self) -> Source {
                Source::Literal(Element::to_bits(<$name as Element>::from_f64(self)))
            }
        }
        impl Operand<Scalar<$name>> for f64 {
            fn source(self) -> Source {
                Source::Literal(Element::to_bits(<$name as Element>::from_f64(self)))
            }
        }
    )+};
}
half_literals!(f16 bf16);

impl<const R: usize> Operand<Tile<i32, R>> for usize {
    fn source(self) -> Source {
        Source::Extent(self)
    }
}
impl Operand<Scalar<i32>> for usize {
    fn source(self) -> Source {
        Source::Extent(self)
    }
}

/// An operand of form `X`, with the element type of literals.
pub(crate) fn operand<X: TileLike>(x: impl Operand<X>) -> Arg {
    Arg { source: x.source(), dtype: X::Elem::DTYPE, elem: X::Elem::NAME }
}

/// The other operand of an `X`, with the element type of literals.
pub(crate) fn arg_of<X: TileLike>(x: impl BroadcastOperand<X>) -> Arg {
    Arg { source: x.broadcast_source(), dtype: X::Elem::DTYPE, elem: X::Elem::NAME }
}

/// A handle as an operand.
pub(crate) fn value<X: TileLike>(x: X) -> Arg {
    Arg { source: Source::Value(x.raw()), dtype: X::Elem::DTYPE, elem: X::Elem::NAME }
}

/// Records an elementwise operation with a result of form `Y`; see [`Trace::elementwise`].
#[track_caller]
pub(crate) fn elementwise<Y: TileLike>(
    place: Place,
    name: &str,
    operands: &[Arg],
    body: impl FnOnce(&mut Trace, &[Value], &[i64]) -> Value,
) -> Y {
    let mut body = Some(body);
    let mut once =
        |t: &mut Trace, values: &[Value], shape: &[i64]| body.take().expect("called at most once")(t, values, shape);
    Y::from_raw(elementwise_of_rank(place, name, operands, Y::RANK, Y::Elem::DTYPE, &mut once))
}

#[track_caller]
fn elementwise_of_rank(
    place: Place,
    name: &str,
    operands: &[Arg],
    rank: usize,
    out: DType,
    body: &mut ElementwiseBody<'_>,
) -> ValueHandle {
    record(|t| t.elementwise(place, name, operands, rank, out, body))
}

/// Records one op with operands and result of one element type.
#[track_caller]
pub(crate) fn uniform<X: TileLike>(place: Place, name: &str, code: Opcode, attrs: Vec<Attr>, operands: &[Arg]) -> X {
    X::from_raw(uniform_of_rank(place, name, code, attrs, operands, X::RANK, X::Elem::DTYPE))
}

#[track_caller]
fn uniform_of_rank(
    place: Place,
    name: &str,
    code: Opcode,
    attrs: Vec<Attr>,
    operands: &[Arg],
    rank: usize,
    dtype: DType,
) -> ValueHandle {
    let mut put = |t: &mut Trace, v: &[Value], shape: &[i64]| t.put(code, v, attrs.clone(), dtype, shape);
    elementwise_of_rank(place, name, operands, rank, dtype, &mut put)
}

/// As [`uniform`], of an op on integers that the user wrote: see [`Trace::written`].
#[track_caller]
pub(crate) fn written<X: TileLike>(place: Place, name: &str, code: Opcode, attrs: Vec<Attr>, operands: &[Arg]) -> X {
    let sign = if X::Elem::SIGNED { Sign::Signed } else { Sign::Unsigned };
    X::from_raw(written_of_rank(place, name, (code, attrs), operands, X::RANK, (X::Elem::DTYPE, sign)))
}

#[track_caller]
fn written_of_rank(
    place: Place,
    name: &str,
    (code, attrs): (Opcode, Vec<Attr>),
    operands: &[Arg],
    rank: usize,
    (dtype, sign): (DType, Sign),
) -> ValueHandle {
    let mut put = |t: &mut Trace, v: &[Value], shape: &[i64]| {
        let value = t.put(code, v, attrs.clone(), dtype, shape);
        t.written(value, [sign; 2]);
        value
    };
    elementwise_of_rank(place, name, operands, rank, dtype, &mut put)
}

/// Expands methods for tiles and for scalars alike.
macro_rules! methods {
    ($(#[$meta:meta])* [$($bound:tt)+] $($body:tt)*) => {
        $(#[$meta])*
        impl<T: $($bound)+, const R: usize> Tile<T, R> { $($body)* }
        // The examples run once, as those of tiles.
        #[cfg(not(doctest))]
        $(#[$meta])*
        impl<T: $($bound)+> Scalar<T> { $($body)* }
    };
}
pub(crate) use methods;
