//! Control flow: loops and branches that happen while the kernel runs.
//!
//! Bodies are closures bound by `Fn`: state goes in and comes out by value. A body that assigns to a captured
//! variable does not compile, because it would be traced only once. What is decided by host values is
//! decided while tracing: ordinary `if` and `for` do that.

use super::index::RangeEnd;
use super::state::{State, Values};
use crate::dtype::DType;
use crate::element::Element;
use crate::ir::table::Effect;
use crate::ir::{Attr, BlockId, CmpPred, Opcode, Overflow, Sign, TypeId, Value};
use crate::tile::{Handle, Place, Raw, Region, Scalar, Source, Tile, Trace, here, in_region, record};

/// The numbers that [`for_each`] runs over.
///
/// `..n` (from 0), `a..b` where both are of one type, and [`range`] with ends of different types and a step.
/// Numbers are i32: host integers (i32, usize) and `Scalar<i32>` alike.
pub trait LoopRange {
    #[doc(hidden)]
    fn bounds(self) -> Bounds;
}

/// Lower and upper bound and step, as operands.
#[derive(Clone, Copy, Debug)]
pub struct Bounds([Source; 3]);

/// A range with a step; see [`range`].
#[derive(Clone, Copy, Debug)]
pub struct StepRange(Bounds);

const ZERO: Source = Source::Literal(0);
const ONE: Source = Source::Literal(1);

/// The numbers from `start` to below `end`; with [`StepRange::step`] only every so many.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn persistent(out: ArrayMut<f32, 1>) {
///     let tiles = ct::range(ct::bid(0), out.num_tiles(0, [128])).step(ct::num_blocks(0));
///     ct::for_each(tiles, (), |i, ()| out.store(i, ct::zeros([128])));
/// }
/// ```
pub fn range(start: impl RangeEnd, end: impl RangeEnd) -> StepRange {
    StepRange(Bounds([start.into_index(), end.into_index(), ONE]))
}

impl StepRange {
    /// The same range by steps of `step`. A range by a step of 0 or less is empty; a host number that is not positive
    /// is an error.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn count(out: ArrayMut<i32, 1>, step: Scalar<i32>) {
    ///     let turns = ct::for_each(ct::range(0, i32::MAX).step(step), ct::scalar(0), |_, n| n + 1);
    ///     out.store_scalar(0, turns);
    /// }
    ///
    /// let mut out = ct::Device::cpu().zeros::<i32, 1>([1])?;
    /// for (step, turns) in [(1 << 30, 2), (i32::MAX, 1), (0, 0), (-1, 0)] {
    ///     ct::launch(count, 1, (&mut out, step))?;
    ///     assert_eq!(out.to_vec()?, [turns]);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn step(self, step: impl RangeEnd) -> StepRange {
        let [start, end, _] = self.0.0;
        StepRange(Bounds([start, end, step.into_index()]))
    }
}

impl LoopRange for StepRange {
    fn bounds(self) -> Bounds {
        self.0
    }
}

macro_rules! host_ranges {
    ($($ty:ty)+) => {$(
        impl LoopRange for std::ops::Range<$ty> {
            fn bounds(self) -> Bounds {
                range(self.start, self.end).0
            }
        }
        impl LoopRange for std::ops::RangeTo<$ty> {
            fn bounds(self) -> Bounds {
                Bounds([ZERO, self.end.into_index(), ONE])
            }
        }
    )+};
}
host_ranges!(Scalar<i32> i32 usize);

/// The condition of a branch or loop: `Scalar<bool>`, a one-element `Tile<bool, N>`, or a host `bool`, which is
/// decided while tracing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    note = "a condition is one bool: reduce a mask with `.any(..)` or `.all(..)`"
)]
pub trait Condition: Copy {
    #[doc(hidden)]
    fn source(self) -> Source;
    #[doc(hidden)]
    fn known(self) -> Option<bool> {
        None
    }
}

impl Condition for Scalar<bool> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl<const R: usize> Condition for Tile<bool, R> {
    fn source(self) -> Source {
        Source::Value(self.raw())
    }
}
impl Condition for bool {
    fn source(self) -> Source {
        Source::Literal(self.to_bits())
    }
    fn known(self) -> Option<bool> {
        Some(self)
    }
}

/// A loop or branch being recorded.
#[derive(Clone, Copy)]
struct Body {
    place: Place,
    name: &'static str,
    what: &'static str,
}

