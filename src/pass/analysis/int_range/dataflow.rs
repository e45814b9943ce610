//! Runs over an entry in program order; loops until nothing changes.

use super::lattice::{Known, MAX_DIVISOR};
use super::table::{Extent, Facts, ViewFacts};
use super::{transfer, views};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Entry, Flag, Module, Op, OpId, Opcode, Predicate, Type, Value};

pub(super) fn run(module: &Module, entry: &Entry, most_blocks: [u32; 3]) -> Facts {
    let integer = (0..module.num_values()).map(|i| is_integer(module, Value(i as u32))).collect();
    let facts = Facts { known: vec![None; module.num_values()], integer, ..Facts::default() };
    let mut analysis = Analysis { module, most_blocks, facts, loops: Vec::new(), yields: Vec::new() };
    for &param in &module.block(entry.body).args {
        analysis.forget(param);
    }
    analysis.block(entry.body);
    analysis.facts
}

fn is_integer(module: &Module, value: Value) -> bool {
    matches!(module.ty(value), Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int())
}

/// Width of what is tracked for a value: integers, and addresses of pointers and tensor views.
fn tracked_bits(module: &Module, value: Value) -> Option<u32> {
    match module.ty(value) {
        Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_int() => Some(dtype.bits()),
        Type::Tile { elem: Elem::Ptr { .. }, .. } | Type::TensorView { .. } => Some(64),
        _ => None,
    }
}

/// Values handed over by the terminators of a region, joined by position.
#[derive(Default)]
struct Handed(Option<Vec<Option<Known>>>);

impl Handed {
    fn add(&mut self, next: Vec<Option<Known>>) {
        let joined = match self.0.take() {
            None => next,
            Some(old) => old.into_iter().zip(next).map(|(a, b)| Some(a?.join(b?))).collect(),
        };
        self.0 = Some(joined);
    }
}

#[derive(Default)]
struct LoopFrame {
    continues: Handed,
    breaks: Handed,
}

struct Analysis<'m> {
    module: &'m Module,
    /// Of a grid, along each axis.
    most_blocks: [u32; 3],
    facts: Facts,
    loops: Vec<LoopFrame>,
    yields: Vec<Handed>,
}

impl<'m> Analysis<'m> {
    fn set(&mut self, value: Value, known: Option<Known>) {
        let bits = tracked_bits(self.module, value);
        self.facts.known[value.index()] = bits.map(|bits| match known {
            Some(known) if known.bits == bits => known,
            _ => Known::any(bits),
        });
    }

    fn forget(&mut self, value: Value) {
        self.set(value, None);
    }

    fn get(&self, value: Value) -> Option<Known> {
        self.facts.get(value).or_else(|| tracked_bits(self.module, value).map(Known::any))
    }

