//! Number of warps of a CTA, from the bytes of a tile that a thread should hold.
//!
//! | kernel | bytes per thread | reason |
//! |---|---|---|
//! | elementwise | 16 | one access; resident CTAs touch a small window of memory |
//! | loaded addresses, unaligned tiles | 32 | fewer address computations, more bytes in flight per thread |
//! | reductions, layout conversions | 32 | small CTAs share an SM and hide each other's barriers |
//! | reductions along a strided axis in a loop | up to 128 | adjacent warps need no exchange |
//! | scans whose results are reduced | 512 | the scanned axis is in the registers of a thread |
//! | ordered reductions | 128 | each step between lanes is as expensive as one in a thread |
//!
//! If a CTA moves its tiles once and has barriers, its bytes are in registers during its
//! lifetime. If the resident CTAs hold too few bytes to saturate memory, the CTA gets fewer
//! warps, so that more CTAs are resident.
//!
//! A kernel with MMAs gets warps by the elements of its accumulators. Accumulators of dependent
//! MMAs are live together; each warp then has rows of its own, so that no values move between warps
//! between these MMAs.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::super::hardware::{
    MAX_CTAS_PER_SM, MAX_REGISTERS_PER_THREAD, MAX_WARPS_PER_CTA, MAX_WARPS_PER_SM, REGISTERS_PER_SM, WARP_GROUP_WARPS,
    WARP_SIZE, WGMMA_ROWS,
};
use super::super::layout_inference::{
    ROW_BYTES, SCAN_BYTES, StridedReduction, chosen_warps, halved_bit, reduced_axis, strided_reductions,
};
use super::super::{CompileOptions, Optimization};
use super::extract_groups::ExtractGroups;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Elem, Module, Op, OpId, Opcode, RegionTree, Type, Uses, Value};
use crate::pass::{data_partition, is_commutative};

const MAX_WARPS: u64 = MAX_WARPS_PER_CTA as u64;

/// Bytes of a tile per thread without barriers: one access.
const STREAM_BYTES: u64 = 16;

/// Bytes of a tile per thread with loaded addresses or unaligned accesses.
const SCATTERED_BYTES: u64 = 32;

/// Bytes of a tile per thread with barriers.
const BARRIER_BYTES_PER_THREAD: u64 = 32;

/// Bytes that the resident CTAs of an SM should transfer in the lifetime of one. A
/// CTA with a reduction lives for about 2 us, and an SM of an H200 has 36 bytes of
/// memory bandwidth per ns.
const BYTES_IN_FLIGHT: u64 = 96 << 10;

/// Warps of a CTA above which registers allow about half of the CTAs that the warps do: twice the
/// bytes are required. On an H100, layer norm of 16384 x 4096 f16 takes 94 us with 8 warps and 108
/// us with 16.
const LARGE_CTA_WARPS: u64 = 4;

/// Maximum number of warps of a CTA with barriers, unless a thread would hold more than
/// [`OCCUPANCY_BYTES`].
const BARRIER_MAX_WARPS: u64 = 16;

/// Bytes of one tile per thread above which few registers remain for other values.
const OCCUPANCY_BYTES: u64 = 128;

/// Number of halvings from which a kernel is a butterfly network.
const BUTTERFLY_STEPS: u64 = 6;

/// Bytes of a tile per thread in a butterfly network, with elements of at least 4 bytes. More bytes
/// mean fewer steps between threads.
const BUTTERFLY_BYTES: u64 = 128;

/// Elements of a tile per thread in a butterfly network that selects halves.
const SELECTED_ELEMENTS: u64 = 32;

/// The same if a tile carries others along.
const CARRYING_ELEMENTS: u64 = 16;

/// Bytes of the tiles with a partial layout per thread. More bytes mean fewer shuffles per element.
const LINE_BYTES: u64 = 512;

/// Accumulator elements of an MMA per thread.
const ACCUMULATORS_PER_THREAD: u64 = 64;

/// Most accumulator elements of dependent MMAs per thread: more warps share rows above it.
const MAX_ACCUMULATORS_PER_THREAD: u64 = 160;

/// Minimum rows of an accumulator per warp, of dependent MMAs.
const ROWS_PER_WARP: u64 = 16;

