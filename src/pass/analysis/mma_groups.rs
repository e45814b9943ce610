//! Products that belong together: boxes of one product whose extents are no powers of two. Machines whose products run on
//! their own should have them all at once.
//!
//! Such products stand one behind the other at one place of the user's, and share an operand or add up in turn. What
//! stands between them has no effects and does not need their results, so that all of them may be made where the last
//! one stands.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Uses, Value};

/// Products by those that they belong together with.
#[derive(Debug, Default)]
pub struct Bundles(FxHashMap<OpId, Rc<[OpId]>>);

impl Bundles {
    /// The bundles of a block and of those nested in it, of products that are `wanted`.
    pub fn of(module: &Module, body: BlockId, wanted: &dyn Fn(OpId) -> bool) -> Bundles {
        let uses = Uses::of(module, body);
        let mut bundles = Bundles::default();
        let mut pending = vec![body];
        while let Some(block) = pending.pop() {
            let mut open: Vec<OpId> = Vec::new();
            for &id in &module.block(block).ops {
                let op = module.op(id);
                pending.extend(&op.regions);
                let is_product = matches!(op.code, Opcode::MmaF | Opcode::MmaI) && wanted(id);
                if is_product && joins(module, &uses, &open, op) {
                    open.push(id);
                } else if is_product {
                    bundles.close(&mut open);
                    open.push(id);
                } else if !passes(module, &open, op) {
                    bundles.close(&mut open);
                }
            }
            bundles.close(&mut open);
        }
        bundles
    }

    fn close(&mut self, open: &mut Vec<OpId>) {
        let members: Rc<[OpId]> = std::mem::take(open).into();
        self.0.extend(members.iter().map(|&id| (id, members.clone())));
    }

    /// The products that this one belongs together with, itself among them, in program order.
    pub fn with(&self, product: OpId) -> Rc<[OpId]> {
        self.0.get(&product).cloned().unwrap_or_else(|| Rc::from([product]))
    }

    /// The last of the products that this one belongs together with.
    pub fn last(&self, product: OpId) -> OpId {
        self.0.get(&product).and_then(|members| members.last().copied()).unwrap_or(product)
    }
}

/// Products that belong together by the sums that they add up to: those of each one in order.
pub fn sums(module: &Module, members: &[OpId]) -> Vec<Vec<OpId>> {
    let mut sums: Vec<Vec<OpId>> = Vec::new();
    for &id in members {
        let before = module.defining_op(module.op(id).operands[2]);
        match sums.iter_mut().find(|sum| sum.last().copied() == before) {
            Some(sum) => sum.push(id),
            None => sums.push(vec![id]),
        }
    }
    sums
}

/// Does one of these products make the value?
fn makes(module: &Module, open: &[OpId], value: Value) -> bool {
    module.defining_op(value).is_some_and(|id| open.contains(&id))
}

/// May these products be made after this op?
fn passes(module: &Module, open: &[OpId], op: &Op) -> bool {
    op.code.spec().effect == Effect::Pure
        && op.regions.is_empty()
        && !op.operands.iter().any(|&value| makes(module, open, value))
}

/// Does a product belong to these?
fn joins(module: &Module, uses: &Uses, open: &[OpId], op: &Op) -> bool {
    let Some(&first) = open.first() else { return false };
    let first = module.op(first);
    let alike = (first.code, first.loc) == (op.code, op.loc) && first.attrs == op.attrs;
    if !alike || op.operands[..2].iter().any(|&value| makes(module, open, value)) {
        return false;
    }
    if makes(module, open, op.operands[2]) {
        return uses.count(op.operands[2]) == 1;
    }
    open.iter().any(|&other| module.op(other).operands[..2].iter().zip(&op.operands).any(|(a, b)| a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the bundles of a kernel's products, in program order.
    fn sizes(body: &str) -> Vec<usize> {
        let text = format!(
            "entry @k(%a: tile<64x16xf16>, %b: tile<16x64xf16>, %c: tile<16x32xf16>) {{\n  %z = constant <f32: 0.0> : \
             tile<64x64xf32>\n  %y = constant <f32: 0.0> : tile<64x32xf32>\n{body}  return\n}}\n"
        );
        let module = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"));
        let body = module.entries[0].body;
        let bundles = Bundles::of(&module, body, &|_| true);
        let ops = module.block(body).ops.iter().copied();
        let products: Vec<OpId> = ops.filter(|&id| module.op(id).code == Opcode::MmaF).collect();
        products.iter().filter(|&&id| bundles.last(id) == id).map(|&id| bundles.with(id).len()).collect()
    }
    const WIDE: &str = "  %s = mmaf %a, %b, %z : tile<64x16xf16>, tile<16x64xf16>, tile<64x64xf32>\n";
    const SLIM: &str = "  %t = mmaf %a, %c, %y : tile<64x16xf16>, tile<16x32xf16>, tile<64x32xf32>\n";

    #[test]
    fn boxes_of_one_product_belong_together() {
        assert_eq!(sizes(WIDE), [1]);
        assert_eq!(sizes(&format!("{WIDE}{SLIM}")), [2]);
        let more = "  %u = mmaf %a, %b, %s : tile<64x16xf16>, tile<16x64xf16>, tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{SLIM}{more}")), [3]);
        // What a product adds to is needed elsewhere, or between them.
        let used = "  %v = addf %s, %s rounding<nearest_even> : tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{more}{used}")), [1, 1]);
        assert_eq!(sizes(&format!("{WIDE}{used}{SLIM}")), [1, 1]);
        let other = "  %v = addf %z, %z rounding<nearest_even> : tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{other}{SLIM}")), [2]);
    }
}