impl Body {
    fn region(self) -> Region {
        Region { what: self.what, place: self.place, scalar_only: false }
    }

    /// Opens a block whose arguments are `prefix` and then one for each value of the state. Arguments of
    /// poisoned values are poison. Gives the arguments.
    fn open(self, prefix: &[DType], state: &[Raw]) -> Vec<Raw> {
        record(|t| {
            let mut types: Vec<TypeId> =
                prefix.iter().map(|&d| t.builder.module.intern(crate::ir::Type::scalar(d))).collect();
            let usable: Vec<Option<Value>> = state.iter().map(|&raw| t.usable(raw, self.place)).collect();
            for &raw in state {
                let ty = t.type_of(raw);
                types.push(t.builder.module.intern(ty));
            }
            let args = t.open(self.region(), &types);
            let tainted: Vec<Value> =
                args[prefix.len()..].iter().zip(&usable).filter(|(_, u)| u.is_none()).map(|(&a, _)| a).collect();
            t.taint(&tainted);
            args.into_iter().map(|a| t.raw(a)).collect()
        })
    }

    /// Ends the innermost open block with `code` and these values, which must have the types of `expected`.
    /// `None` after a problem.
    fn close(self, code: Opcode, values: &[Raw], expected: &[Raw]) -> Option<BlockId> {
        record(|t| {
            t.at(self.place);
            let usable: Vec<Option<Value>> = values.iter().map(|&raw| t.usable(raw, self.place)).collect();
            let mut fits = values.len() == expected.len();
            if !fits {
                let message = format!(
                    "`{}`: the state has {} values and comes back with {}",
                    self.name,
                    expected.len(),
                    values.len()
                );
                t.report(self.place, message, &["a `Vec` in the state keeps its length"]);
            }
            for (value, &want) in usable.iter().zip(expected) {
                let Some(value) = *value else { continue };
                let (have, want) = (t.builder.module.shape(value).to_vec(), t.shape(want));
                if have != want {
                    fits = false;
                    let message = format!("{} gives a tile of shape {have:?} where {want:?} is expected", self.what);
                    t.report_at_definition(
                        self.place,
                        message,
                        value,
                        "values keep their shape through loops and branches",
                    );
                }
            }
            let values: Option<Vec<Value>> = usable.into_iter().collect();
            if let Some(values) = &values {
                t.emit(code, &[values], vec![], vec![], &[]);
            }
            let block = t.close();
            (fits && values.is_some()).then_some(block)
        })
    }

    /// Records the op around finished blocks; results have the types of `state`. Poison after a problem.
    fn finish(
        self,
        code: Opcode,
        operands: &[Option<Value>],
        init: Option<&[Raw]>,
        blocks: Option<Vec<BlockId>>,
        types: &[Raw],
    ) -> Vec<Raw> {
        record(|t| {
            t.at(self.place);
            let operands: Option<Vec<Value>> = operands.iter().copied().collect();
            let init: Option<Vec<Value>> =
                init.unwrap_or_default().iter().map(|&raw| t.usable(raw, self.place)).collect();
            let types: Vec<crate::ir::Type> = types.iter().map(|&raw| t.type_of(raw)).collect();
            let admitted = t.admits(self.place, Effect::Region, 0);
            let (Some(operands), Some(init), Some(blocks), true) = (operands, init, blocks, admitted) else {
                return types.into_iter().map(|ty| t.poison(ty)).collect();
            };
            let ids: Vec<TypeId> = types.into_iter().map(|ty| t.builder.module.intern(ty)).collect();
            let mut groups: Vec<&[Value]> = operands.chunks(1).collect();
            if code != Opcode::If {
                groups.push(&init);
            }
            let results = t.emit(code, &groups, vec![], blocks, &ids);
            results.into_iter().map(|v| t.raw(v)).collect()
        })
    }
}