/// Returns the warps of a CTA, or of one data partition: a power of two from 1 to 32. A
/// layout of the user determines them.
pub fn num_warps(module: &Module, body: BlockId, options: &CompileOptions) -> u32 {
    if let Some(warps) = options.num_warps {
        return 1 << (warps / data_partition::count(module, body)).clamp(1, MAX_WARPS as u32).ilog2();
    }
    if let Some(warps) = chosen_warps(module, body) {
        return warps;
    }
    let mut sizes = Sizes::new(module, body);
    if !options.optimizations.contains(Optimization::StridedReduction) {
        sizes.column_warps = None;
    }
    if !options.optimizations.contains(Optimization::ReducedScan) {
        sizes.scanned = 0;
    }
    let extracted = ExtractGroups::new(module, body).smallest(module, sizes.most / 4);
    let warps = if sizes.halvings >= BUTTERFLY_STEPS && sizes.accumulators == 0 {
        match sizes.selected {
            Some(_) => warps_for(sizes.halved_count, if sizes.carries { CARRYING_ELEMENTS } else { SELECTED_ELEMENTS }),
            None => warps_for(sizes.halved, BUTTERFLY_BYTES),
        }
    } else if sizes.accumulators > 0 {
        let most = if sizes.rows > 0 { (sizes.rows / ROWS_PER_WARP).clamp(4, 16) } else { 8 };
        let fewest = (sizes.accumulators / MAX_ACCUMULATORS_PER_THREAD / u64::from(WARP_SIZE)).next_power_of_two();
        let most = most.max(fewest.min(8));
        (sizes.accumulators / ACCUMULATORS_PER_THREAD / u64::from(WARP_SIZE)).next_power_of_two().clamp(4, most)
    } else if sizes.lines > 0 {
        warps_for(sizes.lines.max(sizes.largest), LINE_BYTES)
    } else if sizes.needs_exchange() {
        sizes.barrier_warps()
    } else {
        warps_for(sizes.accessed, if sizes.scattered { SCATTERED_BYTES } else { STREAM_BYTES })
    };
    // Each thread has an element of every block of a tile that is divided into blocks; more threads
    // would hold copies.
    let most = extracted.map_or(MAX_WARPS, |block| (block / u64::from(WARP_SIZE)).clamp(1, MAX_WARPS));
    warps.clamp(1, most).next_power_of_two() as u32
}

/// Returns the number of data partitions. A requested number of warps is divided into partitions of
/// a power of two of at least four warps each.
///
/// Without a request, a kernel with several MMAs per iteration gets three partitions if each MMA
/// has three times the rows of a warp group: as tiles of 128 and 64 rows it would be two programs
/// of the same warps, which need too many registers.
pub fn requested_data_partitions(module: &Module, body: BlockId, options: &CompileOptions) -> u32 {
    const DEFAULT_PARTITIONS: u32 = 3;
    if !options.optimizations.contains(Optimization::DataPartition) {
        return 1;
    }
    if let Some(warps) = options.num_warps {
        let each = 1 << warps.max(1).trailing_zeros();
        return if each >= WARP_GROUP_WARPS { (warps / each).max(1) } else { 1 };
    }
    let (mut fits, mut several) = (options.occupancy.is_none_or(|blocks| blocks == 1), false);
    let mut pending = vec![body];
    while let Some(block) = pending.pop() {
        let ops = module.block(block).ops.iter().map(|&id| module.op(id));
        pending.extend(ops.clone().flat_map(|op| &op.regions));
        let is_product = |op: &&Op| op.code.is_mma();
        let shapes: Vec<&[i64]> = ops.filter(is_product).map(|op| module.shape(op.results[0])).collect_vec();
        fits &=
            shapes.iter().all(|shape| shape[shape.len() - 2] == i64::from(DEFAULT_PARTITIONS) * i64::from(WGMMA_ROWS));
        several |= shapes.len() > 1;
    }
    if fits && several { DEFAULT_PARTITIONS } else { 1 }
}

/// Returns the MMAs of the same iteration that values depend on.
pub fn producer_mmas_of(module: &Module, values: &[Value]) -> Vec<OpId> {
    let mut seen = FxHashSet::default();
    let mut pending = values.to_vec();
    while let Some(value) = pending.pop() {
        if let Some(op) = module.defining_op(value)
            && seen.insert(op)
        {
            pending.extend(&module.op(op).operands);
        }
    }
    let is_product = |op: &OpId| module.op(*op).code.is_mma();
    seen.into_iter().filter(is_product).collect_vec()
}

