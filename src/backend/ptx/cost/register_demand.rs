//! Register demand of a loop: the words of tiles that a thread holds at the same time.
//!
//! 1. The ops of the body are divided into groups. ptxas interleaves the ops of a group, element by
//!    element: temporaries of a group need no registers, and its results replace the operands whose
//!    last use it is. An MMA and a control flow op are groups of their own. A use of a reduction
//!    begins a group, because a reduction needs the whole tile.
//! 2. A linear scan over the groups adds the results and subtracts the values after their last use.
//!
//! Tiles of the enclosing blocks are live in the whole body. Loaded operands of MMAs are in shared
//! memory and do not count. Limits: ptxas may order the instructions of a group such that it needs
//! more registers.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::{KernelInfo, Schedule};
use crate::ir::{BlockId, Def, Elem, OpId, Opcode, Type, Value};

/// Registers of a thread for addresses, barriers and indices. Fitted to the spilled bytes that
/// ptxas 13.5 reports for attention with 4 and 16 warps.
const SPARE_REGISTERS: u32 = 16;

/// Returns the loops with MMAs that contain no other loop.
fn innermost_mma_loops(context: &KernelInfo<'_>) -> impl Iterator<Item = OpId> {
    let module = context.module;
    let is_innermost = move |id: OpId| !context.regions.nested(id).iter().any(|&inner| module.op(inner).code.is_loop());
    let loops = context.regions.ops().iter().copied().filter(move |&id| module.op(id).code.is_loop());
    loops.filter(move |&id| context.regions.has_mma(id) && is_innermost(id))
}

/// Returns the registers that a thread needs in loops with MMAs; 0 without such loops.
pub fn registers_of_mma_loops(context: &KernelInfo<'_>) -> u32 {
    innermost_mma_loops(context).map(|id| registers_of_loop(context, id)).max().unwrap_or(0)
}

/// Returns the registers of a thread that the MMAs of innermost loops need beyond the available
/// ones.
pub fn spilled_registers(context: &KernelInfo<'_>, schedule: &Schedule, ctas_per_sm: u32) -> FxHashMap<OpId, u32> {
    // ptxas compiles a kernel without a requested occupancy for one CTA.
    let ctas_per_sm = if context.options.occupancy.is_some() { ctas_per_sm } else { 1 };
    let available = context.consumer_registers(schedule.warp_spec.is_some(), ctas_per_sm);
    let spilled = |id: OpId| (id, registers_of_loop(context, id).saturating_sub(available));
    innermost_mma_loops(context).map(spilled).filter(|&(_, registers)| registers > 0).collect()
}

/// Returns the registers that a thread needs in a loop.
fn registers_of_loop(context: &KernelInfo<'_>, id: OpId) -> u32 {
    let body = context.module.op(id).regions[0];
    let mut demand = RegisterDemand::new(context, body);
    let ops = &context.module.block(body).ops;
    for (&op, group) in ops.iter().zip(demand.groups.clone()) {
        demand.add_uses(op, group);
    }
    demand.max() + SPARE_REGISTERS
}

struct RegisterDemand<'a, 'm> {
    context: &'a KernelInfo<'m>,
    body: BlockId,
    /// Group of each op of the body.
    groups: Vec<usize>,
    /// Group that defines a result of an op of the body.
    definitions: FxHashMap<Value, usize>,
    /// Last group that uses a tile in registers.
    last_uses: FxHashMap<Value, usize>,
}

impl<'a, 'm> RegisterDemand<'a, 'm> {
    fn new(context: &'a KernelInfo<'m>, body: BlockId) -> RegisterDemand<'a, 'm> {
        let module = context.module;
        let ops = &module.block(body).ops;
        let (mut groups, mut definitions) = (Vec::with_capacity(ops.len()), FxHashMap::default());
        let (mut group, mut is_separate) = (0, true);
        let mut folded: FxHashSet<Value> = FxHashSet::default();
        for &id in ops {
            let op = module.op(id);
            let is_alone = op.code.is_mma() || op.code.is_control_flow();
            if is_alone || is_separate || op.operands.iter().any(|operand| folded.contains(operand)) {
                group += usize::from(!groups.is_empty());
                folded.clear();
            }
            is_separate = is_alone;
            if matches!(op.code, Opcode::Reduce | Opcode::Scan) {
                folded.extend(&op.results);
            }
            definitions.extend(op.results.iter().map(|&value| (value, group)));
            groups.push(group);
        }
        RegisterDemand { context, body, groups, definitions, last_uses: FxHashMap::default() }
    }

