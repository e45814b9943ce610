//! Persistent form of a kernel: CTAs that compute several tile blocks one after another.
//!
//! ```text
//! kernel(…): body(block id)
//! ```
//!
//! becomes, for a grid of `x · y · z` tile blocks that fewer CTAs compute,
//!
//! ```text
//! kernel(…, x, y, z): for i in (CTA .. x·y·z).step(number of CTAs): body(block id of i)
//! ```
//!
//! A producer then loads the operands of the next tile block while the consumers store the results
//! of the last one. Consecutive rounds go through the CTAs in opposite directions. If the work
//! grows along the first axis, as with a causal mask, the order is that of [`tile_order`], which
//! distributes the work equally among the CTAs. CUTLASS has static persistent tile schedulers.

mod scalar_writer;
mod tile_order;

use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{BlockId, CmpPred, Module, Op, Opcode, Substitution, Type, Value};
use crate::util::collect::CollectVec as _;
use scalar_writer::ScalarWriter;
use tile_order::TileOrder;

/// Number of parameters that [`persistent`] appends: the extents of the grid, as i32.
const GRID_PARAMS: usize = 3;

/// Returns the persistent form of a module, or `None` for kernels without a benefit. The grid of
/// the kernel becomes its last parameters, and a launch has any number of CTAs along the first
/// axis.
///
/// A kernel has a benefit if a loop in its body contains an MMA. Tile blocks that may wait for each
/// other (atomics, loops without a trip count) are excluded. An early exit of a tile block
/// continues with the next one.
pub fn persistent(module: &Module) -> Option<Module> {
    let [entry] = &module.entries[..] else { return None };
    let body = entry.body;
    if !module.globals.is_empty() || !is_supported(module, body) {
        return None;
    }
    let is_increasing = work_increases(module, body)?;
    let mut changed = module.clone();
    rewrite(&mut ScalarWriter { writer: OpWriter::new(&mut changed) }, body, is_increasing);
    crate::pass::optimize(&mut changed);
    Some(changed)
}

/// Returns true if tile blocks are independent.
fn is_supported(module: &Module, body: BlockId) -> bool {
    let mut is_supported = true;
    module.walk(body, &mut |id| {
        is_supported &= !matches!(
            module.op(id).code,
            Opcode::Loop
                | Opcode::AtomicRmw
                | Opcode::AtomicCas
                | Opcode::AtomicRedView
                | Opcode::GetNumTileBlocks
                | Opcode::Print
                | Opcode::Assert
                | Opcode::Alloca
                | Opcode::MemoryFenceAlias
                | Opcode::ClusterAllGather
                | Opcode::Clock
                | Opcode::GlobalTimer
                | Opcode::Multiprocessor
        );
    });
    is_supported
}

/// Returns true if the trip count of a top-level loop with an MMA increases with the first index of
/// the tile block. `None` without such a loop.
fn work_increases(module: &Module, body: BlockId) -> Option<bool> {
    let loops = module.block(body).ops.iter().map(|&id| module.op(id));
    let has_mma = |op: &&Op| {
        let mut any = false;
        module.walk(op.regions[0], &mut |id| any |= module.op(id).code.is_mma());
        any
    };
    let loops: Vec<&Op> = loops.filter(|op| op.code == Opcode::For).filter(has_mma).collect_vec();
    let trend = |value: Value| Trend::of(module, value, 0);
    let grows = |op: &&Op| trend(op.group(1)[0]) == Trend::Up || trend(op.group(0)[0]) == Trend::Down;
    (!loops.is_empty()).then(|| loops.iter().any(grows))
}

/// Change of a scalar with the first index of the tile block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trend {
    None,
    Up,
    Down,
    Unknown,
}

impl Trend {
    fn of(module: &Module, value: Value, depth: usize) -> Trend {
        let Some(id) = module.defining_op(value) else { return Trend::None };
        let op = module.op(id);
        let of = |operand: usize| Trend::of(module, op.operands[operand], depth + 1);
        if depth > 16 {
            return Trend::Unknown;
        }
        match op.code {
            Opcode::GetTileBlockId => {
                if op.results[0] == value {
                    Trend::Up
                } else {
                    Trend::None
                }
            }
            Opcode::AddI | Opcode::MinI | Opcode::MaxI => of(0).and(of(1)),
            Opcode::SubI => of(0).and(of(1).reversed()),
            Opcode::NegI => of(0).reversed(),
            // Factors and divisors are extents and sizes of tiles.
            Opcode::MulI => of(0).and(of(1)),
            Opcode::DivI | Opcode::ShlI | Opcode::ShrI if of(1) == Trend::None => of(0),
            code if code.has_operand_elements() => of(0),
            _ if (0..op.operands.len()).all(|operand| of(operand) == Trend::None) => Trend::None,
            _ => Trend::Unknown,
        }
    }

