//! Rings: stages of shared memory between the producer, which fills them, and the consumers.
//!
//! A stage has two barriers. *full* completes when the bytes that the producer announced have arrived;
//! *empty* when every consumer warp has said that its products are done with the stage. Both sides go round
//! in program order and count for themselves: a stage index, and a parity that flips with each round.
//!
//! How stages are given back stands in `release`.

use std::collections::HashMap;
use std::rc::Rc;

use super::control::Mark;
use super::known::Known;
use super::teams::{TURN_BYTES, TURNS};
use super::thread::ThreadCache;
use super::view::TensorView;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Label, Operand, Reg, RegClass, Special, Ty};
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::schedule::{CLUSTER_SIZE, PRODUCER_REGISTERS, PipelineDesc, WarpRole, WarpSpecialization};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{BlockId, OpId, Value};

/// Bytes of the two barriers of a stage: full, empty.
const BARRIER_BYTES: u32 = 16;
/// The barrier at which the consumers meet.
pub const CONSUMER_BARRIER: u32 = 1;
/// From a full barrier to the empty one.
pub const EMPTY: i64 = 8;

/// Who is being lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// All warps do everything.
    All,
    /// Streams loads.
    Producer,
    /// Everything else.
    Consumer,
}

/// Where one role is in a ring.
#[derive(Clone, Copy, Debug)]
struct Position {
    index: Reg,
    parity: Reg,
}

/// A stage that consumers hold.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Address of its full barrier.
    pub barrier: Reg,
    /// Its address.
    stage: Operand,
    /// Parity to wait for, until it was waited for.
    awaited: Option<Reg>,
}

/// A ring in shared memory.
#[derive(Clone, Copy, Debug)]
struct Ring {
    slab: Buffer,
    barriers: u32,
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
    rings: Vec<Ring>,
    positions: Vec<Position>,
    pub held: Vec<Option<Held>>,
    /// For each channel that a loop looks ahead for: what it has seen.
    pub seen: Vec<Option<Seen>>,
    /// One thread of each consumer warp.
    pub leader: Option<Reg>,
    /// A predicate that never holds, and where it would lead.
    aside: Option<(Reg, Label)>,
    /// The rank of the other tile block of a pair.
    pub peer: Option<Reg>,
    /// The thread of each consumer warp that tells the other block.
    pub far_leader: Option<Reg>,
    /// What consumers know from the start.
    pub known: Option<Known>,
    /// The band of rows that a consumer makes.
    pub band: Option<Reg>,
}

/// What is known before an agent does anything.
struct Before {
    tiles: Vec<Option<Tile>>,
    views: HashMap<Value, Rc<TensorView>>,
    mark: Mark,
}

