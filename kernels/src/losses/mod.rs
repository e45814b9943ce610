//! Losses of language models.

mod cross_entropy;
mod divergence;
mod grpo;
mod linear;
mod preference;

pub use cross_entropy::CrossEntropy;
pub use divergence::divergence;
pub use grpo::{FusedGrpo, Policy};
pub use preference::{Dpo, Grpo};
