//! How many warps a tile block gets.
//!
//! What decides is how much of a tile a thread holds. Work that is the same for every element wants one
//! 16-byte access a thread: then the blocks that run together touch one small window of memory, which the
//! memory serves fastest, whatever the size of the tile. Where a block has to wait for one load before it knows what to
//! load next, or takes pieces that are not aligned, 32 bytes are better: fewer threads do the sums of addresses, and
//! each has more under way. Work in which threads meet (reductions, changes of layout) wants 32 bytes a thread (128 where
//! a reduction has to keep the order), and blocks that are small enough for several to share a multiprocessor: while one
//! waits at a barrier the others go on. There a block that moves its tiles once, as one that reduces a row does, has them in
//! registers while it lives: if those of all blocks of a multiprocessor are too few bytes to keep its share of the memory busy,
//! fewer threads that hold more let more blocks in. Matrix products count by their accumulator. Of products that wait for each other
//! the accumulators are held at the same time; then a warp should have rows of its own, so that nothing of what lies
//! between the products moves between warps.

use std::collections::HashSet;

use super::CompileOptions;
use super::apart::Apart;
use super::infer::{chosen_warps, halved_bit};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Elem, Module, Op, OpId, Opcode, Type, Value};
use crate::pass::{data_partition, is_commutative};

/// Threads of a warp.
pub const WARP: u32 = 32;

/// Warps that one instruction of Hopper multiplies for.
pub const GROUP_WARPS: u32 = 4;

/// Rows that one of its instructions has for four warps.
const GROUP_ROWS: i64 = 64;

/// Most warps of a tile block.
const MOST_WARPS: u64 = 32;

/// Bytes of a tile that a thread holds where threads do not meet: one access.
const STREAM_BYTES: u64 = 16;

/// Bytes of a tile that a thread holds where addresses are loaded, or accesses not aligned.
const SCATTERED_BYTES: u64 = 32;

/// Bytes of a tile that a thread holds where threads meet.
const MEETING_BYTES: u64 = 32;

/// Warps and blocks that a multiprocessor takes.
const RESIDENT: [u64; 2] = [64, 32];

/// Bytes that the blocks of a multiprocessor together should move in the life of one: a block that reduces lives for
/// somewhat more than 2 us, and the share of one multiprocessor of an H200 is 36 bytes a nanosecond.
const UNDER_WAY: u64 = 96 << 10;

/// Most warps of a block whose threads meet, unless a thread would hold more than `CROWDED_BYTES`.
const MEETING_WARPS: u64 = 16;

/// Bytes of one tile that leave a thread few registers for anything else.
const CROWDED_BYTES: u64 = 128;

/// Steps that take a tile apart into halves from which on a kernel is a network of them.
const HALVINGS: u64 = 6;

/// Bytes of a tile in such a network that a thread holds, elements counted as 4 at least: the more, the fewer steps are
/// between threads. Half of it where a tile takes others along.
const HALVED_BYTES: u64 = 128;

/// Accumulator elements of a matrix product that a thread should hold.
const ACCUMULATORS_PER_THREAD: u64 = 64;

/// Rows of an accumulator that a warp should have at least where products wait for each other.
const ROWS_PER_WARP: u64 = 16;

/// Warps of a tile block for the kernel with this body, or of one of its bands of rows: a power of two from 1 to 32. Layouts that the user has chosen are for so
/// many.
pub fn num_warps(module: &Module, body: BlockId, options: &CompileOptions) -> u32 {
    if let Some(warps) = options.num_warps {
        return 1 << (warps / data_partition::count(module, body)).clamp(1, MOST_WARPS as u32).ilog2();
    }
    if let Some(warps) = chosen_warps(module, body) {
        return warps;
    }
    let sizes = Sizes::of(module, body);
    let apart = Apart::of(module, body).smallest(module, sizes.most / 4);
    let warps = if sizes.halvings >= HALVINGS && sizes.accumulators == 0 {
        let each = HALVED_BYTES / if sizes.carries { 2 } else { 1 };
        warps_for(sizes.halved, each)
    } else if sizes.accumulators > 0 {
        let most = if sizes.rows > 0 { (sizes.rows / ROWS_PER_WARP).clamp(4, 16) } else { 8 };
        (sizes.accumulators / ACCUMULATORS_PER_THREAD / u64::from(WARP)).next_power_of_two().clamp(4, most)
    } else if sizes.meets() {
        sizes.meeting_warps()
    } else {
        warps_for(sizes.accessed, if sizes.scattered { SCATTERED_BYTES } else { STREAM_BYTES })
    };
    // Of a tile that is taken apart each thread has a place in every block; more threads would hold copies.
    let most = apart.map_or(MOST_WARPS, |block| (block / u64::from(WARP)).clamp(1, MOST_WARPS));
    warps.clamp(1, most).next_power_of_two() as u32
}

