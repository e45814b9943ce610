//! Loads at a known misalignment, from two aligned vectors.
//!
//! A tile that starts one element before an aligned address starts V - 1 elements after the start
//! of a vector of V elements. A thread loads all aligned vectors that overlap its elements and
//! selects these from them: one additional access for each contiguous run, instead of one access
//! for each element.

use std::ops::Range;

use super::view_access::{Misalignment, ViewAccess};
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::layout_inference::{AxisBits, ViewShape, contiguous_axis};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::optimizations::Optimization;
use crate::ir::Value;
use crate::layout::Layout;

impl Lowering<'_> {
    /// Returns the misalignment of a load, if aligned vectors are wider than its own.
    pub fn misalignment_of(&self, shape: &ViewShape, index: &[Value], layout: &Layout) -> Option<Misalignment> {
        if !self.info.is_enabled(Optimization::UnalignedLoad) {
            return None;
        }
        let module = self.module;
        let axis = contiguous_axis(module, shape).filter(|_| shape.sparse.is_none())?;
        let narrow = shape.vector(module, &self.info.inference.int_ranges, axis);
        let aligned = shape.vector_if_aligned(module, &self.info.inference.int_ranges, axis);
        let vector = aligned.min(layout.vector_len(axis)).min(layout.num_registers());
        let extent = shape.extent_divisor(module, &self.info.inference.int_ranges, shape.dim_map[axis]);
        if shape.elem.storage_bits() < 8 || shape.steps[axis] != 1 || vector <= narrow || extent < vector as u64 {
            return None;
        }
        let elements = self.info.inference.int_ranges.residue(module, index[axis], vector as u64)? as usize;
        (elements > 0).then_some(Misalignment { axis, vector, elements })
    }

    /// Loads the registers of a range from aligned vectors.
    pub fn load_unaligned(
        &mut self,
        access: &mut ViewAccess,
        range: Range<usize>,
        shift: Misalignment,
    ) -> Vec<Operand> {
        let Misalignment { axis, vector, elements } = shift;
        let tile = access.tile().to_vec();
        let inner: i64 = tile[axis + 1..].iter().product();
        let bits = AxisBits::of(&tile, axis);
        let mut regs = Vec::with_capacity(range.len());
        let mut ahead: Option<(u32, Vec<Operand>)> = None;
        for start in range.step_by(vector) {
            let element = access.element_of(start);
            let first = match ahead.take() {
                Some((at, loaded)) if at == element => loaded,
                _ => self.vector_around(access, start, shift, 0),
            };
            let second = self.vector_around(access, start, shift, vector);
            regs.extend(first[elements..].iter().chain(&second[..elements]));
            if i64::from(bits.coordinate(element)) + (vector as i64) < tile[axis] {
                ahead = Some((element + (vector as i64 * inner) as u32, second));
            }
        }
        regs
    }

    /// Loads the vector `ahead` elements after the one that contains the element of a register.
    fn vector_around(
        &mut self,
        access: &mut ViewAccess,
        register: usize,
        shift: Misalignment,
        ahead: usize,
    ) -> Vec<Operand> {
        let dtype = access.element_type();
        let addr = self.address(access, register).plus(i64::from(vector_access::run_bytes(dtype, ahead)));
        let guard = self.mask(access, register, (shift.axis, ahead as u32));
        let guard = guard.map(|pred| (pred, access.padding));
        vector_access::load(&mut self.b, self.smem.data_space, dtype, shift.vector, &addr, access.mods, guard)
    }
}
