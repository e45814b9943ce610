//! Attention.

mod online;
mod prefill;
mod scores;
mod tiles;

pub use prefill::{Attention, Prefill};
pub use scores::{Function, Mask, Place, Scores, Unchanged};
