//! State of asynchronous operations: pipelines, MMAs in flight, order barriers.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::values::Tile;
use crate::backend::ptx::isa::inst::{Label, Operand, Reg};
use crate::backend::ptx::schedule::{
    CLUSTER_SIZE, ClusterMulticast, OrderPoint, PINGPONG_GROUPS, WarpRole, WarpSpecialization,
};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};

/// State of asynchronous operations, and of the partition that is lowered.
pub struct SyncState {
    /// Role of the partition.
    pub role: WarpRole,
    /// The TMA pipelines of a kernel with warp specialization.
    pub pipelines: Option<Rings>,
    /// MMAs in flight, and waits for them.
    pub mmas: Flights,
    /// The ping-pong group that is lowered.
    pub group: Team,
    /// Named barriers of the consumer group, if they are in registers.
    pub order: Option<KnownTurns>,
    /// The other tile block of the cluster.
    pub peer: Peer,
}

impl SyncState {
    /// The state of a kernel without warp specialization.
    pub fn new() -> SyncState {
        SyncState {
            role: WarpRole::All,
            pipelines: None,
            mmas: Flights::default(),
            group: Team::default(),
            order: None,
            peer: Peer::default(),
        }
    }

    /// Is this load the producer's?
    pub fn is_streamed(&self, id: OpId) -> bool {
        self.pipelines.as_ref().is_some_and(|rings| rings.roles.operand_channel.contains_key(&id))
    }

    /// Does the role that is lowered need this carried value or result of a region op?
    pub fn role_needs(&self, value: Value) -> bool {
        match &self.pipelines {
            Some(rings) if self.role == WarpRole::Producer => rings.roles.producer_live.contains(&value),
            _ => true,
        }
    }

    /// Stages of a ring.
    pub fn stages_of_ring(&self, ring: usize) -> u32 {
        self.pipelines.as_ref().map_or(1, |rings| rings.roles.pipelines[ring].num_stages)
    }

    /// One thread of each warp, beside a producer.
    pub fn leader(&self) -> Option<Reg> {
        self.pipelines.as_ref().and_then(|rings| rings.leader)
    }

    /// Where the stage of a channel begins that is held.
    pub fn stage_of(&self, channel: u32) -> Option<Operand> {
        self.pipelines.as_ref()?.held.get(channel as usize)?.map(|held| held.stage)
    }

    /// A predicate that never holds, which ptxas does not know.
    pub fn never(&self) -> Option<Reg> {
        self.pipelines.as_ref()?.aside.map(|(never, _)| never)
    }

    /// The channel of a load whose tile has not been waited for.
    pub fn unawaited(&self, load: OpId) -> Option<usize> {
        let rings = self.pipelines.as_ref()?;
        let channel = *rings.roles.operand_channel.get(&load)?;
        rings.held[channel]?.awaited.map(|_| channel)
    }

    pub fn pairs(&self) -> Option<&ClusterMulticast> {
        self.pipelines.as_ref().and_then(|rings| rings.roles.multicast.as_ref())
    }

    /// Tile blocks of a cluster.
    pub fn cluster(&self) -> u32 {
        if self.pairs().is_some() { CLUSTER_SIZE } else { 1 }
    }

    /// Blocks of the pair that may share the tile of this load.
    pub fn sharing_blocks(&self, load: OpId) -> u32 {
        if self.pairs().is_some_and(|pairs| pairs.can_multicast(load)) { CLUSTER_SIZE } else { 1 }
    }

    /// The stages that are held of these channels, to be given back.
    pub fn releases_of(&mut self, channels: &[u32]) -> Vec<Release> {
        let Some(rings) = self.pipelines.as_mut() else { return Vec::new() };
        let Rings { roles, held, .. } = rings;
        let release = |&channel: &u32| {
            let held = held[channel as usize].take()?;
            let paired = roles.pipelines[roles.channels[channel as usize].pipeline].clustered;
            Some(Release::Stage(held.barrier, paired))
        };
        channels.iter().filter_map(release).collect()
    }

    /// Has the ring of a channel stages that a pair of tile blocks fills together?
    pub fn is_paired(&self, channel: u32) -> bool {
        let roles = self.pipelines.as_ref().map(|rings| &rings.roles);
        roles.is_some_and(|roles| roles.pipelines[roles.channels[channel as usize].pipeline].clustered)
    }

    pub fn known(&self) -> Option<Known> {
        self.pipelines.as_ref().and_then(|rings| rings.known)
    }

    /// The number of a warp's group of four, where that is known from the start.
    pub fn known_group(&self) -> Option<Reg> {
        self.known().map(|known| known.group)
    }

    /// A zero of 64 bits that ptxas takes for another number in each lane.
    pub fn known_nothing(&self) -> Option<Reg> {
        self.known().and_then(|known| known.nothing)
    }
}

impl Flights {
    /// May a product be running?
    pub fn is_flying(&self) -> bool {
        !self.running.is_empty()
    }

    /// How many products a wait finds that lets so many run on, if any.
    pub fn landed_by(&self, younger: usize) -> Option<usize> {
        self.running.len().checked_sub(younger).filter(|&landed| landed > 0)
    }

