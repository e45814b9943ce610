//! Tiles of any extent become tiles whose extents are powers of two.
//!
//! An extent is cut into the powers of two that it is the sum of, the largest one first (`cut`); a value becomes one value
//! for each box of the grid that the cuts of its extents make, and each op as many as its boxes need. Loops and branches
//! carry the boxes one by one (`control`); boxes of views are views of their own (`access`); reductions and scans go from box
//! to box in order (`fold`); what moves elements takes boxes apart and puts them together (`shape`, `piece`), or looks into each of them (`lookup`). Back ends that
//! know powers of two alone run this before all else; the interpreter takes tiles as they are.

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
use state::Cutter;

/// A verified module with its tiles cut where their extents are not powers of two, if it has such tiles. `in_strips`:
/// reductions whose order does not matter combine the boxes of a tile, and reduce one that is left; that pays where threads
/// have neighbours of several boxes.
///
/// # Errors
/// Ops that cannot be done box by box, at the user's place.
pub fn run(module: &Module, in_strips: bool) -> Result<Option<Module>, Vec<Diagnostic>> {
    if !module.types().any(|(_, ty)| is_odd(ty)) {
        return Ok(None);
    }
    let mut module = module.clone();
    let bodies: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
    let mut cutter = Cutter::new(&mut module, in_strips);
    bodies.into_iter().for_each(|body| dispatch::block(&mut cutter, body));
    cutter.finish()?;
    optimize(&mut module);
    Ok(Some(module))
}

/// Is it a tile, or a view of tiles, with an extent that is no power of two?
fn is_odd(ty: &Type) -> bool {
    match ty {
        Type::Tile { shape, .. } => extents::is_cut(shape),
        Type::PartitionView { tile, .. } | Type::StridedView { tile, .. } | Type::GatherScatterView { tile, .. } => {
            tile.iter().any(|extent| extent.count_ones() != 1)
        }
        Type::TensorView { .. } | Type::Token => false,
    }
}
