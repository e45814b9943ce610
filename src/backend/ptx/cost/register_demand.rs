//! Register demand of a loop: the words of tiles that a thread holds at the same time.
//!
//! A linear scan over the body in program order. Tiles of the enclosing blocks are live in the
//! whole body. Loaded operands of MMAs are in shared memory and do not count.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, Def, Elem, OpId, Type, Value};

/// Registers of a thread for addresses, barriers and indices.
const SPARE_REGISTERS: u32 = 24;

/// Returns the registers that a thread needs in a loop.
pub fn registers_of_loop(context: &KernelInfo<'_>, id: OpId) -> u32 {
    let module = context.module;
    let body = module.op(id).regions[0];
    let ops = &module.block(body).ops;
    let mut demand = RegisterDemand { context, last_uses: FxHashMap::default() };
    for (position, &op) in ops.iter().enumerate() {
        demand.add_uses(op, position);
    }
    let inside: FxHashSet<Value> = ops.iter().flat_map(|&op| &module.op(op).results).copied().collect();
    let carried = module.block(body).args.iter().filter(|&value| demand.last_uses.contains_key(value));
    let invariant = demand.last_uses.keys().filter(|&value| {
        !inside.contains(value) && !module.block(body).args.contains(value) && !demand.is_defined_below(*value, body)
    });
    let mut live: u32 = carried.chain(invariant).map(|&value| demand.words(value)).sum();
    let mut max = live;
    for (position, &op) in ops.iter().enumerate() {
        let op = module.op(op);
        let dies = |value: &Value| {
            let is_local = inside.contains(value) || module.block(body).args.contains(value);
            is_local && demand.last_uses.get(value) == Some(&position)
        };
        let ends: u32 = demand.last_uses.keys().filter(|value| dies(value)).map(|&value| demand.words(value)).sum();
        let results: u32 = op.results.iter().map(|&value| demand.words(value)).sum();
        // An MMA reads its operands while it writes the accumulator, which is in place.
        let in_place = if op.code.is_mma() { op.operands.get(2).copied().filter(dies) } else { None };
        let reused = if op.code.is_mma() { in_place.map_or(0, |value| demand.words(value)) } else { ends };
        max = max.max(live + results.saturating_sub(reused));
        live = live.saturating_sub(ends) + results;
    }
    max + SPARE_REGISTERS
}

struct RegisterDemand<'a, 'm> {
    context: &'a KernelInfo<'m>,
    /// Position of the last op of the body that uses a value.
    last_uses: FxHashMap<Value, usize>,
}

impl RegisterDemand<'_, '_> {
    /// Adds the uses of an op and of the ops of its regions.
    fn add_uses(&mut self, id: OpId, position: usize) {
        let module = self.context.module;
        let mut ops = vec![id];
        module.op(id).regions.iter().for_each(|&region| module.walk(region, &mut |nested| ops.push(nested)));
        for op in ops {
            for &operand in &module.op(op).operands {
                self.add_use(operand, position);
            }
        }
    }

    /// Adds a use of the tiles in registers from which a value is computed.
    fn add_use(&mut self, value: Value, position: usize) {
        let context = self.context;
        if !is_tile(context, value) {
            return;
        }
        match context.inference.origin(value) {
            ValueOrigin::Register => {
                self.last_uses.insert(value, position);
            }
            ValueOrigin::View | ValueOrigin::Rematerialized => {
                let Some(id) = context.module.defining_op(value) else { return };
                for &operand in &context.module.op(id).operands {
                    self.add_use(operand, position);
                }
            }
        }
    }

    /// Returns true if a value is defined in a region inside of the body.
    fn is_defined_below(&self, value: Value, body: BlockId) -> bool {
        let context = self.context;
        let block = match context.module.def(value) {
            Def::Arg(block, _) => Some(block),
            Def::Result(id, _) => context.regions.block_of(id),
        };
        let mut block = block;
        while let Some(inner) = block.filter(|&inner| inner != body) {
            block = context.module.block(inner).parent.and_then(|id| context.regions.block_of(id));
        }
        block == Some(body)
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
