//! Losses of language models.

mod cross_entropy;
mod grpo;

pub use cross_entropy::CrossEntropy;
pub use grpo::{Grpo, Policy};
