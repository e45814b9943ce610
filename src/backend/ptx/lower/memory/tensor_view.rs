//! Tensor views: base address, extents and strides as scalars. Views have no instructions.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::backend::ptx::isa::inst::{CvtMods, Operand, RegClass, Ty};
use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::lower::state::values::TensorView;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::dtype::DType;
use crate::ir::{Op, OpId, Padding, Type, Value};

/// A partition of a tensor view into tiles.
#[derive(Clone, Debug)]
pub struct PartitionView {
    /// The tensor.
    pub tensor: Rc<TensorView>,
    /// Tile extents.
    pub tile: Vec<i64>,
    /// Elements between the starts of consecutive tiles.
    pub steps: Vec<i64>,
    /// Tensor dimension of each tile dimension.
    pub dim_map: Vec<usize>,
    /// The indexed tile dimension.
    pub sparse: Option<usize>,
    /// Value of elements outside.
    pub padding: Option<Padding>,
}

impl PartitionView {
    /// Returns the number of tiles before index 0 that overlap the array, along an axis.
    pub fn tiles_before(&self, axis: usize) -> i64 {
        (self.tile[axis] - 1) / self.steps[axis]
    }
}

impl Lowering<'_> {
    /// Lowers `make_tensor_view`: records its scalars.
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
            list.iter().map(|e| e.map_or_else(|| values.next().expect("an operand"), Operand::Imm)).collect_vec()
        };
        let extents = take(shape);
        let strides = take(strides);
        let view = TensorView { elem: *elem, base, extents, strides, wide };
        self.values.views.insert(op.results[0], Rc::new(view));
        Ok(())
    }

    /// Lowers a partition of a tensor view: the partition is in the type, so the view is an alias.
    pub fn alias_view(&mut self, op: &Op) -> Lowered {
        let view = self.values.views.get(&op.operands[0]).cloned().ok_or("the tensor view is unknown")?;
        self.values.views.insert(op.results[0], view);
        Ok(())
    }

    /// Returns the partition of a view.
    pub fn partition(&self, view: Value) -> Lowered<PartitionView> {
        let tensor = self.values.views.get(&view).cloned().ok_or("the view is unknown")?;
        let ViewShape { tile, steps, dim_map, sparse, .. } =
            ViewShape::of(self.module, view).ok_or("an array has no tiles before it is cut")?;
        let (Type::PartitionView { padding, .. }
        | Type::StridedView { padding, .. }
        | Type::GatherScatterView { padding, .. }) = *self.module.ty(view)
        else {
            unreachable!("the view has a shape")
        };
        Ok(PartitionView { tensor, tile, steps, dim_map, sparse, padding })
    }

    /// Lowers `get_tensor_shape` and `get_index_space_shape`.
    pub fn view_shape(&mut self, op: &Op) -> Lowered {
        let module = self.module;
        let view = op.operands[0];
        let counts: Vec<Operand> = if matches!(module.ty(view), Type::TensorView { .. }) {
            self.values.views.get(&view).ok_or("the view is unknown")?.extents.clone()
        } else {
            let partition = self.partition(view)?;
            (0..partition.tile.len()).map(|axis| self.num_tiles(&partition, axis)).collect_vec()
        };
        let wide = self.values.views[&view].wide;
        for (&result, count) in op.results.iter().zip(counts) {
            let count = match (wide, module.dtype(result)) {
                (false, DType::I64) => self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), count),
                (true, DType::I32) => self.b.cvt(Ty::U32, Ty::U64, CvtMods::default(), count),
                (false, DType::I32) | (true, DType::I64) => count,
                (_, other) => return Err(format!("a shape as {other}")),
            };
            self.define_scalar(result, count);
        }
        Ok(())
    }

    /// Returns the number of tiles along a dimension, in the width of the view's index type.
    pub fn num_tiles(&mut self, partition: &PartitionView, axis: usize) -> Operand {
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
