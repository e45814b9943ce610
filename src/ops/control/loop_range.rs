//! Ranges of loops.

use std::marker::PhantomData;

use crate::dtype::DType;
use crate::element::Int;
use crate::sealed::Sealed;
use crate::tile::{Handle, Scalar, ValueHandle, caller_location, record};

/// Element types of loop counters.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn sum<C: ct::ops::Count>(n: Scalar<C>, y: ArrayMut<C, 1>) {
///     let sum = ct::fold(..n, ct::zeros::<C, 1>([1]).item(), |sum, k| sum + k);
///     y.store_scalar(0, sum);
/// }
///
/// let mut y = ct::Device::cpu().zeros([1])?;
/// ct::launch(sum::<u64>, 1, (10u64, &mut y))?;
/// assert_eq!(y.to_vec()?, [45]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a loop does not count in `{Self}`",
    note = "loops count in i32, i64, u32 and u64: convert the ends with `.cast::<i32>()`"
)]
pub trait Count: Int {}
impl Count for i32 {}
impl Count for i64 {}
impl Count for u32 {}
impl Count for u64 {}

/// Host integers that combine with a `Scalar` of any type of loop counters.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let sum = ct::fold(ct::range(3usize, ct::num_blocks(0) + 4), ct::scalar(0), |sum, k| sum + k);
/// ct::assert!(sum.eq(3 + 4));
/// # });
/// ```
pub trait HostCount: Sealed + Copy {
    #[doc(hidden)]
    fn wide(self) -> i128;
}

/// Host integers that are also an end of a range without a `Scalar`, counted in i32.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let sum = ct::fold(ct::range(1, 4usize), ct::scalar(0), |sum, k| sum + k);
/// ct::assert!(sum.eq(6));
/// # });
/// ```
pub trait HostIndex: HostCount {}
impl HostIndex for i32 {}
impl HostIndex for usize {}

macro_rules! host_counts {
    ($($host:ident)+) => {$(
        impl HostCount for $host {
            fn wide(self) -> i128 {
                self as i128
            }
        }
    )+};
}
host_counts!(i32 i64 u32 usize);

/// The two ends of a range, which may differ in type: two scalars of one type, a scalar and a host
/// number, or two host numbers (counted in i32).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let sum = ct::fold(ct::range(ct::bid(0), 4), ct::scalar(0), |sum, k| sum + k);
/// ct::assert!(sum.eq(6));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a loop cannot count from `{Self}` to `{B}`",
    note = "both ends are scalars of one integer type; an i32, i64, u32 or usize of the host goes with each of them; two \
            host numbers are i32 or usize"
)]
pub trait Ends<B>: Sealed + Copy {
    /// The type of the counter.
    type Counter: Count;
    #[doc(hidden)]
    fn bounds(self, end: B) -> [Bound; 2];
}

impl<I: Count> Ends<Scalar<I>> for Scalar<I> {
    type Counter = I;
    fn bounds(self, end: Scalar<I>) -> [Bound; 2] {
        [Bound::Value(self.raw()), Bound::Value(end.raw())]
    }
}
impl<I: Count, H: HostCount> Ends<H> for Scalar<I> {
    type Counter = I;
    fn bounds(self, end: H) -> [Bound; 2] {
        [Bound::Value(self.raw()), Bound::Host(end.wide())]
    }
}
impl<I: Count, H: HostCount> Ends<Scalar<I>> for H {
    type Counter = I;
    fn bounds(self, end: Scalar<I>) -> [Bound; 2] {
        [Bound::Host(self.wide()), Bound::Value(end.raw())]
    }
}
impl<H: HostIndex> Ends<H> for H {
    type Counter = i32;
    fn bounds(self, end: H) -> [Bound; 2] {
        [Bound::Host(self.wide()), Bound::Host(end.wide())]
    }
}

/// The step of a range that counts in `C`: a host number, also a negative one, or a `Scalar<C>`.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let sum = ct::fold(ct::range(0, 10).step(ct::num_blocks(0) + 2), ct::scalar(0), |sum, k| sum + k);
/// ct::assert!(sum.eq(3 + 6 + 9));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the step of a range that counts in `{C}`",
    note = "a step is a number of the host or a scalar of the counter's type"
)]
pub trait LoopStep<C>: Sealed + Copy {
    #[doc(hidden)]
    fn step(self) -> Bound;
}
impl<C: Count> LoopStep<C> for Scalar<C> {
    fn step(self) -> Bound {
        Bound::Value(self.raw())
    }
}
impl<C, H: HostCount> LoopStep<C> for H {
    fn step(self) -> Bound {
        Bound::Host(self.wide())
    }
}

