//! The schedule IR: partitions, sequences and steps.
//!
//! The program remains Tile IR: a step names an op of the module and its method of execution. The
//! steps of a sequence are in program order. Loops and branches are steps with sequences of their
//! own.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::cp_async::CpAsyncPlan;
use super::load_path::LoadPath;
use super::pipelines::{PingPong, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::sub_step::{ConversionPlan, SubStep, operand_reads};
use super::tma_store::TmaStore;

pub use super::sub_step::LayoutId;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::{Module, OpId, Opcode, Value};
use crate::layout::Layout;

/// A list of steps of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u32);

/// The program of the CTAs of a kernel.
#[derive(Clone, Default)]
pub struct Schedule {
    /// The partitions of the warps of a CTA.
    pub partitions: Vec<Partition>,
    /// Sequences of steps, indexed by [`SeqId`].
    pub sequences: Vec<Vec<Step>>,
    /// The instruction of each MMA, with the rows and columns of each warp group, as text.
    pub mma_partitions: Vec<(OpId, String)>,
    /// The layouts of the steps, indexed by [`LayoutId`].
    pub layouts: Vec<Layout>,
    /// The plans of the layout conversions of the steps.
    pub conversions: Vec<Rc<ConversionPlan>>,
    /// The shared memory that is reserved for the whole kernel.
    pub smem: SharedMemory,
    /// Shared memory that the kernel needs.
    pub smem_bytes: u32,
    /// Loops may have two slots for the operands that threads write.
    pub double_buffers: bool,
    /// Distance in bytes between the buffers of two ping-pong groups.
    pub smem_bytes_per_group: u32,
    /// The privatized array, if atomics are privatized.
    pub privatized: Option<PrivatizedArray>,
    /// Pipelines, channels and TMA loads of a warp-specialized kernel.
    pub warp_spec: Option<Rc<WarpSpecialization>>,
    /// The paths of the loads by `cp.async`.
    pub cp_async_loads: FxHashMap<OpId, LoadPath>,
}

/// A range of warps that execute one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub role: WarpRole,
    /// Range of warps in the CTA.
    pub warps: Range<u32>,
    pub body: SeqId,
}

/// The role of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpRole {
    /// All warps execute all steps: no warp specialization.
    All,
    /// The warps that execute everything except the loads of [`WarpRole::Producer`].
    Consumer,
    /// One lane issues TMA loads.
    Producer,
}

/// One step of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An op without instructions of its own: it is computed at its uses, is a view, or remains in
    /// its stage.
    Deferred(OpId),
    /// An op that the threads of the partition execute, complete at the end of the step.
    Exec(OpId),
    /// A strip-mined sequence of ops: some registers of their tiles at a time.
    StripMine(Rc<StripMine>),
    /// A load from a stage into registers, either of the elements that the same thread has copied
    /// or of an auxiliary tile.
    LocalLoad(OpId),
    /// A TMA store, if shared memory has space for its boxes; otherwise a store by the threads.
    TmaStore(Box<TmaStore>),
    /// An atomic on the privatized array.
    PrivatizedAtomic(OpId),
    Mma(Box<MmaGroup>),
    /// Acquires the next stage of a channel and issues its TMA loads.
    Produce(u32),
    /// Prefetches the tile of a consumer's load to L2.
    Prefetch(OpId),
    /// Advances the pipeline state of the consumer to the next stage of a channel.
    Advance(u32),
    /// Waits on the full barrier of a channel.
    ConsumerWait(ConsumerWait),
    /// Waits for asynchronous MMAs.
    MmaWait(MmaWait),
    /// Tests the full barrier of the next stage of a channel. The later wait is skipped if the test
    /// succeeded.
    ConsumerTryWait(u32),
    /// Releases the stages of channels that only regions have used.
    ConsumerRelease(Vec<u32>),
    /// Waits until this group may enter an ordered section. `sunk`: the wait is emitted inside the
    /// next step, before the issue of its MMAs or before its wait for MMAs.
    OrderWait {
        point: OrderPoint,
        sunk: bool,
    },
    /// Leaves an ordered section, which the next group may then enter.
    OrderArrive(OrderPoint),
    For(Box<For>),
    Loop(Box<Loop>),
    /// `pure`: the branches are side-effect-free, so MMAs stay in flight.
    If {
        op: OpId,
        arms: Vec<SeqId>,
        pure: bool,
    },
    /// A part of the next step.
    Sub(SubStep),
    /// The end of a region or of the kernel.
    End(OpId),
}

