//! Data-flow analysis of an entry: one traversal in program order, with fixed-point iteration of
//! loops.

use super::lattice::{MAX_DIVISOR, RangeState};
use super::table::{Extent, IntRanges, ViewInfo};
use super::{transfer, views};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Entry, Flag, Module, Op, OpId, Opcode, Predicate, Type, Value};
use crate::util::collect::CollectVec as _;

pub(super) fn run(module: &Module, entry: &Entry, max_blocks: [u32; 3]) -> IntRanges {
    let integer = (0..module.num_values()).map(|i| is_integer(module, Value(i as u32))).collect_vec();
    let ranges = IntRanges { state: vec![None; module.num_values()], integer, ..IntRanges::default() };
    let mut analysis = Analysis { module, max_blocks, ranges, loops: Vec::new(), yields: Vec::new() };
    for &param in &module.block(entry.body).args {
        analysis.set_unknown(param);
    }
    analysis.block(entry.body);
    analysis.ranges
}

fn is_integer(module: &Module, value: Value) -> bool {
    matches!(module.ty(value), Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int())
}

/// Width of the tracked number of a value: an integer, or the address of a pointer or tensor view.
fn tracked_bits(module: &Module, value: Value) -> Option<u32> {
    match module.ty(value) {
        Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int() => Some(dtype.bits()),
        Type::Tile { elem: Elem::Ptr { .. }, .. } | Type::TensorView { .. } => Some(64),
        _ => None,
    }
}

/// Values that the terminators of a region pass on, joined by position.
#[derive(Default)]
struct Joined(Option<Vec<Option<RangeState>>>);

impl Joined {
    fn add(&mut self, next: Vec<Option<RangeState>>) {
        let joined = match self.0.take() {
            None => next,
            Some(old) => old.into_iter().zip(next).map(|(a, b)| Some(a?.join(b?))).collect_vec(),
        };
        self.0 = Some(joined);
    }
}

#[derive(Default)]
struct LoopFrame {
    continues: Joined,
    breaks: Joined,
}

struct Analysis<'m> {
    module: &'m Module,
    /// Maximum number of tile blocks along each axis of the grid.
    max_blocks: [u32; 3],
    ranges: IntRanges,
    loops: Vec<LoopFrame>,
    yields: Vec<Joined>,
}

impl<'m> Analysis<'m> {
    fn set(&mut self, value: Value, state: Option<RangeState>) {
        let bits = tracked_bits(self.module, value);
        self.ranges.state[value.index()] = bits.map(|bits| match state {
            Some(state) if state.bits == bits => state,
            _ => RangeState::any(bits),
        });
    }

    fn set_unknown(&mut self, value: Value) {
        self.set(value, None);
    }

    fn get(&self, value: Value) -> Option<RangeState> {
        self.ranges.get(value).or_else(|| tracked_bits(self.module, value).map(RangeState::any))
    }

    fn get_all(&self, values: &[Value]) -> Vec<Option<RangeState>> {
        values.iter().map(|&v| self.get(v)).collect_vec()
    }

    fn block(&mut self, block: BlockId) {
        for &id in &self.module.block(block).ops {
            self.op(id);
        }
    }

    fn op(&mut self, id: OpId) {
        let op = self.module.op(id);
        match op.code {
            Opcode::For => self.for_loop(op),
            Opcode::Loop => self.loop_op(op),
            Opcode::If => self.branch(op),
            Opcode::Reduce | Opcode::Scan => self.reduction(op),
            Opcode::Continue => {
                let joined = self.get_all(&op.operands);
                self.loops.last_mut().expect("a loop around `continue`").continues.add(joined);
            }
            Opcode::Break => {
                let joined = self.get_all(&op.operands);
                self.loops.last_mut().expect("a loop around `break`").breaks.add(joined);
            }
            Opcode::Yield => {
                let joined = self.get_all(&op.operands);
                self.yields.last_mut().expect("an op around `yield`").add(joined);
            }
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => self.shape_query(op),
            Opcode::MakePartitionView | Opcode::MakeStridedView => {
                if let Some(view) = ViewInfo::new(&self.ranges, self.module, op) {
                    self.ranges.views.insert(op.results[0], view);
                }
            }
            _ => self.plain(op),
        }
    }

    /// Sets the results of an op without regions, from its operands and attributes.
    fn plain(&mut self, op: &Op) {
        for &result in &op.results {
            let state = tracked_bits(self.module, result).and_then(|bits| self.result(op, result, bits));
            self.set(result, state);
        }
    }

