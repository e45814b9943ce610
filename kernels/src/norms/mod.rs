//! Norms, activations, softmax and rotary embedding: kernels over rows.

mod gated;
mod group_norm;
mod hyper;
mod layer_norm;
mod norm;
mod norm_backward;
mod rms_norm;
mod rotary;
pub(crate) mod rows;
mod sinkhorn;
pub(crate) mod softmax;
mod sparsemax;
pub(crate) mod sums;

pub use gated::{Gate, gated, gated_backward};
pub use group_norm::{group_norm, group_norm_backward};
pub use hyper::{HyperConnections, HyperScratch};
pub use layer_norm::{add_layer_norm, layer_norm, layer_norm_backward};
pub use rms_norm::{add_rms_norm, rms_norm, rms_norm_backward};
pub use rotary::{Pairs, rotary, rotary_backward, rotary_pair};
pub use sinkhorn::sinkhorn;
pub use softmax::{log_softmax, log_softmax_backward, softmax, softmax_backward};
pub use sparsemax::{sparsemax, sparsemax_backward};
