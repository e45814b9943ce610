//! The schedule IR: partitions, sequences and steps.
//!
//! The program stays Tile IR: a step names an op of the module, and says *how* it is done. What an op means is not said
//! again. Steps of a body come one after another; those with bodies of their own are the loops and branches of the module.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use super::cp_async::CpAsyncPlan;
use super::pipelines::{PingPong, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::sub_step::{ConversionPlan, SubStep};
use super::tma_store::TmaStore;

pub use super::sub_step::LayoutId;
use crate::backend::ptx::shared::SharedMemory;
use crate::ir::{Module, OpId, Opcode, Value};
use crate::layout::Layout;

/// A list of steps of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u32);

/// What the tile blocks of a kernel do.
#[derive(Clone, Default)]
pub struct Schedule {
    /// The warps of a tile block, by what they run.
    pub partitions: Vec<Partition>,
    /// Steps, by [`BodyId`].
    pub sequences: Vec<Vec<Step>>,
    /// Products: of each the instruction, and what of its rows and columns each group of warps does.
    pub mma_partitions: Vec<(OpId, String)>,
    /// Layouts that steps name.
    pub layouts: Vec<Layout>,
    /// Changes of layouts that steps make.
    pub conversions: Vec<Rc<ConversionPlan>>,
    /// What of shared memory is reserved for the whole kernel.
    pub smem: SharedMemory,
    /// Shared memory that the kernel needs.
    pub shared_bytes: u32,
    /// From a buffer of a team to that of the next one.
    pub smem_bytes_per_group: u32,
    /// The copy of an array whose atomics the block combines.
    pub privatized: Option<PrivatizedArray>,
    /// Rings of stages and the loads that go through them, where there are several agents.
    pub warp_spec: Option<Rc<WarpSpecialization>>,
}

/// Warps that run the same program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub role: WarpRole,
    /// Of the tile block.
    pub warps: Range<u32>,
    pub body: SeqId,
}

/// Who an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpRole {
    /// All warps do everything.
    All,
    /// Everything but the loads that [`Acts::Load`] makes.
    Consumer,
    /// One lane streams loads.
    Producer,
}

/// One thing that an agent does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A value without instructions: computed where it is used, another view of one, or left where it was fetched to.
    Deferred(OpId),
    /// An op, complete when done, by the threads of the agent.
    Exec(OpId),
    /// A run of ops, a few slots of their tiles at a time.
    StripMine(Rc<StripMine>),
    /// A load of what the thread itself has copied to a stage.
    LocalLoadThreadPrivate(OpId),
    /// A load of a small tile that has come to a stage with others.
    LocalLoad(OpId),
    /// A store by the bulk copy engine, if there is room for its boxes; else by the threads.
    TmaStore(Box<TmaStore>),
    /// An atomic that the block combines in the copy of its array.
    PrivatizedAtomic(OpId),
    Mma(Box<MmaGroup>),
    /// Waits for the next stage of a channel to be free, and has its loads copied there.
    Produce(u32),
    /// Learns where the next tiles of a channel will be.
    Advance(u32),
    /// Waits for the tiles of a channel to be there.
    ConsumerWait(ConsumerWait),
    /// Waits for products that run on their own.
    MmaWait(MmaWait),
    /// Asks whether the next tiles of a channel are there: the wait for them asks again only if they were not.
    ConsumerTryWait(u32),
    /// Gives back the stages of channels that only regions have used.
    ConsumerRelease(Vec<u32>),
    /// Waits until the other team has passed this turn in the iteration before.
    OrderWait(OrderPoint),
    /// Gives the other team its turn, in the next iteration.
    OrderArrive(OrderPoint),
    /// Waits until the other group of the agent has ended its turn: these exponentials they compute one after the other. `late`: the
    /// instruction stands where that of the late wait behind it does.
    ExpOrderWait {
        exponentials: Value,
        sunk: bool,
    },
    /// The other group has its turn, when these have been computed.
    ExpOrderArrive(Value),
    For(Box<For>),
    Loop(Box<Loop>),
    /// `quiet`: its branches only compute, so products run on beside them.
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

/// What teams do in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderPoint {
    /// Waiting for stages: one round of a ring is all that a barrier can tell from the next one.
    Pipeline,
    /// What others could notice.
    SideEffects,
}

impl OrderPoint {
    /// All of them.
    pub const ALL: [OrderPoint; 2] = [OrderPoint::Pipeline, OrderPoint::SideEffects];
}

