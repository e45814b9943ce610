//! Program walk: the traversal of a partition that the data-flow analyses of a schedule share.
//!
//! Each step is visited once, in program order. The sequences of a loop or branch follow their
//! step. There is no fixpoint: `enter` sets the state at the head of a loop to facts that hold in
//! every iteration, and `leave` sets the state after it. The epilogue of a loop has only waits, and
//! belongs to `leave`.

use super::program::{Schedule, SeqId, Step};
use crate::ir::OpId;

/// A place between two steps.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub seq: SeqId,
    /// The index of the next step in the sequence.
    pub position: usize,
    /// The loop or branch of the sequence, and the index of the sequence in it.
    pub parent: Option<&'a Step>,
    pub index: usize,
}

impl Place<'_> {
    /// The op of the loop whose body the sequence is.
    pub fn parent_loop(&self) -> Option<OpId> {
        self.parent.filter(|step| matches!(step, Step::For(_) | Step::Loop(_))).and_then(Step::op)
    }
}

/// A data-flow analysis of one partition.
pub trait Visitor<'a> {
    /// The facts that depend on the path.
    type State: Clone;
    type Error;

    /// The state at the current place.
    fn state(&mut self) -> &mut Self::State;

    /// Visits a step, before its sequences.
    fn step(&mut self, step: &'a Step, place: Place<'a>) -> Result<(), Self::Error>;

    /// Begins a sequence.
    fn enter(&mut self, place: Place<'a>) -> Result<(), Self::Error>;

    /// Ends a sequence. `before` is the state before `enter`.
    fn leave(&mut self, place: Place<'a>, before: Self::State) -> Result<(), Self::Error>;

    /// Joins the states at the ends of the arms of a branch.
    fn join(&mut self, arms: &'a [SeqId], ends: Vec<Self::State>) -> Result<Self::State, Self::Error>;
}

impl Schedule {
    /// Walks through a sequence and all nested ones.
    pub fn walk<'a, V: Visitor<'a>>(&'a self, body: SeqId, visitor: &mut V) -> Result<(), V::Error> {
        self.walk_sequence(Place { seq: body, position: 0, parent: None, index: 0 }, visitor)
    }

    fn walk_sequence<'a, V: Visitor<'a>>(&'a self, start: Place<'a>, visitor: &mut V) -> Result<(), V::Error> {
        let before = visitor.state().clone();
        visitor.enter(start)?;
        let steps = self.steps(start.seq);
        for (position, step) in steps.iter().enumerate() {
            visitor.step(step, Place { position, ..start })?;
            let nested = |(index, &seq): (usize, &SeqId)| Place { seq, position: 0, parent: Some(step), index };
            let mut nested = step.sequences().iter().enumerate().map(nested);
            if let Step::If { arms, .. } = step {
                let (before, mut ends) = (visitor.state().clone(), Vec::new());
                for arm in nested {
                    visitor.state().clone_from(&before);
                    self.walk_sequence(arm, visitor)?;
                    ends.push(visitor.state().clone());
                }
                *visitor.state() = visitor.join(arms, ends)?;
            } else {
                nested.try_for_each(|body| self.walk_sequence(body, visitor))?;
            }
        }
        visitor.leave(Place { position: steps.len(), ..start }, before)
    }
}
