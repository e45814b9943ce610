//! Comparisons, minimum and maximum, and select.
//!
//! `a.max(b)` compares element by element, as `f32::max` does. `a.reduce_max(axis)` is the largest
//! element along an axis.

use super::arithmetic::sign;
use crate::dtype::DType;
use crate::element::{ByteSized, Comparable, Element, Float, Number};
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Sign, Value};
use crate::ops::support::float_mode::scoped;
use crate::ops::support::operand::{BroadcastOperand, Operand, arg_of, elementwise, methods, operand, uniform, value};
use crate::sealed::Sealed;
use crate::tile::{Arg, Handle, Scalar, Source, Tile, TileLike, Trace, caller_location};

/// Records a comparison of two values of one shape.
#[allow(clippy::too_many_arguments)]
pub(crate) fn mask(
    t: &mut Trace,
    pred: CmpPred,
    order: CmpOrder,
    dtype: DType,
    signed: bool,
    lhs: Value,
    rhs: Value,
    shape: &[i64],
) -> Value {
    let sign = if signed { Sign::Signed } else { Sign::Unsigned };
    let (code, second) = match dtype.is_float() {
        true => (Opcode::CmpF, Attr::CmpOrder(order)),
        false => (Opcode::CmpI, Attr::Sign(sign)),
    };
    t.put(code, &[lhs, rhs], vec![Attr::CmpPred(pred), second], DType::I1, shape)
}

macro_rules! comparisons {
    ($($(#[$doc:meta])+ $name:ident = $pred:ident $order:ident;)+) => {
        methods! {
            // The names are those of operator traits, which tiles implement only for a compiler
            // message: a comparison returns a tile of `bool`. The receiver is `&self`, so that
            // method resolution prefers these methods for references, too.
            #[allow(clippy::should_implement_trait)]
            [Comparable] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(&self, rhs: impl BroadcastOperand<Self>) -> <Self as TileLike>::With<bool> {
                elementwise(caller_location(), stringify!($name), &[value(*self), arg_of::<Self>(rhs)], |t, v, shape| {
                    mask(t, CmpPred::$pred, CmpOrder::$order, T::DTYPE, T::SIGNED, v[0], v[1], shape)
                })
            }
        )+ }
    };
}

/// Bound of `==` and `<` between values of a kernel, which no type satisfies.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let n = ct::num_blocks(0); // `if n == 1` is an error: the number is known when the kernel runs
/// ct::assert!(n.eq(1).select(ct::scalar(5), 6).eq(5));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a value that is known only when the kernel runs is compared by a method: `.eq(..)`, `.ne(..)`, `.lt(..)`, \
               `.le(..)`, `.gt(..)`, `.ge(..)`",
    label = "compared with `{X}` by an operator",
    note = "decide with `ct::if_else(x.gt(y), || .., || ..)` or `x.gt(y).select(a, b)`; a plain `if` decides while the \
            kernel is traced; \
            see docs/common_errors.md"
)]
pub trait ComparedByOperator<X>: Sealed {
    /// Seals the trait for each `X`: programs cannot name the type of the parameter.
    #[doc(hidden)]
    fn seal(_: no_operand::First);
}

/// Type that has the bound [`ComparedByOperator`] of an operator. With a bound of the operand,
/// rustc prints the message of `PartialEq` where both operands have one type.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::bid(0).lt(ct::num_blocks(0))); // and not ct::bid(0) < ct::num_blocks(0)
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ComparisonOperator;

impl Sealed for ComparisonOperator {}

mod no_operand {
    pub enum First {}
    pub enum Second {}
}

// Two implementations, for types without values: rustc refuses the operator only after it has
// inferred the operand, and then prints the diagnostic.
#[diagnostic::do_not_recommend]
impl ComparedByOperator<no_operand::First> for ComparisonOperator {
    fn seal(_: no_operand::First) {}
}
#[diagnostic::do_not_recommend]
impl ComparedByOperator<no_operand::Second> for ComparisonOperator {
    fn seal(_: no_operand::First) {}
}