/// An end or the step of a range.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// A host number, exactly as the user passed it. The loop checks that it fits the counter's
    /// type.
    Host(i128),
    /// A recorded scalar of the counter's type.
    Value(ValueHandle),
}

/// A range, as recorded.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub(crate) start: Bound,
    pub(crate) end: Bound,
    pub(crate) step: Bound,
    pub(crate) dtype: DType,
    pub(crate) signed: bool,
    /// The name of the counter's type in messages.
    pub(crate) elem: &'static str,
    pub(crate) reversed: bool,
    pub(super) num_stages: Option<u32>,
    pub(super) unroll: Option<u32>,
    pub(super) warp_specialize: Option<bool>,
    pub(super) pingpong: Option<bool>,
}

impl Bounds {
    fn of<C: Count>([start, end]: [Bound; 2]) -> Bounds {
        Bounds {
            start,
            end,
            step: Bound::Host(1),
            dtype: C::DTYPE,
            signed: C::SIGNED,
            elem: C::NAME,
            reversed: false,
            num_stages: None,
            unroll: None,
            warp_specialize: None,
            pingpong: None,
        }
    }
}

/// The range of a [`fold`](crate::fold).
///
/// `..n` (from 0), `a..b` with ends of one type, and [`range`] with ends of different types, steps,
/// directions and hints. Host numbers (i32, usize) are counted in i32, scalars in their own type.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn sum(range: impl ct::ops::LoopRange<Item = Scalar<i32>>) -> Scalar<i32> {
///     ct::fold(range, ct::scalar(0), |sum, k| sum + k)
/// }
/// ct::assert!((sum(..4) + sum(ct::range(10, 0).step(-5))).eq(6 + 15));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a loop range",
    note = "`..n`, `a..b`, `ct::range(a, b).step(s)`; for tuples of numbers and scalars `ct::range(0, n)`"
)]
pub trait LoopRange: Sealed {
    /// The argument of the body in each iteration.
    type Item;
    #[doc(hidden)]
    fn bounds(&self) -> Bounds;
    /// Records the item of a number in the body.
    #[doc(hidden)]
    fn item(&self, number: ValueHandle) -> Self::Item;
}

/// A range with a step, a direction, and hints; see [`range`].
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let down: ct::StepRange = ct::range(0, 4).rev();
/// ct::assert!(ct::fold(down, ct::scalar(0), |digits, k| digits * 10 + k).eq(3210));
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StepRange<C = i32> {
    bounds: Bounds,
    counter: PhantomData<C>,
}

impl<C> Sealed for StepRange<C> {}

/// Returns the range from `start` to before `end`, with a step of 1 or that of [`StepRange::step`],
/// also downwards.
///
/// Ends are scalars of i32, i64, u32 or u64, the type of the counter. A host number combines with
/// each of them. Two host numbers are counted in i32. A host number that the type of the counter
/// does not hold is an error.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn persistent(out: ArrayMut<f32, 1>) {
///     let tiles = ct::range(ct::bid(0), out.num_tiles(0, [128])).step(ct::num_blocks(0));
///     ct::fold(tiles, (), |(), i| out.store(i, ct::zeros([128])));
/// }
///
/// fn digits(out: ArrayMut<i64, 1>, n: Scalar<i64>) {
///     let number = ct::fold(ct::range(n, 0).step(-1), ct::scalar(0i64), |number, i| number * 10 + i);
///     out.store_scalar(0, number);
/// }
///
/// let mut out = ct::Device::cpu().zeros::<i64, 1>([1])?;
/// ct::launch(digits, 1, (&mut out, 5i64))?;
/// assert_eq!(out.to_vec()?, [54321]);
/// # Ok::<(), ct::Error>(())
/// ```
#[must_use]
pub fn range<A: Ends<B>, B>(start: A, end: B) -> StepRange<A::Counter> {
    StepRange { bounds: Bounds::of::<A::Counter>(start.bounds(end)), counter: PhantomData }
}

