//! Verifies the layout of pipeline stages against the MMA descriptors.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::VerifyResult;
use super::operand_rows::{OperandPanels, box_row_coord};
use crate::backend::ptx::hardware::{SWIZZLE_ATOM_ROWS, TMA_SMEM_ALIGN};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::mma::Panels;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::tensor_maps::box_order;
use crate::backend::ptx::schedule::ir::pipelines::{Channel, TmaBox, TmaLoad, WarpSpecialization};
use crate::ir::OpId;
use crate::util::sort;

/// A range of bytes: the first byte, and the byte after the last one.
type Bytes = (i64, i64);

impl KernelInfo<'_> {
    /// Verifies the boxes of all channels: they fill the bytes of a stage where MMAs read them, do
    /// not overlap, and have the number of bytes that the full barrier expects.
    ///
    /// # Errors
    /// The first fault, with the number of its channel.
    pub fn verify_stage_layout(&self, warp_spec: &WarpSpecialization) -> VerifyResult {
        let required = self.required_panels();
        for (index, channel) in warp_spec.channels.iter().enumerate() {
            let fault = |what: String| Err(format!("channel {index}: {what}"));
            if warp_spec
                .pipelines
                .get(channel.pipeline)
                .is_none_or(|pipeline| pipeline.num_stages == 0 || pipeline.stage_bytes < channel.stage_bytes)
            {
                return fault(format!("pipeline {} has no stage of {} bytes", channel.pipeline, channel.stage_bytes));
            }
            let filled = match self.written_ranges(channel, &required) {
                Ok(filled) => filled,
                Err(problem) => return fault(problem),
            };
            for load in &channel.loads {
                let id = load.load.index();
                if !self.is_bounded_as_its_slice(load) {
                    return fault(format!("the map of op {id} has other bounds than its slice"));
                }
                if let Some(channel) = warp_spec.aux_channel(load.load) {
                    match channel as usize == index && self.is_valid_aux_box(load) {
                        true => continue,
                        false => return fault(format!("op {id} is not where the threads read it")),
                    }
                }
                let Some(operand) = required.get(&load.load) else { return fault(format!("no MMA reads op {id}")) };
                let comes = !load.boxes.is_empty() || channel.loads.iter().any(|other| self.is_fused_with(load, other));
                let whole = channel.loads.iter().find(|other| other.load == operand.first);
                if !comes || !whole.is_some_and(|whole| is_placed_as(whole, operand.panels, &filled)) {
                    return fault(format!("op {id} is not where the MMA reads it"));
                }
                if warp_spec.operand_channel(load.load) != Some(index as u32) {
                    return fault(format!("op {id} is of another channel"));
                }
            }
        }
        Ok(())
    }

    /// Returns true if the map of a load bounds rows at each box exactly where the load is from a
    /// run-time slice.
    fn is_bounded_as_its_slice(&self, load: &TmaLoad) -> bool {
        let shape = ViewShape::of(self.module, self.module.op(load.load).group(0)[0]);
        let Some(shape) = shape else { return false };
        let Some(fastest) = contiguous_axis(self.module, &shape) else { return false };
        let mut dims = box_order(shape.tile.len(), fastest).map(|axis| shape.dim_map[axis]);
        let sliced = self.ragged_slice(shape.tensor).map(|slice| slice.dim);
        load.map.ragged == sliced.and_then(|sliced| dims.position(|dim| dim == sliced))
    }

    /// Returns true if the tile of an auxiliary load is one box at an aligned offset.
    fn is_valid_aux_box(&self, load: &TmaLoad) -> bool {
        let [part] = &load.boxes[..] else { return false };
        let whole = self.aux_box(load.load).is_some_and(|(map, bytes)| (&map, bytes) == (&load.map, load.bytes));
        whole
            && part.smem_offset == 0
            && part.coord.iter().all(|&start| start == 0)
            && load.smem_offset.is_multiple_of(TMA_SMEM_ALIGN)
    }

    /// Returns the ranges of a stage that the boxes of a channel fill, in order of address.
    fn written_ranges(
        &self,
        channel: &Channel,
        required: &FxHashMap<OpId, OperandPanels>,
    ) -> Result<Vec<Bytes>, String> {
        let mut filled: Vec<Bytes> = Vec::new();
        for load in &channel.loads {
            let bytes = box_bytes(load);
            if bytes * load.boxes.len() as i64 != i64::from(load.bytes) {
                return Err(format!("op {} announces {} bytes of other boxes", load.load.index(), load.bytes));
            }
            let operand = required.get(&load.load);
            let first = operand.and_then(|operand| channel.loads.iter().find(|other| other.load == operand.first));
            let start = first.filter(|_| operand.is_some_and(|operand| operand.is_joined));
            let start = start.map_or(load.smem_offset, |first| first.smem_offset);
            for at in self.box_offsets(load, operand, i64::from(load.smem_offset) - i64::from(start))? {
                filled.push((at, at + bytes));
            }
        }
        sort::natural(&mut filled);
        let has_overlap = filled.windows(2).any(|pair| pair[0].1 > pair[1].0);
        if has_overlap || filled.last().is_some_and(|last| last.1 > i64::from(channel.stage_bytes)) {
            return Err("boxes that overlap, or exceed the stage".to_owned());
        }
        Ok(filled)
    }

    /// Returns true if the boxes of another load include the tile of this load, which has none. The
    /// tile must have the same distance in the stage as in the array.
    fn is_fused_with(&self, load: &TmaLoad, other: &TmaLoad) -> bool {
        let (span, distance) = (span_of(other), i64::from(load.smem_offset) - i64::from(other.smem_offset));
        let axes = 0..self.module.shape(self.module.op(load.load).results[0]).len();
        let mut is_adjacent =
            axes.map(|axis| self.is_adjacent_after(load.load, other.load, axis, distance / span.max(1)));
        !other.boxes.is_empty()
            && load.panel_rows == other.panel_rows
            && distance % span == 0
            && is_adjacent.any(|is_adjacent| is_adjacent)
    }

    /// Returns the offsets of the boxes of a load in the stage. `distance`: bytes between the
    /// operand and its part that the load is.
    ///
    /// # Errors
    /// A box whose offset differs from that of its part of the tile.
    fn box_offsets(&self, load: &TmaLoad, operand: Option<&OperandPanels>, distance: i64) -> Result<Vec<i64>, String> {
        let view = self.module.op(load.load).group(0)[0];
        let shape = ViewShape::of(self.module, view);
        let fastest = shape.and_then(|shape| contiguous_axis(self.module, &shape)).ok_or("a view without rows")?;
        let (span, bytes) = (span_of(load), i64::from(load.map.element.bytes()));
        let high = box_bytes(load) / span.max(1);
        let tile = self.module.shape(self.module.op(load.load).results[0]);
        let is_inside = |coord: &[i64]| coord.iter().zip(tile).all(|(coordinate, extent)| coordinate < extent);
        let is_alone = operand.is_some_and(|operand| operand.panels.rows == load.panel_rows);
        // Returns the row of a panel, and the byte along all panels, of the first element of a row.
        let position = |coord: &[i64]| match operand {
            Some(operand) if is_inside(coord) => {
                let [along, across] = self.operand_position(load.load, operand, coord);
                (across, along * bytes)
            }
            // An auxiliary tile, or rows of an adjacent tile that is loaded together with this one.
            _ => (coord.iter().sum::<i64>() - coord[fastest], coord[fastest] * bytes),
        };
        // Extents are mostly powers of two: the bits of a row number determine its offset.
        let rows: Vec<i64> = (0..high).filter(|row| row & (row - 1) == 0 || row + 1 == high).collect_vec();
        let mut offsets = Vec::new();
        for (data_partition, boxes) in (0..).zip(self.has_partition_boxes(load)) {
            let mut last = 0;
            for part in &boxes {
                for &row in &rows {
                    let coord = box_row_coord(&load.map, part, fastest, row);
                    let (across, along) = position(&coord);
                    let right = span > 0
                        && (is_inside(&coord) || !is_alone)
                        && along % span == 0
                        && distance + i64::from(part.smem_offset) + row * span
                            == along * load.panel_rows + across * span;
                    if !right {
                        let id = load.load.index();
                        return Err(format!("a box of op {id} is at another offset than its part of the tile"));
                    }
                    last = last.max(across + 1);
                }
                let offset = i64::from(load.smem_offset) + i64::from(part.smem_offset);
                offsets.push(offset + data_partition * i64::from(load.bytes / load.partitions));
            }
            // The panels of parts are those of the operand.
            let rows = operand.filter(|operand| operand.is_joined).map_or(last, |operand| operand.panels.rows);
            if !boxes.is_empty() && rows != load.panel_rows {
                return Err(format!("op {} has boxes of other rows than its panels", load.load.index()));
            }
        }
        Ok(offsets)
    }

    /// Returns the boxes of a load by data partition, each relative to the first row of its
    /// partition.
    fn has_partition_boxes(&self, load: &TmaLoad) -> Vec<Vec<TmaBox>> {
        let Some(axis) = self.partitioned_axis(load.load).filter(|_| load.partitions > 1) else {
            return vec![load.boxes.clone()];
        };
        let height = self.module.shape(self.module.op(load.load).results[0])[axis];
        let each = load.boxes.len().div_ceil(load.partitions as usize).max(1);
        let boxes_of_partition = |(data_partition, boxes): (u32, &[TmaBox])| {
            let as_first = |part: &TmaBox| {
                let mut coord = part.coord.clone();
                coord[axis] -= i64::from(data_partition) * height;
                TmaBox {
                    coord,
                    smem_offset: part.smem_offset.wrapping_sub(data_partition * (load.bytes / load.partitions)),
                }
            };
            boxes.iter().map(as_first).collect_vec()
        };
        (0..).zip(load.boxes.chunks(each)).map(boxes_of_partition).collect_vec()
    }
}

