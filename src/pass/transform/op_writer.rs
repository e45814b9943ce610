//! Writer of replacement ops: appends ops to a block, with the source location of the op that they
//! replace.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, ConstData, Elem, Loc, Module, Op, OpId, Opcode, Overflow, Sign, Type, TypeId, Value,
};

/// Appends ops to a block of a module.
pub struct OpWriter<'m> {
    pub module: &'m mut Module,
    /// Ops written so far of the current block.
    out: Vec<OpId>,
    loc: Loc,
}

/// Ops of the enclosing blocks.
#[must_use]
pub struct Outer(Vec<OpId>);

impl<'m> OpWriter<'m> {
    pub fn new(module: &'m mut Module) -> OpWriter<'m> {
        OpWriter { module, out: Vec::new(), loc: Loc::UNKNOWN }
    }

    /// Removes and returns the ops of a block, and begins to write their replacements.
    pub fn begin_block(&mut self, block: BlockId) -> (Vec<OpId>, Outer) {
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        (ops, Outer(std::mem::take(&mut self.out)))
    }

    /// Stores the written ops in the block.
    pub fn end_block(&mut self, block: BlockId, outer: Outer) {
        self.module.block_mut(block).ops = std::mem::replace(&mut self.out, outer.0);
    }

    /// Sets the source location of the following ops to that of `op`.
    pub fn begin(&mut self, op: &Op) {
        self.loc = op.loc;
    }

    /// Appends an op unchanged.
    pub fn keep(&mut self, id: OpId) {
        self.out.push(id);
    }

    /// Appends a new op.
    pub fn emit(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        types: &[TypeId],
    ) -> OpId {
        let id = self.module.add_op(code, groups, attrs, regions, types, self.loc);
        self.out.push(id);
        id
    }

    /// Appends an op with one operand per group and one result.
    pub fn emit_one(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, elem: Elem, shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::Tile { elem, shape: shape.to_vec() });
        self.emit_typed(code, operands, attrs, ty)
    }

    /// Appends an op with one operand per group and one result of this type.
    pub fn emit_typed(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let id = self.emit(code, &groups, attrs, vec![], &[ty]);
        self.module.op(id).results[0]
    }

    /// Marks the MMA that computes a value as a part of the same MMA of the user as `other`.
    pub fn mark_mma_part(&mut self, value: Value, other: OpId) {
        if let Some(part) = self.module.defining_op(value) {
            self.module.add_mma_part(part, other);
        }
    }

