//! Operands that `cat` concatenates: the offset of each loaded part in the stage of the operand.
//!
//! Each part has boxes of its own, which TMA writes to their offsets in the panels of the whole
//! operand. The `cat` then needs no instructions. Parts begin at whole rows of panels, and at whole
//! swizzle atoms across them. If the producer cannot issue one part, threads load all of them.

use super::operand_axes::{AxisPart, OperandAxes};
use crate::backend::ptx::hardware::SWIZZLE_ATOM_ROWS;
use crate::backend::ptx::mma::Panels;
use crate::backend::ptx::schedule::ir::pipelines::TmaBox;
use crate::ir::{Module, OpId};
use crate::util::collect::CollectVec as _;

/// Position of a loaded tile in a value that later ops concatenate or reshape.
#[derive(Clone)]
pub struct Position {
    /// First element, by axis of the value.
    starts: Vec<i64>,
    /// The last `cat`, if there is one.
    cat: Option<OpId>,
}

/// Part of an operand that `cat` concatenates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandPart {
    /// The last `cat`.
    pub cat: OpId,
    /// First byte in the tile of the operand.
    pub smem_offset: u32,
    /// Rows of the panels of the operand.
    pub panel_rows: i64,
    /// Bytes of the operand.
    pub bytes: u32,
}

impl Position {
    /// Returns the position of a tile in itself.
    pub fn whole(rank: usize) -> Position {
        Position { starts: vec![0; rank], cat: None }
    }

    /// Returns the position after a permutation.
    pub fn permuted(&self, permutation: &[usize]) -> Position {
        Position { starts: permutation.iter().map(|&axis| self.starts[axis]).collect_vec(), cat: self.cat }
    }

    /// Returns the position after a reshape. `None` after a `cat`.
    pub fn reshaped(&self, rank: usize) -> Option<Position> {
        self.cat.is_none().then(|| Position::whole(rank))
    }

    /// Returns the position after a `cat` whose operand at `number` is the value.
    pub fn joined(&self, module: &Module, id: OpId, number: usize) -> Position {
        let op = module.op(id);
        let axis = op.dim() as usize;
        let mut starts = self.starts.clone();
        starts[axis] += if number == 0 { 0 } else { module.shape(op.operands[0])[axis] };
        Position { starts, cat: Some(id) }
    }

    /// Returns the panels of the part alone, and its offset in the operand. The value has `axes`,
    /// with [`contiguous`, `rows`] along and across the rows of its `panels`. `None` if the part
    /// has no whole panels or swizzle atoms.
    pub fn in_panels(
        &self,
        axes: &OperandAxes,
        [contiguous, rows]: [usize; 2],
        (panels, bytes): (Panels, u32),
        element_bytes: i64,
    ) -> Option<(Panels, Option<OperandPart>)> {
        let Some(cat) = self.cat else { return Some((panels, None)) };
        let extent = |axis: usize| axes.parts(axis).iter().map(|part| part.extent).product::<i64>();
        let row = panels.swizzle_bytes / element_bytes;
        let atom = i64::from(SWIZZLE_ATOM_ROWS);
        let (along, across) = (self.starts[contiguous], self.starts[rows]);
        let is_whole = [along, extent(contiguous)].iter().all(|start| start % row == 0)
            && [across, extent(rows)].iter().all(|start| start % atom == 0);
        let own = Panels { rows: extent(rows), count: extent(contiguous) / row, ..panels };
        let smem_offset = (along / row * panels.rows + across) * panels.swizzle_bytes;
        let part = OperandPart { cat, smem_offset: smem_offset as u32, panel_rows: panels.rows, bytes };
        is_whole.then_some((own, Some(part)))
    }
}

impl OperandPart {
    /// Moves boxes in the panels of the part alone to the panels of the operand.
    pub fn move_boxes(&self, boxes: &mut [TmaBox], own: Panels) {
        for part in boxes {
            let row = i64::from(part.smem_offset) / own.swizzle_bytes;
            let (panel, row) = (row / own.rows, row % own.rows);
            part.smem_offset = ((panel * self.panel_rows + row) * own.swizzle_bytes) as u32;
        }
    }
}

/// Returns the bytes of a tile with these axes.
pub fn tile_bytes(axes: &OperandAxes, element_bytes: i64) -> u32 {
    let parts = (0..axes.rank()).flat_map(|axis| axes.parts(axis));
    (parts.map(|&AxisPart { extent, .. }| extent).product::<i64>() * element_bytes) as u32
}