/// Returns the bytes of a row of a box.
fn span_of(load: &TmaLoad) -> i64 {
    let row = load.map.dims.first().map_or(0, |dim| dim.boxed);
    i64::from(row) * i64::from(load.map.element.bytes())
}

fn box_bytes(load: &TmaLoad) -> i64 {
    let count: i64 = load.map.dims.iter().map(|dim| i64::from(dim.boxed)).product();
    count * i64::from(load.map.element.bytes())
}

/// Returns true if the boxes have the span of the panels and fill all of them, and the tile begins
/// at a multiple of the swizzle atom.
fn is_placed_as(load: &TmaLoad, required: Panels, filled: &[Bytes]) -> bool {
    let span = required.swizzle_bytes;
    let first = i64::from(load.smem_offset);
    let indices = (0..load.partitions)
        .flat_map(|data_partition| (0..required.count).map(move |panel| (i64::from(data_partition), panel)));
    let mut panels = indices.map(|(data_partition, panel)| {
        let from = first + data_partition * i64::from(load.bytes / load.partitions) + panel * load.panel_rows * span;
        (from, from + required.rows * span)
    });
    span_of(load) == span
        && first % (i64::from(SWIZZLE_ATOM_ROWS) * span) == 0
        && panels.all(|panel| is_filled(panel, filled))
}

fn is_filled((from, to): Bytes, filled: &[Bytes]) -> bool {
    let end = filled.iter().fold(from, |end, part| if part.0 <= end { end.max(part.1) } else { end });
    end >= to
}
