//! Expansion of block-scaled matrix products: each operand is multiplied by its scales and
//! converted to bf16, and the product is accumulated in f32. For back ends without the op, or
//! without operands of two types.
//!
//! The conversion to bf16 (8 significant bits, exponents of f32) is exact for normal numbers. A 4-
//! or 8-bit float times a power of two has at most 4 significant bits, a 4-bit float times an 8-bit
//! one at most 6. Only results below 2^-126 are rounded, and only results outside of the range of
//! f32 overflow.

use crate::dtype::DType;
use crate::ir::{Attr, BlockId, Module, OpId, Opcode, Rounding, Substitution, Type, Value};
use crate::util::collect::CollectVec as _;

/// Expands block-scaled products: all, or only those whose operands have two types. Returns `None`
/// if the module has none of them.
pub(crate) fn expand_scaled_mma(module: &Module, only_of_two_types: bool) -> Option<Module> {
    let body = module.entries.first()?.body;
    let mut found = false;
    module.walk(body, &mut |id| found |= is_expanded(module, id, only_of_two_types));
    if !found {
        return None;
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    expand_block(&mut module, body, only_of_two_types, &mut values);
    values.apply(&mut module, body);
    Some(module)
}

fn is_expanded(module: &Module, id: OpId, only_of_two_types: bool) -> bool {
    let op = module.op(id);
    let of_two = || module.dtype(op.operands[0]) != module.dtype(op.operands[1]);
    op.code == Opcode::MmaFScaled && (!only_of_two_types || of_two())
}

fn expand_block(module: &mut Module, block: BlockId, only_of_two_types: bool, values: &mut Substitution) {
    let ops = std::mem::take(&mut module.block_mut(block).ops);
    let mut out = Vec::with_capacity(ops.len());
    for id in ops {
        for region in module.op(id).regions.clone() {
            expand_block(module, region, only_of_two_types, values);
        }
        if !is_expanded(module, id, only_of_two_types) {
            out.push(id);
            continue;
        }
        let op = module.op(id).clone();
        let mut expansion = Expansion { module, out: &mut out, op: id };
        let [a, b, acc, a_scale, b_scale] = [0, 1, 2, 3, 4].map(|i| op.operands[i]);
        let rank = expansion.module.shape(a).len();
        let a = expansion.scaled(a, a_scale, rank - 1);
        let b = expansion.scaled(b, b_scale, rank - 2);
        let shape = expansion.module.shape(acc).to_vec();
        let product = expansion.put(Opcode::MmaF, &[a, b, acc], vec![], DType::F32, &shape);
        values.replace(op.results[0], product);
    }
    module.block_mut(block).ops = out;
}

/// Emitter of the ops that replace one op.
struct Expansion<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    op: OpId,
}

impl Expansion<'_> {
    fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::tile(dtype, shape));
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let loc = self.module.op(self.op).loc;
        let id = self.module.add_op(code, &groups, attrs, vec![], &[ty], loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    fn cast(&mut self, value: Value, to: DType) -> Value {
        let shape = self.module.shape(value).to_vec();
        self.put(Opcode::FToF, &[value], vec![Attr::Rounding(Rounding::NearestEven)], to, &shape)
    }

    /// Multiplies an operand by its scales. Each scale belongs to a block of elements along `axis`.
    fn scaled(&mut self, value: Value, scale: Value, axis: usize) -> Value {
        let shape = self.module.shape(value).to_vec();
        let wide = self.cast(value, DType::F32);
        let scale = self.cast(scale, DType::F32);
        let mut apart = self.module.shape(scale).to_vec();
        let blocks = apart[axis];
        apart.insert(axis + 1, 1);
        let scale = self.put(Opcode::Reshape, &[scale], vec![], DType::F32, &apart);
        apart[axis + 1] = shape[axis] / blocks;
        let scale = self.put(Opcode::Broadcast, &[scale], vec![], DType::F32, &apart);
        let scale = self.put(Opcode::Reshape, &[scale], vec![], DType::F32, &shape);
        let nearest = vec![Attr::Rounding(Rounding::NearestEven)];
        let product = self.put(Opcode::MulF, &[wide, scale], nearest, DType::F32, &shape);
        self.cast(product, DType::BF16)
    }
}
