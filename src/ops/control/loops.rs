//! Control flow of kernels: loops and branches.
//!
//! Bodies are closures bound by `Fn`: state is an argument and a result, by value. A body that
//! assigns to a captured variable does not compile, because it would be traced only once.
//! Conditions of host values are evaluated during tracing, by ordinary `if` and `for`.

use super::loop_range::LoopRange;
use super::loop_state::{LoopState, Values};
use crate::ir::{BlockId, Opcode, Value};
use crate::ops::support::region_builder::{Body, Condition};
use crate::tile::{ValueHandle, caller_location, in_region, record};

/// Loop over the numbers of a range, with the argument order of [`Iterator::fold`]. Returns the
/// last state, or `init` if the range is empty.
///
/// `body` maps the state and the next number to the next state. A loop without state is a
/// [`for_each`]. The state keeps its element types and extents. No number of the
/// range is beyond its end: where the next one would not fit its type, the loop ends.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn row_sums(a: Array<f32, 2>, out: ArrayMut<f32, 2>) {
///     let row = ct::bid(0);
///     let sum = ct::fold(..a.num_tiles(1, [1, 256]), ct::zeros([1, 256]), |sum, k| {
///         sum + a.load((row, k), [1, 256])
///     });
///     out.store((row, 0), sum.sum(1));
/// }
///
/// let (a, mut sums) = (ct::Device::cpu().full([3, 300], 0.5f32)?, ct::Device::cpu().zeros([3, 1])?);
/// ct::launch(row_sums, 3, (&a, &mut sums))?;
/// assert_eq!(sums.to_vec()?, [150.0; 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn fold<L: LoopRange, S: LoopState>(range: L, init: S, body: impl Fn(S, L::Item) -> S) -> S {
    let this = Body { place: caller_location(), name: "fold", what: "the body of `fold`" };
    this.count(&range, init, |item, state, _| body(state, item))
}

/// Loop over the numbers of a range without state, as [`Iterator::for_each`]: [`fold`] with the
/// state `()`.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn scale(x: ArrayMut<f32, 1>, factor: Scalar<f32>) {
///     let tiles = (ct::bid(0)..x.num_tiles(0, 64)).step_by(ct::num_blocks(0));
///     ct::for_each(tiles, |i| x.store(i, x.load(i, 64) * factor));
/// }
///
/// let mut x = ct::Device::cpu().full([1000], 1.5f32)?;
/// ct::launch(scale, 4, (&mut x, 2.0f32))?;
/// assert_eq!(x.to_vec()?, [3.0; 1000]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn for_each<L: LoopRange>(range: L, body: impl Fn(L::Item)) {
    let this = Body { place: caller_location(), name: "for_each", what: "the body of `for_each`" };
    this.count(&range, (), |item, (), _| body(item));
}

/// [`fold`] with an early exit: `body` returns a condition and the next state. The loop ends with
/// this state if the condition is false.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// Position of the first tile that has a positive element.
/// fn first_positive(a: Array<f32, 1>, out: ArrayMut<i32, 1>) {
///     let tiles = a.num_tiles(0, [128]);
///     let found = ct::fold_while(..tiles, tiles, |found, i| {
///         let hit = a.load(i, [128]).gt(0.0).any(0).item();
///         (!hit, hit.select(i, found))
///     });
///     out.store_scalar(0, found);
/// }
///
/// let (a, mut out) = (ct::Device::cpu().from_fn([600], |[i]| i as f32 - 300.0)?, ct::Device::cpu().zeros([1])?);
/// ct::launch(first_positive, 1, (&a, &mut out))?;
/// assert_eq!(out.to_vec()?, [2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn fold_while<L: LoopRange, S: LoopState, C: Condition>(
    range: L,
    init: S,
    body: impl Fn(S, L::Item) -> (C, S),
) -> S {
    let this = Body { place: caller_location(), name: "fold_while", what: "the body of `fold_while`" };
    let carried = Values::of(&init);
    this.count(&range, init, |item, state, block| {
        let (go_on, next) = body(state, item);
        record(|t| t.leave_loop(block));
        this.exit_if(go_on.source(), false, Opcode::Break, &Values::of(&next), &carried);
        next
    })
}

