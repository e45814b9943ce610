//! Operand axes: the view dimensions of each axis of an MMA operand, and the boxes of its tile.
//!
//! Between a load and its MMA, reshapes and permutations merge, split and reorder the dimensions of
//! the view. Each axis of the operand is then a list of *parts*, from the outermost to the
//! innermost. A box contains consecutive rows of a panel. TMA writes the dimensions of a box in
//! their order in the tile. A box therefore contains the innermost parts of the rows that are in
//! this order. Further boxes cover the other parts.

use crate::backend::ptx::hardware::{MAX_TMA_BOX, SWIZZLE_ATOM_ROWS};
use crate::backend::ptx::mma::Panels;
use crate::backend::ptx::schedule::ir::pipelines::TmaBox;
use crate::util::collect::CollectVec as _;

/// Positions of one view dimension along an axis of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPart {
    /// The tile dimension of the view.
    pub dim: usize,
    /// The number of positions.
    pub extent: i64,
    /// Elements along the dimension from one position to the next one.
    pub step: i64,
}

/// The parts of each axis of a tile. An axis of extent 1 has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandAxes(Vec<Vec<AxisPart>>);

/// The extents of a box by tile dimension, and the boxes of a tile.
pub struct TileBoxes {
    pub extents: Vec<i64>,
    pub boxes: Vec<TmaBox>,
}

impl OperandAxes {
    /// Returns the axes of a loaded tile.
    pub fn of_tile(shape: &[i64]) -> OperandAxes {
        let part = |(dim, &extent): (usize, &i64)| match extent {
            1 => Vec::new(),
            _ => vec![AxisPart { dim, extent, step: 1 }],
        };
        OperandAxes(shape.iter().enumerate().map(part).collect_vec())
    }

    /// Returns the axes after a permutation.
    pub fn permuted(&self, permutation: &[usize]) -> OperandAxes {
        OperandAxes(permutation.iter().map(|&axis| self.0[axis].clone()).collect_vec())
    }

    /// Returns the axes after a reshape. `None` if an extent divides no part.
    pub fn reshaped(&self, to: &[i64]) -> Option<OperandAxes> {
        let mut rest: Vec<AxisPart> = self.0.iter().flatten().rev().copied().collect_vec();
        let mut axes = Vec::new();
        for &extent in to {
            let (mut axis, mut missing) = (Vec::new(), extent);
            while missing > 1 {
                let next = rest.pop()?;
                let outer = next.extent.min(missing);
                if next.extent % outer != 0 || missing % outer != 0 {
                    return None;
                }
                let inner = next.extent / outer;
                push(&mut axis, AxisPart { extent: outer, step: next.step * inner, ..next });
                if inner > 1 {
                    rest.push(AxisPart { extent: inner, ..next });
                }
                missing /= outer;
            }
            axes.push(axis);
        }
        rest.is_empty().then_some(OperandAxes(axes))
    }

    /// Returns the parts of an axis.
    pub fn parts(&self, axis: usize) -> &[AxisPart] {
        &self.0[axis]
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
}

/// Adds a part to an axis. Consecutive parts of one dimension become one part.
fn push(axis: &mut Vec<AxisPart>, part: AxisPart) {
    match axis.last_mut() {
        Some(last) if last.dim == part.dim && last.step == part.extent * part.step => {
            *last = AxisPart { extent: last.extent * part.extent, ..part };
        }
        _ => axis.push(part),
    }
}

/// Returns the boxes of a tile whose operand has these parts along and across the rows of panels.
/// `fastest`: the contiguous dimension of the `rank` dimensions of the view. `row`: elements of a
/// row of a panel. `halved`: a single box is divided in two, if the halves are whole swizzle atoms.
pub fn tile_boxes(
    [along, across]: [&[AxisPart]; 2],
    (rank, fastest): (usize, usize),
    (panels, row): (Panels, i64),
    halved: bool,
) -> Option<TileBoxes> {
    let innermost = along.last()?;
    if (innermost.dim, innermost.step) != (fastest, 1) || innermost.extent % row != 0 {
        return None;
    }
    // The rows of a single part may continue with those of adjacent tiles.
    let across = match across {
        &[part] => vec![AxisPart { extent: panels.rows, ..part }],
        _ => across.to_vec(),
    };
    let mut extents = vec![1; rank];
    extents[fastest] = row;
    let (mut rows, mut outermost) = (1, None);
    for part in across.iter().rev() {
        let in_order = outermost.is_none_or(|(dim, _)| part.dim < dim);
        if part.step != 1 || part.dim == fastest || !in_order {
            break;
        }
        let num_boxes = min_num_boxes(part.extent, rows, 1)?;
        outermost = Some((part.dim, rows));
        extents[part.dim] = part.extent / num_boxes;
        rows *= extents[part.dim];
        if num_boxes > 1 {
            break;
        }
    }
    let (dim, inner) = outermost?;
    if halved && panels.count == 1 && rows == panels.rows {
        let num_boxes = min_num_boxes(extents[dim], inner, 2).filter(|num_boxes| num_boxes % 2 == 0);
        extents[dim] /= num_boxes.unwrap_or(1);
        rows = inner * extents[dim];
    }
    if rows != panels.rows && rows % i64::from(SWIZZLE_ATOM_ROWS) != 0 {
        return None;
    }
    let mut boxes = Vec::new();
    for panel in 0..panels.count {
        for first in (0..panels.rows).step_by(rows as usize) {
            let mut coord = vec![0; rank];
            add_position(along, panel * row, &mut coord);
            add_position(&across, first, &mut coord);
            let smem_offset = ((panel * panels.rows + first) * panels.swizzle_bytes) as u32;
            boxes.push(TmaBox { coord, smem_offset });
        }
    }
    Some(TileBoxes { extents, boxes })
}

/// Returns the smallest number of pieces, at least `least`, of a dimension with `inner` rows per
/// position. Each piece fits into a box, and several pieces have whole swizzle atoms.
fn min_num_boxes(extent: i64, inner: i64, least: i64) -> Option<i64> {
    let fits = |&num_boxes: &i64| {
        let high = extent / num_boxes;
        extent % num_boxes == 0
            && high <= i64::from(MAX_TMA_BOX)
            && (num_boxes == 1 || (high * inner) % i64::from(SWIZZLE_ATOM_ROWS) == 0)
    };
    (least..=extent).find(fits)
}

/// Adds the coordinates of a position along an axis.
fn add_position(axis: &[AxisPart], mut position: i64, coord: &mut [i64]) {
    for part in axis.iter().rev() {
        coord[part.dim] += position % part.extent * part.step;
        position /= part.extent;
    }
}