    /// The products that may be running.
    pub fn running(&self) -> Vec<Flight> {
        self.running.clone()
    }

    /// At the start of another branch these may be running. How many may be at the end of the one before?
    pub fn run_again(&mut self, running: Vec<Flight>) -> usize {
        std::mem::replace(&mut self.running, running).len()
    }
}

/// Where one role is in a ring.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    pub index: Reg,
    pub parity: Reg,
}

/// A stage that consumers hold.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Address of its full barrier.
    pub barrier: Reg,
    /// Its address.
    pub stage: Operand,
    /// Parity to wait for, until it was waited for.
    pub awaited: Option<Reg>,
}

/// A ring in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub slab: Buffer,
    pub barriers: u32,
}

/// The stage that is taken next, as far as a loop has looked ahead.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// A predicate: have its tiles been seen to be there?
    pub arrived: Reg,
    /// Address of its full barrier.
    pub barrier: Reg,
    /// Its address.
    pub stage: Reg,
}

/// Rings of a kernel and their state.
pub struct Rings {
    pub roles: Rc<WarpSpecialization>,
    pub rings: Vec<Ring>,
    pub positions: Vec<Position>,
    pub held: Vec<Option<Held>>,
    /// For each channel that a loop looks ahead for: what it has seen.
    pub seen: Vec<Option<Seen>>,
    /// One thread of each consumer warp.
    pub leader: Option<Reg>,
    /// A predicate that never holds, and where it would lead.
    pub aside: Option<(Reg, Label)>,
    /// The rank of the other tile block of a pair.
    pub peer: Option<Reg>,
    /// The thread of each consumer warp that tells the other block.
    pub far_leader: Option<Reg>,
    /// What consumers know from the start.
    pub known: Option<Known>,
    /// The band of rows that a consumer makes.
    pub band: Option<Reg>,
}

/// A stage to be given back once a product has landed. The flag: to both tile blocks of a pair.
#[derive(Clone, Copy, Debug)]
pub enum Release {
    /// The one with this full barrier.
    Stage(Reg, bool),
    /// The one whose full barrier the register names, if it is not 0.
    Carried(Reg, bool),
}

/// What runs, and the waits that are to come.
#[derive(Default)]
pub struct Flights {
    /// In the order in which they were issued.
    pub running: Vec<Flight>,
    /// Late waits of the step that is lowered: how many products may still run then.
    pub due: VecDeque<usize>,
    /// Channels whose tiles it waits for.
    pub arriving: VecDeque<usize>,
    /// What products that have landed keep.
    pub kept: Vec<Release>,
    /// A turn to work begins where the next late wait stands.
    pub turn: bool,
}

/// A product that may still be running, or several that were issued together.
#[derive(Clone, Debug)]
pub struct Flight {
    /// What it computes.
    pub results: Vec<Value>,
    /// What it reads.
    pub releases: Vec<Release>,
    /// Lines of code before it was issued; none where no block of code may end before the wait.
    pub issued: usize,
    /// The user's place of it.
    pub place: u32,
}

/// The team that is lowered.
#[derive(Clone, Debug, Default)]
pub struct Team {
    /// Which one.
    pub index: u32,
    /// Where the barriers of turns are in shared memory.
    pub barriers: u32,
    /// The parities to wait for in the next turn of each kind.
    pub parities: Vec<Reg>,
    /// For each ring what an iteration takes of it, but for what brings it to the same stage and parity.
    pub takes: Vec<Operand>,
}

/// What a band, or a group that works in turn, knows from the start: its own barrier, and that of the next one.
#[derive(Clone, Copy, Debug)]
pub struct KnownTurns {
    pub own: Reg,
    pub next: Reg,
}

/// What is the same in all lanes of a warp of consumers. It comes from a shuffle, so that ptxas computes it once: made anew before
/// each product, it would be most of the way from one product to the next.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Address of shared memory.
    pub base: Reg,
    /// Number of the group of four warps.
    pub group: Reg,
    /// Number of the warp's first thread, where warps send boxes of their own.
    pub first: Option<Reg>,
    /// Zero, which ptxas does not know and takes for another number in each lane; of 64 bits, where numbers are loaded one by one
    /// beside products.
    pub nothing: Option<Reg>,
}

/// What the producer knows of its peer.
#[derive(Default)]
pub struct Peer {
    /// Results of mirrored ops; while the peer is computed for, the own ones.
    pub tiles: HashMap<Value, Option<Tile>>,
    /// Is the peer computed for?
    pub active: bool,
    /// Is this index the peer's, too?
    pub same: HashMap<Value, Reg>,
    /// Do the blocks of the pair go the same way? `None`: always.
    pub in_step: Option<Reg>,
}

/// Bytes of the two barriers of a stage: full, empty.
pub const BARRIER_BYTES: u32 = 16;

/// Barriers of turns: of each kind one for each team.
pub const TURNS: u32 = PINGPONG_GROUPS * OrderPoint::ALL.len() as u32;

/// Bytes of the barriers of turns.
pub const TURN_BYTES: u32 = 8 * TURNS;

/// From a full barrier to the empty one.
pub const EMPTY: i64 = 8;
