//! Groups of warps that issue products, or work, in turn.
//!
//! Each of the groups has a barrier. It waits there before it issues products or works, and behind that it arrives at the next one's, the last
//! group at the first one's. At its begin the last group arrives at the first one's barrier, and at its end the first one waits for the last
//! turn of the last one: once a program, not once a loop. Behind a loop the last group may be ahead: if it arrived
//! again, before the first one has waited for what it arrived for last, two of its arrivals would be taken for one of both groups.
//!
//! Groups are four warps each, of two that have a tile together, or bands of rows.

use super::Lowering;
use super::ring::{CONSUMER_BARRIER, Role};
use crate::backend::ptx::hardware::{WARP_GROUP_WARPS, WARP_SIZE};
use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::schedule::{ORDERED_GROUPS, PINGPONG_GROUPS};
use crate::ir::Value;

/// The barrier of the first group, behind those at which teams meet.
const FIRST_BARRIER: u32 = CONSUMER_BARRIER + PINGPONG_GROUPS;

/// The exponential that the end of a turn stands behind, of all of a thread: ptxas puts those behind it, and sums of them, before the barrier, too.
const LATE: (usize, usize) = (11, 16);

/// What a band, or a group that works in turn, knows from the start: its own barrier, and that of the next one.
#[derive(Clone, Copy, Debug)]
pub struct KnownTurns {
    own: Reg,
    next: Reg,
}

impl Lowering<'_> {
    /// Where the program of the consumers begins: the first group has the first turn.
    pub fn start_turns(&mut self) {
        if !self.schedule.has_order_barriers() {
            return;
        }
        let last = self.is_group(self.groups() - 1);
        let threads = self.threads_of_turns();
        self.b.guarded(last, false, |b| b.bar_arrive(FIRST_BARRIER, threads));
        if self.context.bands > 1 || self.schedule.orders_exp() {
            let group = self.group();
            let own = self.b.add(Ty::U32, group, FIRST_BARRIER);
            let next = self.b.add(Ty::U32, group, FIRST_BARRIER + 1);
            let next = self.b.select(RegClass::B32, last, FIRST_BARRIER, next);
            let [own, next] = [own, next].map(|barrier| self.b.reg(barrier, RegClass::B32));
            self.turns = Some(KnownTurns { own, next });
        }
    }

    /// Where it ends: the last turn was the last group's.
    pub fn stop_turns(&mut self) {
        if self.role == Role::Consumer && self.schedule.has_order_barriers() {
            let first = self.is_group(0);
            let threads = self.threads_of_turns();
            self.b.guarded(first, false, |b| b.bar_sync(FIRST_BARRIER, Some(threads)));
        }
    }

    /// Waits for the turn of this group.
    pub fn await_turn(&mut self) {
        let own = match self.turns {
            Some(turns) => turns.own.into(),
            None => {
                let group = self.group();
                self.b.add(Ty::U32, group, FIRST_BARRIER)
            }
        };
        let threads = self.threads_of_turns();
        self.b.bar_sync(own, Some(threads));
    }

    /// The next group has its turn.
    pub fn end_turn(&mut self) {
        let next = self.next_turn();
        let threads = self.threads_of_turns();
        self.b.bar_arrive(next, threads);
    }

    /// The same, when these exponentials have been computed. None of them has its sign set (nor has what is no number: of instructions
    /// for 32 bits that is 0x7fffffff), which ptxas does not know: to it the barrier depends on one of them, so that it stands behind them.
    pub fn end_turn_behind(&mut self, exponentials: Value) {
        let slots = self.tiles[exponentials.index()].as_ref().map(|tile| tile.slots.clone());
        let slot = slots.as_ref().and_then(|slots| slots.get(slots.len() * LATE.0 / LATE.1));
        let next = self.next_turn();
        let behind = match slot {
            Some(&Operand::Reg(slot)) => {
                let sign = self.b.shr(Ty::U32, slot.as_class(RegClass::B32), 31);
                self.b.add(Ty::U32, sign, next)
            }
            _ => next,
        };
        let threads = self.threads_of_turns();
        self.b.bar_arrive(behind, threads);
    }

    /// The barrier of the group that has the next turn.
    fn next_turn(&mut self) -> Operand {
        match self.turns {
            Some(turns) => turns.next.into(),
            None => {
                let group = self.group();
                self.b.sub(Ty::U32, FIRST_BARRIER + 1, group)
            }
        }
    }

    fn groups(&self) -> u32 {
        if self.context.bands > 1 { self.context.bands } else { ORDERED_GROUPS }
    }

    /// Threads at a barrier: those of two groups.
    fn threads_of_turns(&self) -> u32 {
        let each = if self.context.bands > 1 { self.context.inference.num_warps as u32 } else { WARP_GROUP_WARPS };
        2 * each * WARP_SIZE
    }

    fn is_group(&mut self, which: u32) -> Reg {
        let group = self.group();
        self.b.setp(Cmp::Eq, Ty::U32, group, which)
    }

    /// The group of this thread: only consumers have turns, and they know it.
    fn group(&self) -> Operand {
        let band = self.rings.as_ref().and_then(|rings| rings.band);
        band.or(self.known_group()).expect("the group of a consumer").into()
    }
}