/// Returns true if the address of an access depends on a load, or if a view steps by less than its
/// tile.
fn is_scattered(module: &Module, op: &Op) -> bool {
    let index = op.code.spec().operands.iter().position(|operand| operand.name == "index");
    let mut pending: Vec<Value> = index.map_or_else(Vec::new, |group| op.group(group).to_vec());
    pending.extend(op.address());
    let mut seen = FxHashSet::default();
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

/// Returns true if no operand of a load depends on the block number or on memory.
fn is_same_in_all_ctas(module: &Module, op: &Op) -> bool {
    let mut pending = op.operands.clone();
    let mut seen = FxHashSet::default();
    while let Some(value) = pending.pop() {
        let Some(id) = module.defining_op(value).filter(|&id| seen.insert(id)) else { continue };
        let op = module.op(id);
        let reads = matches!(op.code.spec().effect, Effect::Read | Effect::ReadWrite);
        if reads || op.code == Opcode::GetTileBlockId {
            return false;
        }
        pending.extend(&op.operands);
    }
    true
}

/// Returns the number of warps for `bytes` at `each` bytes per thread.
fn warps_for(bytes: u64, each: u64) -> u64 {
    bytes.div_ceil(each * u64::from(WARP_SIZE))
}

/// Sizes of the tiles of a kernel.
#[derive(Debug, Default)]
struct Sizes {
    /// Bytes of the largest tile. Tiles of addresses do not count: each access computes its own.
    largest: u64,
    /// Bytes of the largest tile that is loaded or stored.
    accessed: u64,
    /// Fewest and most elements of the loaded and stored tiles with more than one element.
    fewest: Option<u64>,
    most: u64,
    /// Largest tile of an atomic through pointers.
    atomic: Option<Value>,
    /// Elements of the largest accumulator, together with those of the MMAs that it depends on.
    accumulators: u64,
    /// Rows of the largest accumulator that depends on another MMA.
    rows: u64,
    /// Bytes that all accesses transfer, if none is in a loop. Loads of the same elements in all
    /// CTAs hit L2 and do not count.
    moved: Option<u64>,
    /// An op reads the block number.
    many_ctas: bool,
    /// Number of halvings of tiles, bytes and elements of the largest such tile, and whether one
    /// condition selects halves of several tiles.
    halvings: u64,
    halved: u64,
    halved_count: u64,
    carries: bool,
    /// The last condition that selects halves, and their tile.
    selected: Option<(Value, Value)>,
    /// Bytes of the tiles with a partial layout.
    lines: u64,
    /// An op needs elements of other threads.
    exchanges: bool,
    /// A reduction does not commute: a step between lanes is as expensive as one in a thread.
    in_order: bool,
    /// An address depends on a load, or tiles begin at any element.
    scattered: bool,
    /// Warps that load different cache lines of the contiguous axis, of tiles that are reduced
    /// along a strided axis. More warps would exchange sums.
    column_warps: Option<u64>,
    /// Bytes of the largest tile of a scan whose results are reduced along another axis.
    scanned: u64,
}

impl Sizes {
    fn new(module: &Module, body: BlockId) -> Sizes {
        let mut sizes = Sizes { moved: Some(0), ..Sizes::default() };
        let regions = RegionTree::new(module, body);
        sizes.many_ctas = regions.ops().iter().any(|&id| module.op(id).code == Opcode::GetTileBlockId);
        for &id in regions.ops() {
            let op = module.op(id);
            sizes.add(module, op);
            let is_access = matches!(op.code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite);
            if is_access && regions.enclosing_loop(id).is_some() {
                sizes.moved = None;
            }
        }
        let scans: Vec<OpId> =
            regions.ops().iter().copied().filter(|&id| module.op(id).code == Opcode::Scan).collect_vec();
        if !scans.is_empty() {
            let uses = Uses::new(module, body);
            let reduced = scans.iter().filter(|&&id| reduced_axis(module, &regions, &uses, id).is_some());
            let bytes = reduced.map(|&id| extent(module, module.op(id).operands[0]).1);
            sizes.scanned = bytes.max().unwrap_or(0);
        }
        for StridedReduction { load, contiguous, .. } in strided_reductions(module, &regions) {
            let value = module.op(load).results[0];
            let (count, bytes) = extent(module, value);
            let row = bytes / count * module.shape(value)[contiguous] as u64;
            let warps = (row / ROW_BYTES as u64).max(1);
            sizes.column_warps = Some(sizes.column_warps.map_or(warps, |before| before.min(warps)));
        }
        // An atomic counts as a store where it is the largest access. Others have the warps of the
        // tile that is loaded: those of a histogram were measured so.
        if let Some(value) = sizes.atomic.filter(|&value| extent(module, value).0 > sizes.most) {
            sizes.access(module, value);
        }
        sizes
    }

    fn add(&mut self, module: &Module, op: &Op) {
        for &value in &op.results {
            let (count, bytes) = extent(module, value);
            if op.code.is_mma() {
                let before = producer_mmas_of(module, &op.operands[..2]);
                let held: u64 = before.iter().map(|&other| extent(module, module.op(other).results[0]).0).sum();
                self.accumulators = self.accumulators.max(count + held);
                let shape = module.shape(value);
                if !before.is_empty() {
                    self.rows = self.rows.max(shape[shape.len() - 2] as u64);
                }
            } else if count > 1 && !is_address(module, value) {
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
            self.halved_count = self.halved_count.max(count);
        }
        let tile_of_half = |value| {
            let half = module.op(module.defining_op(value)?);
            halved_bit(module, half).map(|_| half.operands[0])
        };
        if op.code == Opcode::Select
            && let Some(tile) = tile_of_half(op.operands[1])
        {
            let condition = op.operands[0];
            self.carries |= self.selected.is_some_and(|(known, other)| known == condition && other != tile);
            self.selected = Some((condition, tile));
        }
        let moves = matches!(op.code, Opcode::Permute | Opcode::Cat | Opcode::Extract | Opcode::Insert);
        if moves || matches!(op.code, Opcode::Gather | Opcode::Histogram | Opcode::Ranks) {
            self.exchanges |= op.results.iter().any(|&v| extent(module, v).0 > 1);
        }
        if op.distribution().is_some_and(|layout| layout.is_partial()) {
            self.lines += extent(module, op.results[0]).1;
        }
        self.scattered |= op.address().is_some() && is_scattered(module, op);
        match op.code {
            Opcode::LoadView | Opcode::LoadPtr => {
                let before = self.moved;
                self.access(module, op.results[0]);
                if self.many_ctas && is_same_in_all_ctas(module, op) {
                    self.moved = before;
                }
            }
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

    /// Returns the warps of a CTA with barriers.
    fn barrier_warps(&self) -> u64 {
        let least = warps_for(self.largest, OCCUPANCY_BYTES);
        if self.in_order {
            return least;
        }
        if self.scanned > 0 {
            return warps_for(self.scanned, SCAN_BYTES).next_power_of_two().min(BARRIER_MAX_WARPS);
        }
        if let Some(warps) = self.column_warps {
            return warps.max(least).next_power_of_two().min(BARRIER_MAX_WARPS.max(least));
        }
        let mut warps =
            warps_for(self.largest, BARRIER_BYTES_PER_THREAD).min(BARRIER_MAX_WARPS).max(least).next_power_of_two();
        let (most_warps, most_blocks) = (u64::from(MAX_WARPS_PER_SM), u64::from(MAX_CTAS_PER_SM));
        while let Some(moved) = self.moved
            && warps / 2 >= least.max(most_warps / most_blocks)
            && most_warps / warps * moved < if warps > LARGE_CTA_WARPS { 2 * BYTES_IN_FLIGHT } else { BYTES_IN_FLIGHT }
        {
            warps /= 2;
        }
        warps
    }

    /// Returns true if threads need elements of other threads. Accesses of different sizes count: a
    /// small tile is broadcast to a larger one.
    fn needs_exchange(&self) -> bool {
        self.exchanges || self.fewest.is_some_and(|fewest| fewest < self.most)
    }
}

/// Returns true if a tile of `words` 32-bit words per thread leaves too few registers.
pub fn fills_registers(words: u64, warps: u32) -> bool {
    let each = u64::from(MAX_REGISTERS_PER_THREAD.min(REGISTERS_PER_SM / (warps * WARP_SIZE)));
    words > each * 3 / 4
}

/// Returns true for a tile of addresses.
fn is_address(module: &Module, value: Value) -> bool {
    matches!(module.ty(value), Type::Tile { elem: Elem::Ptr { .. }, .. })
}

/// Returns elements and bytes of a tile; zeros for other values.
pub fn extent(module: &Module, value: Value) -> (u64, u64) {
    let Type::Tile { elem, shape } = module.ty(value) else { return (0, 0) };
    let count = shape.iter().product::<i64>() as u64;
    let bits = match elem {
        Elem::Num(dtype) => u64::from(dtype.storage_bits()),
        Elem::Ptr { .. } => 64,
    };
    (count, count * bits / 8)
}