    fn result(&self, op: &Op, result: Value, bits: u32) -> Option<RangeState> {
        let operand = |i: usize| op.operands.get(i).and_then(|&v| self.get(v));
        match op.code {
            Opcode::Constant => Some(transfer::constant(op.const_data()?, bits)),
            Opcode::Iota => {
                let count = self.module.shape(result)[0];
                // The unsigned values 0 to 2^w - 1 of a narrow type wrap to negative ones.
                Some(RangeState::wrapped(0, i128::from(count) - 1, 1, bits))
            }
            Opcode::GetTileBlockId => Some(RangeState::any(bits).meet(0, self.max_blocks(op, result) - 1)),
            Opcode::GetNumTileBlocks => Some(RangeState::any(bits).meet(1, self.max_blocks(op, result))),
            Opcode::DataPartitionId => match op.attr(AttrKind::NumElem) {
                Some(&Attr::NumElem(count)) => Some(RangeState::any(bits).meet(0, count as i64 - 1)),
                _ => None,
            },
            Opcode::Assume => Some(assume(op, operand(0)?)),
            Opcode::Extract | Opcode::Gather | Opcode::MakeTensorView => operand(0),
            code if code.has_operand_elements() => operand(0),
            Opcode::Ranks => {
                let count: i64 = self.module.shape(op.operands[0]).iter().product();
                Some(RangeState::any(bits).meet(0, count - 1))
            }
            Opcode::Histogram => {
                let count = self.module.shape(op.operands[0]).iter().product();
                Some(RangeState::any(bits).meet(0, count))
            }
            Opcode::Cat | Opcode::Insert => Some(operand(0)?.join(operand(1)?)),
            Opcode::Select => match self.ranges.constant(op.operands[0]) {
                Some(0) => operand(2),
                Some(_) => operand(1),
                None => Some(operand(1)?.join(operand(2)?)),
            },
            Opcode::Offset => Some(self.offset(op)),
            Opcode::Alloca => match op.attr(AttrKind::Alignment) {
                Some(Attr::Alignment(bytes)) => Some(RangeState::divisible(*bytes, bits)),
                _ => None,
            },
            Opcode::GetGlobal => Some(RangeState::divisible(self.global_alignment(op)?, bits)),
            _ => match op.operands.len() {
                1 => {
                    let to = match self.module.ty(result) {
                        Type::Tile { elem: Elem::Num(dtype), .. } => *dtype,
                        _ => DType::I64,
                    };
                    transfer::unary(op, operand(0)?, to)
                }
                2 => transfer::binary(op, operand(0)?, operand(1)?),
                _ => None,
            },
        }
    }

    /// Returns the maximum number of tile blocks along the axis of a result of a grid query.
    fn max_blocks(&self, op: &Op, result: Value) -> i64 {
        let axis = op.results.iter().position(|&r| r == result).expect("a result of the op");
        self.max_blocks[axis].into()
    }

    /// Only the divisor of an address is tracked.
    fn offset(&self, op: &Op) -> RangeState {
        let pointer = self.get(op.operands[0]).map_or(1, |k| k.div);
        let offset = self.get(op.operands[1]).map_or(1, |k| k.div);
        let element_bits = match self.module.ty(op.operands[0]) {
            Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => u64::from(pointee.storage_bits()),
            _ => 8,
        };
        let bytes = (u128::from(offset) * u128::from(element_bits) / 8).clamp(1, MAX_DIVISOR.into()) as u64;
        // Element sizes are powers of two, or half a byte.
        RangeState::divisible(pointer.min(bytes), 64)
    }

    fn global_alignment(&self, op: &Op) -> Option<u64> {
        let Some(Attr::Text(name)) = op.attr(AttrKind::Text) else { return None };
        let global = self.module.globals.iter().find(|g| *g.name == **name)?;
        let natural = u64::from(self.module.type_of(global.ty).dtype().storage_bits().div_ceil(8));
        Some(global.alignment.max(natural))
    }

    fn shape_query(&mut self, op: &Op) {
        let source = op.operands[0];
        let (array, map, steps): (_, Vec<usize>, Vec<i64>) = match self.module.ty(source) {
            Type::TensorView { shape, .. } => (Some(source), (0..shape.len()).collect_vec(), vec![1; shape.len()]),
            Type::PartitionView { tile: steps, dim_map, .. } | Type::StridedView { traversal: steps, dim_map, .. } => {
                let map = dim_map.iter().map(|&d| d as usize).collect_vec();
                let array = self.module.defining_op(source).map(|id| self.module.op(id).operands[0]);
                (array, map, steps.iter().map(|&s| i64::from(s)).collect_vec())
            }
            _ => (None, Vec::new(), Vec::new()),
        };
        let extents = array.and_then(|array| views::extents(self.module, array));
        for (i, &result) in op.results.iter().enumerate() {
            let state = extents.as_ref().and_then(|extents| {
                let bits = tracked_bits(self.module, result)?;
                Some(self.count(*extents.get(*map.get(i)?)?, steps[i], bits))
            });
            self.set(result, state);
        }
    }