/// Methods of ranges of scalars that have the names of [`Iterator`]'s: a step, and the reverse
/// order.
///
/// A range of scalars is no iterator, because its ends are unknown during tracing. The methods make
/// a [`StepRange`] for a [`fold`](crate::fold) or [`for_each`](crate::for_each).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn sums(y: ArrayMut<i32, 1>, a: Scalar<i32>, b: Scalar<i32>) {
///     y.store_scalar(0, ct::fold((a..b).step_by(3), ct::scalar(0), |sum, k| sum + k));
///     y.store_scalar(1, ct::fold((a..b).rev(), ct::scalar(0), |digits, k| digits * 10 + k));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2])?;
/// ct::launch(sums, 1, (&mut y, 2, 6))?;
/// assert_eq!(y.to_vec()?, [2 + 5, 5432]);
/// # Ok::<(), ct::Error>(())
/// ```
pub trait ScalarRange: Sealed {
    /// The type of the counter.
    type Counter: Count;

    /// Sets the step: [`StepRange::step`].
    #[must_use]
    fn step_by(self, step: impl LoopStep<Self::Counter>) -> StepRange<Self::Counter>;

    /// Returns the same numbers from the last to the first: [`StepRange::rev`].
    #[must_use]
    fn rev(self) -> StepRange<Self::Counter>;
}

impl<C: Count> ScalarRange for std::ops::Range<Scalar<C>> {
    type Counter = C;
    fn step_by(self, step: impl LoopStep<C>) -> StepRange<C> {
        range(self.start, self.end).step(step)
    }
    fn rev(self) -> StepRange<C> {
        range(self.start, self.end).rev()
    }
}
impl<C: Count> ScalarRange for std::ops::RangeTo<Scalar<C>> {
    type Counter = C;
    fn step_by(self, step: impl LoopStep<C>) -> StepRange<C> {
        range(0, self.end).step(step)
    }
    fn rev(self) -> StepRange<C> {
        range(0, self.end).rev()
    }
}

