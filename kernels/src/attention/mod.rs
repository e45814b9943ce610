//! Attention.

mod backward;
mod decode;
mod f8;
mod latent;
mod online;
mod prefill;
mod scores;
mod tiles;

pub use backward::Gradients;
pub use decode::{Combine, Decode, Pages, Scratch};
pub use f8::PrefillF8;
pub use latent::{Latent, Latents};
pub use prefill::{Attention, Prefill};
pub use scores::{Function, Mask, Place, Scores, Unchanged};
