//! Coordinates of the elements of a tile of a view: which are inside of the array, and their
//! addresses.

use super::state::{Exact, Site};
use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Elem, Op, Opcode, Sign, Type, Value};
use crate::util::collect::CollectVec as _;

/// Elements of a tile of a view.
pub struct Elements {
    shape: Vec<i64>,
    /// By tile dimension: the tensor dimension, and the positions along it, i64 of rank 1.
    positions: Vec<(usize, Value)>,
    /// Op that makes the tensor view.
    array: Op,
    tensor_view: Value,
}

impl Exact<'_> {
    /// Returns the elements of the tile that an access names. `None` if the view is no result of an
    /// op: a view that a loop carries.
    pub fn elements(&mut self, site: &Site) -> Option<Elements> {
        let view = site.op.operand_group("view")[0];
        let making = self.ops.module.op(self.ops.module.defining_op(view)?);
        let tensor_view = making.operands[0];
        let array = self.ops.module.op(self.ops.module.defining_op(tensor_view)?).clone();
        let (tile, steps, dims, sparse) = match self.ops.module.ty(view).clone() {
            Type::PartitionView { tile, dim_map, .. } => (tile.clone(), tile, dim_map, None),
            Type::StridedView { tile, traversal, dim_map, .. } => (tile, traversal, dim_map, None),
            Type::GatherScatterView { tile, sparse_dim, .. } => {
                let dims = (0..tile.len() as i32).collect_vec();
                (tile.clone(), vec![1; tile.len()], dims, Some(sparse_dim as usize))
            }
            _ => return None,
        };
        let mut positions = Vec::new();
        for (d, &index) in site.op.operand_group("index").iter().enumerate() {
            let extent = [i64::from(tile[d])];
            let index = self.resize(index, DType::I64, Sign::Signed);
            let places = if sparse == Some(d) {
                index
            } else {
                let iota = self.ops.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I64), &extent);
                let first = self.mul_constant(index, steps[d] as u64);
                let first = self.ops.splat_to(first, &extent);
                self.add(iota, first)
            };
            positions.push((dims[d] as usize, places));
        }
        let shape = tile.iter().map(|&extent| extent.into()).collect_vec();
        Some(Elements { shape, positions, array, tensor_view })
    }

    /// Stretches numbers along one dimension of the tile.
    fn along(&mut self, elements: &Elements, dimension: usize, numbers: Value) -> Value {
        let mut shape = vec![1; elements.shape.len()];
        shape[dimension] = elements.shape[dimension];
        let numbers = self.ops.reshape(numbers, &shape);
        self.ops.broadcast(numbers, &elements.shape)
    }

    /// Emits the mask of the elements inside of the array.
    pub fn inside(&mut self, elements: &Elements) -> Value {
        let ty = self.ops.module.intern(Type::scalar(DType::I64));
        let rank = elements.positions.len();
        let query = self.ops.emit(Opcode::GetTensorShape, &[&[elements.tensor_view]], vec![], vec![], &vec![ty; rank]);
        let extents = self.ops.module.op(query).results.clone();
        let mut mask: Option<Value> = None;
        for (d, &(dim, places)) in elements.positions.iter().enumerate() {
            let shape = self.ops.shape(places);
            let extent = self.ops.splat_to(extents[dim], &shape);
            // A negative position is a large unsigned one.
            let is_inside = self.compare(CmpPred::Lt, Sign::Unsigned, places, extent);
            let is_inside = self.along(elements, d, is_inside);
            mask = Some(mask.map_or(is_inside, |mask| self.and(mask, is_inside)));
        }
        mask.expect("a tile has a dimension")
    }

    /// Emits the addresses of the elements.
    pub fn addresses(&mut self, elements: &Elements) -> Value {
        let Type::TensorView { strides, .. } = self.ops.module.ty(elements.tensor_view).clone() else {
            unreachable!("views are made of tensor views");
        };
        let mut dynamic = elements.array.operand_group("dynamic_strides").iter();
        let mut scalars = Vec::new();
        for stride in strides {
            scalars.push(match stride {
                Some(stride) => self.ops.number(DType::I64, stride),
                None => self.resize(*dynamic.next().expect("a stride"), DType::I64, Sign::Signed),
            });
        }
        let mut offset: Option<Value> = None;
        for (d, &(dim, places)) in elements.positions.iter().enumerate() {
            let shape = self.ops.shape(places);
            let stride = self.ops.splat_to(scalars[dim], &shape);
            let part = self.mul(places, stride);
            let part = self.along(elements, d, part);
            offset = Some(offset.map_or(part, |offset| self.add(offset, part)));
        }
        let base = elements.array.operand_group("base")[0];
        let (elem, base) = (self.ops.elem(base), self.ops.splat_to(base, &elements.shape));
        let offset = offset.expect("a tile has a dimension");
        self.ops.emit_one(Opcode::Offset, &[base, offset], vec![], elem, &elements.shape)
    }
}

/// Returns the attributes of an access without those that only views have.
pub fn order_attrs(op: &Op) -> Vec<Attr> {
    op.attrs.iter().filter(|attr| matches!(attr, Attr::MemOrder(_) | Attr::MemScope(_))).cloned().collect_vec()
}