impl<C: Count> StepRange<C> {
    /// Sets the step. The first number is `start`. With a negative step, the next ones are smaller,
    /// as long as they are greater than `end`. A scalar step of 0 makes the range empty; a host 0
    /// is an error. A host step fits the type of the counter; that of an unsigned counter may be
    /// negative.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn count(out: ArrayMut<i32, 1>, start: Scalar<i32>, end: Scalar<i32>, step: Scalar<i32>) {
    ///     let turns = ct::fold(ct::range(start, end).step(step), ct::scalar(0), |n, _| n + 1);
    ///     out.store_scalar(0, turns);
    /// }
    ///
    /// let mut out = ct::Device::cpu().zeros::<i32, 1>([1])?;
    /// for ([start, end, step], turns) in [([0, i32::MAX, 1 << 30], 2), ([9, 0, -2], 5), ([0, 9, 0], 0), ([0, 9, -1], 0)] {
    ///     ct::launch(count, 1, (&mut out, start, end, step))?;
    ///     assert_eq!(out.to_vec()?, [turns]);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn step(mut self, step: impl LoopStep<C>) -> StepRange<C> {
        self.bounds.step = step.step();
        self
    }

    /// Returns the two ends, without step and direction.
    pub(crate) fn plain_ends(self) -> [Bound; 2] {
        [self.bounds.start, self.bounds.end]
    }

    /// Returns the first number, the number after the last one, and the step, if all are host
    /// numbers.
    pub(crate) fn host_numbers(self) -> Option<[i128; 3]> {
        let Bounds { start, end, step, reversed, .. } = self.bounds;
        let (Bound::Host(start), Bound::Host(end), Bound::Host(step)) = (start, end, step) else { return None };
        let numbers = if step > 0 { end - start + step - 1 } else { start - end - step - 1 } / step.abs().max(1);
        let last = start + (numbers - 1) * step;
        Some(if reversed { [last, start - step.signum(), -step] } else { [start, end, step] })
    }

    /// Returns the same numbers from the last to the first.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn backwards(out: ArrayMut<i32, 1>) {
    ///     let numbers = ct::fold(ct::range(1, 8).step(3).rev(), ct::scalar(0), |all, i| all * 10 + i);
    ///     out.store_scalar(0, numbers);
    /// }
    ///
    /// let mut out = ct::Device::cpu().zeros::<i32, 1>([1])?;
    /// ct::launch(backwards, 1, (&mut out,))?;
    /// assert_eq!(out.to_vec()?, [741]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn rev(mut self) -> StepRange<C> {
        self.bounds.reversed = !self.bounds.reversed;
        self
    }

    /// Hint: number of stages of the loop's pipeline in shared memory (`num_stages` of Triton's
    /// `tl.range`). With 1, each load is issued in its own iteration.
    ///
    /// The hint is of this loop alone and not of loops in it, and precedes
    /// [`Hints::num_stages`](crate::Hints). If shared memory has no space for the stages, there are
    /// fewer, and the [remarks](crate::inspect::Remarks) state it. The tileir and cpu back ends
    /// ignore the hint.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::fold(ct::range(0, 4).num_stages(3), ct::scalar(0), |sum, k| sum + k).eq(6));
    /// # });
    /// ```
    #[must_use]
    pub fn num_stages(mut self, stages: u32) -> StepRange<C> {
        self.bounds.num_stages = Some(stages);
        self
    }

    /// Hint: warp specialization of the loop (`warp_specialize` of Triton's `tl.range`). With
    /// `true`, producer warps issue its loads by TMA into the stages of a pipeline. With `false`,
    /// the warps that compute issue them.
    ///
    /// The hint is of this loop alone and not of loops in it. By default, the ptx back end
    /// specializes warps where this is possible: for sm_90a, for loads whose tiles are operands of
    /// matrix products alone. If a loop with `true` has no producer, the
    /// [remarks](crate::inspect::Remarks) state the reason. The cpu back end ignores the hint. The
    /// tileir back end returns an error, since Tile IR leaves warp roles to its compiler.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, warp_specialize: bool) {
    ///     let (i, j) = (ct::bid(0), ct::bid(1));
    ///     let range = ct::range(0, a.num_tiles(1, [64, 64])).warp_specialize(warp_specialize);
    ///     let acc = ct::fold(range, ct::zeros([64, 64]), |acc, k| {
    ///         ct::mma(a.load((i, k), [64, 64]), b.load((k, j), [64, 64]), acc)
    ///     });
    ///     c.store((i, j), acc);
    /// }
    ///
    /// let (a, c) = (ct::ArraySpec::<f16, 2>::new([512, 512]), ct::ArraySpec::<f32, 2>::new([512, 512]).mutable());
    /// for warp_specialize in [true, false] {
    ///     let schedule = ct::inspect(matmul, (a, a, c, ct::Constant(warp_specialize))).target(ct::Target::SM_90A).schedule()?;
    ///     assert_eq!(schedule.contains("partition producer"), warp_specialize, "{schedule}");
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn warp_specialize(mut self, warp_specialize: bool) -> StepRange<C> {
        self.bounds.warp_specialize = Some(warp_specialize);
        self
    }

    /// Hint: ping-pong schedule over the iterations of the loop. Two groups of consumer warps
    /// alternate the iterations: one group stores its tile while the other one multiplies. Each
    /// group has [`Hints::num_warps`](crate::Hints) warps.
    ///
    /// By default, the ptx back end selects this schedule where it is expected to be faster: for
    /// sm_90a, for the one persistent loop of a kernel with 4 warps and [warp
    /// specialization](StepRange::warp_specialize), if no value is carried between iterations.
    /// `true` selects it wherever it is possible, and the [remarks](crate::inspect::Remarks) state
    /// where it is not; `false` excludes it. The cpu back end ignores the hint. The tileir back end
    /// returns an error, since Tile IR leaves warp roles to its compiler.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn matmuls(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, pingpong: bool) {
    ///     let tiles = ct::range(ct::bid(0), c.num_tiles(0, [64, 128])).step(ct::num_blocks(0)).pingpong(pingpong);
    ///     ct::fold(tiles, (), |(), i| {
    ///         let acc = ct::fold(..a.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 128]), |acc, k| {
    ///             ct::mma(a.load((i, k), [64, 64]), b.load((k, 0), [64, 128]), acc)
    ///         });
    ///         c.store((i, 0), acc.cast());
    ///     });
    /// }
    ///
    /// let array = ct::ArraySpec::<f16, 2>::new([512, 512]);
    /// for pingpong in [false, true] {
    ///     let hints = ct::Hints::new().num_warps(4);
    ///     let args = (array, array, array.mutable(), ct::Constant(pingpong));
    ///     let schedule = ct::inspect(matmuls, args).hints(hints).schedule()?;
    ///     assert_eq!(schedule.contains("pingpong 2"), pingpong, "{schedule}");
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn pingpong(mut self, pingpong: bool) -> StepRange<C> {
        self.bounds.pingpong = Some(pingpong);
        self
    }

    /// Hint: unroll factor of the loop (`loop_unroll_factor` of Triton's `tl.range`). `factor`
    /// iterations form one, with one test, and a remainder loop executes the last ones. With 1 the
    /// assembler does not unroll the loop either.
    ///
    /// The ptx back end unrolls loops of a constant step that have neither matrix products nor
    /// pipelined loads ([`StepRange::num_stages`]: 1 excludes these). The tileir and cpu back ends
    /// ignore the hint.
    ///
    /// ```
    /// use cutlet as ct;
    /// use ct::prelude::*;
    ///
    /// fn row_sums(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 1>) {
    ///     let row = ct::bid(0);
    ///     let tiles = ct::range(0, x.num_tiles(1, [1, 256])).unroll(4);
    ///     let sum = ct::fold(tiles, ct::zeros([1, 256]), |sum, k| sum + x.load((row, k), [1, 256]));
    ///     y.store(row, sum.sum(1).reshape([1]));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&vec![1.0f32; 3 * 2000], [3, 2000])?;
    /// let mut y = device.zeros::<f32, 1>([3])?;
    /// ct::launch(row_sums, 3, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2000.0; 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn unroll(mut self, factor: u32) -> StepRange<C> {
        self.bounds.unroll = Some(factor);
        self
    }
}

