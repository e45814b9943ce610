//! Norms, activations, softmax and rotary embedding: kernels over rows.

mod layer_norm;
mod rms_norm;
mod rotary;
mod rows;
mod softmax;

pub use layer_norm::layer_norm;
pub use rms_norm::rms_norm;
pub use rotary::{Pairs, rotary};
pub use softmax::softmax;
