//! Early exits: of a loop, of an iteration, of the kernel.

use std::fmt;
use std::marker::PhantomData;

use super::loop_range::LoopRange;
use super::loop_state::{LoopState, Values};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Opcode};
use crate::ops::support::region_builder::{Body, Condition};
use crate::tile::{Place, caller_location, in_region, record};

/// Early exits of a loop: the third argument of the body of [`fold_with_control`] and the second
/// one of [`loop_with_control`].
///
/// [`break_if`](LoopControl::break_if) ends the loop and [`continue_if`](LoopControl::continue_if)
/// the iteration, if a condition of the kernel's run time holds.
///
/// The rest of the body runs if the condition does not hold. Exits are allowed in branches of the
/// body, but not in the body of another loop.
///
/// ```
/// # use cutlet::doctest::*;
/// fn first_multiple(y: ArrayMut<i32, 1>, n: Scalar<i32>) {
///     let found = ct::fold_with_control(ct::range(1, 100), ct::scalar(0), |_, k, control: ct::LoopControl<Scalar<i32>>| {
///         control.break_if((k % n).eq(0), k);
///         k
///     });
///     y.store_scalar(0, found);
/// }
///
/// let mut y = ct::Device::cpu().zeros([1])?;
/// ct::launch(first_multiple, 1, (&mut y, 17))?;
/// assert_eq!(y.to_vec()?, [17]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct LoopControl<S> {
    block: BlockId,
    trace: u64,
    place: Place,
    state: PhantomData<fn(S)>,
}

impl<S> Clone for LoopControl<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for LoopControl<S> {}

impl<S> fmt::Debug for LoopControl<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoopControl of the loop at {}", self.place)
    }
}

impl<S: LoopState> LoopControl<S> {
    fn of(block: BlockId, place: Place) -> LoopControl<S> {
        LoopControl { block, trace: record(|t| t.id()), place, state: PhantomData }
    }

