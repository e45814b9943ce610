//! Mixture of experts: routing, grouped products, combination.

mod alignment;
mod combine;
mod product;
mod router;

pub use alignment::Alignment;
pub use combine::combine;
pub use product::{Rows, gated_product, product};
pub use router::{Router, Scores};
