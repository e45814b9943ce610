//! Attention.
//!
//! | type | computes | from |
//! |---|---|---|
//! | [`Prefill`], [`Attention`] | results and logarithms of sums | contiguous or packed sequences |
//! | [`PrefillF8`] | the same | e4m3 with a factor for each head |
//! | [`Gradients`] | gradients of queries, keys, values and sinks | results and logarithms of a [`Prefill`] |
//! | [`Decode`] | results of one query of each sequence | a paged cache |
//! | [`PackedDecode`] | the same | a paged cache of 4-bit codes, which [`store_packed`] writes |
//! | [`Latent`] | results of one query of each sequence | latent vectors: contiguous, paged, or chosen ones |
//! | [`Sparse`] | results over chosen blocks of keys | contiguous sequences and lists of blocks |
//!
//! Products are computed by tensor cores with sums in f32; exponentials are powers of two by the
//! approximate instruction.

mod backward;
mod decode;
mod f8;
mod forward;
mod gradients;
mod latent;
mod online;
mod packed_decode;
mod prefill;
mod scores;
mod shapes;
mod sparse;
mod store_packed;
mod tiles;

pub use decode::{Combine, Decode, Pages, Scratch};
pub use f8::PrefillF8;
pub use gradients::Gradients;
pub use latent::{Latent, Latents, Order};
pub use packed_decode::{PackedDecode, PackedPages};
pub use prefill::{Attention, Prefill};
pub use scores::{Function, Mask, Place, Scores, Unchanged};
pub use sparse::{Chosen, Sparse};
pub use store_packed::store_packed;