/// A section that consumer groups execute one after another: within an iteration in the order of
/// the groups, and the first group of the next iteration after the last one (CUTLASS
/// `OrderedSequenceBarrier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderPoint {
    /// Waits for stages, by ping-pong groups: the phase of a barrier only separates two consecutive
    /// uses of a stage.
    Pipeline,
    /// Side effects of ping-pong groups.
    SideEffects,
    /// Asynchronous MMAs up to this one.
    Mma(OpId),
    /// The computation of these exponentials. ptxas cannot move the arrive before it.
    Exp(Value),
}

/// The barriers of an order point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderBarrierKind {
    /// An mbarrier of each ping-pong group, in shared memory.
    Mbarrier,
    /// A named barrier of each group, which the group and the next one share.
    Named,
}

impl OrderPoint {
    /// The order points of ping-pong groups.
    pub const PINGPONG: [OrderPoint; 2] = [OrderPoint::Pipeline, OrderPoint::SideEffects];
    /// The number of sets of barriers.
    pub const BARRIER_SETS: usize = 3;

    /// Returns the kind of the barriers.
    pub fn barrier(self) -> OrderBarrierKind {
        match self {
            OrderPoint::Pipeline | OrderPoint::SideEffects => OrderBarrierKind::Mbarrier,
            OrderPoint::Mma(_) | OrderPoint::Exp(_) => OrderBarrierKind::Named,
        }
    }

    /// Returns the index of the set of barriers.
    pub fn barrier_set(self) -> usize {
        match self {
            OrderPoint::Pipeline => 0,
            OrderPoint::SideEffects => 1,
            OrderPoint::Mma(_) | OrderPoint::Exp(_) => 2,
        }
    }
}

/// A wait for the tiles of a channel, in the current stage of its pipeline state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerWait {
    pub channel: u32,
    /// The wait is emitted inside the next step, at the first use of a tile.
    pub sunk: bool,
}

/// A wait for an MMA group and all earlier ones. It releases the stages that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaWait {
    /// The last MMA of the group.
    pub mma: OpId,
    /// The group was issued in the previous iteration.
    pub from_previous_iteration: bool,
    /// The number of later groups that may remain in flight.
    pub pending: usize,
    /// The wait is emitted inside the next step, at the first use of the result.
    pub sunk: bool,
    /// Its stages are released by the next wait with `release_after`.
    pub defer_release: bool,
    /// A value that is computed before the wait and before the release. ptxas cannot reverse this
    /// order.
    pub release_after: Option<Value>,
}

/// MMAs that one MMA wait completes, issued at the position of the last one. They share operands
/// and barriers. An MMA whose operands or sums need threads commits several `wgmma` groups, and
/// waits for all but the last one itself (`mma/wgmma.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmaGroup {
    /// The MMAs, in program order.
    pub ops: Vec<OpId>,
    /// The MMAs in the order of issue.
    pub issue: Vec<MmaIssue>,
    /// Channels whose stages are released: at once, or after the wait if the MMAs are asynchronous.
    pub releases: Vec<u32>,
}

/// One MMA of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaIssue {
    /// Index in [`MmaGroup::ops`].
    pub op: usize,
    /// True if the MMA extends n of the previous one: both are one instruction.
    pub extends_n: bool,
}

impl MmaGroup {
    /// Returns a group of one MMA.
    pub fn single(op: OpId) -> MmaGroup {
        MmaGroup { ops: vec![op], issue: vec![MmaIssue { op: 0, extends_n: false }], releases: Vec::new() }
    }

    /// Returns the last MMA, at whose position all are issued.
    pub fn last(&self) -> Option<OpId> {
        self.ops.last().copied()
    }
}

/// A strip-mined sequence of ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripMine {
    /// The layout of the tiles.
    pub layout: LayoutId,
    /// Registers of one strip iteration.
    pub registers_per_iteration: usize,
    /// The ops in program order, with their roles.
    pub ops: Vec<(OpId, StripRole)>,
    /// Tiles that later steps read. They are complete after the last strip iteration; all others
    /// live for one.
    pub live_out: Vec<Value>,
}

