//! Indexed axes: tiles whose positions along one dimension are given by an index tile.

use std::rc::Rc;

use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::lower::state::values::TensorView;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::Value;
use crate::layout::Layout;

/// Positions of the elements of a thread along an indexed dimension.
pub struct IndexedAxis {
    axis: usize,
    layout: Layout,
    regs: Rc<[Operand]>,
    /// Type of the positions: that of the index tile, or of the array's indices if it is wider.
    ty: Ty,
}

impl IndexedAxis {
    /// Returns the position of the elements with this coordinate.
    fn position(&self, coordinate: u32) -> Operand {
        let register =
            (0..self.layout.num_registers()).find(|&register| self.layout.element(register, 0, 0) == coordinate);
        self.regs[register.expect("the list has a position for each element")]
    }
}

impl Lowering<'_> {
    /// Materializes the positions along the indexed dimension.
    pub fn indexed_axis(
        &mut self,
        shape: &ViewShape,
        indices: &[Value],
        tensor: &TensorView,
    ) -> Lowered<Option<IndexedAxis>> {
        let Some(axis) = shape.sparse else { return Ok(None) };
        let dtype = self.module.dtype(indices[axis]);
        let Tile { layout, regs } = self.operand()?;
        let wide = tensor.wide && dtype != DType::I64;
        let widened = |operand: &Operand| {
            let operand = repr::sign_extended(&mut self.b, dtype, *operand);
            if wide { self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), operand) } else { operand }
        };
        let regs: Rc<[Operand]> = regs.iter().map(widened).collect();
        let ty = if wide || dtype == DType::I64 { Ty::S64 } else { Ty::S32 };
        Ok(Some(IndexedAxis { axis, layout, regs, ty }))
    }

    /// Returns a predicate: a position is inside of the array.
    pub fn is_index_inside(&mut self, list: &IndexedAxis, tensor: &TensorView, coordinate: u32) -> Reg {
        let extent = tensor.extents[list.axis];
        let (unsigned, extent) = match (list.ty, tensor.wide) {
            (Ty::S64, false) => (Ty::U64, self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), extent)),
            (Ty::S64, true) => (Ty::U64, extent),
            _ => (Ty::U32, extent),
        };
        self.b.setp(Cmp::Lt, unsigned, list.position(coordinate), extent)
    }

    /// Returns the base address of the elements at a position, relative to the address `base` of
    /// position 0.
    pub fn indexed_address(
        &mut self,
        list: &IndexedAxis,
        tensor: &TensorView,
        base: Operand,
        coordinate: u32,
    ) -> Operand {
        let (position, stride) = (list.position(coordinate), tensor.strides[list.axis]);
        let bits = i64::from(tensor.elem.storage_bits());
        let elements = match (list.ty, tensor.wide) {
            (Ty::S64, false) => {
                let stride = self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), stride);
                self.b.mul(Ty::S64, position, stride)
            }
            (Ty::S64, true) => self.b.mul(Ty::S64, position, stride),
            _ => self.b.mul_wide(Ty::S32, position, stride),
        };
        let bytes = if bits < 8 { self.b.shr(Ty::S64, elements, 1) } else { self.b.mul(Ty::S64, elements, bits / 8) };
        self.b.add(Ty::S64, base, bytes)
    }
}