/// A wait for the tiles of a channel, in the stage that was taken last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerWait {
    pub channel: u32,
    /// Where the next step brings the first of them: what it does before that needs none.
    pub sunk: bool,
}

/// A wait for a product that runs on its own, or for several that were issued together, and for all that were issued before.
/// They give back their stages then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaWait {
    /// The last one of those that are issued together.
    pub mma: OpId,
    /// The one that the iteration before has issued.
    pub from_previous_iteration: bool,
    /// So many that were issued after it run on.
    pub pending: usize,
    /// Where the next step comes to need it: what it does before that may go on beside the product.
    pub sunk: bool,
    /// Its stages come back with those of the next wait that stands behind a value.
    pub defer_release: bool,
    /// What is computed before, and before the stages come back: the assembler may not leave it for later.
    pub release_after: Option<Value>,
}

/// Products that are issued together: as one group, which shares operands and barriers, where the last one stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmaGroup {
    /// In the order of the program.
    pub ops: Vec<OpId>,
    /// All of them, as they are issued.
    pub issue: Vec<MmaIssue>,
    /// Channels that give back their stages: at once, or, where products run on their own, when these have landed.
    pub releases: Vec<u32>,
    /// The groups of warps issue them one after the other: in each iteration the first one before the next one, and the last one before
    /// the first one in the next.
    pub order: OrderSpan,
}

/// What products are to the turn of their group: one turn may be for all from one step to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderSpan {
    /// It begins before they are issued.
    pub acquire: bool,
    /// It ends when they are issued.
    pub release: bool,
}

impl OrderSpan {
    /// Does a turn begin or end?
    pub fn is_some(self) -> bool {
        self != OrderSpan::default()
    }
}

/// One of the products of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmaIssue {
    /// Its place among them.
    pub op: usize,
    /// Is it one instruction with the one before?
    pub extends_n: bool,
}

impl MmaGroup {
    /// One product.
    pub fn of(op: OpId) -> MmaGroup {
        MmaGroup {
            ops: vec![op],
            issue: vec![MmaIssue { op: 0, extends_n: false }],
            releases: Vec::new(),
            order: OrderSpan::default(),
        }
    }

    /// The last one, where all of them are issued.
    pub fn last(&self) -> Option<OpId> {
        self.ops.last().copied()
    }
}

/// A run of ops, piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripMine {
    /// The layout of its tiles.
    pub layout: LayoutId,
    /// Slots of one piece.
    pub registers_per_iteration: usize,
    /// The ops of the run in order.
    pub ops: Vec<(OpId, StripRole)>,
    /// Tiles that it makes for later steps: whole when the last piece is done. The others live for a piece.
    pub live_out: Vec<Value>,
}

impl StripMine {
    /// Its ops in order.
    pub fn ops(&self) -> impl Iterator<Item = OpId> {
        self.ops.iter().map(|&(id, _)| id)
    }

    /// Tiles that it makes, and other names of them.
    pub fn inside(&self, module: &Module) -> HashSet<Value> {
        let made =
            self.ops.iter().filter(|&&(id, part)| part != StripRole::Preheader && module.op(id).code != Opcode::Reduce);
        made.flat_map(|&(id, _)| module.op(id).results.iter().copied()).collect()
    }
}

/// What an op is to a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripRole {
    /// Is done for each piece.
    Body,
    /// Gives a tile another shape: the same elements in the same slots.
    View,
    /// Has no instructions, or computes scalars: before the pieces.
    Preheader,
}

/// A `for`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct For {
    pub op: OpId,
    /// Values from outside that the body uses in another layout: converted once, ahead of the loop.
    pub hoisted: Vec<(Value, LayoutId)>,
    /// Copies that run ahead.
    pub cp_async: Option<Rc<CpAsyncPlan>>,
    /// Products that stay in flight over the back edge.
    pub carried_mmas: Vec<CarriedMma>,
    /// Iterations are dealt to teams.
    pub pingpong: Option<PingPong>,
    /// So many rounds stand one after another; one: the assembler leaves them one by one.
    pub unroll: Option<u32>,
    pub body: SeqId,
    /// What those that left the body wait for; who never entered it has nothing to wait for.
    pub epilogue: Option<SeqId>,
}

/// A `loop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    pub op: OpId,
    /// As for [`For`].
    pub hoisted: Vec<(Value, LayoutId)>,
    pub body: SeqId,
}

