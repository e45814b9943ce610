//! Op costs: the cycles that an op needs of each resource, from its opcode, the layouts of its
//! tiles and its MMA plan.

use super::machine_model::MachineModel;
use super::resource_use::{Resource, ResourceUse};
use crate::backend::ptx::hardware::{MMA_K_BYTES, WARP_SIZE, WGMMA_ROWS};
use crate::backend::ptx::layout_inference::{ValueOrigin, ViewShape, stored};
use crate::backend::ptx::plan::num_warps::extent;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{Flag, Op, OpId, Opcode, Rounding, Value};
use crate::layout::Layout;

/// Bytes of the widest access of a thread.
const VECTOR_BYTES: f64 = 16.0;
/// Bytes of a sector of the L2 cache, the smallest transfer.
const SECTOR_BYTES: f64 = 32.0;
/// Instructions of an access, including those of its address.
const ACCESS: f64 = 3.0;
/// Instructions that a warp issues per `wgmma`: the descriptors and the instruction itself.
const ISSUED: f64 = 5.0;
const STEP_BYTES: f64 = MMA_K_BYTES as f64;
const ROWS: f64 = WGMMA_ROWS as f64;

/// Instructions per element: all, those of the integer unit, those of the special function unit.
#[derive(Clone, Copy, Default)]
struct InstructionMix {
    all: f64,
    alu: f64,
    special: f64,
}

/// Rule by which the cost of an op is computed.
#[derive(Clone, Copy)]
enum CostRule {
    /// Instructions for each element of the result.
    Elements(InstructionMix),
    /// A reduction.
    Reduce,
    /// A scan.
    Scan,
    /// A load of the first result.
    Load,
    /// A store of this tile, or an atomic without a result.
    Store(Value),
    /// An atomic with a result, by this tile.
    Atomic(Value),
    /// Elements at computed addresses of shared memory.
    Gather,
    /// An exchange of this tile in a cluster.
    Exchange(Value),
    /// Moves of elements between registers.
    Move,
    /// One instruction with a dependent one.
    Dependent,
    /// No instructions, or a cost that another function computes.
    Nothing,
}

/// Cost of an op for the warps of one group.
#[derive(Clone, Copy, Default)]
pub struct OpCost {
    pub usage: ResourceUse,
    /// Transfers that continue after the op.
    pub background: ResourceUse,
    /// Number of barriers of all warps that share the tile.
    pub barriers: u32,
    /// The result has the latency of a load.
    pub arrives: bool,
}

/// Cost of an MMA for the warps of one group.
#[derive(Clone, Copy, Default)]
pub struct MmaCost {
    /// Resource use of the MMA, and its minimum duration in cycles.
    pub mma_usage: ResourceUse,
    pub min_cycles: f64,
    /// Instructions one after another along k.
    pub steps: f64,
    /// Cost of its operands before it.
    pub before: OpCost,
    /// Instructions on the result after it.
    pub after: ResourceUse,
}

/// Costs of the ops of a kernel for one partition.
pub struct OpCosts<'a, 'm> {
    pub context: &'a KernelInfo<'m>,
    pub machine: &'static MachineModel,
    /// Warps of a group.
    pub warps: f64,
    /// Number of groups that share a tile.
    pub groups: f64,
}

impl OpCosts<'_, '_> {
    /// Returns the resource use of instructions for `slots` registers of each thread.
    fn instructions(&self, slots: f64, mix: InstructionMix) -> ResourceUse {
        let contention = 1.0 + self.machine.warpgroup_contention * self.groups.log2();
        let lanes = slots * self.warps * f64::from(WARP_SIZE) * contention;
        ResourceUse::new(Resource::Issue, lanes * mix.all / self.machine.issue)
            .and(Resource::Alu, lanes * mix.alu / self.machine.alu)
            .and(Resource::Special, lanes * mix.special / self.machine.special)
    }

    fn slots(&self, value: Value) -> f64 {
        self.context.inference.natural(value).map_or_else(
            || {
                (extent(self.context.module, value).0 as f64 / (self.warps * self.groups * f64::from(WARP_SIZE)))
                    .max(1.0)
            },
            |layout| layout.num_registers() as f64,
        )
    }

