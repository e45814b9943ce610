//! State of asynchronous operations: pipelines, MMAs in flight, order barriers.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::values::Tile;
use crate::backend::ptx::inst::{Label, Operand, Reg};
use crate::backend::ptx::schedule::{OrderPoint, PINGPONG_GROUPS, WarpSpecialization};
use crate::backend::ptx::shared::Buffer;
use crate::ir::Value;

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
