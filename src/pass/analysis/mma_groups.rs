//! MMA groups: matrix products that are issued together, such as the boxes of one product whose
//! extents are no powers of two.
//!
//! The products of a group are adjacent in program order and are parts of one product of the user
//! (`Module::whole_mma`). They share an operand, or form a chain of accumulators. Ops between them
//! are pure and do not use their results. All products of a group can therefore be issued at the
//! place of the last one.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Module, Op, OpId, Uses, Value};

/// Products by the group that contains them.
#[derive(Debug, Default)]
pub struct MmaGroups(FxHashMap<OpId, Rc<[OpId]>>);

impl MmaGroups {
    /// Finds the groups in a block and its nested blocks, among the products for which `wanted` is
    /// true.
    pub fn new(module: &Module, body: BlockId, wanted: &dyn Fn(OpId) -> bool) -> MmaGroups {
        let uses = Uses::new(module, body);
        let mut groups = MmaGroups::default();
        let mut pending = vec![body];
        while let Some(block) = pending.pop() {
            let mut open: Vec<OpId> = Vec::new();
            for &id in &module.block(block).ops {
                let op = module.op(id);
                pending.extend(&op.regions);
                let is_product = op.code.is_mma() && wanted(id);
                if is_product && belongs_to(module, &uses, &open, id) {
                    open.push(id);
                } else if is_product {
                    groups.close(&mut open);
                    open.push(id);
                } else if !can_move_past(module, &open, op) {
                    groups.close(&mut open);
                }
            }
            groups.close(&mut open);
        }
        groups
    }

    fn close(&mut self, open: &mut Vec<OpId>) {
        let members: Rc<[OpId]> = std::mem::take(open).into();
        self.0.extend(members.iter().map(|&id| (id, members.clone())));
    }

    /// Returns the products of the group of `product`, in program order. A product without a group
    /// is returned alone.
    pub fn group_of(&self, product: OpId) -> Rc<[OpId]> {
        self.0.get(&product).cloned().unwrap_or_else(|| Rc::from([product]))
    }

    /// Returns the last product of the group of `product`.
    pub fn last_of(&self, product: OpId) -> OpId {
        self.0.get(&product).and_then(|members| members.last().copied()).unwrap_or(product)
    }
}

/// Divides the products of a group by accumulator chain. The products of each chain are in order.
pub fn accumulator_chains(module: &Module, members: &[OpId]) -> Vec<Vec<OpId>> {
    let mut chains: Vec<Vec<OpId>> = Vec::new();
    for &id in members {
        let before = module.defining_op(module.op(id).operands[2]);
        match chains.iter_mut().find(|chain| chain.last().copied() == before) {
            Some(chain) => chain.push(id),
            None => chains.push(vec![id]),
        }
    }
    chains
}

/// Returns true if one of these products computes the value.
fn is_computed_by(module: &Module, open: &[OpId], value: Value) -> bool {
    module.defining_op(value).is_some_and(|id| open.contains(&id))
}

/// Returns true if these products can be moved after this op.
fn can_move_past(module: &Module, open: &[OpId], op: &Op) -> bool {
    op.code.spec().effect == Effect::Pure
        && op.regions.is_empty()
        && !op.operands.iter().any(|&value| is_computed_by(module, open, value))
}

/// Returns true if the product `id` can be added to the group.
fn belongs_to(module: &Module, uses: &Uses, open: &[OpId], id: OpId) -> bool {
    let Some(&first) = open.first() else { return false };
    let op = module.op(id);
    if module.whole_mma(first) != module.whole_mma(id)
        || op.operands[..2].iter().any(|&value| is_computed_by(module, open, value))
    {
        return false;
    }
    if is_computed_by(module, open, op.operands[2]) {
        return uses.count(op.operands[2]) == 1;
    }
    open.iter().any(|&other| module.op(other).operands[..2].iter().zip(&op.operands).any(|(a, b)| a == b))
}

/// Returns the blocks inside of loops that contain an MMA.
pub fn loop_blocks_with_mmas(module: &Module, body: BlockId) -> Vec<BlockId> {
    let mut found = Vec::new();
    let mut pending = vec![(body, false)];
    while let Some((block, in_loop)) = pending.pop() {
        let ops = &module.block(block).ops;
        if in_loop && ops.iter().any(|&id| module.op(id).code.is_mma()) {
            found.push(block);
        }
        for &id in ops {
            let op = module.op(id);
            pending.extend(op.regions.iter().map(|&region| (region, in_loop || op.code.is_loop())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes of the MMA groups of a kernel, in program order. All MMAs are parts of one
    /// MMA of the user, or each is one of its own.
    fn sizes_of(body: &str, one: bool) -> Vec<usize> {
        let text = format!(
            "entry @k(%a: tile<64x16xf16>, %b: tile<16x64xf16>, %c: tile<16x32xf16>) {{\n  %z = constant <f32: 0.0> : \
             tile<64x64xf32>\n  %y = constant <f32: 0.0> : tile<64x32xf32>\n{body}  return\n}}\n"
        );
        let mut module = Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"));
        let body = module.entries[0].body;
        let ops = module.block(body).ops.iter().copied();
        let products: Vec<OpId> = ops.filter(|&id| module.op(id).code.is_mma()).collect();
        if one {
            products.iter().for_each(|&id| module.add_mma_part(id, products[0]));
        }
        let groups = MmaGroups::new(&module, body, &|_| true);
        products.iter().filter(|&&id| groups.last_of(id) == id).map(|&id| groups.group_of(id).len()).collect()
    }
    fn sizes(body: &str) -> Vec<usize> {
        sizes_of(body, true)
    }
    const WIDE: &str = "  %s = mmaf %a, %b, %z : tile<64x16xf16>, tile<16x64xf16>, tile<64x64xf32>\n";
    const SLIM: &str = "  %t = mmaf %a, %c, %y : tile<64x16xf16>, tile<16x32xf16>, tile<64x32xf32>\n";

    #[test]
    fn boxes_of_one_product_form_a_group() {
        assert_eq!(sizes(WIDE), [1]);
        assert_eq!(sizes(&format!("{WIDE}{SLIM}")), [2]);
        let more = "  %u = mmaf %a, %b, %s : tile<64x16xf16>, tile<16x64xf16>, tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{SLIM}{more}")), [3]);
        // The accumulator has a second use, or a use between the products.
        let used = "  %v = addf %s, %s rounding<nearest_even> : tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{more}{used}")), [1, 1]);
        assert_eq!(sizes(&format!("{WIDE}{used}{SLIM}")), [1, 1]);
        let other = "  %v = addf %z, %z rounding<nearest_even> : tile<64x64xf32>\n";
        assert_eq!(sizes(&format!("{WIDE}{other}{SLIM}")), [2]);
    }

    #[test]
    fn products_of_one_place_are_separate() {
        // None of the ops has a location: they are equal.
        assert_eq!(sizes_of(&format!("{WIDE}{SLIM}"), false), [1, 1]);
    }
}