/// Products that accumulate in place from iteration to iteration, and land in the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedMma {
    /// The last one of those that are issued together.
    pub mma: OpId,
    /// Which of the loop's carried values their sums add to.
    pub accumulators: Vec<usize>,
    /// The channels that they give back then.
    pub releases: Vec<u32>,
}

impl Schedule {
    /// The number of a layout in the table.
    pub fn layout_id(&mut self, layout: &Layout) -> LayoutId {
        let known = self.layouts.iter().rposition(|known| known.is_same(layout));
        LayoutId(known.unwrap_or_else(|| {
            self.layouts.push(layout.clone());
            self.layouts.len() - 1
        }) as u32)
    }

    /// The layout of this name.
    pub fn layout(&self, id: LayoutId) -> &Layout {
        &self.layouts[id.0 as usize]
    }

    /// The steps of a body.
    pub fn steps(&self, body: SeqId) -> &[Step] {
        &self.sequences[body.0 as usize]
    }

    /// The steps of a body and of the bodies in it.
    pub fn steps_within(&self, body: SeqId) -> Vec<&Step> {
        let (mut bodies, mut found) = (vec![body], Vec::new());
        while let Some(body) = bodies.pop() {
            for step in self.steps(body) {
                bodies.extend(step.bodies());
                found.push(step);
            }
        }
        found
    }

    /// The `for` loops of an agent.
    pub fn loops(&self, acts: WarpRole) -> Vec<&For> {
        let steps = self.partition(acts).map(|agent| self.steps_within(agent.body)).unwrap_or_default();
        steps.into_iter().filter_map(|step| if let Step::For(plan) = step { Some(&**plan) } else { None }).collect()
    }

    /// Do groups of warps take turns?
    pub fn has_order_barriers(&self) -> bool {
        self.orders_exp() || (0..self.sequences.len() as u32).any(|body| self.orders_mma(SeqId(body)))
    }

    /// Do they compute exponentials in turn?
    pub fn orders_exp(&self) -> bool {
        self.sequences.iter().flatten().any(|step| matches!(step, Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_)))
    }

    /// Do they issue products of this body in turn?
    pub fn orders_mma(&self, body: SeqId) -> bool {
        self.steps(body).iter().any(|step| matches!(step, Step::Mma(plan) if plan.order.is_some()))
    }

    /// The stores by the copy engine.
    pub fn sends(&self) -> impl Iterator<Item = &TmaStore> {
        let steps = self.sequences.iter().flatten();
        steps.filter_map(|step| if let Step::TmaStore(send) = step { Some(&**send) } else { None })
    }

    /// The agent that is this one.
    pub fn partition(&self, acts: WarpRole) -> Option<&Partition> {
        self.partitions.iter().find(|agent| agent.role == acts)
    }
}

impl Step {
    /// Is it a wait?
    pub fn is_wait(&self) -> bool {
        matches!(self, Step::ConsumerWait(_) | Step::MmaWait(_))
    }

    /// The op of a step that has one, and one alone.
    pub fn op(&self) -> Option<OpId> {
        match self {
            &Step::Deferred(id) | &Step::Exec(id) | &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) => {
                Some(id)
            }
            &Step::PrivatizedAtomic(id) | &Step::End(id) => Some(id),
            &Step::If { op, .. } => Some(op),
            Step::TmaStore(send) => Some(send.op),
            Step::For(step) => Some(step.op),
            Step::Loop(step) => Some(step.op),
            Step::Mma(_) | Step::Produce(_) | Step::Advance(_) | Step::ConsumerRelease(_) | Step::StripMine(_) => None,
            Step::ConsumerTryWait(_) => None,
            Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => None,
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::OrderWait(_) | Step::OrderArrive(_) | Step::Sub(_) => None,
        }
    }

    /// The ops that a step does, without loads of channels and those in its bodies.
    pub fn ops(&self) -> Vec<OpId> {
        match self {
            Step::StripMine(strip) => strip.ops().collect(),
            Step::Mma(plan) => plan.ops.clone(),
            step => step.op().into_iter().collect(),
        }
    }

    /// The bodies of a loop or branch.
    pub fn bodies(&self) -> &[SeqId] {
        match self {
            Step::For(step) => std::slice::from_ref(&step.body),
            Step::Loop(step) => std::slice::from_ref(&step.body),
            Step::If { arms, .. } => arms,
            _ => &[],
        }
    }
}
