//! Splits tiles with arbitrary extents into tiles whose extents are powers of two.
//!
//! * An extent is split into its powers of two, the largest one first (`extents`).
//! * A value becomes one value for each box of the grid that the split extents form. An op becomes
//!   one op for each box.
//! * Loops and branches carry the boxes as separate values (`control`).
//! * A box of a view is a separate view (`access`).
//! * Reductions and scans process the boxes in order (`reduce_scan`).
//! * Ops that move elements slice and concatenate boxes (`shape`, `slice_concat`), or look up each
//!   box (`gather_histogram`).
//!
//! Back ends that support only powers of two run this pass first. The interpreter accepts tiles of
//! any extent.

mod access;
mod control;
mod dispatch;
mod extents;
mod gather_histogram;
mod reduce_scan;
mod shape;
mod slice_concat;
mod state;

use super::optimize;
use crate::error::Diagnostic;
use crate::ir::{BlockId, Module, Type};
use crate::util::collect::CollectVec as _;
use state::Splitter;

/// Returns the verified module with split tiles, or `None` if all extents are powers of two.
///
/// `in_strips`: a reduction in any order first combines the boxes of a tile and then reduces the
/// one remaining box. This is faster if the elements of several boxes are in the same thread.
///
/// # Errors
/// Ops that cannot be executed box by box, with their locations.
pub fn run(module: &Module, in_strips: bool) -> Result<Option<Module>, Vec<Diagnostic>> {
    if !module.types().any(|(_, ty)| has_split_extents(ty)) {
        return Ok(None);
    }
    let mut module = module.clone();
    let bodies: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    let mut splitter = Splitter::new(&mut module, in_strips);
    bodies.into_iter().for_each(|body| dispatch::block(&mut splitter, body));
    splitter.finish()?;
    optimize(&mut module);
    Ok(Some(module))
}

/// Returns true for a tile, or a view of tiles, with an extent that is no power of two.
fn has_split_extents(ty: &Type) -> bool {
    match ty {
        Type::Tile { shape, .. } => extents::is_split(shape),
        Type::PartitionView { tile, .. } | Type::StridedView { tile, .. } | Type::GatherScatterView { tile, .. } => {
            tile.iter().any(|extent| extent.count_ones() != 1)
        }
        Type::TensorView { .. } | Type::Token => false,
    }
}