macro_rules! compared_by_operator {
    ($([$($generics:tt)*] $ty:ty;)+) => {$(
        impl<T, X, $($generics)*> PartialEq<X> for $ty
        where
            ComparisonOperator: ComparedByOperator<X>,
        {
            fn eq(&self, _: &X) -> bool {
                unreachable!("no type is compared by an operator")
            }
        }
        impl<T, X, $($generics)*> PartialOrd<X> for $ty
        where
            ComparisonOperator: ComparedByOperator<X>,
        {
            fn partial_cmp(&self, _: &X) -> Option<std::cmp::Ordering> {
                unreachable!("no type is compared by an operator")
            }
        }
    )+};
}
compared_by_operator! { [const R: usize] Tile<T, R>; [] Scalar<T>; }

comparisons! {
    /// Returns true for each element with `self == rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).eq(ct::astile([1.0, f32::NAN])).eq(ct::astile([true, false])));
    /// # });
    /// ```
    eq = Eq Ordered;
    /// Returns true for each element with `self != rhs`, and if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).ne(ct::astile([1.0, f32::NAN])).eq(ct::astile([false, true])));
    /// # });
    /// ```
    ne = Ne Unordered;
    /// Returns true for each element with `self < rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1, 2]).lt(2).eq(ct::astile([true, false])));
    /// # });
    /// ```
    lt = Lt Ordered;
    /// Returns true for each element with `self <= rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2, 3]).le(2).eq(ct::astile([true, false])));
    /// # });
    /// ```
    le = Le Ordered;
    /// Returns true for each element with `self > rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3, 2]).gt(2).eq(ct::astile([true, false])));
    /// # });
    /// ```
    gt = Gt Ordered;
    /// Returns true for each element with `self >= rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2, 1]).ge(2).eq(ct::astile([true, false])));
    /// # });
    /// ```
    ge = Ge Ordered;
}

macro_rules! unordered_comparisons {
    ($($(#[$doc:meta])+ $name:ident = $pred:ident $order:ident;)+) => {
        methods! { [Float] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self, rhs: impl BroadcastOperand<Self>) -> <Self as TileLike>::With<bool> {
                elementwise(caller_location(), stringify!($name), &[value(self), arg_of::<Self>(rhs)], |t, v, shape| {
                    mask(t, CmpPred::$pred, CmpOrder::$order, T::DTYPE, T::SIGNED, v[0], v[1], shape)
                })
            }
        )+ }
    };
}

unordered_comparisons! {
    /// Returns true for each element with `self == rhs`, and if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).eq_unordered(2.0).eq(ct::astile([false, true])));
    /// # });
    /// ```
    eq_unordered = Eq Unordered;
    /// Returns true for each element with `self != rhs`, and false if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).ne_ordered(2.0).eq(ct::astile([true, false])));
    /// # });
    /// ```
    ne_ordered = Ne Ordered;
    /// Returns true for each element with `self < rhs`, and if either element is NaN.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<bool, 2>) {
    ///     let x = x.load(0, [4]);
    ///     y.store((0, 0), ct::stack([x.lt(1.0), x.lt_unordered(1.0)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0.0, 1.0, 2.0, f32::NAN], [4])?, device.zeros([2, 4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [true, false, false, false, true, false, false, true]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    lt_unordered = Lt Unordered;
    /// Returns true for each element with `self <= rhs`, and if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3.0f32, f32::NAN]).le_unordered(2.0).eq(ct::astile([false, true])));
    /// # });
    /// ```
    le_unordered = Le Unordered;
    /// Returns true for each element with `self > rhs`, and if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).gt_unordered(2.0).eq(ct::astile([false, true])));
    /// # });
    /// ```
    gt_unordered = Gt Unordered;
    /// Returns true for each element with `self >= rhs`, and if either element is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).ge_unordered(2.0).eq(ct::astile([false, true])));
    /// # });
    /// ```
    ge_unordered = Ge Unordered;
}

/// Operands of [`max`](Tile::max) and [`min`](Tile::min): every [`Operand`].
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn at_least<T: Number, const R: usize>(x: Tile<T, R>, y: impl ct::ops::Comparand<Tile<T, R>>) -> Tile<T, R> {
///     x.max(y)
/// }
/// ct::assert!(at_least(ct::astile([1, 5]), 3).eq(ct::astile([3, 5])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`max` and `min` compare element by element, and `{Self}` cannot be compared with `{O}`",
    note = "the largest element along an axis: `.reduce_max(axis)`; the smallest: `.reduce_min(axis)`",
    note = "a literal has the tile's element type: `.max(1.0)` beside floats, `.max(1)` beside integers; convert tiles \
            with `.cast::<T>()`; of two ranks, the larger one stands first; \
            see docs/common_errors.md"
)]
pub trait Comparand<O>: Sealed + Copy {
    #[doc(hidden)]
    fn compared(self) -> Source;
}

