//! Kernels with more work than one product: shared products, products whose results never leave
//! the chip, and recurrences of products.

mod delta_rule;
mod linear_loss;
mod shared_products;

use super::family::{AnyFamily, Size};

/// The families of these kernels.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    [shared_products::families(size), linear_loss::families(size), delta_rule::families(size)]
        .into_iter()
        .flatten()
        .collect()
}
