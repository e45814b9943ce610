//! Accesses through views and pointers: operands, memory order, results that one thread broadcasts.

use super::requirement::{OpRequirements, Requirement, smem_element_bytes};
use crate::backend::ptx::layout_inference::{ViewShape, mask_of, pointee, replica_bits, stored};
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{MemOrder, OpId, Opcode, Value};
use crate::layout::Layout;

impl OpRequirements<'_, '_> {
    /// Adds the common requirements of the vectors of a view access: listed positions, and the
    /// access.
    pub fn begin_view(&mut self, layout: &Layout) {
        let op = self.info.module.op(self.id);
        let (view, indices) = (op.operand_group("view")[0], op.operand_group("index"));
        let shape = ViewShape::at(self.info.module, &self.info.inference.int_ranges, view, indices);
        if let Some((axis, list)) = shape.and_then(|shape| shape.sparse.zip(shape.list_layout(layout))) {
            self.operand(indices[axis], &list);
        }
        self.list.push(Requirement::GlobalAccess);
    }

    /// Adds an access through a view.
    pub fn view_access(&mut self, layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        if op.code != Opcode::LoadView {
            self.operand(stored(op), layout);
        }
        self.begin_view(layout);
        match op.code {
            Opcode::LoadView if op.mem_order() != MemOrder::Weak => {
                self.ordered_access(layout, ViewShape::of(info.module, op.group(0)[0]).map(|shape| shape.elem));
            }
            Opcode::StoreView => self.ordered_access(layout, None),
            _ => {}
        }
    }

    /// Adds an access with its memory order. `broadcast_dtype`: the type of the values, if one of
    /// several threads with the same element reads it and passes it to the other threads.
    fn ordered_access(&mut self, layout: &Layout, broadcast_dtype: Option<DType>) {
        let order = self.info.module.op(self.id).mem_order();
        if order.releases() {
            self.list.push(Requirement::Barrier);
        }
        self.list.push(Requirement::GlobalAccess);
        match broadcast_dtype.filter(|_| replica_bits(layout) != 0) {
            Some(dtype) => {
                let bytes = layout.num_elements() * smem_element_bytes(dtype);
                self.list.push(Requirement::SmemExchange(vec![bytes]));
            }
            None if order.acquires() => self.list.push(Requirement::Barrier),
            None => {}
        }
    }

    /// Adds an access through pointers.
    pub fn pointer_access(&mut self, layout: &Layout) {
        let info = self.info;
        let op = info.module.op(self.id);
        let values = match op.code {
            Opcode::LoadPtr => 0,
            Opcode::AtomicCas => 2,
            _ => 1,
        };
        self.operands(&op.operands[1..1 + values], layout);
        let Some(dtype) = pointee(info.module, op.operands[0]).filter(|dtype| dtype.storage_bits() >= 8) else {
            return;
        };
        let run = info.inference.pointer_contiguity.get(&self.id).copied();
        let vector = run.map_or(1, |run| run.vector.min(layout.vector_len(run.axis)).min(layout.num_registers()));
        let leaders = first_of_vectors(layout, vector);
        self.operand(op.operands[0], &leaders);
        if let Some(mask) = info.access_mask(self.id) {
            let together = info.inference.is_same_in_groups(mask, run.map_or(0, |run| run.axis), vector);
            self.operand(mask, if together { &leaders } else { layout });
        }
        let reads = match op.code {
            Opcode::LoadPtr => op.mem_order() != MemOrder::Weak,
            Opcode::AtomicRmw => info.is_result_used(self.id),
            code => code == Opcode::AtomicCas,
        };
        self.ordered_access(layout, reads.then_some(dtype));
        if op.code == Opcode::LoadPtr {
            let padding = op.operand_group("padding_value");
            if info.constant_padding(padding.first().copied()).is_none() {
                self.operands(padding, layout);
            }
        }
    }
}

impl KernelInfo<'_> {
    /// Returns the requirements of a privatized atomic.
    pub fn privatized_requirements(&self, id: OpId) -> Vec<Requirement> {
        let mut requirements = OpRequirements::new(self, id);
        if let Some(layout) = self.inference.op_layouts.get(&id) {
            requirements.operand(self.module.op(id).operands[1], layout);
            requirements.operands(&self.deferred_inputs(id), layout);
            requirements.list.push(Requirement::GlobalAccess);
        }
        requirements.list
    }

    /// Returns the mask of an access through pointers, unless it is true for all elements.
    pub fn access_mask(&self, id: OpId) -> Option<Value> {
        let is_true = |mask: &Value| self.inference.int_ranges.constant(*mask).is_some_and(|value| value != 0);
        mask_of(self.module.op(id)).filter(|mask| !is_true(mask))
    }
}

/// Returns the layout of the first elements of the vectors: without the register bits of a vector.
fn first_of_vectors(layout: &Layout, vector: usize) -> Layout {
    let bits = vector.trailing_zeros() as usize;
    let register = layout.register_bases()[bits..].to_vec();
    Layout::new(layout.shape(), register, layout.lane_bases().to_vec(), layout.warp_bases().to_vec())
}