    fn get_all(&self, values: &[Value]) -> Vec<Option<Known>> {
        values.iter().map(|&v| self.get(v)).collect()
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
            Opcode::Loop => self.endless_loop(op),
            Opcode::If => self.branch(op),
            Opcode::Reduce | Opcode::Scan => self.reduction(op),
            Opcode::Continue => {
                let handed = self.get_all(&op.operands);
                self.loops.last_mut().expect("a loop around `continue`").continues.add(handed);
            }
            Opcode::Break => {
                let handed = self.get_all(&op.operands);
                self.loops.last_mut().expect("a loop around `break`").breaks.add(handed);
            }
            Opcode::Yield => {
                let handed = self.get_all(&op.operands);
                self.yields.last_mut().expect("an op around `yield`").add(handed);
            }
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => self.shape_query(op),
            Opcode::MakePartitionView | Opcode::MakeStridedView => {
                if let Some(view) = ViewFacts::of(&self.facts, self.module, op) {
                    self.facts.views.insert(op.results[0], view);
                }
            }
            _ => self.plain(op),
        }
    }

    /// Ops without regions whose results come from operands and attributes alone.
    fn plain(&mut self, op: &Op) {
        for &result in &op.results {
            let known = tracked_bits(self.module, result).and_then(|bits| self.result(op, result, bits));
            self.set(result, known);
        }
    }

    fn result(&self, op: &Op, result: Value, bits: u32) -> Option<Known> {
        let operand = |i: usize| op.operands.get(i).and_then(|&v| self.get(v));
        match op.code {
            Opcode::Constant => Some(transfer::constant(op.const_data()?, bits)),
            Opcode::Iota => {
                let count = self.module.shape(result)[0];
                // The unsigned values 0 to 2^w - 1 of a narrow type wrap to negative ones.
                Some(Known::wrapped(0, i128::from(count) - 1, 1, bits))
            }
            Opcode::GetTileBlockId => Some(Known::any(bits).meet(0, self.most_blocks(op, result) - 1)),
            Opcode::GetNumTileBlocks => Some(Known::any(bits).meet(1, self.most_blocks(op, result))),
            Opcode::DataPartitionId => match op.attr(AttrKind::NumElem) {
                Some(&Attr::NumElem(count)) => Some(Known::any(bits).meet(0, count as i64 - 1)),
                _ => None,
            },
            Opcode::Assume => Some(assume(op, operand(0)?)),
            Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Permute
            | Opcode::Extract
            | Opcode::Gather
            | Opcode::WithLayout
            | Opcode::MakeTensorView => operand(0),
            Opcode::Histogram => {
                let count = self.module.shape(op.operands[0]).iter().product();
                Some(Known::any(bits).meet(0, count))
            }
            Opcode::Cat | Opcode::Insert => Some(operand(0)?.join(operand(1)?)),
            Opcode::Select => match self.facts.constant(op.operands[0]) {
                Some(0) => operand(2),
                Some(_) => operand(1),
                None => Some(operand(1)?.join(operand(2)?)),
            },
            Opcode::Offset => Some(self.offset(op)),
            Opcode::Alloca => match op.attr(AttrKind::Alignment) {
                Some(Attr::Alignment(bytes)) => Some(Known::divisible(*bytes, bits)),
                _ => None,
            },
            Opcode::GetGlobal => Some(Known::divisible(self.global_alignment(op)?, bits)),
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

    /// Most blocks of a grid along the axis that a result of an op about the grid speaks of.
    fn most_blocks(&self, op: &Op, result: Value) -> i64 {
        let axis = op.results.iter().position(|&r| r == result).expect("a result of the op");
        self.most_blocks[axis].into()
    }

    /// Only the divisor of an address is tracked.
    fn offset(&self, op: &Op) -> Known {
        let pointer = self.get(op.operands[0]).map_or(1, |k| k.div);
        let offset = self.get(op.operands[1]).map_or(1, |k| k.div);
        let element_bits = match self.module.ty(op.operands[0]) {
            Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => u64::from(pointee.storage_bits()),
            _ => 8,
        };
        let bytes = (u128::from(offset) * u128::from(element_bits) / 8).clamp(1, MAX_DIVISOR.into()) as u64;
        // Element sizes are powers of two, or half a byte.
        Known::divisible(pointer.min(bytes), 64)
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
            Type::TensorView { shape, .. } => (Some(source), (0..shape.len()).collect(), vec![1; shape.len()]),
            Type::PartitionView { tile: steps, dim_map, .. } | Type::StridedView { traversal: steps, dim_map, .. } => {
                let map = dim_map.iter().map(|&d| d as usize).collect();
                let array = self.module.defining_op(source).map(|id| self.module.op(id).operands[0]);
                (array, map, steps.iter().map(|&s| i64::from(s)).collect())
            }
            _ => (None, Vec::new(), Vec::new()),
        };
        let extents = array.and_then(|array| views::extents(self.module, array));
        for (i, &result) in op.results.iter().enumerate() {
            let known = extents.as_ref().and_then(|extents| {
                let bits = tracked_bits(self.module, result)?;
                Some(self.count(*extents.get(*map.get(i)?)?, steps[i], bits))
            });
            self.set(result, known);
        }
    }

    /// Number of steps in an extent, rounded up.
    fn count(&self, extent: Extent, step: i64, bits: u32) -> Known {
        let known = match extent {
            Extent::Constant(extent) => Known::exactly(extent, 64),
            Extent::Dynamic(value) => self.get(value).unwrap_or(Known::any(64)),
        };
        let (lo, hi) = known.unsigned();
        let up = |extent: i128| (extent + i128::from(step) - 1) / i128::from(step);
        let exact = (step as u64).is_power_of_two() && known.div >= step as u64;
        let div = if exact { known.div / step as u64 } else { 1 };
        // Too narrow a result is undefined.
        Known::promised(up(lo), up(hi), div, bits)
    }

    fn for_loop(&mut self, op: &Op) {
        let body = op.regions[0];
        let args = &self.module.block(body).args;
        let counter = self.counter(op);
        self.set(args[0], counter);
        let handed = self.iterate(body, &args[1..], op.group(3));
        let init = self.get_all(op.group(3));
        // No iteration, or the last one.
        let mut result = Handed(Some(init));
        if let Some(continues) = handed.continues.0 {
            result.add(continues);
        }
        self.give(&op.results, result);
    }

    /// Facts about the counter while the body runs.
    fn counter(&self, op: &Op) -> Option<Known> {
        let [lower, upper, step] = [0, 1, 2].map(|i| self.get(op.operands[i]));
        let (lower, upper, step) = (lower?, upper?, step?);
        let div = lower.div.min(step.div);
        let unsigned = op.flag(Flag::UnsignedCmp) && !(lower.is_nonnegative() && upper.is_nonnegative());
        let last = i128::from(upper.hi) - 1;
        if unsigned || last < i128::from(lower.lo) {
            return Some(Known::divisible(div, lower.bits));
        }
        Some(Known::wrapped(lower.lo.into(), last, div, lower.bits))
    }

    /// Solves a loop body for what it carries; gives what its terminators hand over in the end.
    fn iterate(&mut self, body: BlockId, carried: &[Value], init: &[Value]) -> LoopFrame {
        let mut state: Vec<Option<Known>> = self.get_all(init);
        for round in 0.. {
            for (&value, known) in carried.iter().zip(&state) {
                self.set(value, *known);
            }
            self.loops.push(LoopFrame::default());
            self.block(body);
            let frame = self.loops.pop().expect("the frame of this loop");
            let next: Vec<Option<Known>> = match &frame.continues.0 {
                None => state.clone(),
                Some(handed) => {
                    let pairs = state.iter().zip(handed);
                    pairs.map(|(old, new)| Some(step(round, (*old)?, (*new)?))).collect()
                }
            };
            if next == state {
                return frame;
            }
            state = next;
        }
        unreachable!("widening ends the iteration")
    }

    fn endless_loop(&mut self, op: &Op) {
        let body = op.regions[0];
        let frame = self.iterate(body, &self.module.block(body).args, &op.operands);
        self.give(&op.results, frame.breaks);
    }

    fn branch(&mut self, op: &Op) {
        self.yields.push(Handed::default());
        op.regions.iter().for_each(|&region| self.block(region));
        let handed = self.yields.pop().expect("the frame of this branch");
        self.give(&op.results, handed);
    }

    fn reduction(&mut self, op: &Op) {
        let body = op.regions[0];
        self.module.block(body).args.iter().for_each(|&arg| self.forget(arg));
        self.yields.push(Handed::default());
        self.block(body);
        self.yields.pop();
        op.results.iter().for_each(|&result| self.forget(result));
    }

    fn give(&mut self, results: &[Value], handed: Handed) {
        let all = handed.0.unwrap_or_default();
        for (i, &result) in results.iter().enumerate() {
            self.set(result, all.get(i).copied().flatten());
        }
    }
}

/// The state of a loop-carried value for the next round. Bounds are widened from the second round on;
/// divisors fall by themselves, but not for ever in deep nests.
fn step(round: usize, old: Known, new: Known) -> Known {
    let joined = old.join(new);
    match round {
        0 => joined,
        1..=4 => old.widen(joined),
        _ if joined == old => old,
        _ => Known { div: 1, ..old.widen(joined) },
    }
}

fn assume(op: &Op, value: Known) -> Known {
    match op.attr(AttrKind::Predicate) {
        Some(Attr::Predicate(Predicate::DivBy { divisor, every: None, .. })) => value.and_divisible(*divisor),
        Some(Attr::Predicate(Predicate::Bounded { lower, upper })) => {
            value.meet(lower.unwrap_or(i64::MIN), upper.unwrap_or(i64::MAX))
        }
        _ => value,
    }
}