#[diagnostic::do_not_recommend]
impl<O, B: BroadcastOperand<O>> Comparand<O> for B {
    fn compared(self) -> Source {
        self.broadcast_source()
    }
}

fn comparand<X: TileLike>(x: impl Comparand<X>) -> Arg {
    Arg { source: x.compared(), dtype: X::Elem::DTYPE, elem: X::Elem::NAME }
}

/// Opcode and attributes of a maximum or minimum.
fn extremum<T: Element>(float: Opcode, int: Opcode) -> (Opcode, Vec<Attr>) {
    if T::DTYPE.is_float() { (float, vec![]) } else { (int, vec![Attr::Sign(sign::<T>())]) }
}

methods! { [Number]
    /// The larger of two elements. A NaN is ignored unless both elements are NaN; +0 is larger than
    /// -0.
    ///
    /// [`max_nan`](Tile::max_nan) propagates NaN. [`reduce_max`](Tile::reduce_max) is the largest
    /// element along an axis.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).max(2.0).eq(2.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn max(self, rhs: impl Comparand<Self>) -> Self {
        let (code, attrs) = extremum::<T>(Opcode::MaxF, Opcode::MaxI);
        uniform(caller_location(), "max", code, scoped(code, T::DTYPE, attrs), &[value(self), comparand::<Self>(rhs)])
    }

    /// The smaller of two elements. A NaN is ignored unless both elements are NaN; -0 is smaller
    /// than +0.
    ///
    /// [`min_nan`](Tile::min_nan) propagates NaN. [`reduce_min`](Tile::reduce_min) is the smallest
    /// element along an axis.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3.0f32, f32::NAN]).min(2.0).eq(2.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn min(self, rhs: impl Comparand<Self>) -> Self {
        let (code, attrs) = extremum::<T>(Opcode::MinF, Opcode::MinI);
        uniform(caller_location(), "min", code, scoped(code, T::DTYPE, attrs), &[value(self), comparand::<Self>(rhs)])
    }

    /// Limits `self` to the range from `low` to `high`: `self.max(low).min(high)`.
    ///
    /// A NaN is ignored, as by [`max`](Tile::max) and [`min`](Tile::min): a NaN element becomes
    /// `low`, unlike with Rust's `f32::clamp`. A bound that is NaN has no effect. If `low` is
    /// greater than `high`, the result is `high`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-5, 0, 5, 9]).clamp(-1, 5).eq(ct::astile([-1, 0, 5, 5])));
    /// let x = ct::astile([-5.0, f32::NAN, 0.5, 9.0]);
    /// ct::assert!(x.clamp(0.0, 1.0).eq(ct::astile([0.0, 0.0, 0.5, 1.0])));
    /// ct::assert!(x.clamp(f32::NAN, 1.0).eq(ct::astile([-5.0, 1.0, 0.5, 1.0])));
    /// ct::assert!(x.clamp(0.0, f32::NAN).eq(ct::astile([0.0, 0.0, 0.5, 9.0])));
    /// ct::assert!(x.clamp(2.0, 1.0).eq(1.0) & ct::scalar(f32::NAN).clamp(f32::NAN, f32::NAN).isnan());
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn clamp(self, low: impl BroadcastOperand<Self>, high: impl BroadcastOperand<Self>) -> Self {
        let operands = [value(self), arg_of::<Self>(low), arg_of::<Self>(high)];
        elementwise(caller_location(), "clamp", &operands, |t, v, shape| {
            let (max, attrs) = extremum::<T>(Opcode::MaxF, Opcode::MaxI);
            let raised = t.put(max, &[v[0], v[1]], attrs, T::DTYPE, shape);
            let (min, attrs) = extremum::<T>(Opcode::MinF, Opcode::MinI);
            t.put(min, &[raised, v[2]], attrs, T::DTYPE, shape)
        })
    }
}

