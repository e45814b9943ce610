//! Layout conversions: plans to transfer a tile from one distributed layout to another (Triton
//! `convert_layout`).
//!
//! [`Conversion::plan`] selects the cheapest kind: renaming of registers, shuffles inside of warps,
//! or shared memory with a swizzle without bank conflicts on both sides. Plans are data, from which
//! the back end generates instructions.

mod affine;
mod shared;
mod shuffle;

use crate::util::collect::CollectVec as _;
pub use affine::{AffinePlan, AffineSide};
pub use shared::SharedPlan;
pub use shuffle::{Round, ShufflePlan};

use super::Layout;
use super::f2_matrix;
use super::f2_matrix::Span;

/// Maximum number of 32-bit shuffles for which a conversion inside of warps is faster than shared
/// memory with its barriers.
const MAX_SHUFFLES: usize = 8;

/// Plan of a layout conversion.
///
/// ```
/// use cutlet::layout::{Conversion, Layout};
///
/// // Transposing a 64 x 64 tile of f32 between coalesced layouts: through shared memory, one barrier.
/// let rows = Layout::blocked(&[64, 64], &[1, 0], 4, 4);
/// let columns = Layout::blocked(&[64, 64], &[0, 1], 4, 4);
/// let Some(Conversion::Shared(plan)) = Conversion::plan(&rows, &columns, 32, 48 << 10) else { panic!() };
/// assert_eq!((plan.bytes, plan.rounds), (64 * 64 * 4, 1));
/// assert_eq!(plan.bank_conflicts(), (0, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conversion {
    /// None: register `r` remains register `r`.
    Identity,
    /// Renaming: register `r` of the result is this register of the source, in each thread.
    Registers(Vec<usize>),
    /// Transfer between the lanes of each warp.
    Shuffle(ShufflePlan),
    /// Transfer between threads through shared memory.
    Shared(SharedPlan),
}

impl Conversion {
    /// Plans the cheapest conversion for elements of `element_bits` (8, 16, 32 or 64). It uses at
    /// most `shared_budget` bytes of shared memory if the layouts allow division of the tile into
    /// rounds.
    ///
    /// `None` if the shapes or the numbers of warps differ, or the source lacks an element of the
    /// destination.
    ///
    /// ```
    /// use cutlet::layout::{Conversion, Layout};
    ///
    /// let plan = |to: &Layout| Conversion::plan(&Layout::blocked(&[64], &[0], 2, 1), to, 32, 0);
    /// assert_eq!(plan(&Layout::blocked(&[64], &[0], 2, 1)), Some(Conversion::Identity));
    /// assert!(matches!(plan(&Layout::blocked(&[64], &[0], 1, 1)), Some(Conversion::Shuffle(_))));
    /// assert_eq!(plan(&Layout::blocked(&[32], &[0], 1, 1)), None); // another shape
    /// ```
    pub fn plan(source: &Layout, destination: &Layout, element_bits: u32, shared_budget: usize) -> Option<Conversion> {
        if source.shape() != destination.shape() || source.num_warps() != destination.num_warps() {
            return None;
        }
        let span = Span::new(&source.bases());
        if destination.bases().iter().any(|&basis| !span.contains(basis)) {
            return None;
        }
        if let Some(registers) = registers(source, destination) {
            let identity =
                registers.len() == source.num_registers() && registers.iter().enumerate().all(|(i, r)| i == *r);
            return Some(if identity { Conversion::Identity } else { Conversion::Registers(registers) });
        }
        if let Some(plan) = ShufflePlan::new(source, destination, element_bits)
            && plan.num_shuffles(element_bits) <= MAX_SHUFFLES
        {
            return Some(Conversion::Shuffle(plan));
        }
        Some(Conversion::Shared(SharedPlan::new(source, destination, element_bits, shared_budget)))
    }
}

/// Returns the source register of each destination register, if each thread already has its
/// elements in registers that do not depend on the thread.
fn registers(source: &Layout, destination: &Layout) -> Option<Vec<usize>> {
    if source.lane_bases() != destination.lane_bases() || source.warp_bases() != destination.warp_bases() {
        return None;
    }
    let span = Span::new(source.register_bases());
    let bases: Option<Vec<u32>> =
        destination.register_bases().iter().map(|&basis| span.solve(basis).map(|set| set as u32)).collect();
    let bases = bases?;
    Some((0..destination.num_registers()).map(|r| f2_matrix::apply(&bases, r as u32) as usize).collect_vec())
}

#[cfg(test)]
mod tests;