impl StripMine {
    /// Returns the ops in program order.
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().map(|&(id, _)| id)
    }

    /// Returns the tiles that the ops define, and views of them.
    pub fn defined_tiles(&self, module: &Module) -> FxHashSet<Value> {
        let made =
            self.ops.iter().filter(|&&(id, part)| part != StripRole::Preheader && module.op(id).code != Opcode::Reduce);
        made.flat_map(|&(id, _)| module.op(id).results.iter().copied()).collect()
    }
}

/// The role of an op in a strip-mined sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripRole {
    /// An op that is executed in each strip iteration.
    Body,
    /// A view of a tile: the same elements in the same registers.
    View,
    /// An op that is executed before the first strip iteration: a scalar, or an op without
    /// instructions.
    Preheader,
}

/// A `for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct For {
    pub op: OpId,
    /// Values from outside whose conversion to another layout is hoisted out of the loop.
    pub hoisted: Vec<(Value, LayoutId)>,
    /// Operands of MMAs of the body that are written to shared memory before the loop.
    pub hoisted_operands: Vec<HoistedOperand>,
    /// Multistage `cp.async` copies.
    pub cp_async: Option<Rc<CpAsyncPlan>>,
    /// MMAs in flight across the back edge.
    pub carried_mmas: Vec<CarriedMma>,
    /// Ping-pong over the iterations.
    pub pingpong: Option<PingPong>,
    /// Unroll factor. With 1, ptxas does not unroll either.
    pub unroll: Option<u32>,
    pub body: SeqId,
    /// Waits after the last iteration. A loop without iterations skips them.
    pub epilogue: Option<SeqId>,
}

/// A `loop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    pub op: OpId,
    /// As for [`For`].
    pub hoisted: Vec<(Value, LayoutId)>,
    /// As for [`For`].
    pub hoisted_operands: Vec<HoistedOperand>,
    pub body: SeqId,
}

/// A loop-invariant operand of MMAs. Its buffer lives as long as the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoistedOperand {
    pub value: Value,
    /// The first MMA of the body that reads the operand.
    pub mma: OpId,
    pub is_left: bool,
}

/// MMAs that accumulate in place over the iterations, and whose wait is in the next iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedMma {
    /// The last MMA of the group.
    pub mma: OpId,
    /// Indices of the loop-carried values that are the accumulators.
    pub accumulators: Vec<usize>,
    /// Channels whose stages are released by the wait.
    pub releases: Vec<u32>,
}

impl Schedule {
    /// Returns the buffers that an MMA group of a sequence reads. `mma`: the last MMA of the group.
    pub fn mma_reads(&self, seq: SeqId, mma: OpId) -> Vec<Buffer> {
        let mut sub_steps = Vec::new();
        for step in self.steps(seq) {
            match step {
                Step::Sub(sub_step) => sub_steps.push(*sub_step),
                Step::Mma(group) if group.last() == Some(mma) => return operand_reads(&sub_steps),
                step if step.is_wait() => {}
                _ => sub_steps.clear(),
            }
        }
        Vec::new()
    }
}

impl For {
    /// Returns true if each iteration begins with a barrier, which waits for all MMAs.
    pub fn has_barrier_at_head(&self) -> bool {
        self.cp_async.as_ref().is_some_and(|cp_async| cp_async.barrier_at_head)
    }

    /// Returns the carried MMAs with their accumulators among the carried values of one iteration.
    pub fn accumulators_in<'a>(&'a self, values: &'a [Value]) -> impl Iterator<Item = (&'a CarriedMma, Vec<Value>)> {
        self.carried_mmas.iter().map(|carried| {
            (carried, carried.accumulators.iter().filter_map(|&index| values.get(index).copied()).collect_vec())
        })
    }
}

impl Schedule {
    /// Returns the index of a layout in the table, to which a new one is added.
    pub fn layout_id(&mut self, layout: &Layout) -> LayoutId {
        let known = self.layouts.iter().rposition(|known| known.is_same(layout));
        LayoutId(known.unwrap_or_else(|| {
            self.layouts.push(layout.clone());
            self.layouts.len() - 1
        }) as u32)
    }

    /// Returns the layout with this index.
    pub fn layout(&self, id: LayoutId) -> &Layout {
        &self.layouts[id.0 as usize]
    }

    /// Returns the path of a load.
    pub fn load_path(&self, load: OpId) -> LoadPath {
        let tma = self.warp_spec.as_ref().and_then(|warp_spec| warp_spec.load_paths.get(&load));
        tma.or_else(|| self.cp_async_loads.get(&load)).copied().unwrap_or_default()
    }