    /// Adds the uses of an op and of the ops of its regions.
    fn add_uses(&mut self, id: OpId, group: usize) {
        let module = self.context.module;
        let mut ops = vec![id];
        module.op(id).regions.iter().for_each(|&region| module.walk(region, &mut |nested| ops.push(nested)));
        for op in ops {
            for &operand in &module.op(op).operands {
                self.add_use(operand, group);
            }
        }
    }

    /// Adds a use of the tiles in registers from which a value is computed.
    fn add_use(&mut self, value: Value, group: usize) {
        let context = self.context;
        if !is_tile(context, value) {
            return;
        }
        match context.inference.origin(value) {
            ValueOrigin::Register => {
                self.last_uses.insert(value, group);
            }
            ValueOrigin::View | ValueOrigin::Rematerialized => {
                let Some(id) = context.module.defining_op(value) else { return };
                for &operand in &context.module.op(id).operands {
                    self.add_use(operand, group);
                }
            }
        }
    }

    /// Returns the maximum number of words that are live at the same time.
    fn max(&self) -> u32 {
        let count = self.groups.last().map_or(0, |last| last + 1);
        let (mut results, mut dead) = (vec![0; count], vec![0; count]);
        let mut live = 0;
        for (&value, &last) in &self.last_uses {
            let words = self.words(value);
            match self.definitions.get(&value) {
                Some(&group) if group == last => continue,
                Some(&group) => results[group] += words,
                None if self.is_carried(value) => live += words,
                None if self.is_defined_below(value) => continue,
                None => {
                    live += words;
                    continue;
                }
            }
            dead[last] += words;
        }
        let mut max = live;
        for group in 0..count {
            let (reused, sums) = self.mma_registers(group).unwrap_or((dead[group], 0));
            max = max.max(live + u32::saturating_sub(results[group], reused) + sums);
            live = (live + results[group]).saturating_sub(dead[group]);
        }
        max
    }

    /// Returns the words of the accumulator that an MMA replaces, and those of partial sums; `None`
    /// for other groups. An MMA reads its operands while it writes the accumulator.
    fn mma_registers(&self, group: usize) -> Option<(u32, u32)> {
        let module = self.context.module;
        let position = self.groups.partition_point(|&other| other < group);
        let id = module.block(self.body).ops[position];
        let op = module.op(id);
        op.code.is_mma().then(|| {
            let acc = op.operands[2];
            let is_local = self.definitions.contains_key(&acc) || self.is_carried(acc);
            let is_replaced = is_local && self.last_uses.get(&acc) == Some(&group);
            (if is_replaced { self.words(acc) } else { 0 }, self.context.partial_sum_registers(id))
        })
    }

    /// Returns true if an iteration receives a value from the previous one.
    fn is_carried(&self, value: Value) -> bool {
        matches!(self.context.module.def(value), Def::Arg(block, _) if block == self.body)
    }

    /// Returns true if a value is defined in a region inside of the body.
    fn is_defined_below(&self, value: Value) -> bool {
        let context = self.context;
        let mut block = match context.module.def(value) {
            Def::Arg(block, _) => Some(block),
            Def::Result(id, _) => context.regions.block_of(id),
        };
        while let Some(inner) = block.filter(|&inner| inner != self.body) {
            block = context.module.block(inner).parent.and_then(|id| context.regions.block_of(id));
        }
        block == Some(self.body)
    }

    fn words(&self, value: Value) -> u32 {
        let context = self.context;
        let in_registers = is_tile(context, value)
            && context.inference.origin(value) == ValueOrigin::Register
            && context.source_load(value).is_none();
        if in_registers { context.inference.words_of(value) } else { 0 }
    }
}

fn is_tile(context: &KernelInfo<'_>, value: Value) -> bool {
    matches!(context.module.ty(value), Type::Tile { elem: Elem::Num(_), .. })
}
