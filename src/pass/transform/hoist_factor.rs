//! Hoisting of a constant factor out of a maximum or minimum: the reduction of the products becomes
//! the product of the reduction.
//!
//! ```text
//! reduce_max(x · factor)  →  reduce_max(x) · factor
//! ```
//!
//! The results are equal if the factor is positive and finite: rounding is monotone, and such a
//! factor does not change which element is the largest. Attention that scales its scores has this
//! reduction in each iteration. It computes the products for it alone if they are fused with the
//! subtraction of the maximum. Not part of the pipeline: the PTX back end calls it for loops with
//! MMAs.

use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{Attr, BlockId, ConstData, Module, OpId, Opcode, Substitution, Uses, Value};
use crate::pass::analysis::float_sign::constant;
use crate::pass::analysis::mma_groups::loop_blocks_with_mmas;

/// Returns the module with hoisted factors, or `None` if there are none.
pub fn hoist_factor(module: &Module) -> Option<Module> {
    let entry = module.entries.first()?;
    let blocks = loop_blocks_with_mmas(module, entry.body);
    let uses = Uses::new(module, entry.body);
    let is_found = |&id: &OpId| Product::find(module, &uses, id).is_some();
    if !blocks.iter().any(|&block| module.block(block).ops.iter().any(is_found)) {
        return None;
    }
    let mut changed = module.clone();
    let mut writer = OpWriter::new(&mut changed);
    let mut values = Substitution::new();
    for block in blocks {
        let (ops, outer) = writer.begin_block(block);
        for id in ops {
            match Product::find(module, &uses, id) {
                Some(product) => {
                    let value = product.hoist(&mut writer);
                    values.replace(module.op(id).results[0], value);
                }
                None => writer.keep(id),
            }
        }
        writer.end_block(block, outer);
    }
    values.apply(&mut changed, entry.body);
    crate::pass::optimize(&mut changed);
    Some(changed)
}

/// A reduction of products with one factor.
struct Product<'m> {
    module: &'m Module,
    reduce: OpId,
    product: OpId,
    elements: Value,
    factor: f32,
}

impl<'m> Product<'m> {
    fn find(module: &'m Module, uses: &Uses, reduce: OpId) -> Option<Product<'m>> {
        let op = module.op(reduce);
        let is_reduction = op.code == Opcode::Reduce && is_extremum(module, op.regions[0]);
        let &[products] = &op.operands[..] else { return None };
        if !is_reduction || uses.count(products) != 1 || module.dtype(products) != DType::F32 {
            return None;
        }
        let product = module.defining_op(products).filter(|&id| module.op(id).code == Opcode::MulF)?;
        let operands = &module.op(product).operands;
        let (elements, factor) =
            match [0, 1].map(|operand| constant(module, operands[operand]).map(|number| number as f32)) {
                [_, Some(factor)] => (operands[0], factor),
                [Some(factor), None] => (operands[1], factor),
                [None, None] => return None,
            };
        (factor > 0.0 && factor.is_finite()).then_some(Product { module, reduce, product, elements, factor })
    }

    fn hoist(&self, writer: &mut OpWriter<'_>) -> Value {
        let op = self.module.op(self.reduce);
        writer.begin(op);
        let region = writer.module.clone_block(op.regions[0], &mut Substitution::new());
        let ty = self.module.ty_id(op.results[0]);
        let reduced = writer.emit(Opcode::Reduce, &[&[self.elements]], op.attrs.clone(), vec![region], &[ty]);
        let reduced = writer.module.op(reduced).results[0];
        let (elem, shape) = (writer.elem(reduced), writer.shape(reduced));
        let bits = Attr::Value(ConstData::Splat(self.factor.to_bits().into()));
        let factor = writer.emit_one(Opcode::Constant, &[], vec![bits], elem, &shape);
        writer.emit_one(Opcode::MulF, &[reduced, factor], self.module.op(self.product).attrs.clone(), elem, &shape)
    }
}

/// Returns true for a region that returns the larger or smaller one of its arguments.
fn is_extremum(module: &Module, region: BlockId) -> bool {
    let [combiner, _] = module.block(region).ops[..] else { return false };
    let (op, args) = (module.op(combiner), &module.block(region).args);
    matches!(op.code, Opcode::MaxF | Opcode::MinF) && args.iter().all(|arg| op.operands.contains(arg))
}
