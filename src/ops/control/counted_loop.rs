//! Counted loops: a range as the bounds of a `for`, and a `for` with early exits as a `loop`.
//!
//! In the IR, a `for` counts upwards by a positive step, without an early exit. A range that may
//! count downwards or backwards counts its iterations instead, and the number is computed from the
//! counter. A `for` whose body breaks, or ends its tile block, becomes a `loop` with a counter in
//! its state.

use crate::util::collect::CollectVec as _;
use std::ops::RangeInclusive;

use super::loop_range::{Bound, Bounds, LoopRange};
use super::loop_state::{LoopState, Values};
use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Flag, HintValue, Hints, OpId, Opcode, Overflow, Predicate, Rounding,
    Sign, Value, hint_key,
};
use crate::ops::support::region_builder::Body;
use crate::tile::{Source, Trace, ValueHandle, in_region, record};

/// The recorded bounds of a loop.
#[derive(Clone)]
struct Counter {
    bounds: Option<[Value; 3]>,
    /// The step is known to be 1.
    by_one: bool,
    unsigned: bool,
    dtype: DType,
    number: Number,
    hints: Vec<Attr>,
}

/// The map from the counter to the number.
#[derive(Clone, Copy)]
enum Number {
    Same,
    /// `start + counter * step`, or with `last - counter` in its place.
    Affine {
        start: Value,
        step: Value,
        last: Option<Value>,
    },
}

/// A loop over a range whose body is being recorded.
struct Counting {
    counter: Counter,
    /// The initial values.
    state: Vec<ValueHandle>,
    block: BlockId,
    /// The arguments of the body: the item, and the state.
    number: ValueHandle,
    inner: Vec<ValueHandle>,
}

const WRAP: Attr = Attr::Overflow(Overflow::None);

/// Scalar integer arithmetic of one type.
struct Ints<'t> {
    t: &'t mut Trace,
    dtype: DType,
    sign: Sign,
}

impl Ints<'_> {
    /// A number that fits the type, or whose low bits are meant.
    fn constant(&mut self, number: i128) -> Value {
        let bits = number as u64 & (u64::MAX >> (64 - self.dtype.bits()));
        self.t.splat(self.dtype, bits, &[])
    }

    fn add(&mut self, a: Value, b: Value) -> Value {
        self.t.put(Opcode::AddI, &[a, b], vec![WRAP], self.dtype, &[])
    }

    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.t.put(Opcode::SubI, &[a, b], vec![WRAP], self.dtype, &[])
    }

    fn mul(&mut self, a: Value, b: Value) -> Value {
        self.t.put(Opcode::MulI, &[a, b], vec![WRAP], self.dtype, &[])
    }

    fn below(&mut self, a: Value, b: Value) -> Value {
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(self.sign)];
        self.t.put(Opcode::CmpI, &[a, b], attrs, DType::I1, &[])
    }

    fn is_zero(&mut self, a: Value) -> Value {
        let zero = self.constant(0);
        let attrs = vec![Attr::CmpPred(CmpPred::Eq), Attr::Sign(self.sign)];
        self.t.put(Opcode::CmpI, &[a, zero], attrs, DType::I1, &[])
    }

    fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.t.put(Opcode::Select, &[condition, a, b], vec![], self.dtype, &[])
    }

    /// Emits the number of iterations for a distance and a step size, both unsigned. A size of 0
    /// counts as 1.
    fn rounds(&mut self, distance: Value, size: Value) -> Value {
        let (zero, one) = (self.constant(0), self.constant(1));
        let size = self.t.put(Opcode::MaxI, &[size, one], vec![Attr::Sign(Sign::Unsigned)], self.dtype, &[]);
        let before = self.sub(distance, one);
        let attrs = vec![Attr::Sign(Sign::Unsigned), Attr::Rounding(Rounding::Zero)];
        let whole = self.t.put(Opcode::DivI, &[before, size], attrs, self.dtype, &[]);
        let all = self.add(whole, one);
        let none = self.is_zero(distance);
        self.select(none, zero, all)
    }
}

