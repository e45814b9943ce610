//! Single-pass scan of few, long lines, by decoupled look-back (Merrill and Garland, "Single-pass
//! Parallel Prefix Scan with Decoupled Look-back", 2016).
//!
//! Each element is read once and written once. A tile block has these steps:
//! 1. draw a ticket for the next tile,
//! 2. publish the aggregate of the tile,
//! 3. wait for the exclusive prefix of the tile, and scan its elements at the same time.

use super::combine::Combine;
use super::fusion::{Code, FusedExpr};
use super::generated::launched;
use super::lookback_board::{Board, Levels, blank};
use super::reduce::{CutLines, Lines};
use super::store::place;
use super::tiling::counts;
use crate::element::Element;
use crate::error::Result;
use crate::kernel::Constant;
use crate::ops::ScanOptions;
use crate::runtime::{Device, DeviceArray};
use crate::tile::{ArrayMut, Scalar};

/// Scans each tile of the lines as one part.
#[track_caller]
pub fn scan_long<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    device: Device,
    lines: &Lines<R>,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let axis = lines.axis;
    let mut out = device.unspecified(lines.shape)?;
    let (given, code) = expr.decompose(None)?;
    let kernel = move |arrays: E::Arrays,
                       out: ArrayMut<E::Elem, R>,
                       words: ArrayMut<u64, R>,
                       (groups, levels): (Scalar<i32>, Levels<Scalar<i32>>),
                       cut: CutLines<R>| {
        let identity = E::Elem::from_bits(cut.identity);
        let board = Board { words, levels, cut };
        // Consecutive tickets are tiles of different lines, so that concurrent tile blocks wait for
        // few tiles of their line.
        let counts = std::array::from_fn(|d| (cut.several[d] && d != cut.axis).then(|| out.num_tiles(d, cut.tile)));
        let ticket = board.ticket();
        let mut at = place(ticket % groups, counts);
        at[cut.axis] = ticket / groups;
        let tile = code.tile(arrays, at, cut.tile);
        let own = combine.along(tile, cut.axis, identity);
        let before = board.before(at, own, combine);
        let sums = combine.scan(tile, cut.axis, identity, ScanOptions::new());
        out.store(at, combine.join(before, sums));
    };
    let other = counts(lines.shape, lines.tile);
    let all = std::array::from_fn(|d| other[d] * lines.tile[d]);
    let groups = (0..R).filter(|&d| d != axis).map(|d| other[d]).product::<usize>();
    let (words, levels) = blank::<E::Elem, R>(lines.parts, axis, all);
    // The last tile of a line may exceed the axis: its aggregate is not read.
    let Constant(cut) = lines.constants(identity);
    let constants = Constant(CutLines { ragged: false, ..cut });
    launched(kernel, lines.blocks(), (given, &mut out, words, (groups as i32, levels), constants))?;
    Ok(out)
}