    /// Returns the cost of an op other than MMAs, loops and branches.
    pub fn op(&self, id: OpId) -> OpCost {
        let module = self.context.module;
        let op = module.op(id);
        let Some(&first) = op.results.first().or(op.operands.first()) else { return OpCost::default() };
        let usage = |usage| OpCost { usage, ..OpCost::default() };
        let pricing = self.pricing(op);
        debug_assert_eq!(matches!(pricing, CostRule::Elements(_)), op.code.is_elementwise(), "{:?}", op.code);
        match pricing {
            CostRule::Elements(mix) => self.elements(op, mix),
            CostRule::Reduce => self.reduce(id),
            CostRule::Scan => {
                let mut cost = self.reduce(id);
                cost.usage += self.instructions(2.0 * self.slots(op.operands[0]), mix(1.0, 0.5, 0.0));
                cost
            }
            CostRule::Load => self.access(id, op.results[0], false),
            CostRule::Store(tile) => self.access(id, tile, true),
            CostRule::Atomic(tile) => OpCost { arrives: true, ..self.access(id, tile, true) },
            CostRule::Gather => {
                let slots = self.slots(first);
                let bytes = slots * self.warps * f64::from(WARP_SIZE) * 4.0 * 4.0;
                let lookups =
                    self.instructions(slots, mix(6.0, 3.0, 0.0)).and(Resource::Shared, bytes / self.machine.shared);
                OpCost { barriers: 2, ..usage(lookups) }
            }
            CostRule::Exchange(tile) => self.exchange(tile, first),
            CostRule::Move => usage(self.instructions(self.slots(first), mix(1.0, 0.5, 0.0))),
            CostRule::Dependent => usage(ResourceUse::time(self.machine.dependent_issue)),
            CostRule::Nothing => OpCost::default(),
        }
    }

    /// Returns the cost of an elementwise op, with the conversions of its operands.
    fn elements(&self, op: &Op, mix: InstructionMix) -> OpCost {
        let result = op.results[0];
        let slots = self.slots(result);
        let mut usage = self.instructions(slots, mix);
        usage.latency += self.machine.dependent_issue;
        if slots <= 1.0 && self.context.inference.num_elements(result) == 1 {
            // Uniform scalars: the latency of the instructions counts, for example of divisions.
            usage.latency += mix.all * self.machine.dependent_issue;
        }
        let mut cost = OpCost { usage, ..OpCost::default() };
        if let Some(required) = self.context.inference.layout(result) {
            for &operand in &op.operands {
                let moved = self.moved(operand, required);
                cost.usage += moved.usage;
                cost.barriers += moved.barriers;
            }
        }
        cost
    }

    /// Returns the rule for the cost of an op. The match has no wildcard, so that a new op must
    /// state its cost.
    fn pricing(&self, op: &Op) -> CostRule {
        use Opcode::*;
        let bits = |value: Value| self.context.element_type(value).storage_bits();
        let flushes = op.flag(Flag::FlushToZero);
        let each = |all, alu, special| CostRule::Elements(mix(all, alu, special));
        match op.code {
            Reduce => CostRule::Reduce,
            Scan => CostRule::Scan,
            LoadView | LoadPtr => CostRule::Load,
            StoreView | AtomicRedView => CostRule::Store(stored(op)),
            StorePtr => CostRule::Store(op.group(1)[0]),
            AtomicRmw | AtomicCas => CostRule::Atomic(op.group(1)[0]),
            Gather | Histogram | Ranks => CostRule::Gather,
            ClusterAllGather => CostRule::Exchange(op.operands[0]),
            Cat | Extract | Insert | Pack | Unpack => CostRule::Move,
            AddF | SubF | MulF | Fma | NegF | AbsF => each(if bits(op.results[0]) > 32 { 2.0 } else { 1.0 }, 0.0, 0.0),
            Bitcast | PtrToInt | IntToPtr | PtrToPtr => each(0.0, 0.0, 0.0),
            Exp2 => each(if flushes { 1.0 } else { 3.0 }, 0.0, 1.0),
            Exp => each(if flushes { 2.0 } else { 4.0 }, 0.0, 1.0),
            Log | Log2 | Rsqrt => each(5.0, 1.0, 1.0),
            Sqrt | DivF | Tanh if op.rounding() == Rounding::Approx => each(1.0, 0.0, 1.0),
            Sqrt | DivF => each(8.0, 1.0, 1.0),
            Sin | Cos | Tan | Tanh | Sinh | Cosh | Atan2 | PowF | PowI | RemF => each(24.0, 6.0, 1.0),
            DivI | RemI => each(20.0, 10.0, 1.0),
            FToF if bits(op.results[0]) < bits(op.operands[0]) => each(0.5, 0.5, 0.0),
            FToF => each(0.75, 0.25, 0.0),
            InlinePtx => each(2.0, 1.0, 0.0),
            MulI | MulHiI | Offset => each(1.0, 0.5, 0.0),
            AbsI | AddI | AndI | Ceil | CmpF | CmpI | ExtI | FToI | Floor | IToF | MaxF | MaxI | MinF | MinI | NegI
            | OrI | Select | ShlI | ShrI | SubI | TruncI | XorI => each(1.0, 1.0, 0.0),
            Alloca | Assert | Break | Clock | Continue | For | GdcLaunchDependents | GdcWait | GlobalTimer | If
            | Loop | MemoryFenceAlias | MultimemLoadReduce | MultimemReduce | MultimemStore | Print | Return
            | Yield => CostRule::Dependent,
            // The cost of MMAs is computed by [`OpCosts::product`].
            MmaF | MmaFScaled | MmaI => CostRule::Nothing,
            Assume
            | Broadcast
            | Constant
            | DataPartitionId
            | GetGlobal
            | GetIndexSpaceShape
            | GetNumTileBlocks
            | GetTensorShape
            | GetTileBlockId
            | Iota
            | JoinTokens
            | MakeGatherScatterView
            | MakePartitionView
            | MakeStridedView
            | MakeTensorView
            | MakeToken
            | Multiprocessor
            | Permute
            | Reshape
            | WithLayout => CostRule::Nothing,
        }
    }