    /// Appends a scalar constant.
    pub fn number(&mut self, dtype: DType, number: i64) -> Value {
        let bits = number as u64 & (u64::MAX >> (64 - dtype.bits()));
        self.emit_one(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], Elem::Num(dtype), &[])
    }

    /// Broadcasts a scalar to a tile.
    pub fn splat_to(&mut self, scalar: Value, shape: &[i64]) -> Value {
        if shape.is_empty() {
            return scalar;
        }
        let one = self.reshape(scalar, &vec![1; shape.len()]);
        self.broadcast(one, shape)
    }

    /// Broadcasts a tile to a shape.
    pub fn broadcast(&mut self, tile: Value, shape: &[i64]) -> Value {
        self.emit_reshaping(Opcode::Broadcast, tile, shape)
    }

    /// Reshapes a tile.
    pub fn reshape(&mut self, tile: Value, shape: &[i64]) -> Value {
        self.emit_reshaping(Opcode::Reshape, tile, shape)
    }

    fn emit_reshaping(&mut self, code: Opcode, tile: Value, shape: &[i64]) -> Value {
        if self.shape(tile) == shape {
            return tile;
        }
        let elem = self.elem(tile);
        self.emit_one(code, &[tile], vec![], elem, shape)
    }

    /// Clamps a signed scalar integer to two bounds.
    pub fn clamp(&mut self, number: Value, [least, most]: [i64; 2]) -> Value {
        let dtype = self.module.dtype(number);
        let sign = || vec![Attr::Sign(Sign::Signed)];
        let most = self.number(dtype, most);
        let least = self.number(dtype, least);
        let below = self.emit_one(Opcode::MinI, &[number, most], sign(), Elem::Num(dtype), &[]);
        self.emit_one(Opcode::MaxI, &[below, least], sign(), Elem::Num(dtype), &[])
    }

    /// Appends an integer sum, difference or product with wrap-around.
    pub fn int_op(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let (elem, shape) = (self.elem(a), self.shape(a));
        self.emit_one(code, &[a, b], vec![Attr::Overflow(Overflow::None)], elem, &shape)
    }

    /// Extracts the block of a tile at these indices, in blocks.
    pub fn extract(&mut self, tile: Value, indices: &[i64], shape: &[i64]) -> Value {
        if self.shape(tile) == shape {
            return tile;
        }
        let indices: Vec<Value> = indices.iter().map(|&index| self.number(DType::I32, index)).collect_vec();
        self.extract_at(tile, &indices, shape)
    }

    /// Extracts a block like [`OpWriter::extract`], at run-time indices.
    pub fn extract_at(&mut self, tile: Value, indices: &[Value], shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::Tile { elem: self.elem(tile), shape: shape.to_vec() });
        let id = self.emit(Opcode::Extract, &[&[tile], indices], vec![], vec![], &[ty]);
        self.module.op(id).results[0]
    }

    /// Concatenates two tiles along an axis.
    pub fn cat(&mut self, first: Value, second: Value, axis: usize) -> Value {
        let mut shape = self.shape(first);
        shape[axis] += self.shape(second)[axis];
        let elem = self.elem(first);
        self.emit_one(Opcode::Cat, &[first, second], vec![Attr::Dim(axis as u32)], elem, &shape)
    }

    /// Joins tokens.
    pub fn join(&mut self, tokens: &[Value]) -> Value {
        if let [one] = tokens {
            return *one;
        }
        let ty = self.module.intern(Type::Token);
        let id = self.emit(Opcode::JoinTokens, &[tokens], vec![], vec![], &[ty]);
        self.module.op(id).results[0]
    }

    /// Applies the function of a reduction or scan, for which [`is_elementwise`] is true, to tiles
    /// of this shape: to `elements` and the elements `before` them. `outer` returns the replacement
    /// of a scalar defined outside of the function.
    pub fn combine(
        &mut self,
        region: BlockId,
        [elements, before]: [&[Value]; 2],
        shape: &[i64],
        outer: impl Fn(Value) -> Value,
    ) -> Vec<Value> {
        let block = self.module.block(region).clone();
        let mut known: FxHashMap<Value, Value> = FxHashMap::default();
        for (args, (&element, &before)) in block.args.chunks(2).zip(elements.iter().zip(before)) {
            known.extend([(args[0], element), (args[1], before)]);
        }
        for id in block.ops {
            let op = self.module.op(id).clone();
            let on_tile =
                |value: &Value| known.get(value).copied().unwrap_or_else(|| self.splat_to(outer(*value), shape));
            let operands: Vec<Value> = op.operands.iter().map(on_tile).collect_vec();
            if op.code == Opcode::Yield {
                return operands;
            }
            let elem = self.elem(op.results[0]);
            let attrs = op.attrs.iter().map(|attr| match attr {
                Attr::Value(ConstData::Dense(words)) => Attr::Value(ConstData::Splat(words[0])),
                attr => attr.clone(),
            });
            debug_assert!(op.attr(AttrKind::Dim).is_none(), "an elementwise op has no axis");
            let value = self.emit_one(op.code, &operands, attrs.collect_vec(), elem, shape);
            known.insert(op.results[0], value);
        }
        unreachable!("a region ends with yield")
    }

    pub fn elem(&self, value: Value) -> Elem {
        self.module.ty(value).as_tile().expect("a tile").0
    }

    pub fn shape(&self, value: Value) -> Vec<i64> {
        self.module.shape(value).to_vec()
    }
}

/// Returns true if the function of a region can be applied to whole tiles.
pub fn is_elementwise(module: &Module, region: BlockId) -> bool {
    module.block(region).ops.iter().all(|&id| {
        let code = module.op(id).code;
        code.is_elementwise() || matches!(code, Opcode::Constant | Opcode::Yield)
    })
}