/// Loop that maps the state by `body` while `condition` holds for it. Returns the first state for
/// which it does not hold.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn collatz_steps(n: Scalar<i64>) -> Scalar<i32> {
///     let (_, steps) = ct::while_loop(
///         (n, ct::scalar(0)),
///         |(n, _)| n.gt(1),
///         |(n, steps)| ((n % 2).eq(0).select(n / 2, 3 * n + 1), steps + 1),
///     );
///     steps
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// ct::assert!(collatz_steps(ct::scalar(27)).eq(111));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn while_loop<S: LoopState, C: Condition>(init: S, condition: impl Fn(S) -> C, body: impl Fn(S) -> S) -> S {
    let this = Body { place: caller_location(), name: "while_loop", what: "the body of `while_loop`" };
    let carried = Values::of(&init);
    let Some((block, args)) = this.open_loop(&[], &carried) else {
        return Values::into_state(&init, this.poison_like(&carried));
    };
    let state = || Values::into_state(&init, args.clone());
    let go_on = in_region(|| condition(state())).source();
    this.exit_if(go_on, false, Opcode::Break, &args, &carried);
    let next = Values::of(&in_region(|| body(state())));
    this.refuse_endless(block, &args, &next);
    let closed = this.close(Opcode::Continue, &next, &carried);
    record(|t| t.end_loop(block));
    let results = this.finish(Opcode::Loop, &[], Some(&carried), closed.map(|b| vec![b]), &carried, vec![]);
    Values::into_state(&init, results)
}

/// Runs one of two branches. Both return a state of the same structure, with the same extents.
///
/// A host `bool` as condition is evaluated during tracing: only that branch is traced.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn first_or_rest(a: Array<f32, 1>, b: Array<f32, 1>) -> Tile<f32, 1> {
///     let i = ct::bid(0);
///     ct::if_else(i.eq(0), || a.load(i, [128]), || b.load(i - 1, [128]))
/// }
///
/// fn kernel(a: Array<f32, 1>, b: Array<f32, 1>, out: ArrayMut<f32, 1>) {
///     out.store(ct::bid(0), first_or_rest(a, b));
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b, mut out) = (device.full([128], 1.0f32)?, device.full([128], 2.0f32)?, device.zeros([256])?);
/// ct::launch(kernel, 2, (&a, &b, &mut out))?;
/// assert_eq!(out.to_vec()?[127..129], [1.0, 2.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn if_else<S: LoopState>(condition: impl Condition, then: impl Fn() -> S, otherwise: impl Fn() -> S) -> S {
    let this = Body { place: caller_location(), name: "if_else", what: "a branch of `if_else`" };
    this.branch(condition, then, otherwise)
}

/// Runs `then` if the condition holds: [`if_else`] without a state.
///
/// ```
/// # use cutlet::doctest::*;
/// fn odd(y: ArrayMut<i32, 1>) {
///     let block = ct::bid(0);
///     ct::if_then((block % 2).eq(1), || y.store_scalar(block, block));
/// }
///
/// let mut y = ct::Device::cpu().full([4], -1)?;
/// ct::launch(odd, 4, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [-1, 1, -1, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
pub fn if_then(condition: impl Condition, then: impl Fn()) {
    let this = Body { place: caller_location(), name: "if_then", what: "the body of `if_then`" };
    this.branch(condition, then, || ());
}

impl Body {
    fn branch<S: LoopState>(self, condition: impl Condition, then: impl Fn() -> S, otherwise: impl Fn() -> S) -> S {
        if let Some(known) = condition.known() {
            return if known { then() } else { otherwise() };
        }
        if self.is_too_deep() {
            // A state of the right form: a branch that ends the recursion is more likely the second
            // one.
            return otherwise();
        }
        let condition = self.condition(condition.source());
        self.open(&[], &[]);
        let first = in_region(then);
        let values = Values::of(&first);
        let then_block = self.close(Opcode::Yield, &values, &values);
        self.open(&[], &[]);
        let other = Values::of(&in_region(otherwise));
        Values::into_state(&first, self.end_branch(condition, then_block, &other, &values))
    }

    /// Closes the second branch, which ends with these values, and records the op. Returns its
    /// results, of the types of `values`.
    fn end_branch(
        self,
        condition: Option<Value>,
        then: Option<BlockId>,
        other: &[ValueHandle],
        values: &[ValueHandle],
    ) -> Vec<ValueHandle> {
        let other = self.close(Opcode::Yield, other, values);
        let blocks = then.zip(other).map(|(a, b)| vec![a, b]);
        self.finish(Opcode::If, &[condition], None, blocks, values, vec![])
    }
}
