//! Losses of language models.

mod cross_entropy;
mod linear;

pub use cross_entropy::CrossEntropy;