impl Body {
    /// The bounds of a loop over a range.
    fn counter(self, range: Bounds) -> Counter {
        record(|t| {
            t.at(self.place);
            let Bounds { dtype, signed, reversed, .. } = range;
            let sign = if signed { Sign::Signed } else { Sign::Unsigned };
            let host = self.host_step(t, range);
            for (name, _) in numbers(range).into_iter().filter(|(_, number)| *number == Some(0)) {
                let message = format!("`{}`: the hint `{name}` of the range is 0", self.name);
                t.report(self.place, message, &["1 is the least; without the hint the compiler chooses"]);
            }
            let start = self.bound(t, range, "start", range.start);
            let end = self.bound(t, range, "end", range.end);
            let step = match range.step {
                Bound::Host(_) => Some(Ints { t, dtype, sign }.constant(host.unwrap_or(1))),
                step @ Bound::Value(_) => self.bound(t, range, "step", step),
            };
            let hints = hints(range);
            let mut counter = Counter {
                bounds: None,
                by_one: host == Some(1),
                unsigned: !signed,
                dtype,
                number: Number::Same,
                hints,
            };
            let (Some(start), Some(end), Some(step)) = (start, end, step) else { return counter };
            let upwards = host.map_or_else(|| !signed || is_positive(t, step), |step| step > 0);
            // A step whose highest bit is set is one of a `for` only in some readings.
            let most = i128::from(i64::MAX >> (64 - dtype.bits()));
            if !reversed && host.map_or_else(|| is_positive(t, step), |step| (1..=most).contains(&step)) {
                counter.bounds = Some([start, end, step]);
                return counter;
            }
            counter.by_one = true;
            counter.unsigned = true;
            let mut ints = Ints { t, dtype, sign };
            let rounds = count_rounds(&mut ints, [start, end, step], host, upwards);
            let (zero, one) = (ints.constant(0), ints.constant(1));
            let last = reversed.then(|| ints.sub(rounds, one));
            counter.bounds = Some([zero, rounds, one]);
            counter.number = Number::Affine { start, step, last };
            counter
        })
    }

    /// Returns an end or a step as a scalar of the counter's type; `None` after a problem.
    fn bound(self, t: &mut Trace, range: Bounds, what: &str, bound: Bound) -> Option<Value> {
        let sign = if range.signed { Sign::Signed } else { Sign::Unsigned };
        match bound {
            Bound::Host(number) if self.fits(t, range, (what, number), number) => {
                Some(Ints { t, dtype: range.dtype, sign }.constant(number))
            }
            Bound::Host(_) => None,
            Bound::Value(raw) => t.scalar(self.place, Source::Value(raw), range.dtype),
        }
    }

    /// Returns the step, if it is a host number; 1 after a problem.
    fn host_step(self, t: &mut Trace, range: Bounds) -> Option<i128> {
        let Bound::Host(step) = range.step else { return None };
        if step == 0 {
            t.report(
                self.place,
                format!("`{}`: the step is 0", self.name),
                &["the step of a range is at least 1, or at most -1"],
            );
            return Some(1);
        }
        // A descending unsigned counter decreases by the magnitude of the step.
        let number = if range.signed { step } else { step.abs() };
        Some(if self.fits(t, range, ("step", step), number) { step } else { 1 })
    }

    /// Returns true if the counter's type holds `number`; else reports the host number that it is
    /// of.
    fn fits(self, t: &mut Trace, range: Bounds, (what, host): (&str, i128), number: i128) -> bool {
        let numbers = numbers_of(range.dtype, range.signed);
        if numbers.contains(&number) {
            return true;
        }
        let (elem, bits) = (range.elem, range.dtype.bits());
        let message =
            format!("`{}`: the {what} {host} does not fit {elem}, the type that the range counts in", self.name);
        let wide = [("i64", true), ("u64", false)].into_iter().find(|&(_, signed)| {
            (bits < 64 || signed != range.signed) && numbers_of(DType::I64, signed).contains(&number)
        });
        let way_out = match wide {
            Some((wide, _)) => format!(
                "count in {wide}: a scalar end is converted by `.cast::<{wide}>()`, a host end becomes `ct::scalar(0{wide})`"
            ),
            None => format!("{elem} holds the numbers from {} to {}", numbers.start(), numbers.end()),
        };
        t.report(self.place, message, &[&way_out]);
        false
    }

    /// Records a loop over a range. The arguments of `body` are the item, the state, and the block
    /// of the body.
    pub fn count<L: LoopRange, S: LoopState>(self, range: &L, init: S, body: impl Fn(L::Item, S, BlockId) -> S) -> S {
        let counting = match self.start_counting(range.bounds(), Values::of(&init)) {
            Ok(counting) => counting,
            Err(poison) => return Values::into_state(&init, poison),
        };
        let (item, inner) = (range.item(counting.number), Values::into_state(&init, counting.inner.clone()));
        let next = Values::of(&in_region(|| body(item, inner, counting.block)));
        Values::into_state(&init, self.end_counting(counting, &next))
    }