    /// Returns the cost of the conversion of a value to another layout.
    fn moved(&self, value: Value, required: &Layout) -> OpCost {
        let inference = &self.context.inference;
        let (count, bytes) = extent(self.context.module, value);
        if count <= 1 || inference.origin(value) != ValueOrigin::Register {
            return OpCost::default();
        }
        let differs = |own: &Layout| own.shape() == required.shape() && !own.is_same(required);
        if inference.layout(value).is_some_and(differs) {
            self.through_shared(bytes as f64, 2.0)
        } else {
            OpCost::default()
        }
    }

    /// Returns the cost of a write of all bytes of a tile to shared memory, and of their read.
    fn through_shared(&self, bytes: f64, times: f64) -> OpCost {
        let bytes = bytes / self.groups;
        let accesses = times * bytes / VECTOR_BYTES / f64::from(WARP_SIZE);
        let usage = self
            .instructions(accesses / self.warps, mix(ACCESS, 1.0, 0.0))
            .and(Resource::Shared, times * bytes / self.machine.shared);
        OpCost { usage, barriers: times as u32, ..OpCost::default() }
    }

    /// Returns the cost of an exchange in a cluster: a write to shared memory, a barrier of the
    /// cluster, loads of the tiles of all CTAs, and another barrier.
    fn exchange(&self, tile: Value, gathered: Value) -> OpCost {
        let bytes = |value| extent(self.context.module, value).1 as f64;
        let mut cost = self.through_shared(bytes(tile), 1.0);
        cost.usage += self.through_shared(bytes(gathered), 1.0).usage;
        let loads = self.machine.cluster_latency + bytes(gathered) / self.machine.cluster;
        cost.usage.latency += 2.0 * self.machine.cluster_barrier + loads;
        cost
    }

