//! Losses of language models.

mod cross_entropy;

pub use cross_entropy::CrossEntropy;
