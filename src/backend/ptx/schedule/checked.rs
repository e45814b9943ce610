//! What a check of a schedule says.

use crate::ir::OpId;

/// What is wrong with a schedule: a sentence.
pub type Checked = Result<(), String>;

/// A place on the way of an agent through the rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The next stage of a ring, for a channel.
    Stage(usize, u32),
    Enter(OpId),
    Else,
    Leave,
}
