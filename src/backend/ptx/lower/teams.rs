//! Teams of consumers: the iterations that they take, the stages that they skip, and their turns.
//!
//! Each team counts the stages of all iterations, since the producer fills those of all of them: at the end of its own
//! iteration it goes past those of the next one, which is the other team's.
//!
//! A turn of some kind is two barriers in shared memory. A team waits at its own, which completes a phase each time when the
//! other team passes its turn, that is when each warp of it has said so.

use super::control::{counter_type, unsigned};
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::schedule::{OrderPoint, PINGPONG_GROUPS, PingPong, StageCount};
use crate::ir::Flag;

/// Bytes of the barriers of turns.
pub const TURN_BYTES: u32 = 8 * TURNS;
/// Barriers of turns: of each kind one for each team.
pub const TURNS: u32 = PINGPONG_GROUPS * OrderPoint::ALL.len() as u32;

/// The team that is lowered.
#[derive(Clone, Debug, Default)]
pub struct Team {
    /// Which one.
    pub index: u32,
    /// Where the barriers of turns are in shared memory.
    pub barriers: u32,
    /// The parities to wait for in the next turn of each kind.
    parities: Vec<Reg>,
    /// For each ring what an iteration takes of it, but for what brings it to the same stage and parity.
    takes: Vec<Operand>,
}

/// The iterations of a team: where its counter begins, how far apart they are, and whether there is one.
pub struct Dealt {
    pub first: Operand,
    pub step: Operand,
    pub some: Reg,
}

impl Lowering<'_> {
    /// Before a loop whose iterations are dealt: those of this team.
    pub fn deal(&mut self, deal: &PingPong, [lower, upper, step]: [Operand; 3], ty: Ty) -> Lowered<Dealt> {
        let index = self.team.index;
        self.team.takes = deal
            .stages_per_iteration
            .iter()
            .enumerate()
            .map(|(ring, takes)| self.taken(ring, takes))
            .collect::<Lowered<_>>()?;
        // The first turn is the first team's: there is no phase before.
        let first = Operand::from(u32::from(index == 0));
        self.team.parities = OrderPoint::ALL.iter().map(|_| self.b.copy(first, RegClass::B32)).collect();
        let some = self.b.setp(Cmp::Lt, ty, lower, upper);
        let twice = self.b.add(ty, step, step);
        if index == 0 {
            return Ok(Dealt { first: lower, step: twice, some });
        }
        self.skip_iteration();
        // The second counter may not exceed the type: compare what is left instead.
        let left = self.b.sub(ty, upper, lower);
        let second = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let some = self.b.and(Ty::Pred, some, second).reg();
        Ok(Dealt { first: self.b.add(ty, lower, step), step: twice, some })
    }

    /// Stages of a ring that an iteration takes, but for what brings it to the same stage and parity.
    fn taken(&mut self, ring: usize, takes: &StageCount) -> Lowered<Operand> {
        let module = self.module;
        let period = 2 * self.stages_of_ring(ring);
        let mut all = Operand::from(takes.fixed);
        for &id in &takes.per_iteration_of {
            let op = module.op(id);
            let ty = counter_type(module.dtype(op.group(0)[0]), op.flag(Flag::UnsignedCmp))?;
            let [lower, upper, step] = [0, 1, 2].map(|group| self.scalar(op.group(group)[0]));
            let count = self.num_iterations(lower?, upper?, step?, ty);
            let rest = self.rest(count, period, unsigned(ty));
            let rest = if unsigned(ty) == Ty::U64 { self.b.unpack(rest).0 } else { rest };
            all = self.b.add(Ty::U32, all, rest);
        }
        Ok(self.rest(all, period, Ty::U32))
    }

    fn rest(&mut self, value: Operand, of: u32, ty: Ty) -> Operand {
        let whole = self.b.div(ty, value, of);
        let whole = self.b.mul(ty, whole, of);
        self.b.sub(ty, value, whole)
    }

    /// Goes past the stages of an iteration of the other team.
    pub fn skip_iteration(&mut self) {
        for ring in 0..self.team.takes.len() {
            let count = self.team.takes[ring];
            self.skip_stages(ring, count);
        }
    }

    /// Waits until the other team has passed this turn in the iteration before.
    pub fn take_turn(&mut self, turn: OrderPoint) {
        let Some(&parity) = self.team.parities.get(turn as usize) else { return };
        let barrier = self.turn_barrier(turn, self.team.index);
        self.b.mbarrier_wait(&barrier, parity);
        let next = self.b.xor(Ty::B32, parity, 1u32);
        self.b.mov_to(parity, next);
    }

    /// The other team has this turn in the next iteration.
    pub fn pass_turn(&mut self, turn: OrderPoint) {
        let Some(leader) = self.leader() else { return };
        if turn == OrderPoint::SideEffects && self.schedule.sends().next().is_some() {
            self.b.bulk_wait(0, false);
        }
        self.b.bar_warp_sync();
        let barrier = self.turn_barrier(turn, PINGPONG_GROUPS - 1 - self.team.index);
        self.b.guarded(leader, false, |b| b.mbarrier_arrive(&barrier, false));
    }

    fn turn_barrier(&mut self, turn: OrderPoint, team: u32) -> Addr {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        Addr::new(base, i64::from(self.team.barriers + 8 * (PINGPONG_GROUPS * turn as u32 + team)))
    }
}