impl Lowering<'_> {
    /// Lowers a body once for each role.
    pub fn with_roles(&mut self, body: BlockId, roles: Rc<WarpSpecialization>) -> Lowered {
        let (warps, teams) = (self.context.inference.num_warps as u32, self.context.teams);
        let bands = self.context.bands;
        let consumers = self.context.consumer_warps() * WARP_SIZE;
        let blocks = self.context.blocks_of_roles();
        self.b.function().threads = consumers + self.context.producer_warps() * WARP_SIZE;
        self.b.function().min_blocks = Some(blocks);
        let count = roles.channels.len();
        let mut rings = Vec::new();
        for ring in &roles.pipelines {
            let bytes = ring.num_stages * ring.stage_bytes;
            let slab = self.shared.reserve(bytes, 1024).ok_or("shared memory for the stages of the loads")?;
            rings.push(Ring { slab, barriers: 0 });
        }
        let stages: u32 = roles.pipelines.iter().map(|ring| ring.num_stages).sum();
        let turns = if teams > 1 { TURN_BYTES } else { 0 };
        let barriers = self.shared.reserve(stages * BARRIER_BYTES + turns, 16).ok_or("shared memory for barriers")?;
        let mut next = barriers.offset;
        for (ring, plan) in rings.iter_mut().zip(&roles.pipelines) {
            ring.barriers = next;
            next += plan.num_stages * BARRIER_BYTES;
        }
        self.team.barriers = next;
        self.context.allocate_staging_buffers(body, Some(&roles), &mut self.shared);
        self.plan(body, Some(Rc::clone(&roles)));
        self.fetch_store_maps()?;
        self.compare_ways(body, &roles)?;
        self.init_barriers(&rings, &roles, warps * bands);
        let tid = self.b.special(Special::TidX);
        let producer = self.b.new_label();
        let is_producer = self.b.setp(Cmp::Ge, Ty::U32, tid, consumers);
        self.b.bra_if(is_producer, false, producer, true);

        if self.plans_only {
            return Ok(());
        }
        if self.context.crews() > 1 {
            // What depends on the number of a thread is another thing in a team.
            self.thread = ThreadCache::default();
        }
        let before = self.state();
        let positions = Vec::new();
        self.rings = Some(Rings {
            roles,
            rings,
            positions,
            held: vec![None; count],
            seen: vec![None; count],
            leader: None,
            aside: None,
            peer: None,
            far_leader: None,
            known: None,
            band: None,
        });
        self.remarks.teams = (teams > 1).then_some(teams);
        self.remarks.bands = (bands > 1).then_some(bands);
        self.role = Role::Consumer;
        self.consumers(&before, (tid, blocks));
        self.go_back(&before);
        self.role = Role::Producer;
        // That is in registers of theirs.
        let rings = self.rings.as_mut().expect("rings");
        (rings.known, rings.band) = (None, None);
        self.b.place(producer);
        self.reallocate_registers(false, blocks);
        let works = self.b.setp(Cmp::Eq, Ty::U32, tid, consumers);
        let idle = self.b.new_label();
        self.b.bra_if(works, true, idle, false);
        self.start_rings(None);
        self.run(WarpRole::Producer);
        self.b.place(idle);
        self.b.ret();
        self.role = Role::All;
        Ok(())
    }

    /// What is known before an agent does anything.
    fn state(&self) -> Before {
        Before { tiles: self.tiles.clone(), views: self.views.clone(), mark: self.mark() }
    }

    /// Knows what was known then.
    fn go_back(&mut self, before: &Before) {
        self.tiles.clone_from(&before.tiles);
        self.views.clone_from(&before.views);
        self.release(before.mark);
    }

    /// The programs of the teams of consumers.
    fn consumers(&mut self, before: &Before, (tid, blocks): (Operand, u32)) {
        let (threads, teams) = (self.context.inference.num_warps as u32 * WARP_SIZE, self.context.teams);
        if self.context.crews() == 1 {
            return self.consume(tid, blocks);
        }
        self.b.threads_of_team = threads;
        if teams == 1 {
            // All bands run the same code.
            self.consume(tid, blocks);
            self.b.threads_of_team = 0;
            return;
        }
        for team in 0..teams {
            let next = self.b.new_label();
            if team + 1 < teams {
                let is_later = self.b.setp(Cmp::Ge, Ty::U32, tid, (team + 1) * threads);
                self.b.bra_if(is_later, false, next, true);
            }
            self.team.index = team;
            self.consume(tid, blocks);
            self.go_back(before);
            self.b.place(next);
        }
        self.b.threads_of_team = 0;
    }

    /// The program of the consumers.
    fn consume(&mut self, tid: Operand, blocks: u32) {
        self.reallocate_registers(true, blocks);
        let lane = self.b.and(Ty::B32, tid, WARP_SIZE - 1);
        let leader = self.b.setp(Cmp::Eq, Ty::U32, lane, 0);
        self.start_rings(Some(leader));
        self.start_band(tid);
        let known = self.learn();
        self.rings.as_mut().expect("rings").known = Some(known);
        let grid = self.b.special(Special::NCtaIdX);
        let never = self.b.setp(Cmp::Eq, Ty::U32, grid, 0);
        let aside = self.b.new_label();
        self.rings.as_mut().expect("rings").aside = Some((never, aside));
        self.start_turns();
        self.run(WarpRole::Consumer);
        self.b.place(aside);
        self.b.trap();
    }

    /// One thread prepares all barriers of the rings.
    fn init_barriers(&mut self, rings: &[Ring], roles: &WarpSpecialization, warps: u32) {
        let tid = self.b.special(Special::TidX);
        let others = self.b.setp(Cmp::Ne, Ty::U32, tid, 0);
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let turns = self.team.barriers;
        let both = match self.peer.in_step {
            Some(in_step) => self.b.select(RegClass::B32, in_step, warps * CLUSTER_SIZE, warps),
            None => Operand::from(warps * CLUSTER_SIZE),
        };
        self.b.skip_if(others, false, |b| {
            for (ring, plan) in rings.iter().zip(&roles.pipelines) {
                for stage in 0..plan.num_stages {
                    let full = Addr::new(base, i64::from(ring.barriers + stage * BARRIER_BYTES));
                    b.mbarrier_init(&full, 1u32);
                    b.mbarrier_init(&full.plus(EMPTY), if plan.clustered { both } else { warps.into() });
                }
            }
            if roles.pingpong.is_some() {
                (0..TURNS).for_each(|turn| b.mbarrier_init(&Addr::new(base, i64::from(turns + 8 * turn)), warps));
            }
            b.fence_mbarrier_init();
        });
        match roles.multicast {
            Some(_) => self.b.cluster_meet(),
            None => self.b.bar_sync(0, None),
        }
    }

    /// Consumers take the registers that the producer gives up.
    fn reallocate_registers(&mut self, consumer: bool, blocks: u32) {
        let (at_entry, more) = self.context.registers(blocks);
        let whole_groups = self.context.producer_warps() == 4 && self.context.consumer_warps().is_multiple_of(4);
        if whole_groups && more > at_entry && at_entry > PRODUCER_REGISTERS {
            self.b.set_max_registers(consumer, if consumer { more } else { PRODUCER_REGISTERS });
        }
    }

    fn start_rings(&mut self, leader: Option<Reg>) {
        let rings = self.rings.as_mut().expect("rings");
        rings.leader = leader;
        let b = &mut self.b;
        let zero = |b: &mut Builder| b.copy(Operand::Imm(0), RegClass::B32);
        rings.positions = rings.rings.iter().map(|_| Position { index: zero(b), parity: zero(b) }).collect();
        if rings.roles.multicast.is_some() {
            let rank = b.special(Special::ClusterCtaRank);
            rings.peer = Some(b.xor(Ty::B32, rank, 1u32).reg());
            rings.far_leader = leader.map(|leader| match self.peer.in_step {
                Some(in_step) => b.and(Ty::Pred, leader, in_step).reg(),
                None => leader,
            });
        }
    }

    /// Is this load the producer's?
    pub fn is_streamed(&self, id: OpId) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.roles.operand_channel.contains_key(&id))
    }

    /// Does the role that is lowered need this carried value or result of a region op?
    pub fn role_needs(&self, value: Value) -> bool {
        match &self.rings {
            Some(rings) if self.role == Role::Producer => rings.roles.producer_live.contains(&value),
            _ => true,
        }
    }

    /// What is known of the loads of a channel, for people.
    fn remark_channel(&mut self, channel: usize) {
        let roles = Rc::clone(&self.rings.as_ref().expect("rings").roles);
        let stages = roles.pipelines[roles.channels[channel].pipeline].num_stages;
        for load in &roles.channels[channel].loads {
            let blocks = self.sharing_blocks(load.load);
            let way = Way::Streamed { boxes: load.boxes.len() as u32, stages, blocks };
            self.remarks.access(self.module, load.load, self.module.op(load.load).results[0], way);
        }
    }

    /// Addresses of the present stage of a ring, full barrier first.
    fn places_of(&mut self, which: usize) -> (Operand, Operand) {
        let rings = self.rings.as_ref().expect("rings");
        let (ring, index) = (rings.rings[which], rings.positions[which].index);
        let PipelineDesc { num_stages: stages, stage_bytes, .. } = rings.roles.pipelines[which];
        let known = rings.known.map(|known| known.base);
        let b = &mut self.b;
        let base = known.unwrap_or_else(|| b.reg(Operand::Smem, RegClass::B32));
        if stages == 1 {
            return (b.add(Ty::U32, base, ring.barriers), b.add(Ty::U32, base, ring.slab.offset));
        }
        let barrier = b.mad(Ty::U32, index, i64::from(BARRIER_BYTES), base);
        let barrier = b.add(Ty::U32, barrier, ring.barriers);
        let stage = b.mad(Ty::U32, index, i64::from(stage_bytes), base);
        (barrier, b.add(Ty::U32, stage, ring.slab.offset))
    }

    /// Addresses of the present stage of a channel, full barrier first, and the parity that it has when it is full; then the ring
    /// moves on.
    fn next_stage_of(&mut self, channel: usize) -> (Operand, Operand, Operand) {
        let rings = self.rings.as_ref().expect("rings");
        let which = rings.roles.channels[channel].pipeline;
        let (parity, seen) = (rings.positions[which].parity, rings.seen[channel]);
        let now = self.b.copy(parity, RegClass::B32).into();
        if let Some(Seen { barrier, stage, .. }) = seen {
            // Who looks ahead moves on.
            let [barrier, stage] = [barrier, stage].map(|place| self.b.copy(place, RegClass::B32).into());
            return (barrier, stage, now);
        }
        let (barrier, stage) = self.places_of(which);
        self.move_on(which);
        (barrier, stage, now)
    }

    /// Goes to the next stage of a ring.
    fn move_on(&mut self, which: usize) {
        let rings = self.rings.as_ref().expect("rings");
        let (Position { index, parity }, stages) = (rings.positions[which], rings.roles.pipelines[which].num_stages);
        let b = &mut self.b;
        if stages == 1 {
            let flipped = b.xor(Ty::B32, parity, 1u32);
            return b.mov_to(parity, flipped);
        }
        let next = b.add(Ty::U32, index, 1u32);
        let wraps = b.setp(Cmp::Eq, Ty::U32, next, stages);
        let next = b.select(RegClass::B32, wraps, 0, next);
        let flipped = b.xor(Ty::B32, parity, 1u32);
        let turned = b.select(RegClass::B32, wraps, flipped, parity);
        b.mov_to(index, next);
        b.mov_to(parity, turned);
    }

    /// Addresses of the present stage of a channel, full barrier first, and the parity that it has when it is full, for who is about to take
    /// it, or has taken the one before it (`moves_on`).
    pub fn coming(&mut self, channel: usize, moves_on: bool) -> (Operand, Operand, Reg) {
        let which = self.rings.as_ref().expect("rings").roles.channels[channel].pipeline;
        if moves_on {
            self.move_on(which);
        }
        let (barrier, stage) = self.places_of(which);
        (barrier, stage, self.rings.as_ref().expect("rings").positions[which].parity)
    }

    /// Stages of a ring.
    pub fn stages_of_ring(&self, ring: usize) -> u32 {
        self.rings.as_ref().map_or(1, |rings| rings.roles.pipelines[ring].num_stages)
    }

    /// One thread of each warp, beside a producer.
    pub fn leader(&self) -> Option<Reg> {
        self.rings.as_ref().and_then(|rings| rings.leader)
    }

    /// Goes past so many stages of a ring, fewer than two rounds.
    pub fn skip_stages(&mut self, ring: usize, count: Operand) {
        let stages = self.stages_of_ring(ring);
        let Position { index, parity } = self.rings.as_ref().expect("rings").positions[ring];
        let all = self.b.add(Ty::U32, index, count);
        let rounds = self.b.div(Ty::U32, all, stages);
        let whole = self.b.mul(Ty::U32, rounds, stages);
        let rest = self.b.sub(Ty::U32, all, whole);
        let odd = self.b.and(Ty::B32, rounds, 1u32);
        let turned = self.b.xor(Ty::B32, parity, odd);
        self.b.mov_to(index, rest);
        self.b.mov_to(parity, turned);
    }

    /// Waits for the next stage to be free; its full barrier and its address.
    pub fn free_stage(&mut self, channel: usize) -> (Addr, Reg) {
        let (barrier, stage, parity) = self.next_stage_of(channel);
        let barrier = Addr::new(self.b.reg(barrier, RegClass::B32), 0);
        let stage = self.b.reg(stage, RegClass::B32);
        let before = self.b.xor(Ty::B32, parity, 1u32);
        self.b.mbarrier_wait(&barrier.plus(EMPTY), before);
        (barrier, stage)
    }

    /// Waits for a free stage, and has the loads of a channel copied there.
    pub fn produce(&mut self, channel: usize) -> Lowered {
        self.remark_channel(channel);
        let (barrier, stage) = self.free_stage(channel);
        let rings = self.rings.take().expect("rings");
        let this = &rings.roles.channels[channel];
        self.b.mbarrier_expect_tx(&barrier, this.bytes());
        let mut result = Ok(());
        for load in &this.loads {
            let deciding = Self::deciding(&rings.roles, load.load);
            result = result.and(self.for_op(load.load, |lowering| match (rings.peer, deciding) {
                (Some(peer), Some(deciding)) => lowering.issue_shared(load, deciding, stage, &barrier, peer),
                (peer, _) => lowering.issue(load, stage, &barrier, peer.is_some()),
            }));
        }
        self.rings = Some(rings);
        result
    }

    /// The consumers learn where the next tiles of a channel will be.
    pub fn acquire(&mut self, channel: usize) {
        self.remark_channel(channel);
        let (barrier, stage, parity) = self.next_stage_of(channel);
        let barrier = self.b.reg(barrier, RegClass::B32);
        let awaited = Some(self.b.reg(parity, RegClass::B32));
        let rings = self.rings.as_mut().expect("rings");
        let this = &rings.roles.channels[channel];
        rings.held[channel] = Some(Held { barrier, stage, awaited });
        for load in &this.loads {
            let address = self.b.add(Ty::U32, stage, load.smem_offset);
            let address = match rings.band {
                Some(band) if load.partitions > 1 => {
                    self.b.mad(Ty::U32, band, i64::from(load.bytes / load.partitions), address)
                }
                _ => address,
            };
            self.staged.insert(self.module.op(load.load).results[0], address);
        }
    }

    /// Waits until the tiles of a channel have arrived.
    pub fn await_channel(&mut self, channel: usize) {
        let Some(rings) = self.rings.as_mut() else { return };
        let Some(held) = rings.held[channel].as_mut() else { return };
        let Some(parity) = held.awaited.take() else { return };
        let barrier = Addr::new(held.barrier, 0);
        match rings.seen[channel] {
            Some(seen) => self.b.mbarrier_wait_unless(seen.arrived, &barrier, parity),
            None => self.b.mbarrier_wait(&barrier, parity),
        }
    }

    /// Where the stage of a channel begins that is held.
    pub fn stage_of(&self, channel: u32) -> Option<Operand> {
        self.rings.as_ref()?.held.get(channel as usize)?.map(|held| held.stage)
    }

    /// A predicate that never holds, which ptxas does not know.
    pub fn never(&self) -> Option<Reg> {
        self.rings.as_ref()?.aside.map(|(never, _)| never)
    }

    /// The channel of a load whose tile has not been waited for.
    pub fn unawaited(&self, load: OpId) -> Option<usize> {
        let rings = self.rings.as_ref()?;
        let channel = *rings.roles.operand_channel.get(&load)?;
        rings.held[channel]?.awaited.map(|_| channel)
    }

    /// Ends a block of code: ptxas does not know that the branch is never taken.
    pub fn end_block(&mut self) {
        if let Some((never, aside)) = self.rings.as_ref().and_then(|rings| rings.aside) {
            self.b.bra_if(never, false, aside, true);
        }
    }
}
