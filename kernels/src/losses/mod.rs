//! Losses of language models.

mod cross_entropy;
mod divergence;
mod linear;
mod preference;

pub use cross_entropy::CrossEntropy;
pub use divergence::divergence;
pub use preference::{Dpo, Grpo};
