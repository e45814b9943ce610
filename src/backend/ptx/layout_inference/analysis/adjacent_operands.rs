//! Adjacent right operands: operands of MMAs that share their left operand, and so can be one wide
//! operand.

use std::collections::HashMap;

use crate::ir::{BlockId, Module, OpId, Opcode, Value};
use crate::pass::MmaGroups;

/// Bytes of the rows of panels: most, and least for which it pays that neighbours have the same.
const MOST_SPAN: i64 = 128;
const LEAST_SPAN: i64 = 64;

/// For such operands the columns that divide those of all.
#[derive(Debug, Default)]
pub struct Beside(HashMap<Value, i64>);

impl Beside {
    /// Those of a body.
    pub fn of(module: &Module, body: BlockId) -> Beside {
        let mut products = Vec::new();
        module.walk(body, &mut |id| {
            if matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI) {
                products.push(id);
            }
        });
        let mut beside = Beside::default();
        if products.len() < 2 {
            return beside;
        }
        let bundles = MmaGroups::new(module, body, &|_| true);
        let columns = |id: OpId| *module.shape(module.op(id).operands[1]).last().expect("a matrix");
        for id in products {
            let [left, right] = [0, 1].map(|position| module.op(id).operands[position]);
            let others = bundles.group_of(id);
            let others = others.iter().filter(|&&other| module.op(other).operands[0] == left);
            let unit = others.map(|&other| columns(other)).min().unwrap_or(1);
            let known = beside.0.entry(right).or_insert(unit);
            *known = unit.min(*known);
        }
        beside
    }

    /// Most bytes of the rows of a right operand where its columns are neighbours.
    pub fn most_span(&self, module: &Module, value: Value) -> i64 {
        let bytes = |unit: &i64| unit * i64::from(module.dtype(value).storage_bits()) / 8;
        self.0.get(&value).map(bytes).filter(|bytes| (LEAST_SPAN..MOST_SPAN).contains(bytes)).unwrap_or(MOST_SPAN)
    }
}