/// The diagnostic of a Rust `for` over a range. A `for` runs during tracing, when the ends are
/// unknown: it has no items, and the diagnostic names [`fold`](crate::fold).
impl<C: Count> IntoIterator for StepRange<C> {
    type Item = Scalar<C>;
    type IntoIter = std::iter::Empty<Scalar<C>>;

    #[track_caller]
    fn into_iter(self) -> Self::IntoIter {
        let place = caller_location();
        let way_out = "write `ct::fold(range, state, |state, i| ..)`: the state goes in and comes out by value, `()` if \
                       there is none";
        record(|t| {
            t.report(
                place,
                "a Rust `for` runs while the kernel is traced, and the ends of this range are known only when it runs",
                &[way_out],
            );
        });
        std::iter::empty()
    }
}

impl<C: Count> LoopRange for StepRange<C> {
    type Item = Scalar<C>;
    fn bounds(&self) -> Bounds {
        self.bounds
    }
    fn item(&self, number: ValueHandle) -> Scalar<C> {
        Scalar::from_raw(number)
    }
}

impl<I: Count> LoopRange for std::ops::Range<Scalar<I>> {
    type Item = Scalar<I>;
    fn bounds(&self) -> Bounds {
        range(self.start, self.end).bounds
    }
    fn item(&self, number: ValueHandle) -> Scalar<I> {
        Scalar::from_raw(number)
    }
}
impl<I: Count> LoopRange for std::ops::RangeTo<Scalar<I>> {
    type Item = Scalar<I>;
    fn bounds(&self) -> Bounds {
        range(0, self.end).bounds
    }
    fn item(&self, number: ValueHandle) -> Scalar<I> {
        Scalar::from_raw(number)
    }
}
impl<H: HostIndex> LoopRange for std::ops::Range<H> {
    type Item = Scalar<i32>;
    fn bounds(&self) -> Bounds {
        range(self.start, self.end).bounds
    }
    fn item(&self, number: ValueHandle) -> Scalar<i32> {
        Scalar::from_raw(number)
    }
}
impl<H: HostIndex> LoopRange for std::ops::RangeTo<H> {
    type Item = Scalar<i32>;
    fn bounds(&self) -> Bounds {
        Bounds::of::<i32>([Bound::Host(0), Bound::Host(self.end.wide())])
    }
    fn item(&self, number: ValueHandle) -> Scalar<i32> {
        Scalar::from_raw(number)
    }
}