    /// Opens the body of a loop over a range. Returns poison for its results if bodies are nested
    /// too deeply.
    fn start_counting(self, range: Bounds, state: Vec<ValueHandle>) -> Result<Counting, Vec<ValueHandle>> {
        let counter = self.counter(range);
        let Some((block, args)) = self.open_loop(&[counter.dtype], &state) else {
            return Err(self.poison_like(&state));
        };
        let number = self.number(&counter, args[0]);
        Ok(Counting { counter, state, block, number, inner: args[1..].to_vec() })
    }

    /// Closes the body, which continues with these values, and records the loop. Returns its
    /// results.
    fn end_counting(self, counting: Counting, next: &[ValueHandle]) -> Vec<ValueHandle> {
        let Counting { counter, state, block, .. } = counting;
        let closed = self.close(Opcode::Continue, next, &state);
        let leaves = record(|t| t.end_loop(block));
        let bounds = counter.bounds.map_or([None; 3], |bounds| bounds.map(Some));
        match (leaves, closed, counter.bounds) {
            (true, Some(block), Some(bounds)) => {
                record(|t| {
                    t.at(self.place);
                    leave_early(t, block, &counter, bounds);
                });
                let first = record(|t| t.raw(bounds[0]));
                let carried: Vec<ValueHandle> = [first].into_iter().chain(state.iter().copied()).collect_vec();
                self.finish(Opcode::Loop, &[], Some(&carried), Some(vec![block]), &state, counter.hints)
            }
            _ => self.finish(Opcode::For, &bounds, Some(&state), closed.map(|b| vec![b]), &state, counter.attrs()),
        }
    }

    /// Emits the number of an iteration.
    fn number(self, counter: &Counter, round: ValueHandle) -> ValueHandle {
        record(|t| {
            t.at(self.place);
            let sign = Sign::Signed;
            match (counter.number, t.check_usable(round, self.place)) {
                (Number::Affine { start, step, last }, Some(round)) => {
                    let mut ints = Ints { t, dtype: counter.dtype, sign };
                    let round = last.map_or(round, |last| ints.sub(last, round));
                    let distance = ints.mul(round, step);
                    let number = ints.add(start, distance);
                    t.raw(number)
                }
                _ => round,
            }
        })
    }
}

impl Counter {
    fn attrs(&self) -> Vec<Attr> {
        let unsigned = self.unsigned.then_some(Attr::Flag(Flag::UnsignedCmp));
        unsigned.into_iter().chain(self.hints.iter().cloned()).collect_vec()
    }
}

/// The numbers that an integer type holds.
fn numbers_of(dtype: DType, signed: bool) -> RangeInclusive<i128> {
    let unused = 64 - dtype.bits();
    match signed {
        true => (i64::MIN >> unused).into()..=(i64::MAX >> unused).into(),
        false => 0..=(u64::MAX >> unused).into(),
    }
}

