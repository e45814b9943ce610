//! Elements of an access, as values of the IR: for passes that add an op for each accessed element.

use crate::util::collect::CollectVec as _;
use std::ops::{Deref, DerefMut};

use crate::dtype::DType;
use crate::ir::{Attr, BlockId, CmpPred, Def, Elem, Module, OpId, Opcode, Rounding, Sign, Type, Value};
use crate::pass::transform::op_writer::OpWriter;

/// Memory that an access is derived from.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Address of the first element: a parameter of the entry, or memory of the tile block.
    pub base: Value,
    /// Number of the parameter.
    pub param: Option<usize>,
    /// Bytes of an element.
    pub bytes: u64,
}

/// Returns the memory from which an address is derived; `None` if it is no array of at least one
/// byte per element.
pub fn place_of(module: &Module, body: BlockId, code: Opcode, address: Value) -> Option<Place> {
    if matches!(code, Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore) {
        return None;
    }
    let mut base = address;
    while let Some(id) = module.defining_op(base) {
        let op = module.op(id);
        match op.code {
            Opcode::Offset => base = op.operands[0],
            code if code.is_view() || code.is_alias() => base = op.operands[0],
            Opcode::Alloca => break,
            // Not through `PtrToPtr`, which changes the element type.
            _ => return None,
        }
    }
    let (Elem::Ptr { pointee, .. }, _) = module.ty(base).as_tile()? else { return None };
    let bits = pointee.storage_bits();
    let param = match module.def(base) {
        Def::Arg(block, param) => {
            // Pointers without an array are not checked, so they may point outside of it.
            let has_array = module.block(body).ops.iter().any(|&id| {
                let op = module.op(id);
                op.code == Opcode::MakeTensorView && module.base(op.operands[0]) == base
            });
            Some((block == body && has_array).then_some(param as usize)?)
        }
        _ => None,
    };
    (bits >= 8).then_some(Place { base, param, bytes: u64::from(bits / 8) })
}

/// Writer of ops that compute the elements of an access.
pub struct ElementWriter<'m>(pub OpWriter<'m>);

impl<'m> Deref for ElementWriter<'m> {
    type Target = OpWriter<'m>;

    fn deref(&self) -> &OpWriter<'m> {
        &self.0
    }
}