/// Bands of rows that a tile block should have. Of so many warps as are wished for each has a power of two, of four at least. Where nobody
/// wishes for warps, several products of an iteration have three bands if each of them has three times the rows of four warps: cut into 128 and
/// 64 rows they would be two programs of the same warps, for which registers are too few.
pub fn wished_bands(module: &Module, body: BlockId, options: &CompileOptions) -> u32 {
    const USUAL: u32 = 3;
    if let Some(warps) = options.num_warps {
        let each = 1 << warps.max(1).trailing_zeros();
        return if each >= GROUP_WARPS { (warps / each).max(1) } else { 1 };
    }
    let (mut fits, mut several) = (options.occupancy.is_none_or(|blocks| blocks == 1), false);
    let mut pending = vec![body];
    while let Some(block) = pending.pop() {
        let ops = module.block(block).ops.iter().map(|&id| module.op(id));
        pending.extend(ops.clone().flat_map(|op| &op.regions));
        let is_product = |op: &&Op| matches!(op.code, Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled);
        let shapes: Vec<&[i64]> = ops.filter(is_product).map(|op| module.shape(op.results[0])).collect();
        fits &= shapes.iter().all(|shape| shape[shape.len() - 2] == i64::from(USUAL) * GROUP_ROWS);
        several |= shapes.len() > 1;
    }
    if fits && several { USUAL } else { 1 }
}

/// The products that values come from within an iteration.
pub fn products_behind(module: &Module, values: &[Value]) -> Vec<OpId> {
    let mut seen = HashSet::new();
    let mut pending = values.to_vec();
    while let Some(value) = pending.pop() {
        if let Some(op) = module.defining_op(value)
            && seen.insert(op)
        {
            pending.extend(&module.op(op).operands);
        }
    }
    let is_product = |op: &OpId| matches!(module.op(*op).code, Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled);
    seen.into_iter().filter(is_product).collect()
}

/// Does the place of an access depend on what was loaded before, or does a view step by less than its tile?
fn is_scattered(module: &Module, op: &Op) -> bool {
    let index = op.code.spec().operands.iter().position(|operand| operand.name == "index");
    let mut pending: Vec<Value> = index.map_or_else(Vec::new, |group| op.group(group).to_vec());
    pending.extend(op.address());
    let mut seen = HashSet::new();
    while let Some(value) = pending.pop() {
        if let Type::StridedView { tile, traversal, .. } = module.ty(value)
            && tile != traversal
        {
            return true;
        }
        let Some(id) = module.defining_op(value).filter(|&id| seen.insert(id)) else { continue };
        let op = module.op(id);
        if matches!(op.code.spec().effect, Effect::Read | Effect::ReadWrite) {
            return true;
        }
        pending.extend(&op.operands);
    }
    false
}

/// Warps that hold so many bytes when a thread holds `each`.
fn warps_for(bytes: u64, each: u64) -> u64 {
    bytes.div_ceil(each * u64::from(WARP))
}

/// Sizes of the tiles of a kernel.
#[derive(Debug, Default)]
struct Sizes {
    /// Bytes of the largest tile.
    largest: u64,
    /// Bytes of the largest tile that is loaded or stored.
    accessed: u64,
    /// Elements of the loaded and stored tiles of more than one element: the fewest and the most.
    fewest: Option<u64>,
    most: u64,
    /// The tile of an atomic by pointers that has the most elements.
    atomic: Option<Value>,
    /// Elements of the largest accumulator, with those of the products that it waits for.
    accumulators: u64,
    /// Rows of the largest accumulator that waits for another one.
    rows: u64,
    /// Bytes that all accesses together move, if none of them is in a loop.
    moved: Option<u64>,
    /// How often a tile is taken apart into halves, bytes of the largest such tile, and whether halves are selected.
    halvings: u64,
    halved: u64,
    carries: bool,
    /// An op needs elements of other threads.
    exchanges: bool,
    /// Elements are reduced by what does not commute: each step between lanes is as dear as one within a thread.
    in_order: bool,
    /// Where an access goes is loaded first, or tiles begin at any element.
    scattered: bool,
}

impl Sizes {
    fn of(module: &Module, body: BlockId) -> Sizes {
        let mut sizes = Sizes { moved: Some(0), ..Sizes::default() };
        let mut repeated = HashSet::new();
        module.walk(body, &mut |id| {
            let op = module.op(id);
            if matches!(op.code, Opcode::For | Opcode::Loop) {
                op.regions.iter().for_each(|&region| module.walk(region, &mut |inner| repeated.extend([inner])));
            }
            sizes.add(module, op);
            let is_access = matches!(op.code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite);
            if is_access && repeated.contains(&id) {
                sizes.moved = None;
            }
        });
        // An atomic counts as a store where it is the largest access. Others have the warps of the tile that is loaded: those
        // of a histogram were measured so.
        if let Some(value) = sizes.atomic.filter(|&value| extent(module, value).0 > sizes.most) {
            sizes.access(module, value);
        }
        sizes
    }