/// The hints of a range that are numbers.
fn numbers(range: Bounds) -> [(&'static str, Option<u32>); 2] {
    [(hint_key::NUM_STAGES, range.num_stages), (hint_key::UNROLL, range.unroll)]
}

fn hints(range: Bounds) -> Vec<Attr> {
    let numbers =
        numbers(range).map(|(key, number)| (key, number.map(|n| HintValue::Int(i64::from(n.min(i32::MAX as u32))))));
    let flags = [(hint_key::PINGPONG, range.pingpong), (hint_key::WARP_SPECIALIZE, range.warp_specialize)];
    let flags = flags.map(|(key, flag)| (key, flag.map(HintValue::Bool)));
    let all = numbers.into_iter().chain(flags).filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let all: Vec<_> = all.collect_vec();
    if all.is_empty() { Vec::new() } else { vec![Attr::Hints(Hints(vec![("default".to_owned(), all)]))] }
}

/// Emits the number of iterations of a loop. `host`: the step, if it is known; `upwards`: it is
/// known to be positive.
fn count_rounds(ints: &mut Ints<'_>, [start, end, step]: [Value; 3], host: Option<i128>, upwards: bool) -> Value {
    let zero = ints.constant(0);
    let (up, down) = (ints.sub(end, start), ints.sub(start, end));
    let (is_up, is_down) = (ints.below(start, end), ints.below(end, start));
    match host {
        _ if upwards => {
            let distance = ints.select(is_up, up, zero);
            let rounds = ints.rounds(distance, step);
            // A step of 0, which is known only now, makes no round.
            let none = ints.is_zero(step);
            ints.select(none, zero, rounds)
        }
        Some(step) => {
            let distance = ints.select(is_down, down, zero);
            let size = ints.constant(-step);
            ints.rounds(distance, size)
        }
        None => {
            let back = ints.sub(zero, step);
            let positive = ints.below(zero, step);
            let negative = ints.below(step, zero);
            let (up, down) = (ints.select(is_up, up, zero), ints.select(is_down, down, zero));
            let distance = ints.select(negative, down, zero);
            let distance = ints.select(positive, up, distance);
            let size = ints.select(positive, step, back);
            ints.rounds(distance, size)
        }
    }
}

/// Returns true if the ops that compute a number show that it is positive.
fn is_positive(t: &Trace, value: Value) -> bool {
    let module = &t.builder.module;
    let Some(op) = module.defining_op(value).map(|id| module.op(id)) else { return false };
    let unused = 64 - module.dtype(value).bits();
    match op.code {
        Opcode::GetNumTileBlocks => true,
        Opcode::Constant => match op.const_data() {
            Some(&ConstData::Splat(bits)) => ((bits << unused) as i64 >> unused) > 0,
            _ => false,
        },
        Opcode::ExtI | Opcode::Reshape | Opcode::MinI => op.operands.iter().all(|&operand| is_positive(t, operand)),
        Opcode::MaxI => op.sign() == Sign::Signed && op.operands.iter().any(|&operand| is_positive(t, operand)),
        Opcode::Assume => {
            let bounded = matches!(
                op.attr(AttrKind::Predicate),
                Some(Attr::Predicate(Predicate::Bounded { lower: Some(lower), .. })) if *lower > 0
            );
            bounded || is_positive(t, op.operands[0])
        }
        _ => false,
    }
}

/// Converts the body of a `for` to that of a `loop` with a counter. The body begins with the test
/// for the end, and every `continue` passes the next number.
fn leave_early(t: &mut Trace, body: BlockId, counter: &Counter, [_, end, step]: [Value; 3]) {
    let args = t.builder.module.block(body).args.clone();
    let sign = if counter.unsigned { Sign::Unsigned } else { Sign::Signed };
    let mut ends = Vec::new();
    continues(t, body, &mut ends);
    for block in ends {
        let mut ints = Ints { t, dtype: counter.dtype, sign };
        let (next, new) = detached(&mut ints, |ints| {
            let mut step = step;
            if !counter.by_one {
                // The distance to the end is a number without sign.
                let left = ints.sub(end, args[0]);
                step = ints.t.put(Opcode::MinI, &[step, left], vec![Attr::Sign(Sign::Unsigned)], ints.dtype, &[]);
            }
            ints.add(args[0], step)
        });
        let module = &mut t.builder.module;
        let ops = &mut module.block_mut(block).ops;
        let last = ops.pop().expect("a `continue`");
        ops.extend(new);
        ops.push(last);
        let end = module.op_mut(last);
        end.operands.insert(0, next);
        end.segments.iter_mut().for_each(|count| *count += 1);
    }
    let mut ints = Ints { t, dtype: counter.dtype, sign };
    let (goes_on, mut head) = detached(&mut ints, |ints| ints.below(args[0], end));
    let loc = t.builder.loc();
    let module = &mut t.builder.module;
    let (stay, leave) = (module.add_block(&[]), module.add_block(&[]));
    let stays = module.add_op(Opcode::Yield, &[&[]], vec![], vec![], &[], loc);
    let leaves = module.add_op(Opcode::Break, &[&args[1..]], vec![], vec![], &[], loc);
    module.block_mut(stay).ops = vec![stays];
    module.block_mut(leave).ops = vec![leaves];
    head.push(module.add_op(Opcode::If, &[&[goes_on]], vec![], vec![stay, leave], &[], loc));
    module.block_mut(body).ops.splice(0..0, head);
}

/// Ops that are recorded for another place.
fn detached(ints: &mut Ints<'_>, work: impl FnOnce(&mut Ints<'_>) -> Value) -> (Value, Vec<OpId>) {
    ints.t.builder.begin_block(&[]);
    let value = work(ints);
    let block = ints.t.builder.end_block();
    (value, std::mem::take(&mut ints.t.builder.module.block_mut(block).ops))
}

/// The blocks of a loop body that end with a `continue` of this loop.
fn continues(t: &Trace, block: BlockId, out: &mut Vec<BlockId>) {
    let module = &t.builder.module;
    for &id in &module.block(block).ops {
        let op = module.op(id);
        match op.code {
            Opcode::Continue => out.push(block),
            // Only through branches: other regions have their own ends.
            Opcode::If => op.regions.iter().for_each(|&region| continues(t, region, out)),
            _ => {}
        }
    }
}
