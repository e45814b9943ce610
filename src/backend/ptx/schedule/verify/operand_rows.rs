//! Positions of the elements of a loaded tile in the operand of an MMA.

use rustc_hash::FxHashMap;

use crate::backend::ptx::mma::Panels;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::tensor_maps::box_order;
use crate::backend::ptx::schedule::ir::pipelines::TmaBox;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::{OpId, Opcode, Value};

/// The panels that an MMA reads, and the value that they are.
pub struct OperandPanels {
    pub panels: Panels,
    value: Value,
    /// Position of the contiguous axis, and of the axis of the rows, from the end.
    axes_from_end: [usize; 2],
}

impl KernelInfo<'_> {
    /// Returns the panels that MMAs read, by load.
    pub fn required_panels(&self) -> FxHashMap<OpId, OperandPanels> {
        let mut required = FxHashMap::default();
        for &id in self.regions.ops() {
            let op = self.module.op(id);
            let Some(Ok(plan)) = self.inference.mma_plans.get(&id).filter(|_| op.code.is_mma()) else { continue };
            for (is_left, (&value, plan)) in [true, false].into_iter().zip(op.operands.iter().zip([&plan.a, &plan.b])) {
                let Some((load, panels)) = self.source_load(value).zip(plan.panels) else { continue };
                // k is the last axis of the left operand, and the one before it of the right one.
                let axes_from_end = if is_left == panels.along_k { [1, 2] } else { [2, 1] };
                required.insert(load, OperandPanels { panels, value, axes_from_end });
            }
        }
        required
    }

    /// Returns the position along and across the rows of an operand of an element of the loaded
    /// tile. The ops between the load and the MMA define it.
    pub fn operand_position(&self, load: OpId, operand: &OperandPanels, coord: &[i64]) -> [i64; 2] {
        let module = self.module;
        let mut ops = Vec::new();
        let mut value = operand.value;
        while let Some(id) = module.defining_op(value).filter(|&id| id != load) {
            ops.push(id);
            value = module.op(id).operands[0];
        }
        let mut coord = coord.to_vec();
        for &id in ops.iter().rev() {
            let op = module.op(id);
            let shape = module.shape(op.results[0]);
            match op.code {
                Opcode::Permute => coord = op.permutation().iter().map(|&axis| coord[axis as usize]).collect(),
                Opcode::Reshape => {
                    let from = module.shape(op.operands[0]);
                    let mut number = from.iter().zip(&coord).fold(0, |number, (extent, place)| number * extent + place);
                    coord = vec![0; shape.len()];
                    for (place, extent) in coord.iter_mut().zip(shape).rev() {
                        *place = number % extent;
                        number /= extent;
                    }
                }
                _ => {}
            }
        }
        operand.axes_from_end.map(|back| coord[coord.len() - back])
    }
}

/// Returns the coordinates in the tile of the first element of a row of a box.
pub fn box_row_coord(map: &TensorMap, part: &TmaBox, fastest: usize, row: i64) -> Vec<i64> {
    let (mut coord, mut rest) = (part.coord.clone(), row);
    for (dim, axis) in map.dims.iter().zip(box_order(part.coord.len(), fastest)).skip(1) {
        coord[axis] += rest % i64::from(dim.boxed);
        rest /= i64::from(dim.boxed);
    }
    coord
}
