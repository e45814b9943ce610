//! Attention.

mod decode;
mod latent;
mod online;
mod prefill;
mod scores;
mod tiles;

pub use decode::{Combine, Decode, Pages, Scratch};
pub use latent::{Latent, Latents};
pub use prefill::{Attention, Prefill};
pub use scores::{Function, Mask, Place, Scores, Unchanged};
