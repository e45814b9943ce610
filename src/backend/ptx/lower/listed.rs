//! Tiles whose elements lie at listed positions along one dimension.

use std::rc::Rc;

use super::view::TensorView;
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, Reg, Ty};
use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::Value;
use crate::layout::Layout;

/// The positions of a thread's elements along a dimension.
pub struct List {
    axis: usize,
    layout: Layout,
    slots: Rc<[Operand]>,
    /// Type of the positions: of the list, or of the array's indices if that is wider.
    ty: Ty,
}

impl List {
    /// The position of the elements with this coordinate, as the list has it.
    fn position(&self, coordinate: u32) -> Operand {
        let slot = (0..self.layout.num_registers()).find(|&slot| self.layout.element(slot, 0, 0) == coordinate);
        self.slots[slot.expect("the list has a position for each element")]
    }
}

impl Lowering<'_> {
    /// The positions of the elements of each thread along the dimension that has them listed.
    pub fn list(
        &mut self,
        shape: &ViewShape,
        layout: &Layout,
        indices: &[Value],
        tensor: &TensorView,
    ) -> Lowered<Option<List>> {
        let Some((axis, list)) = shape.sparse.zip(shape.list_layout(layout)) else { return Ok(None) };
        let dtype = self.module.dtype(indices[axis]);
        let slots = self.get(indices[axis], &list)?;
        let wide = tensor.wide && dtype != DType::I64;
        let widened = |operand: &Operand| {
            let operand = repr::sign_extended(&mut self.b, dtype, *operand);
            if wide { self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), operand) } else { operand }
        };
        let slots: Rc<[Operand]> = slots.iter().map(widened).collect();
        let ty = if wide || dtype == DType::I64 { Ty::S64 } else { Ty::S32 };
        Ok(Some(List { axis, layout: list, slots, ty }))
    }

    /// Is a listed position inside of the array?
    pub fn is_listed_inside(&mut self, list: &List, tensor: &TensorView, coordinate: u32) -> Reg {
        let extent = tensor.extents[list.axis];
        let (unsigned, extent) = match (list.ty, tensor.wide) {
            (Ty::S64, false) => (Ty::U64, self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), extent)),
            (Ty::S64, true) => (Ty::U64, extent),
            _ => (Ty::U32, extent),
        };
        self.b.setp(Cmp::Lt, unsigned, list.position(coordinate), extent)
    }

    /// The base of the elements at a listed position, where that of the others is `base`.
    pub fn listed_address(&mut self, list: &List, tensor: &TensorView, base: Operand, coordinate: u32) -> Operand {
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