/// Runs `body` for each number of `range`, in order, with the state that the previous run gave; returns the
/// last state (`init` if the range is empty).
///
/// The state keeps its element types and extents. No number of the range is beyond its end: where the next one would not
/// fit its type, the loop ends.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn row_sums(a: Array<f32, 2>, out: ArrayMut<f32, 2>) {
///     let row = ct::bid(0);
///     let sum = ct::for_each(..a.num_tiles(1, [1, 256]), ct::zeros([1, 256]), |k, sum| {
///         sum + a.load([row, k], [1, 256])
///     });
///     out.store((row, 0), sum.sum(1));
/// }
/// ```
#[track_caller]
pub fn for_each<S: State>(range: impl LoopRange, init: S, body: impl Fn(Scalar<i32>, S) -> S) -> S {
    let this = Body { place: here(), name: "for_each", what: "the body of `for_each`" };
    let bounds = this.bounds(range.bounds()).values();
    let state = Values::of(&init);
    let args = this.open(&[DType::I32], &state);
    let inner = Values::into_state(&init, args[1..].iter().copied());
    let next = Values::of(&in_region(|| body(Scalar::from_raw(args[0]), inner)));
    let block = this.close(Opcode::Continue, &next, &state);
    let results = this.finish(Opcode::For, &bounds, Some(&state), block.map(|b| vec![b]), &state);
    Values::into_state(&init, results)
}

/// A range whose step is positive, as recorded. `None` after a problem.
#[derive(Clone, Copy)]
struct Counted {
    start: Option<Value>,
    end: Option<Value>,
    step: Option<Value>,
    /// The step is known to be 1.
    by_one: bool,
}

impl Counted {
    fn values(self) -> [Option<Value>; 3] {
        [self.start, self.end, self.step]
    }

    /// The number after `i`, which is below the end; the end where there is none.
    fn after(self, t: &mut Trace, i: Value) -> Option<Value> {
        let (end, mut step) = (self.end?, self.step?);
        let wrap = || vec![Attr::Overflow(Overflow::None)];
        if !self.by_one {
            // The distance to the end is a number without sign.
            let left = t.put(Opcode::SubI, &[end, i], wrap(), DType::I32, &[]);
            step = t.put(Opcode::MinI, &[step, left], vec![Attr::Sign(Sign::Unsigned)], DType::I32, &[]);
        }
        Some(t.put(Opcode::AddI, &[i, step], wrap(), DType::I32, &[]))
    }
}

impl Body {
    /// A range by a step that is positive: one by a run-time step that is not becomes empty, and a host step that is
    /// not is reported.
    fn bounds(self, Bounds(sources): Bounds) -> Counted {
        record(|t| {
            t.at(self.place);
            let known = match sources[2] {
                Source::Literal(bits) => Some(i64::from(bits as u32 as i32)),
                Source::Extent(n) => Some(n as i64),
                Source::Value(_) => None,
            };
            if let Some(step) = known.filter(|&s| s <= 0) {
                let message = format!("`{}`: the step is {step} and must be positive", self.name);
                t.report(self.place, message, &["to run backwards, compute `last - i` in the body"]);
            }
            let [start, mut end, mut step] = sources.map(|source| t.scalar(self.place, source, DType::I32));
            if let (None, Some(first), Some(last), Some(by)) = (known, start, end, step) {
                let (zero, one) = (t.splat(DType::I32, 0, &[]), t.splat(DType::I32, 1, &[]));
                let positive = vec![Attr::CmpPred(CmpPred::Gt), Attr::Sign(Sign::Signed)];
                let runs = t.put(Opcode::CmpI, &[by, zero], positive, DType::I1, &[]);
                end = Some(t.put(Opcode::Select, &[runs, last, first], vec![], DType::I32, &[]));
                step = Some(t.put(Opcode::MaxI, &[by, one], vec![Attr::Sign(Sign::Signed)], DType::I32, &[]));
            }
            Counted { start, end, step, by_one: known == Some(1) }
        })
    }
}

/// As [`for_each`], but stops early: `body` also says whether to go on, after the state that it gives.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// Position of the first tile that has a positive element.
/// fn first_positive(a: Array<f32, 1>, out: ArrayMut<i32, 1>) {
///     let tiles = a.num_tiles(0, [128]);
///     let found = ct::for_each_while(..tiles, tiles, |i, found| {
///         let hit = a.load(i, [128]).gt(0.0).any(0).item();
///         (!hit, hit.select(i, found))
///     });
///     out.store_scalar(0, found);
/// }
/// ```
#[track_caller]
pub fn for_each_while<S: State, C: Condition>(
    range: impl LoopRange,
    init: S,
    body: impl Fn(Scalar<i32>, S) -> (C, S),
) -> S {
    let this = Body { place: here(), name: "for_each_while", what: "the body of `for_each_while`" };
    let counted = this.bounds(range.bounds());
    let number = |value: Option<Value>| {
        record(|t| match value {
            Some(value) => t.raw(value),
            None => t.poison_scalar(DType::I32),
        })
    };
    let (start, end) = (number(counted.start), number(counted.end));
    let carried: Vec<Raw> = [start].into_iter().chain(Values::of(&init)).collect();
    let args = this.open(&[], &carried);
    let i = Scalar::<i32>::from_raw(args[0]);
    this.leave_unless(i.lt(Scalar::<i32>::from_raw(end)), &args, &carried);
    let (go_on, next) = in_region(|| body(i, Values::into_state(&init, args[1..].iter().copied())));
    let after = number(record(|t| {
        t.at(this.place);
        let i = t.usable(i.raw(), this.place)?;
        counted.after(t, i)
    }));
    let next: Vec<Raw> = [after].into_iter().chain(Values::of(&next)).collect();
    this.leave_unless(go_on, &next, &carried);
    let block = this.close(Opcode::Continue, &next, &carried);
    let results = this.finish(Opcode::Loop, &[], Some(&carried), block.map(|b| vec![b]), &carried);
    Values::into_state(&init, results.into_iter().skip(1))
}

