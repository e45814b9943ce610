//! Data partitioning: consumer groups that each compute a share of the rows.
//!
//! All of them go through the same stages, so who loads waits until each warp of each band has given one back. A load of rows that
//! bands divide brings those of all of them: their tiles stand one after another in the stage. What else they have in shared memory
//! is boxes of stores, of each warp its own; bands never meet, and neither do the warps of one, for which there is no barrier.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{TmaBox, TmaLoad};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::ir::{OpId, Opcode, Value};

impl KernelInfo<'_> {
    /// The dimension of an access along which the tiles of bands lie side by side, if they do, and the place of the first one.
    pub fn band_place(&self, access: OpId) -> Option<(usize, Option<Value>)> {
        let made_by = |value: Value, code: Opcode| {
            self.module.defining_op(value).map(|id| self.module.op(id)).filter(|op| op.code == code)
        };
        let is_band = |value: Value| made_by(value, Opcode::DataPartitionId).is_some();
        let index = self.module.op(access).operand_group("index");
        (self.bands > 1).then(|| {
            index.iter().enumerate().find_map(|(axis, &index)| {
                match made_by(index, Opcode::AddI).map(|sum| &sum.operands[..]) {
                    Some(&[first, band]) | Some(&[band, first]) if is_band(band) => Some((axis, Some(first))),
                    _ => is_band(index).then_some((axis, None)),
                }
            })
        })?
    }

    /// The dimension of an access along which the tiles of bands lie side by side, if they do.
    pub fn band_axis(&self, access: OpId) -> Option<usize> {
        self.band_place(access).map(|(axis, _)| axis)
    }

    /// A load of one band as that of all: so many times the boxes, if bands divide its rows, which may lie along the rows of panels or across.
    pub fn of_all_bands(&self, one: TmaLoad) -> TmaLoad {
        let Some(axis) = self.band_axis(one.load) else { return one };
        let tile = self.module.shape(self.module.op(one.load).results[0]);
        let (height, bytes, bands) = (tile[axis], one.bytes, self.bands);
        let of_band = |band: u32| {
            one.boxes.iter().map(move |part| {
                let mut place = part.coord.clone();
                place[axis] += i64::from(band) * height;
                TmaBox { coord: place, smem_offset: part.smem_offset + band * bytes }
            })
        };
        let boxes = (0..bands).flat_map(of_band).collect();
        TmaLoad { boxes, bytes: bands * bytes, partitions: bands, ..one }
    }
}

impl SubStep {
    /// Do the threads of an agent do this together, or in memory that they share?
    pub fn is_shared(&self) -> bool {
        matches!(
            self,
            SubStep::SmemWrite(_)
                | SubStep::SmemRead(_)
                | SubStep::Barrier { .. }
                | SubStep::SmemOverflow { .. }
                | SubStep::Split { .. }
        )
    }
}
