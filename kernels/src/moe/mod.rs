//! Mixture of experts: routing, grouped products, combination.

mod activation;
mod alignment;
mod combine;
mod gather;
mod layer;
mod product;
mod router;

pub use activation::{ActivationGradients, ActivationInputs, activation_gradients};
pub use alignment::Alignment;
pub use combine::combine;
pub use gather::gather;
pub use layer::{Experts, Gradients, Saved, Workspace};
pub use product::{Rows, gated_product, product};
pub use router::{Router, Scores};