/// Selects by element: `if_true` if `condition` is true, else `if_false`.
///
/// Both values are computed; [`crate::if_else`] executes only one of two branches. The result has
/// the shape of the values. A scalar condition or value is broadcast.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn relu(x: Tile<f32, 2>) -> Tile<f32, 2> {
///     ct::select(x.gt(0.0), x, 0.0)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// ct::assert!(relu(ct::astile([[-1.0, 2.0]])).eq(ct::astile([[0.0, 2.0]])));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
#[doc(alias = "where")]
pub fn select<O: TileLike>(
    condition: impl Operand<O::With<bool>>,
    if_true: impl Operand<O>,
    if_false: impl Operand<O>,
) -> O
where
    O::Elem: ByteSized,
{
    let operands = [operand::<O::With<bool>>(condition), operand::<O>(if_true), operand::<O>(if_false)];
    uniform(caller_location(), "select", Opcode::Select, vec![], &operands)
}

impl<const R: usize> Tile<bool, R> {
    /// [`select`] with this tile as the condition.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([true, false]).select(ct::astile([1, 2]), 7).eq(ct::astile([1, 7])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn select<T: ByteSized>(
        self,
        if_true: impl Operand<Tile<T, R>>,
        if_false: impl Operand<Tile<T, R>>,
    ) -> Tile<T, R> {
        select(self, if_true, if_false)
    }
}

impl Scalar<bool> {
    /// [`select`] with this scalar as the condition. Two scalars result in a scalar; two tiles, or
    /// a tile and a scalar, in a tile. Host values are accepted with both.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let first = ct::bid(0).eq(0);
    /// ct::assert!(first.select(ct::scalar(3), 4).eq(3));
    /// ct::assert!(first.select(ct::astile([1, 2]), 4).eq(ct::astile([1, 2])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn select<B, O: TileLike>(self, if_true: impl Choice<B, O>, if_false: B) -> O
    where
        O::Elem: ByteSized,
    {
        let [if_true, if_false] = if_true.sources(if_false);
        let of = |source| Arg { source, dtype: O::Elem::DTYPE, elem: O::Elem::NAME };
        uniform(caller_location(), "select", Opcode::Select, vec![], &[value(self), of(if_true), of(if_false)])
    }
}

/// Values that a [`Scalar`] condition selects. `B` is the type of the other value, `O` that of the
/// result. Both values are operands of a scalar, or a tile and one of its operands.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn first<B, O: ct::tile::TileLike<Elem = i32>>(a: impl ct::ops::Choice<B, O>, b: B) -> O {
///     ct::bid(0).eq(0).select(a, b)
/// }
/// # on_cpu(|| {
/// ct::assert!(first(7, ct::astile([1, 2])).eq(7) & first(ct::scalar(7), 8).eq(7));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a scalar condition does not select between `{Self}` and `{B}`",
    note = "a literal has the element type of the other value: `2.0` for floats, `2` for integers",
    note = "element types and ranks must agree: convert with `.cast::<T>()`, change the rank with `.reshape(..)`; a \
            `Scalar` and a host value of the element type combine with any rank"
)]
pub trait Choice<B, O>: Sealed + Copy {
    #[doc(hidden)]
    fn sources(self, other: B) -> [Source; 2];
}

#[diagnostic::do_not_recommend]
impl<T: Element, A: Operand<Scalar<T>>, B: Operand<Scalar<T>>> Choice<B, Scalar<T>> for A {
    fn sources(self, other: B) -> [Source; 2] {
        [self.source(), other.source()]
    }
}
#[diagnostic::do_not_recommend]
impl<T: Element, B: Operand<Tile<T, R>>, const R: usize> Choice<B, Tile<T, R>> for Tile<T, R> {
    fn sources(self, other: B) -> [Source; 2] {
        [Source::Value(self.raw()), other.source()]
    }
}
#[diagnostic::do_not_recommend]
impl<T: Element, A: Single + Operand<Tile<T, R>>, const R: usize> Choice<Tile<T, R>, Tile<T, R>> for A {
    fn sources(self, other: Tile<T, R>) -> [Source; 2] {
        [self.source(), Source::Value(other.raw())]
    }
}

/// Values of one element: scalars and host values.
pub trait Single {}
impl<T: Element> Single for T {}
impl<T: Element> Single for Scalar<T> {}
impl Single for usize {}