    fn access(&self, id: OpId, tile: Value, writes: bool) -> OpCost {
        let (module, inference) = (self.context.module, &self.context.inference);
        let (count, bytes) = extent(module, tile);
        let (machine, op) = (self.machine, module.op(id));
        if count <= 1 {
            let usage = ResourceUse::new(Resource::Issue, ACCESS * self.warps / 4.0);
            let background = ResourceUse::new(Resource::L2, SECTOR_BYTES / machine.l2);
            return OpCost { usage, background, arrives: !writes, ..OpCost::default() };
        }
        let bytes = bytes as f64 / self.groups;
        let by_view = matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView);
        let view = if by_view { op.operand_group("view").first().copied() } else { None };
        let listed = match by_view {
            true => self.context.is_indexed_access(id),
            false => !inference.pointer_contiguity.contains_key(&id),
        };
        let (moved, wide) = match listed {
            true => (count as f64 / self.groups * SECTOR_BYTES, bytes / count as f64 * self.groups),
            false => (bytes, self.width(id, view)),
        };
        let accesses = bytes / wide.max(1.0) / f64::from(WARP_SIZE) / self.warps;
        let usage = self.instructions(accesses, mix(ACCESS, 1.0, 0.0));
        let far = ResourceUse::new(Resource::L2, moved / machine.l2).and(Resource::Memory, moved / machine.memory);
        let mut cost = OpCost { usage, background: far, arrives: !writes, ..OpCost::default() };
        if let Some(required) = inference.op_layouts.get(&id).filter(|_| writes) {
            let moved = self.moved(tile, required);
            cost.usage += moved.usage;
            cost.barriers += moved.barriers;
        }
        cost
    }

    /// Returns the bytes of one access of a thread.
    fn width(&self, id: OpId, view: Option<Value>) -> f64 {
        let inference = &self.context.inference;
        let Some(layout) = inference.op_layouts.get(&id) else { return VECTOR_BYTES };
        let shape = view.and_then(|view| ViewShape::of(self.context.module, view));
        let Some(shape) = shape else { return VECTOR_BYTES };
        let run = (0..layout.shape().len()).map(|axis| layout.vector_len(axis)).max().unwrap_or(1);
        (run as f64 * f64::from(shape.elem.storage_bits()) / 8.0).min(VECTOR_BYTES)
    }

    /// Returns the cost of a TMA store for the threads, and the bytes of the asynchronous copy.
    pub fn tma_store(&self, id: OpId) -> (OpCost, f64) {
        let tile = stored(self.context.module.op(id));
        let bytes = extent(self.context.module, tile).1 as f64;
        let cost = self.through_shared(bytes, 1.0);
        (OpCost { barriers: 1, ..cost }, bytes / self.groups)
    }

    fn reduce(&self, id: OpId) -> OpCost {
        let op = self.context.module.op(id);
        let layout = match self.context.inference.op_layouts.get(&id) {
            Some(layout) => layout.clone(),
            None => self.context.inference.natural_or_default(op.operands[0]),
        };
        let axis = op.dim() as usize;
        let along = |bases: &[u32]| {
            let moves = |&&basis: &&u32| basis != 0 && layout.coordinates(basis)[axis] != 0;
            bases.iter().filter(moves).count() as i32
        };
        let (lanes, warps) = (along(layout.lane_bases()), along(layout.warp_bases()));
        let slots = layout.num_registers() as f64;
        let left = slots / f64::from(1 << along(layout.register_bases()));
        let each = op.operands.len() as f64;
        let body = &self.context.module.block(op.regions[0]).ops;
        let mut fold = InstructionMix::default();
        for &inner in body {
            if let CostRule::Elements(more) = self.pricing(self.context.module.op(inner)) {
                fold = mix(fold.all + more.all, fold.alu + more.alu, fold.special + more.special);
            }
        }
        let mut usage = self.instructions((slots - left).max(0.0), fold);
        let shuffle = mix(fold.all + each, fold.alu + each, fold.special);
        usage += self.instructions(left * f64::from(lanes), shuffle);
        usage.latency += f64::from(lanes) * self.machine.shuffle;
        let mut cost = OpCost { usage, ..OpCost::default() };
        if warps > 0 {
            let bytes = left * each * 4.0 * self.warps * f64::from(WARP_SIZE);
            cost.usage = cost.usage.and(Resource::Shared, 2.0 * bytes / self.machine.shared);
            cost.usage.latency += 2.0 * self.machine.shuffle;
            cost.barriers = 2;
        }
        cost
    }

    /// Returns the cost of an MMA; `fetched`: operands that are in shared memory already.
    pub fn product(&self, id: OpId, fetched: &dyn Fn(Value) -> bool) -> MmaCost {
        let module = self.context.module;
        let op = module.op(id);
        let Some(Ok(plan)) = self.context.inference.mma_plans.get(&id) else { return MmaCost::default() };
        let (left, right) = (module.shape(op.operands[0]), module.shape(op.operands[1]));
        let dtype = module.dtype(op.operands[0]);
        let bits = f64::from(plan.a.dtype.storage_bits().max(8));
        let results = extent(module, op.results[0]).0 as f64;
        let products = results * left[left.len() - 1] as f64;
        let mut before = OpCost::default();
        let smem_bytes = self.context.operand_bytes(&[id], &|value| fetched(value) || self.is_in_registers(value, id));
        if smem_bytes > 0 {
            before = self.through_shared(f64::from(smem_bytes), 1.0);
        }
        let mut cost = MmaCost { before, ..MmaCost::default() };
        let mine = products / self.groups;
        if dtype == crate::dtype::DType::F32 {
            cost.mma_usage = ResourceUse::new(Resource::Issue, mine / self.machine.issue);
            return cost;
        }
        let tensor = mine / (self.machine.tensor * 16.0 / bits) * if bits > 32.0 { 4.0 } else { 1.0 };
        cost.mma_usage = ResourceUse::new(Resource::Tensor, tensor);
        let depth = left[left.len() - 1] as f64 * bits / 8.0 / STEP_BYTES;
        cost.steps = depth;
        if plan.is_asynchronous() {
            let effort = plan.effort();
            // Shared memory that the instructions read: the left operand for each of their columns,
            // the right one for each of their rows.
            let instructions = results / self.groups / (ROWS * effort.columns as f64) * depth;
            let read = instructions * STEP_BYTES * (effort.columns as f64 + if effort.words > 0 { 0.0 } else { ROWS });
            cost.mma_usage = cost.mma_usage.and(Resource::Shared, read / self.machine.shared);
            cost.before.usage += self.instructions(instructions * ISSUED, mix(1.0, 0.0, 0.0));
            // Instructions of tensor cores also access registers.
            cost.mma_usage = cost.mma_usage.and(Resource::Issue, tensor * self.machine.registers);
            if effort.words > 0 {
                // Each step of k waits for its part of the left operand, which is loaded, rounded
                // and packed while the previous step is executed.
                cost.min_cycles = depth * self.machine.gather;
                cost.mma_usage += self.instructions(effort.words as f64, mix(3.0, 1.0, 0.0));
            }
            cost.after = self.instructions(effort.additions as f64, mix(1.0, 0.0, 0.0));
        } else {
            // Fragments: each instruction of 16 rows and 8 columns reads its operands, some of
            // which stay in registers.
            let [rows, columns] = [left[left.len() - 2] as f64, right[right.len() - 1] as f64];
            let instructions = mine * bits / 8.0 / (16.0 * 8.0 * STEP_BYTES);
            let read = (rows + columns) * depth * STEP_BYTES * 2.0;
            cost.mma_usage = cost
                .mma_usage
                .and(Resource::Issue, instructions / 4.0 * 1.5)
                .and(Resource::Shared, read / self.machine.shared);
        }
        cost
    }

    /// Returns the use of `count` round trips of spilled registers to local memory.
    pub fn spill(&self, registers: u32, count: f64) -> ResourceUse {
        let lanes = 2.0 * count * f64::from(registers * WARP_SIZE) * self.warps;
        ResourceUse::new(Resource::Shared, 4.0 * lanes / self.machine.shared)
            .and(Resource::Issue, lanes / self.machine.issue)
    }

    /// Returns the cost of operands of MMAs that threads write to shared memory.
    pub fn written_operands(&self, bytes: usize) -> OpCost {
        self.through_shared(bytes as f64, 1.0)
    }

    /// Returns true if an operand of an MMA is in registers.
    fn is_in_registers(&self, value: Value, product: OpId) -> bool {
        let Some(Ok(plan)) = self.context.inference.mma_plans.get(&product) else { return false };
        let left = self.context.module.op(product).operands[0] == value;
        left && plan.a.registers.is_some() && self.context.source_load(value).is_none()
    }

    /// Returns the resource use of the threads' copies of a stage.
    pub fn copies(&self, bytes: f64) -> ResourceUse {
        let accesses = bytes / self.groups / VECTOR_BYTES / f64::from(WARP_SIZE) / self.warps;
        self.instructions(accesses, mix(ACCESS, 1.0, 0.0))
            .and(Resource::Shared, bytes / self.groups / self.machine.shared)
    }
}

const fn mix(all: f64, alu: f64, special: f64) -> InstructionMix {
    InstructionMix { all, alu, special }
}