    /// Returns the steps of a sequence.
    pub fn steps(&self, body: SeqId) -> &[Step] {
        &self.sequences[body.0 as usize]
    }

    /// Returns the steps of a sequence and of all nested sequences.
    pub fn steps_with_nested(&self, body: SeqId) -> Vec<&Step> {
        let (mut bodies, mut found) = (vec![body], Vec::new());
        while let Some(body) = bodies.pop() {
            for step in self.steps(body) {
                bodies.extend(step.sequences());
                found.push(step);
            }
        }
        found
    }

    /// Returns the `for` loops of a partition.
    pub fn loops(&self, role: WarpRole) -> Vec<&For> {
        let steps = self.partition(role).map(|partition| self.steps_with_nested(partition.body)).unwrap_or_default();
        steps.into_iter().filter_map(|step| if let Step::For(plan) = step { Some(&**plan) } else { None }).collect_vec()
    }

    /// Returns true if consumer groups execute MMAs or exponentials in an order.
    pub fn has_named_order_barriers(&self) -> bool {
        let mut points = self.sequences.iter().flatten().filter_map(Step::order_point);
        points.any(|point| point.barrier() == OrderBarrierKind::Named)
    }

    /// Returns true if consumer groups evaluate exponentials one after another.
    pub fn orders_exp(&self) -> bool {
        let mut points = self.sequences.iter().flatten().filter_map(Step::order_point);
        points.any(|point| matches!(point, OrderPoint::Exp(_)))
    }

    /// Returns true if consumer groups issue the MMAs of this sequence one after another.
    pub fn orders_mma(&self, body: SeqId) -> bool {
        self.steps(body).iter().any(|step| matches!(step.order_point(), Some(OrderPoint::Mma(_))))
    }

    /// Returns the TMA stores.
    pub fn tma_stores(&self) -> impl Iterator<Item = &TmaStore> {
        let steps = self.sequences.iter().flatten();
        steps.filter_map(|step| if let Step::TmaStore(tma_store) = step { Some(&**tma_store) } else { None })
    }

    /// Returns the partition with this role.
    pub fn partition(&self, role: WarpRole) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.role == role)
    }
}

impl Step {
    /// Returns true if the step is a wait for stages or MMAs, or is emitted with the next one.
    pub fn is_wait(&self) -> bool {
        matches!(self, Step::ConsumerWait(_) | Step::MmaWait(_) | Step::OrderWait { sunk: true, .. })
    }

    /// Returns the section of an order wait or order arrive.
    pub fn order_point(&self) -> Option<OrderPoint> {
        match *self {
            Step::OrderWait { point, .. } | Step::OrderArrive(point) => Some(point),
            _ => None,
        }
    }

    /// Returns the op of a step that has exactly one.
    pub fn op(&self) -> Option<OpId> {
        match self {
            &Step::Deferred(id) | &Step::Exec(id) | &Step::LocalLoad(id) => Some(id),
            &Step::PrivatizedAtomic(id) | &Step::End(id) => Some(id),
            &Step::If { op, .. } => Some(op),
            Step::TmaStore(tma_store) => Some(tma_store.op),
            Step::For(step) => Some(step.op),
            Step::Loop(step) => Some(step.op),
            _ => None,
        }
    }

    /// Returns the ops that a step executes, without loads of channels and without the ops of its
    /// bodies.
    pub fn ops(&self) -> Vec<OpId> {
        match self {
            Step::StripMine(strip_mine) => strip_mine.ops().collect_vec(),
            Step::Mma(plan) => plan.ops.clone(),
            step => step.op().into_iter().collect_vec(),
        }
    }

    /// Returns the operands that a loop hoists.
    pub fn hoisted_operands(&self) -> &[HoistedOperand] {
        match self {
            Step::For(step) => &step.hoisted_operands,
            Step::Loop(step) => &step.hoisted_operands,
            _ => &[],
        }
    }

    /// Returns the bodies of a loop or branch.
    pub fn sequences(&self) -> &[SeqId] {
        match self {
            Step::For(step) => std::slice::from_ref(&step.body),
            Step::Loop(step) => std::slice::from_ref(&step.body),
            Step::If { arms, .. } => arms,
            _ => &[],
        }
    }
}

/// Returns the position of the first sub-step of a step, or of the step itself.
pub fn first_sub_step(steps: &[Step], at: usize) -> usize {
    at - steps[..at].iter().rev().take_while(|step| matches!(step, Step::Sub(_))).count()
}
