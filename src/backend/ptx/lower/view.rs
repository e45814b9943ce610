//! Array descriptions: base, extents and strides as scalars; no instruction of their own.

use std::rc::Rc;

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{CvtMods, Operand, RegClass, Ty};
use crate::backend::ptx::layout_inference::ViewShape;
use crate::dtype::DType;
use crate::ir::{Op, OpId, Padding, Type, Value};

/// A tensor view of the kernel.
#[derive(Clone, Debug)]
pub struct TensorView {
    /// Element type.
    pub elem: DType,
    /// Base address (B64).
    pub base: Operand,
    /// Extents in elements, B32 or B64.
    pub extents: Vec<Operand>,
    /// Strides in elements, as the extents.
    pub strides: Vec<Operand>,
    /// Extents and strides are 64 bits wide.
    pub wide: bool,
}

impl TensorView {
    /// The integer type of offsets.
    pub fn index_type(&self) -> Ty {
        if self.wide { Ty::S64 } else { Ty::S32 }
    }
}

/// How a view cuts its tensor into tiles.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The tensor.
    pub tensor: Rc<TensorView>,
    /// Tile extents.
    pub tile: Vec<i64>,
    /// Elements from one tile to the next.
    pub steps: Vec<i64>,
    /// Tensor dimension of each tile dimension.
    pub dim_map: Vec<usize>,
    /// The tile dimension whose elements lie at listed positions.
    pub sparse: Option<usize>,
    /// What is read outside.
    pub padding: Option<Padding>,
}

impl Partition {
    /// Tiles before the first one that reach into the array along an axis: where tiles overlap.
    pub fn tiles_before(&self, axis: usize) -> i64 {
        (self.tile[axis] - 1) / self.steps[axis]
    }
}

impl Lowering<'_> {
    /// `make_tensor_view`: notes the scalars.
    pub fn make_tensor_view(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let Type::TensorView { elem, shape, strides, .. } = module.ty(op.results[0]) else {
            return Err("not a tensor view".to_owned());
        };
        let base = self.scalar(op.group(0)[0])?;
        let base = self.b.reg(base, RegClass::B64).into();
        let dynamic = op.group(1).iter().chain(op.group(2));
        let wide = dynamic.clone().any(|&v| module.dtype(v) == DType::I64);
        let mut values = Vec::new();
        for &value in dynamic {
            values.push(self.scalar(value)?);
        }
        let mut values = values.into_iter();
        let mut take = |list: &[Option<i64>]| -> Vec<Operand> {
            list.iter().map(|e| e.map_or_else(|| values.next().expect("an operand"), Operand::Imm)).collect()
        };
        let extents = take(shape);
        let strides = take(strides);
        let view = TensorView { elem: *elem, base, extents, strides, wide };
        self.views.insert(op.results[0], Rc::new(view));
        Ok(())
    }

    /// An op that cuts a tensor view: the tensor under another name; the cut is in the type.
    pub fn alias_view(&mut self, op: &Op) -> Lowered {
        let view = self.views.get(&op.operands[0]).cloned().ok_or("the tensor view is unknown")?;
        self.views.insert(op.results[0], view);
        Ok(())
    }

    /// The cut that a view value describes.
    pub fn partition(&self, view: Value) -> Lowered<Partition> {
        let tensor = self.views.get(&view).cloned().ok_or("the view is unknown")?;
        let ViewShape { tile, steps, dim_map, sparse, .. } =
            ViewShape::of(self.module, view).ok_or("an array has no tiles before it is cut")?;
        let (Type::PartitionView { padding, .. }
        | Type::StridedView { padding, .. }
        | Type::GatherScatterView { padding, .. }) = *self.module.ty(view)
        else {
            unreachable!("the view has a shape")
        };
        Ok(Partition { tensor, tile, steps, dim_map, sparse, padding })
    }

    /// `get_tensor_shape`, `get_index_space_shape`.
    pub fn view_shape(&mut self, op: &Op) -> Lowered {
        let module = self.module;
        let view = op.operands[0];
        let counts: Vec<Operand> = if matches!(module.ty(view), Type::TensorView { .. }) {
            self.views.get(&view).ok_or("the view is unknown")?.extents.clone()
        } else {
            let partition = self.partition(view)?;
            (0..partition.tile.len()).map(|axis| self.num_tiles(&partition, axis)).collect()
        };
        let wide = self.views[&view].wide;
        for (&result, count) in op.results.iter().zip(counts) {
            let count = match (wide, module.dtype(result)) {
                (false, DType::I64) => self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), count),
                (true, DType::I32) => self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), count),
                (false, DType::I32) | (true, DType::I64) => count,
                (_, other) => return Err(format!("a shape as {other}")),
            };
            self.single(result, count);
        }
        Ok(())
    }

    /// Tiles along a tile dimension, in the width of the view's index type.
    pub fn num_tiles(&mut self, partition: &Partition, axis: usize) -> Operand {
        let tensor = &partition.tensor;
        let ty = if tensor.wide { Ty::U64 } else { Ty::U32 };
        let extent = tensor.extents[partition.dim_map[axis]];
        let step = partition.steps[axis];
        let rounded = self.b.add(ty, extent, step - 1);
        if step.count_ones() == 1 {
            self.b.shr(ty, rounded, step.trailing_zeros())
        } else {
            self.b.div(ty, rounded, step)
        }
    }
}
