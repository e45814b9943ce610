//! Kernels in the forms of the samples of cuTile Python, with their tiles, and other forms of the
//! same computations.

mod fft;
mod products;
mod rows;
mod selection;
mod vectors;

use super::family::{AnyFamily, Size};

/// The families of the samples.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    [
        vectors::families(size),
        rows::families(size),
        products::families(size),
        fft::families(size),
        selection::families(size),
    ]
    .into_iter()
    .flatten()
    .collect()
}
