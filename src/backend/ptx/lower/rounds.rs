//! Rounds of a `for` that stand one after another, as the schedule says: one comparison for all of them, and what the rounds
//! load is under way together. A loop of single rounds behind them does what is left.

use super::Lowering;
use super::control::{Fixed, unsigned};
use crate::backend::ptx::isa::inst::{Cmp, Label, Operand, Reg, Ty};
use crate::backend::ptx::schedule::SeqId;
use crate::ir::BlockId;

/// A loop whose rounds stand one after another.
pub struct Rounds {
    /// How many there are.
    pub count: u32,
    /// From the counter of the first one to that of the last.
    pub apart: i64,
}

/// Where a loop is, and where it goes.
pub struct Turning<'a> {
    pub block: BlockId,
    pub body: SeqId,
    pub carried: &'a [Option<Fixed>],
    pub counter: Reg,
    pub ty: Ty,
    pub upper: Operand,
    pub step: Operand,
    /// Single rounds, of which one is to come.
    pub head: Label,
    /// Behind the loop.
    pub end: Label,
}

impl Lowering<'_> {
    /// The rounds in a row, as long as there are so many. One round at least is to come, here and at `head`.
    pub fn rounds(&mut self, rounds: &Rounds, turning: &Turning<'_>) {
        let &Turning { counter, ty, step, head, end, .. } = turning;
        let all = self.b.new_label();
        let enough = self.are_left(rounds, turning);
        self.b.bra_if(enough, true, head, true);
        self.b.place(all);
        self.b.pragma("nounroll");
        for round in 1..=rounds.count {
            self.plain_round(turning);
            if round < rounds.count {
                let after = self.b.add(ty, counter, step);
                self.b.mov_to(counter, after);
            }
        }
        let more = self.next_round(turning);
        self.b.bra_if(more, true, end, true);
        let enough = self.are_left(rounds, turning);
        self.b.bra_if(enough, false, all, true);
    }

    /// Goes on to the next counter. Is there a round for it?
    pub fn next_round(&mut self, turning: &Turning<'_>) -> Reg {
        let &Turning { counter, ty, upper, step, .. } = turning;
        // The next counter may not exceed the type: compare what is left instead.
        let left = self.b.sub(ty, upper, counter);
        let more = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let after = self.b.add(ty, counter, step);
        self.b.mov_to(counter, after);
        more
    }

    /// Are so many rounds to come? One is.
    fn are_left(&mut self, rounds: &Rounds, turning: &Turning<'_>) -> Reg {
        let left = self.b.sub(turning.ty, turning.upper, turning.counter);
        self.b.setp(Cmp::Gt, unsigned(turning.ty), left, rounds.apart)
    }
}