    /// Ends the loop with this state if the condition holds.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn below(y: ArrayMut<i32, 1>) {
    ///     let power = ct::loop_with_control(ct::scalar(1), |n, control| {
    ///         control.break_if((n * 3).gt(1000), n);
    ///         n * 3
    ///     });
    ///     y.store_scalar(0, power);
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(below, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [729]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn break_if(self, condition: impl Condition, state: S) {
        let this = Body { place: caller_location(), name: "break_if", what: "the state of `break_if`" };
        self.exit(this, Opcode::Break, condition, &state);
    }

    /// Ends the iteration with this state if the condition holds.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn odd_sum(y: ArrayMut<i32, 1>) {
    ///     let sum = ct::fold_with_control(..10, ct::scalar(0), |sum, k, control| {
    ///         control.continue_if((k % 2).eq(0), sum);
    ///         sum + k
    ///     });
    ///     y.store_scalar(0, sum);
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(odd_sum, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [25]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn continue_if(self, condition: impl Condition, state: S) {
        let this = Body { place: caller_location(), name: "continue_if", what: "the state of `continue_if`" };
        self.exit(this, Opcode::Continue, condition, &state);
    }

    fn exit(self, this: Body, code: Opcode, condition: impl Condition, state: &S) {
        if condition.known() == Some(false) {
            return;
        }
        let expected = record(|t| {
            if !t.admits(this.place, Effect::Region, 0) {
                return None;
            }
            let inner = t.innermost_loop().filter(|_| t.id() == self.trace);
            match inner {
                Some((block, _, carried)) if block == self.block => {
                    let carried = carried.to_vec();
                    if code == Opcode::Break {
                        t.leave_loop(block);
                    }
                    return Some(carried);
                }
                Some((_, place, _)) if t.is_open_loop(self.block) => {
                    let message = format!("`{}` belongs to a loop around the one that contains it", this.name);
                    let places = [(self.place, "the loop that it is for"), (place, "the loop that contains it")];
                    let way_out = "give the condition out in the state of the inner loop, and ask for it there";
                    t.report_with(this.place, message, &places, way_out);
                }
                _ => {
                    let message = format!("`{}`: the loop has ended", this.name);
                    let way_out = "a `LoopControl` is for the body that it was given to";
                    t.report_with(this.place, message, &[(self.place, "this loop")], way_out);
                }
            }
            None
        });
        if let Some(expected) = expected {
            this.exit_if(condition.source(), true, code, &Values::of(state), &expected);
        }
    }
}

/// [`fold`](crate::fold) with a [`LoopControl`], by which `body` leaves the loop or ends an
/// iteration early.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// The sum of the positive numbers before the first zero.
/// fn sum(x: Array<i32, 1>, out: ArrayMut<i32, 1>) {
///     let sum = ct::fold_with_control(..x.extent(0), ct::scalar(0), |sum, i, control| {
///         let x = x.load_scalar(i);
///         control.break_if(x.eq(0), sum);
///         control.continue_if(x.lt(0), sum);
///         sum + x
///     });
///     out.store_scalar(0, sum);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut out) = (device.array(&[1, -2, 3, 0, 5], [5])?, device.zeros([1])?);
/// ct::launch(sum, 1, (&x, &mut out))?;
/// assert_eq!(out.to_vec()?, [4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn fold_with_control<L: LoopRange, S: LoopState>(
    range: L,
    init: S,
    body: impl Fn(S, L::Item, LoopControl<S>) -> S,
) -> S {
    let this = Body { place: caller_location(), name: "fold_with_control", what: "the body of `fold_with_control`" };
    this.count(&range, init, |item, state, block| body(state, item, LoopControl::of(block, this.place)))
}

/// Loop without a bound: `body` maps the state to the next one, until [`LoopControl::break_if`]
/// ends the loop, or [`return_if`] the tile block.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn root(n: Scalar<i32>, out: ArrayMut<i32, 1>) {
///     let root = ct::loop_with_control(ct::scalar(0), |i, control| {
///         control.break_if((i * i).ge(n), i);
///         i + 1
///     });
///     out.store_scalar(0, root);
/// }
///
/// let mut out = ct::Device::cpu().zeros([1])?;
/// ct::launch(root, 1, (30, &mut out))?;
/// assert_eq!(out.to_vec()?, [6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn loop_with_control<S: LoopState>(init: S, body: impl Fn(S, LoopControl<S>) -> S) -> S {
    let this = Body { place: caller_location(), name: "loop_with_control", what: "the body of `loop_with_control`" };
    let carried = Values::of(&init);
    let Some((block, args)) = this.open_loop(&[], &carried) else {
        return Values::into_state(&init, this.poison_like(&carried));
    };
    let inner = Values::into_state(&init, args.clone());
    let next = Values::of(&in_region(|| body(inner, LoopControl::of(block, this.place))));
    let closed = this.close(Opcode::Continue, &next, &carried);
    if !record(|t| t.end_loop(block)) {
        let way_out = "call `control.break_if(condition, state)`, or `ct::return_if(condition)`";
        record(|t| t.report(this.place, "`loop_with_control`: nothing ends the loop", &[way_out]));
    }
    let results = this.finish(Opcode::Loop, &[], Some(&carried), closed.map(|b| vec![b]), &carried, vec![]);
    Values::into_state(&init, results)
}

/// Ends this tile block if the condition holds. Its earlier stores and prints remain.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn some(out: ArrayMut<i32, 1>) {
///     let i = ct::bid(0);
///     ct::return_if((i % 2).eq(0));
///     out.store_scalar(i, i);
/// }
///
/// let mut out = ct::Device::cpu().zeros([4])?;
/// ct::launch(some, 4, (&mut out,))?;
/// assert_eq!(out.to_vec()?, [0, 1, 0, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn return_if(condition: impl Condition) {
    let this = Body { place: caller_location(), name: "return_if", what: "the condition of `return_if`" };
    if condition.known() == Some(false) {
        return;
    }
    let admitted = record(|t| {
        let admitted = t.admits(this.place, Effect::Region, 0);
        t.leave_all_loops();
        admitted
    });
    if admitted {
        this.exit_if(condition.source(), true, Opcode::Return, &[], &[]);
    }
}