    /// Returns the number of steps in an extent, rounded up.
    fn count(&self, extent: Extent, step: i64, bits: u32) -> RangeState {
        let state = match extent {
            Extent::Constant(extent) => RangeState::constant_state(extent, 64),
            Extent::Dynamic(value) => self.get(value).unwrap_or(RangeState::any(64)),
        };
        let (lo, hi) = state.unsigned();
        let up = |extent: i128| (extent + i128::from(step) - 1) / i128::from(step);
        let exact = (step as u64).is_power_of_two() && state.div >= step as u64;
        let div = if exact { state.div / step as u64 } else { 1 };
        // A result that does not fit its type is undefined.
        RangeState::without_overflow(up(lo), up(hi), div, bits)
    }

    fn for_loop(&mut self, op: &Op) {
        let body = op.regions[0];
        let args = &self.module.block(body).args;
        let counter = self.counter(op);
        self.set(args[0], counter);
        let joined = self.iterate(body, &args[1..], op.group(3));
        let init = self.get_all(op.group(3));
        // The initial value for no iteration, joined with the value after the last iteration.
        let mut result = Joined(Some(init));
        if let Some(continues) = joined.continues.0 {
            result.add(continues);
        }
        self.set_results(&op.results, result);
    }

    /// Returns the state of the loop counter inside of the body.
    fn counter(&self, op: &Op) -> Option<RangeState> {
        let [lower, upper, step] = [0, 1, 2].map(|i| self.get(op.operands[i]));
        let (lower, upper, step) = (lower?, upper?, step?);
        let div = lower.div.min(step.div);
        let unsigned = op.flag(Flag::UnsignedCmp) && !(lower.is_nonnegative() && upper.is_nonnegative());
        let last = i128::from(upper.hi) - 1;
        if unsigned || last < i128::from(lower.lo) {
            return Some(RangeState::divisible(div, lower.bits));
        }
        Some(RangeState::wrapped(lower.lo.into(), last, div, lower.bits))
    }

    /// Iterates a loop body until the states of the carried values are a fixed point. Returns the
    /// states at its terminators.
    fn iterate(&mut self, body: BlockId, carried: &[Value], init: &[Value]) -> LoopFrame {
        let mut state: Vec<Option<RangeState>> = self.get_all(init);
        for round in 0.. {
            for (&value, state) in carried.iter().zip(&state) {
                self.set(value, *state);
            }
            self.loops.push(LoopFrame::default());
            self.block(body);
            let frame = self.loops.pop().expect("the frame of this loop");
            let next: Vec<Option<RangeState>> = match &frame.continues.0 {
                None => state.clone(),
                Some(joined) => {
                    let pairs = state.iter().zip(joined);
                    pairs.map(|(old, new)| Some(step(round, (*old)?, (*new)?))).collect_vec()
                }
            };
            if next == state {
                return frame;
            }
            state = next;
        }
        unreachable!("widening ends the iteration")
    }

    fn loop_op(&mut self, op: &Op) {
        let body = op.regions[0];
        let frame = self.iterate(body, &self.module.block(body).args, &op.operands);
        self.set_results(&op.results, frame.breaks);
    }

    fn branch(&mut self, op: &Op) {
        self.yields.push(Joined::default());
        op.regions.iter().for_each(|&region| self.block(region));
        let joined = self.yields.pop().expect("the frame of this branch");
        self.set_results(&op.results, joined);
    }

    fn reduction(&mut self, op: &Op) {
        let body = op.regions[0];
        self.module.block(body).args.iter().for_each(|&arg| self.set_unknown(arg));
        self.yields.push(Joined::default());
        self.block(body);
        self.yields.pop();
        op.results.iter().for_each(|&result| self.set_unknown(result));
    }

    fn set_results(&mut self, results: &[Value], joined: Joined) {
        let all = joined.0.unwrap_or_default();
        for (i, &result) in results.iter().enumerate() {
            self.set(result, all.get(i).copied().flatten());
        }
    }
}

/// Returns the state of a loop-carried value for the next iteration of the analysis. Bounds are
/// widened from the second iteration on. Divisors decrease without widening; from the sixth
/// iteration on they are set to 1, which ends the analysis of deep nests.
fn step(round: usize, old: RangeState, new: RangeState) -> RangeState {
    let joined = old.join(new);
    match round {
        0 => joined,
        1..=4 => old.widen(joined),
        _ if joined == old => old,
        _ => RangeState { div: 1, ..old.widen(joined) },
    }
}

fn assume(op: &Op, value: RangeState) -> RangeState {
    match op.attr(AttrKind::Predicate) {
        Some(Attr::Predicate(Predicate::DivBy { divisor, every: None, .. })) => value.with_divisor(*divisor),
        Some(Attr::Predicate(Predicate::Bounded { lower, upper })) => {
            value.meet(lower.unwrap_or(i64::MIN), upper.unwrap_or(i64::MAX))
        }
        _ => value,
    }
}