    fn add(&mut self, module: &Module, op: &Op) {
        for &value in &op.results {
            let (count, bytes) = extent(module, value);
            if matches!(op.code, Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled) {
                let before = products_behind(module, &op.operands[..2]);
                let held: u64 = before.iter().map(|&other| extent(module, module.op(other).results[0]).0).sum();
                self.accumulators = self.accumulators.max(count + held);
                let shape = module.shape(value);
                if !before.is_empty() {
                    self.rows = self.rows.max(shape[shape.len() - 2] as u64);
                }
            } else if count > 1 {
                self.largest = self.largest.max(bytes);
            }
        }
        if matches!(op.code, Opcode::Reduce | Opcode::Scan) {
            self.largest = op.operands.iter().map(|&v| extent(module, v).1).fold(self.largest, u64::max);
            self.exchanges = true;
            self.in_order |= op.code == Opcode::Reduce && !is_commutative(module, op.regions[0]);
        }
        if halved_bit(module, op).is_some() {
            let (count, bytes) = extent(module, op.operands[0]);
            self.halvings += 1;
            self.halved = self.halved.max(bytes.max(4 * count));
        }
        let is_half = |value| module.defining_op(value).is_some_and(|id| halved_bit(module, module.op(id)).is_some());
        self.carries |= op.code == Opcode::Select && is_half(op.operands[1]) && is_half(op.operands[2]);
        let moves = matches!(op.code, Opcode::Permute | Opcode::Cat | Opcode::Extract | Opcode::Insert);
        if moves || matches!(op.code, Opcode::Gather | Opcode::Histogram) {
            self.exchanges |= op.results.iter().any(|&v| extent(module, v).0 > 1);
        }
        self.scattered |= op.address().is_some() && is_scattered(module, op);
        match op.code {
            Opcode::LoadView | Opcode::LoadPtr => self.access(module, op.results[0]),
            Opcode::StoreView => self.access(module, op.group(0)[0]),
            Opcode::AtomicRedView => self.access(module, op.group(2)[0]),
            Opcode::StorePtr => self.access(module, op.group(1)[0]),
            Opcode::AtomicRmw | Opcode::AtomicCas => {
                let old = op.results[0];
                if self.atomic.is_none_or(|largest| extent(module, largest).0 < extent(module, old).0) {
                    self.atomic = Some(old);
                }
            }
            _ => {}
        }
    }

    fn access(&mut self, module: &Module, value: Value) {
        let (count, bytes) = extent(module, value);
        if count > 1 {
            self.accessed = self.accessed.max(bytes);
            self.fewest = Some(self.fewest.map_or(count, |fewest| fewest.min(count)));
            self.most = self.most.max(count);
            self.moved = self.moved.map(|moved| moved + bytes);
        }
    }

    /// Warps of a block whose threads meet.
    fn meeting_warps(&self) -> u64 {
        let least = warps_for(self.largest, CROWDED_BYTES);
        if self.in_order {
            return least;
        }
        let mut warps = warps_for(self.largest, MEETING_BYTES).min(MEETING_WARPS).max(least).next_power_of_two();
        let [most_warps, most_blocks] = RESIDENT;
        while let Some(moved) = self.moved
            && warps / 2 >= least.max(most_warps / most_blocks)
            && most_warps / warps * moved < UNDER_WAY
        {
            warps /= 2;
        }
        warps
    }

    /// Do threads need elements that other threads hold? Also where accesses differ in size: a small tile
    /// that is stretched over a larger one.
    fn meets(&self) -> bool {
        self.exchanges || self.fewest.is_some_and(|fewest| fewest < self.most)
    }
}

/// Registers of a multiprocessor.
const REGISTERS: u64 = 1 << 16;

/// Most registers of a thread.
const MOST_REGISTERS: u64 = 255;

/// Would a tile of so many 32-bit words a thread leave too few registers for anything else?
pub fn fills_registers(words: u64, warps: u32) -> bool {
    let each = MOST_REGISTERS.min(REGISTERS / u64::from(warps * WARP));
    words > each * 3 / 4
}

/// Elements and bytes of a tile; none of a value that is not one.
pub fn extent(module: &Module, value: Value) -> (u64, u64) {
    let Type::Tile { elem, shape } = module.ty(value) else { return (0, 0) };
    let count = shape.iter().product::<i64>() as u64;
    let bits = match elem {
        Elem::Num(dtype) => u64::from(dtype.storage_bits()),
        Elem::Ptr { .. } => 64,
    };
    (count, count * bits / 8)
}
