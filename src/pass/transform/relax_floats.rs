//! Float arithmetic as in `FloatMode::fast()`: approximate divisions and functions, subnormal
//! numbers flushed to zero, products fused with additions.
//!
//! The results change, so the pass is no part of the pipeline. Remarks use it for the cost of a
//! kernel in that mode.

use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{Attr, BlockId, Flag, Module, OpId, Opcode, Rounding, Substitution, Value};

/// Returns the module in the fast mode, or `None` if it has no other operations there.
pub fn relax_floats(module: &Module) -> Option<Module> {
    let entry = module.entries.first()?;
    let mut changed = module.clone();
    let mut ops: Vec<OpId> = Vec::new();
    let mut blocks: Vec<BlockId> = vec![entry.body];
    module.walk(entry.body, &mut |id| {
        ops.push(id);
        blocks.extend(&module.op(id).regions);
    });
    let mut is_changed = false;
    for &id in &ops {
        if let Some(attrs) = fast_attrs(module, id) {
            is_changed = true;
            changed.op_mut(id).attrs = attrs;
        }
    }
    is_changed |= contract(&mut changed, entry.body, &blocks);
    crate::pass::optimize(&mut changed);
    is_changed.then_some(changed)
}

/// Returns the attributes of an op of f32 in the fast mode, if they are others.
fn fast_attrs(module: &Module, id: OpId) -> Option<Vec<Attr>> {
    let op = module.op(id);
    let is_f32 = op.results.first().is_some_and(|&value| element(module, value) == Some(DType::F32));
    let (is_approximate, flushes) = match op.code {
        Opcode::DivF | Opcode::Sqrt => (true, true),
        Opcode::Exp | Opcode::Tanh | Opcode::Log | Opcode::Log2 | Opcode::Sin | Opcode::Cos => (true, false),
        Opcode::AddF | Opcode::SubF | Opcode::MulF | Opcode::Fma => (false, true),
        Opcode::Rsqrt | Opcode::Exp2 | Opcode::MaxF | Opcode::MinF => (false, true),
        _ => return None,
    };
    let mut attrs = op.attrs.clone();
    if is_approximate {
        attrs.retain(|attr| !matches!(attr, Attr::Rounding(_)));
        attrs.insert(0, Attr::Rounding(Rounding::Approx));
    }
    if flushes && !attrs.contains(&Attr::Flag(Flag::FlushToZero)) {
        attrs.push(Attr::Flag(Flag::FlushToZero));
    }
    (is_f32 && attrs != op.attrs).then_some(attrs)
}

fn element(module: &Module, value: Value) -> Option<DType> {
    module.ty(value).as_tile().and_then(|(elem, _)| elem.dtype())
}

/// Fuses products with additions and subtractions of the same attributes. Returns true if there are
/// any.
fn contract(module: &mut Module, body: BlockId, blocks: &[BlockId]) -> bool {
    let mut values = Substitution::new();
    let mut is_changed = false;
    let mut writer = OpWriter::new(module);
    for &block in blocks {
        let (ops, outer) = writer.begin_block(block);
        for id in ops {
            match fused(&mut writer, id) {
                Some(value) => {
                    values.replace(writer.module.op(id).results[0], value);
                    is_changed = true;
                }
                None => writer.keep(id),
            }
        }
        writer.end_block(block, outer);
    }
    values.apply(module, body);
    is_changed
}

/// Emits the fused form of a sum: `a · b + c`, `a · b - c` or `c - a · b`.
fn fused(writer: &mut OpWriter<'_>, id: OpId) -> Option<Value> {
    let op = writer.module.op(id).clone();
    let subtracts = match op.code {
        Opcode::AddF => false,
        Opcode::SubF => true,
        _ => return None,
    };
    let factors = |module: &Module, value: Value| {
        let product = module.op(module.defining_op(value)?);
        (product.code == Opcode::MulF && product.attrs == op.attrs).then(|| [product.operands[0], product.operands[1]])
    };
    let (left, right) = (factors(writer.module, op.operands[0]), factors(writer.module, op.operands[1]));
    writer.begin(&op);
    let (elem, shape) = (writer.elem(op.results[0]), writer.shape(op.results[0]));
    let negated = |writer: &mut OpWriter<'_>, value: Value| {
        if subtracts { writer.emit_one(Opcode::NegF, &[value], vec![], elem, &shape) } else { value }
    };
    let [a, b, c] = match (left, right) {
        (Some([a, b]), _) => [a, b, negated(writer, op.operands[1])],
        (None, Some([a, b])) => [negated(writer, a), b, op.operands[0]],
        (None, None) => return None,
    };
    Some(writer.emit_one(Opcode::Fma, &[a, b, c], op.attrs, elem, &shape))
}
