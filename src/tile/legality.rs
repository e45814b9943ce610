//! Legality of a recorded op: its region, its extents, and the size of its tiles.

use super::trace::{Place, Trace};
use crate::ir::op_table::Effect;
use crate::ir::{MAX_EXTENT_PARTS, MAX_TILE_ELEMENTS};

impl Trace {
    /// Returns true if the innermost region allows an op with this effect and result rank; reports
    /// otherwise.
    pub fn admits(&mut self, place: Place, effect: Effect, rank: usize) -> bool {
        let Some(region) = self.regions.get(&self.builder.block()).copied() else { return true };
        if !region.scalar_only || (effect == Effect::Pure && rank == 0) {
            return true;
        }
        let problem = match effect {
            Effect::Pure => "works on tiles",
            Effect::Region => "has control flow or a reduction of its own",
            Effect::Other => "is seen outside of the kernel",
            _ => "reads or writes memory",
        };
        self.report(
            place,
            format!("{} takes only elementwise operations on scalars, and this operation {problem}", region.what),
            &["compute it before, outside of the closure"],
        );
        false
    }

    /// Returns true if the extent of an axis is a power of two; reports otherwise. Required by
    /// operations on the bits of a position.
    pub fn power_along(&mut self, place: Place, name: &str, shape: &[i64], axis: usize) -> bool {
        let power = shape[axis].count_ones() == 1;
        if !power {
            let message = format!("`{name}` along axis {axis} of a tile of shape {shape:?}");
            let way_out = format!(
                "the extent there has to be a power of two: make it {} by a larger tile or `ct::cat`",
                (shape[axis] as u64).next_power_of_two()
            );
            self.report(place, message, &[&way_out]);
        }
        power
    }

    /// Returns true for a legal tile shape; reports otherwise.
    pub fn legal_shape(&mut self, place: Place, name: &str, shape: &[i64]) -> bool {
        if let Some(axis) = shape.iter().position(|&e| e <= 0 || e.count_ones() > MAX_EXTENT_PARTS) {
            let extent = shape[axis];
            let way_out = match extent {
                ..=0 => "every extent of a tile is at least 1".to_string(),
                _ => format!(
                    "extents of tiles are sums of at most three powers of two: take {} and let loads pad (stores drop what \
                     lies outside), or {} and more tiles",
                    next_extent(extent),
                    last_extent(extent)
                ),
            };
            self.report(
                place,
                format!("`{name}`: extent {extent} of axis {axis} in tile shape {shape:?}"),
                &[&way_out],
            );
            return false;
        }
        let count = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(e as u64)).unwrap_or(u64::MAX);
        if count > MAX_TILE_ELEMENTS {
            self.report(
                place,
                format!("`{name}`: tile shape {shape:?} has more than {MAX_TILE_ELEMENTS} (2^24) elements"),
                &["take a smaller tile and more tile blocks, or loop over tiles"],
            );
            return false;
        }
        true
    }
}

/// Returns the smallest legal extent that is larger.
fn next_extent(extent: i64) -> i64 {
    // After the first bits, any bit that is set rounds up.
    let mut rest = extent;
    for _ in 1..MAX_EXTENT_PARTS {
        rest &= !(1 << rest.ilog2());
    }
    let last = 1 << rest.ilog2();
    (extent & !(2 * last - 1)) + 2 * last
}

/// Returns the largest legal extent that is smaller.
fn last_extent(extent: i64) -> i64 {
    let mut kept = 0;
    for _ in 0..MAX_EXTENT_PARTS {
        kept |= 1 << (extent & !kept).ilog2();
    }
    kept
}
