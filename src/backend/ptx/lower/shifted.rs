//! Tiles that begin beside the places where wide accesses may begin, by a distance that is known.
//!
//! A tile one element to the left of an aligned one begins, wherever it is, V - 1 elements after the beginning of a
//! vector of V. So a thread loads the vectors around its elements, and takes these out of them: one more access for
//! each run of elements, instead of one for each element.

use std::ops::Range;

use super::access::{Access, Shift};
use super::{Lowering, vector};
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, contiguous_axis};
use crate::ir::Value;
use crate::layout::Layout;

impl Lowering<'_> {
    /// The shift of a load at this index of a view, where it makes accesses wider.
    pub fn shift_of(&self, shape: &ViewShape, index: &[Value], layout: &Layout) -> Option<Shift> {
        let module = self.module;
        let axis = contiguous_axis(module, shape).filter(|_| shape.sparse.is_none())?;
        let narrow = shape.vector(module, &self.context.inference.facts, axis);
        let aligned = shape.vector_if_aligned(module, &self.context.inference.facts, axis);
        let vector = aligned.min(layout.vector_len(axis)).min(layout.num_registers());
        let extent = shape.extent_divisor(module, &self.context.inference.facts, shape.dim_map[axis]);
        if shape.elem.storage_bits() < 8 || shape.steps[axis] != 1 || vector <= narrow || extent < vector as u64 {
            return None;
        }
        let elements = self.context.inference.facts.residue(module, index[axis], vector as u64)? as usize;
        (elements > 0).then_some(Shift { axis, vector, elements })
    }

    /// The slots of a range, out of the vectors around them.
    pub fn load_shifted(&mut self, access: &mut Access, range: Range<usize>, shift: Shift) -> Vec<Operand> {
        let Shift { axis, vector, elements } = shift;
        let tile = access.tile().to_vec();
        let inner: i64 = tile[axis + 1..].iter().product();
        let bits = AxisBits::of(&tile, axis);
        let mut slots = Vec::with_capacity(range.len());
        let mut ahead: Option<(u32, Vec<Operand>)> = None;
        for start in range.step_by(vector) {
            let place = access.place_of(start);
            let first = match ahead.take() {
                Some((at, loaded)) if at == place => loaded,
                _ => self.vector_around(access, start, shift, 0),
            };
            let second = self.vector_around(access, start, shift, vector);
            slots.extend(first[elements..].iter().chain(&second[..elements]));
            if i64::from(bits.coordinate(place)) + (vector as i64) < tile[axis] {
                ahead = Some((place + (vector as i64 * inner) as u32, second));
            }
        }
        slots
    }

    /// The vector that is so many elements after the one in which the slot's element lies.
    fn vector_around(&mut self, access: &mut Access, slot: usize, shift: Shift, ahead: usize) -> Vec<Operand> {
        let dtype = access.element_type();
        let addr = self.address(access, slot).plus(i64::from(vector::run_bytes(dtype, ahead)));
        let guard = self.mask(access, slot, (shift.axis, ahead as u32));
        let guard = guard.map(|pred| (pred, access.otherwise));
        vector::load(&mut self.b, self.data_space, dtype, shift.vector, &addr, access.mods, guard)
    }
}
