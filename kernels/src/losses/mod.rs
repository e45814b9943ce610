//! Losses of language models.

mod cross_entropy;
<<<<<<< HEAD
mod grpo;

pub use cross_entropy::CrossEntropy;
pub use grpo::{Grpo, Policy};
=======
mod divergence;
mod linear;
mod preference;

pub use cross_entropy::CrossEntropy;
pub use divergence::divergence;
pub use preference::{Dpo, Grpo};
>>>>>>> main
