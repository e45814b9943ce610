//! Program walk: the traversal of a partition that data-flow analyses of a schedule share.
//!
//! Each step is visited once, in program order, and the sequences of a loop or branch after it.
//! There is no fixpoint. `enter` sets the state at the head of a loop to facts that hold in every
//! iteration. `leave` sets the state after the loop and handles the waits of its epilogue.

use super::program::{Schedule, SeqId, Step};

/// Program point: a position in a sequence (MLIR `ProgramPoint`).
#[derive(Clone, Copy)]
pub struct ProgramPoint<'a> {
    pub seq: SeqId,
    pub position: usize,
    /// The loop or branch of the sequence.
    pub parent: Option<&'a Step>,
}

/// A data-flow analysis of one partition.
pub trait Visitor<'a> {
    /// The facts that depend on the path.
    type State: Clone;
    type Error;

    /// The state at the current program point.
    fn state(&mut self) -> &mut Self::State;

    /// Visits a step, before its sequences.
    fn step(&mut self, step: &'a Step, point: ProgramPoint<'a>) -> Result<(), Self::Error>;

    /// Begins the body of a loop or an arm of a branch.
    fn enter(&mut self, parent: &'a Step) -> Result<(), Self::Error>;

    /// Ends a sequence. `before` is the state before `enter`.
    fn leave(&mut self, point: ProgramPoint<'a>, before: Self::State) -> Result<(), Self::Error>;

    /// Joins the states at the ends of the arms of a branch.
    fn join(&mut self, arms: &'a [SeqId], ends: Vec<Self::State>) -> Result<Self::State, Self::Error>;
}

impl Schedule {
    /// Walks through a sequence and all nested ones.
    pub fn walk<'a, V: Visitor<'a>>(
        &'a self,
        seq: SeqId,
        parent: Option<&'a Step>,
        visitor: &mut V,
    ) -> Result<(), V::Error> {
        let before = visitor.state().clone();
        parent.map_or(Ok(()), |parent| visitor.enter(parent))?;
        let steps = self.steps(seq);
        for (position, step) in steps.iter().enumerate() {
            visitor.step(step, ProgramPoint { seq, position, parent })?;
            let Step::If { arms, .. } = step else {
                step.sequences().iter().try_for_each(|&body| self.walk(body, Some(step), visitor))?;
                continue;
            };
            let (before, mut ends) = (visitor.state().clone(), Vec::new());
            for &arm in arms {
                visitor.state().clone_from(&before);
                self.walk(arm, Some(step), visitor)?;
                ends.push(visitor.state().clone());
            }
            *visitor.state() = visitor.join(arms, ends)?;
        }
        visitor.leave(ProgramPoint { seq, position: steps.len(), parent }, before)
    }
}