    fn and(self, other: Trend) -> Trend {
        match (self, other) {
            (Trend::None, trend) | (trend, Trend::None) => trend,
            (a, b) if a == b => a,
            _ => Trend::Unknown,
        }
    }

    fn reversed(self) -> Trend {
        match self {
            Trend::Up => Trend::Down,
            Trend::Down => Trend::Up,
            other => other,
        }
    }
}

fn rewrite(to: &mut ScalarWriter<'_>, body: BlockId, is_increasing: bool) {
    let int = to.writer.module.intern(Type::scalar(DType::I32));
    let grid: Vec<Value> = (0..GRID_PARAMS).map(|_| to.writer.module.add_block_arg(body, int)).collect_vec();
    let (mut ops, outer) = to.writer.begin_block(body);
    let end = ops.pop().expect("a terminator");
    let first = to.writer.module.op(*ops.first().unwrap_or(&end)).clone();
    to.writer.begin(&first);
    let grid = grid.into_iter().map(|extent| to.positive(extent)).collect_vec();
    let plane = to.int(Opcode::MulI, grid[0], grid[1]);
    let total = to.int(Opcode::MulI, plane, grid[2]);
    let types = [int; 3];
    let place = to.writer.emit(Opcode::GetTileBlockId, &[], vec![], vec![], &types);
    let count = to.writer.emit(Opcode::GetNumTileBlocks, &[], vec![], vec![], &types);
    let [place, count] = [place, count].map(|id| to.writer.module.op(id).results[0]);
    let order = is_increasing.then(|| TileOrder::new(to, [place, count], [grid[0], grid[1], grid[2]]));

    let inner = to.writer.module.add_block(&[int]);
    let counter = to.writer.module.block(inner).args[0];
    let (_, around) = to.writer.begin_block(inner);
    let index = match &order {
        Some(order) => order.decode(to, counter),
        None => {
            let number = alternating(to, counter, total, count);
            decode(to, number, &grid)
        }
    };
    let mut values = Substitution::new();
    for &id in &ops {
        to.writer.keep(id);
    }
    to.writer.emit(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    to.writer.end_block(inner, around);
    // Loops with an exit of the kernel have no trip count, so all exits are in branches.
    let mut exits = Vec::new();
    let module = &*to.writer.module;
    module.walk(inner, &mut |id| exits.extend((module.op(id).code == Opcode::Return).then_some(id)));
    exits.into_iter().for_each(|id| to.writer.module.op_mut(id).code = Opcode::Continue);
    let module = &*to.writer.module;
    module.walk(inner, &mut |id| {
        let op = module.op(id);
        if op.code == Opcode::GetTileBlockId {
            op.results.iter().zip(index).for_each(|(&old, new)| values.replace(old, new));
        }
    });
    values.apply(to.writer.module, inner);
    let [start, end_of_loop, step] = match order {
        Some(order) => [to.number(0), order.iterations, to.number(1)],
        None => [place, total, count],
    };
    to.writer.emit(Opcode::For, &[&[start], &[end_of_loop], &[step], &[]], vec![], vec![inner], &[]);
    to.writer.keep(end);
    to.writer.end_block(body, outer);
}

/// Returns the number of the tile block: the counter, or in every second complete round the
/// counter of the opposite CTA.
fn alternating(to: &mut ScalarWriter<'_>, counter: Value, total: Value, count: Value) -> Value {
    let [round, place] = to.div_rem(counter, count);
    let [zero, one] = [0, 1].map(|number| to.number(number));
    let parity = to.and(round, one, DType::I32);
    let start = to.int(Opcode::SubI, counter, place);
    let end = to.int(Opcode::AddI, start, count);
    let is_odd = to.compare(CmpPred::Ne, parity, zero);
    let is_complete = to.compare(CmpPred::Le, end, total);
    let is_opposite = to.and(is_odd, is_complete, DType::I1);
    let last = to.int(Opcode::SubI, end, one);
    let opposite = to.int(Opcode::SubI, last, place);
    to.select(is_opposite, opposite, counter)
}

/// Returns the indices of a tile block, the first axis first.
fn decode(to: &mut ScalarWriter<'_>, number: Value, grid: &[Value]) -> [Value; 3] {
    let [rows, x] = to.div_rem(number, grid[0]);
    let [z, y] = to.div_rem(rows, grid[1]);
    [x, y, z].map(|index| to.not_negative(index))
}