impl DerefMut for ElementWriter<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl ElementWriter<'_> {
    /// Returns the number of each accessed element, counted from the base, and the mask of the
    /// accessed ones.
    pub fn elements(&mut self, id: OpId, access: Place) -> Option<(Value, Option<Value>)> {
        let op = self.module.op(id).clone();
        let address = op.address()?;
        match op.code {
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
                self.view_elements(address, op.operand_group("index"), access)
            }
            _ => {
                let mask = op.operand_group("mask").first().copied();
                Some((self.distance_from_start(address, access), mask))
            }
        }
    }

    /// Returns the distance of pointers from the base, in elements.
    fn distance_from_start(&mut self, pointers: Value, access: Place) -> Value {
        let start = access.base;
        let shape = self.shape(pointers);
        let address = self.emit_one(Opcode::PtrToInt, &[pointers], vec![], Elem::Num(DType::I64), &shape);
        let start = self.emit_one(Opcode::PtrToInt, &[start], vec![], Elem::Num(DType::I64), &[]);
        let start = self.splat_to(start, &shape);
        let distance = self.int_op(Opcode::SubI, address, start);
        let bytes = self.splat(access.bytes as i64, distance);
        let ty = self.module.ty_id(distance);
        let down = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::NegInf)];
        self.emit_typed(Opcode::DivI, &[distance, bytes], down, ty)
    }

    /// Returns the elements of an access through a view; see [`accessed_elements`].
    fn view_elements(&mut self, view: Value, index: &[Value], access: Place) -> Option<(Value, Option<Value>)> {
        let array = self.module.op(self.module.defining_op(view)?).operands[0];
        let made = self.module.op(self.module.defining_op(array)?).clone();
        let Type::TensorView { strides, .. } = self.module.ty(array).clone() else { return None };
        // For each dimension of the tile: its extent, the step between tiles in elements, and the
        // dimension of the array.
        let dims: Vec<(i64, i64, usize)> = match self.module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => {
                tile.iter().zip(dim_map).map(|(&tile, &dim)| (tile.into(), tile.into(), dim as usize)).collect_vec()
            }
            Type::StridedView { tile, traversal, dim_map, .. } => {
                let steps = tile.iter().zip(traversal).zip(dim_map);
                steps.map(|((&tile, &step), &dim)| (tile.into(), step.into(), dim as usize)).collect_vec()
            }
            Type::GatherScatterView { tile, .. } => {
                tile.iter().enumerate().map(|(dim, &tile)| (tile.into(), 1, dim)).collect_vec()
            }
            _ => return None,
        };
        let shape: Vec<i64> = dims.iter().map(|&(tile, ..)| tile).collect_vec();
        let extents = self.extents(array, strides.len());
        let strides = self.strides(&strides, made.group(2));
        let start = self.distance_from_start(made.operands[0], access);
        let mut element = self.splat_to(start, &shape);
        let mut mask = None;
        for (d, &(tile, step, dim)) in dims.iter().enumerate() {
            let position = self.position(index[d], tile, step);
            let mut along = vec![1; shape.len()];
            along[d] = tile;
            let inside = self.is_inside(position, extents[dim], &[tile]);
            let inside = self.reshape(inside, &along);
            let inside = self.broadcast(inside, &shape);
            mask = Some(match mask {
                None => inside,
                Some(mask) => self.emit_one(Opcode::AndI, &[mask, inside], vec![], Elem::Num(DType::I1), &shape),
            });
            let stride = self.splat_to(strides[dim], &[tile]);
            let offset = self.int_op(Opcode::MulI, position, stride);
            let offset = self.reshape(offset, &along);
            let offset = self.broadcast(offset, &shape);
            element = self.int_op(Opcode::AddI, element, offset);
        }
        Some((element, mask))
    }

    /// Returns the positions of a tile along a dimension, in elements.
    fn position(&mut self, index: Value, tile: i64, step: i64) -> Value {
        let index = self.widened(index);
        if !self.shape(index).is_empty() {
            // An index tile has the positions.
            return index;
        }
        let step = self.number(DType::I64, step);
        let first = self.int_op(Opcode::MulI, index, step);
        let first = self.splat_to(first, &[tile]);
        let numbers = self.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &[tile]);
        let numbers = self.widened(numbers);
        self.int_op(Opcode::AddI, first, numbers)
    }

    fn is_inside(&mut self, position: Value, extent: Value, shape: &[i64]) -> Value {
        let extent = self.splat_to(extent, shape);
        let zero = self.splat(0, position);
        let mut compare = |pred, a, b| {
            let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
            self.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), shape)
        };
        let (below, above) = (compare(CmpPred::Lt, position, extent), compare(CmpPred::Ge, position, zero));
        self.emit_one(Opcode::AndI, &[below, above], vec![], Elem::Num(DType::I1), shape)
    }

    fn extents(&mut self, array: Value, rank: usize) -> Vec<Value> {
        let long = self.module.intern(Type::scalar(DType::I64));
        let id = self.emit(Opcode::GetTensorShape, &[&[array]], vec![], vec![], &vec![long; rank]);
        self.module.op(id).results.clone()
    }

    fn strides(&mut self, strides: &[Option<i64>], dynamic: &[Value]) -> Vec<Value> {
        let mut dynamic = dynamic.iter();
        let number = |stride: &Option<i64>| match stride {
            Some(stride) => self.number(DType::I64, *stride),
            None => {
                let stride = *dynamic.next().expect("a value for each stride that is not fixed");
                self.widened(stride)
            }
        };
        strides.iter().map(number).collect_vec()
    }

    /// Returns a constant tile of the shape of another one.
    pub fn splat(&mut self, number: i64, like: Value) -> Value {
        let shape = self.shape(like);
        let number = self.number(DType::I64, number);
        self.splat_to(number, &shape)
    }

    /// Converts integers to i64.
    pub fn widened(&mut self, value: Value) -> Value {
        if self.module.dtype(value) == DType::I64 {
            return value;
        }
        let shape = self.shape(value);
        let signed = vec![Attr::Sign(Sign::Signed)];
        self.emit_one(Opcode::ExtI, &[value], signed, Elem::Num(DType::I64), &shape)
    }
}
