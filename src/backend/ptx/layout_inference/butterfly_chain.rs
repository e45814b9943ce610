//! Butterfly chains: the bit at which a tile is halved, and the halves of a chain of such steps.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{Module, Op, OpId, Opcode, Value};
use crate::layout::Layout;

/// What is known of such chains.
#[derive(Default)]
pub struct ButterflyChains {
    /// The layout of each tile that is taken apart.
    pub of: FxHashMap<Value, Layout>,
    /// All of these, and those of the halves, as flat tiles.
    pub known: FxHashSet<Layout>,
    /// Halves that are put together as registers.
    pub joined: FxHashSet<OpId>,
}

/// The layout of the elements in a row.
pub fn flat(layout: &Layout) -> Layout {
    layout.reshape(&[layout.num_elements() as i64])
}

/// The bit of the element index that has to be 0, or 1, in what this op takes out of a tile.
pub fn halved_bit(module: &Module, op: &Op) -> Option<u32> {
    if op.code != Opcode::Extract {
        return None;
    }
    let (whole, half) = (module.shape(op.operands[0]), module.shape(op.results[0]));
    let powers = whole.iter().all(|extent| extent.count_ones() == 1);
    let mut cut = (0..whole.len()).filter(|&axis| whole[axis] != half[axis]);
    let axis = cut.next().filter(|&axis| powers && half[axis] * 2 == whole[axis])?;
    let is_known = |value: Value| module.defining_op(value).is_some_and(|id| module.op(id).code == Opcode::Constant);
    let known = cut.next().is_none() && is_known(op.operands[1 + axis]);
    let inner = whole[axis + 1..].iter().product::<i64>() * half[axis];
    known.then_some(inner.trailing_zeros())
}

/// The bit of the element index that tells apart the tiles that are put together.
pub fn joined_bit(module: &Module, op: &Op) -> Option<u32> {
    let [first, second] = [module.shape(op.operands[0]), module.shape(op.operands[1])];
    let inner = first[op.dim() as usize..].iter().product::<i64>();
    (first == second).then_some(inner.trailing_zeros())
}
