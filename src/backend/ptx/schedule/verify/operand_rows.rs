//! Positions of the elements of a loaded tile in the operand of an MMA.

use crate::util::collect::CollectVec as _;
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
    /// The load at the first byte: of the operand, or of its first part.
    pub first: OpId,
    /// True if `cat` concatenates the operand.
    pub is_joined: bool,
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
                let Some((first, panels)) = self.source_load(value).zip(plan.panels) else { continue };
                // k is the last axis of the left operand, and the one before it of the right one.
                let axes_from_end = if is_left == panels.along_k { [1, 2] } else { [2, 1] };
                let is_joined = self.is_joined(value);
                for load in self.operand_loads(value) {
                    required.insert(load, OperandPanels { panels, first, is_joined, value, axes_from_end });
                }
            }
        }
        required
    }

    /// Returns the position along and across the rows of an operand of an element of the loaded
    /// tile. The ops between the load and the MMA define it.
    pub fn operand_position(&self, load: OpId, operand: &OperandPanels, coord: &[i64]) -> [i64; 2] {
        let module = self.module;
        let mut coord = coord.to_vec();
        for (id, number) in self.ops_after(load, operand.value).unwrap_or_default() {
            let op = module.op(id);
            let shape = module.shape(op.results[0]);
            match op.code {
                Opcode::Permute => coord = op.permutation().iter().map(|&axis| coord[axis as usize]).collect_vec(),
                Opcode::Reshape => {
                    let from = module.shape(op.operands[0]);
                    let mut number =
                        from.iter().zip(&coord).fold(0, |number, (extent, coordinate)| number * extent + coordinate);
                    coord = vec![0; shape.len()];
                    for (coordinate, extent) in coord.iter_mut().zip(shape).rev() {
                        *coordinate = number % extent;
                        number /= extent;
                    }
                }
                Opcode::Cat if number == 1 => {
                    let axis = op.dim() as usize;
                    coord[axis] += module.shape(op.operands[0])[axis];
                }
                _ => {}
            }
        }
        operand.axes_from_end.map(|back| coord[coord.len() - back])
    }

    /// Returns the ops from a load to a value that is computed from its tile, each with the number
    /// of the operand on this path.
    fn ops_after(&self, load: OpId, value: Value) -> Option<Vec<(OpId, usize)>> {
        let id = self.module.defining_op(value)?;
        if id == load {
            return Some(Vec::new());
        }
        let op = self.module.op(id);
        let count = match op.code {
            Opcode::Cat => 2,
            _ => usize::from(self.is_operand_view(id)),
        };
        (0..count).find_map(|number| {
            let mut ops = self.ops_after(load, op.operands[number])?;
            ops.push((id, number));
            Some(ops)
        })
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
