//! Groups of warps that issue products in turn.
//!
//! Each of the two groups has a barrier. It waits there before it issues products, and behind them it arrives at the other
//! one's. At its begin the second group arrives at the first one's barrier, and at its end the first one waits for the last
//! turn of the second one: once a program, not once a loop. Behind a loop the second group may be ahead: if it arrived
//! again, before the first one has waited for what it arrived for last, two of its arrivals would be taken for one of both groups.

use super::Lowering;
use super::ring::{CONSUMER_BARRIER, Role};
use crate::backend::ptx::inst::{Cmp, Operand, Reg, Ty};
use crate::backend::ptx::plan::{GROUP_WARPS, WARP};
use crate::backend::ptx::schedule::{GROUPS, TEAMS};

/// The barrier of the first group, behind those at which teams meet.
const FIRST_BARRIER: u32 = CONSUMER_BARRIER + TEAMS;
/// Threads at a barrier: those of both groups.
const THREADS: u32 = GROUPS * GROUP_WARPS * WARP;

impl Lowering<'_> {
    /// Where the program of the consumers begins: the first group has the first turn.
    pub fn start_turns(&mut self) {
        if self.schedule.multiplies_in_turn() {
            let second = self.is_group(1);
            self.b.guarded(second, false, |b| b.bar_arrive(FIRST_BARRIER, THREADS));
        }
    }

    /// Where it ends: the last turn was the second group's.
    pub fn stop_turns(&mut self) {
        if self.role == Role::Consumer && self.schedule.multiplies_in_turn() {
            let first = self.is_group(0);
            self.b.guarded(first, false, |b| b.bar_sync(FIRST_BARRIER, Some(THREADS)));
        }
    }

    /// Waits for the turn of this group.
    pub fn await_turn(&mut self) {
        let group = self.group();
        let own = self.b.add(Ty::U32, group, FIRST_BARRIER);
        self.b.bar_sync(own, Some(THREADS));
    }

    /// The other group has its turn.
    pub fn end_turn(&mut self) {
        let group = self.group();
        let other = self.b.sub(Ty::U32, FIRST_BARRIER + 1, group);
        self.b.bar_arrive(other, THREADS);
    }

    fn is_group(&mut self, which: u32) -> Reg {
        let group = self.group();
        self.b.setp(Cmp::Eq, Ty::U32, group, which)
    }

    /// The group of this thread: only consumers have turns, and they know it.
    fn group(&self) -> Operand {
        self.known_group().expect("the group of a consumer").into()
    }
}
