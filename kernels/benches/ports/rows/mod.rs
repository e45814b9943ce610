//! Rows of the comparison with kernels in cuTile Python. Names and arrays are those of `cutile/`.

mod activation;
mod attention;
mod decode;
mod fft;
mod hyper;
mod latent;
mod list;
mod losses;
mod moe;
mod norms;
mod products;
mod recurrent;
mod scaled;
mod scores;

use crate::case::Case;

/// Functions that return the rows of a module: all of them, and those at sizes for the CPU.
type Rows = fn() -> Vec<Case>;
const ROWS: [[Rows; 2]; 14] = [
    [activation::cases, activation::small],
    [attention::cases, attention::small],
    [decode::cases, decode::small],
    [fft::cases, fft::small],
    [hyper::cases, hyper::small],
    [latent::cases, latent::small],
    [list::cases, list::small],
    [losses::cases, losses::small],
    [moe::cases, moe::small],
    [norms::cases, norms::small],
    [products::cases, products::small],
    [recurrent::cases, recurrent::small],
    [scaled::cases, scaled::small],
    [scores::cases, scores::small],
];

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    ROWS.iter().flat_map(|[_, small]| small()).collect()
}

/// All rows.
pub fn cases() -> Vec<Case> {
    ROWS.iter().flat_map(|[all, _]| all()).collect()
}
