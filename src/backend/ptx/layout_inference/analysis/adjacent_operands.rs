//! Adjacent operands: right operands of MMAs with the same left operand, which form one wide
//! operand.

use rustc_hash::FxHashMap;

use crate::backend::ptx::hardware::SWIZZLE_ROW_BYTES;
use crate::ir::{BlockId, Module, OpId, Value};
use crate::pass::MmaGroups;

/// Maximum number of bytes of a row of a swizzle panel.
const MAX_SWIZZLE_BYTES: i64 = SWIZZLE_ROW_BYTES as i64;
/// Minimum number of bytes of a row for which equal panels of adjacent operands are worth it.
const MIN_SWIZZLE_BYTES: i64 = 64;

/// For each right operand, the number of columns that divides those of all adjacent operands.
#[derive(Debug, Default)]
pub struct AdjacentOperands(FxHashMap<Value, i64>);

impl AdjacentOperands {
    /// Returns the adjacent operands of a body.
    pub fn of(module: &Module, body: BlockId) -> AdjacentOperands {
        let mut mmas = Vec::new();
        module.walk(body, &mut |id| {
            if module.op(id).code.is_mma() {
                mmas.push(id);
            }
        });
        let mut adjacent = AdjacentOperands::default();
        if mmas.len() < 2 {
            return adjacent;
        }
        let groups = MmaGroups::new(module, body, &|_| true);
        let columns = |id: OpId| *module.shape(module.op(id).operands[1]).last().expect("a matrix");
        for id in mmas {
            let [left, right] = [0, 1].map(|position| module.op(id).operands[position]);
            let others = groups.group_of(id);
            let others = others.iter().filter(|&&other| module.op(other).operands[0] == left);
            let unit = others.map(|&other| columns(other)).min().unwrap_or(1);
            let known = adjacent.0.entry(right).or_insert(unit);
            *known = unit.min(*known);
        }
        adjacent
    }

    /// Returns the maximum number of bytes of a row of a right operand with contiguous columns.
    pub fn max_swizzle_bytes(&self, module: &Module, value: Value) -> i64 {
        let bytes = |unit: &i64| unit * i64::from(module.dtype(value).storage_bits()) / 8;
        self.0
            .get(&value)
            .map(bytes)
            .filter(|bytes| (MIN_SWIZZLE_BYTES..MAX_SWIZZLE_BYTES).contains(bytes))
            .unwrap_or(MAX_SWIZZLE_BYTES)
    }
}