/// Runs `body` again and again while `condition` holds for the state; returns the state for which it does not.
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
/// ```
#[track_caller]
pub fn while_loop<S: State, C: Condition>(init: S, condition: impl Fn(S) -> C, body: impl Fn(S) -> S) -> S {
    let this = Body { place: here(), name: "while_loop", what: "the body of `while_loop`" };
    let carried = Values::of(&init);
    let args = this.open(&[], &carried);
    let state = || Values::into_state(&init, args.iter().copied());
    this.leave_unless(in_region(|| condition(state())), &args, &carried);
    let next = Values::of(&in_region(|| body(state())));
    let block = this.close(Opcode::Continue, &next, &carried);
    let results = this.finish(Opcode::Loop, &[], Some(&carried), block.map(|b| vec![b]), &carried);
    Values::into_state(&init, results)
}

impl Body {
    /// Inside of a loop: `if condition {} else { break values }`.
    fn leave_unless(self, condition: impl Condition, values: &[Raw], carried: &[Raw]) {
        let condition = record(|t| {
            t.at(self.place);
            t.scalar(self.place, condition.source(), DType::I1)
        });
        record(|t| t.open(self.region(), &[]));
        let stay = self.close(Opcode::Yield, &[], &[]);
        record(|t| t.open(self.region(), &[]));
        let leave = self.close(Opcode::Break, values, carried);
        let blocks = stay.zip(leave).map(|(a, b)| vec![a, b]);
        self.finish(Opcode::If, &[condition], None, blocks, &[]);
    }
}

/// Runs one of two branches; both give a state of the same form, with the same extents.
///
/// A host `bool` as condition is decided while tracing: only that branch is traced.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn first_or_rest(a: Array<f32, 1>, b: Array<f32, 1>) -> Tile<f32, 1> {
///     let i = ct::bid(0);
///     ct::if_else(i.eq(0), || a.load(i, [128]), || b.load(i - 1, [128]))
/// }
/// ```
#[track_caller]
pub fn if_else<S: State>(condition: impl Condition, then: impl Fn() -> S, otherwise: impl Fn() -> S) -> S {
    let this = Body { place: here(), name: "if_else", what: "a branch of `if_else`" };
    this.branch(condition, then, otherwise)
}

/// Runs `then` if the condition holds: [`if_else`] with nothing to give back.
#[track_caller]
pub fn if_then(condition: impl Condition, then: impl Fn()) {
    let this = Body { place: here(), name: "if_then", what: "the body of `if_then`" };
    this.branch(condition, then, || ());
}

impl Body {
    fn branch<S: State>(self, condition: impl Condition, then: impl Fn() -> S, otherwise: impl Fn() -> S) -> S {
        if let Some(known) = condition.known() {
            return if known { then() } else { otherwise() };
        }
        let condition = record(|t| {
            t.at(self.place);
            t.scalar(self.place, condition.source(), DType::I1)
        });
        record(|t| t.open(self.region(), &[]));
        let first = in_region(then);
        let values = Values::of(&first);
        let then_block = self.close(Opcode::Yield, &values, &values);
        record(|t| t.open(self.region(), &[]));
        let other_block = self.close(Opcode::Yield, &Values::of(&in_region(otherwise)), &values);
        let blocks = then_block.zip(other_block).map(|(a, b)| vec![a, b]);
        let results = self.finish(Opcode::If, &[condition], None, blocks, &values);
        Values::into_state(&first, results)
    }
}
