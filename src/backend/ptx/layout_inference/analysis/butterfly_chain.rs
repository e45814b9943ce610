//! Butterfly chains: sequences of `extract` and `cat` that halve a tile along one bit of the
//! element index after another, e.g. in sorting networks and FFTs.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{Module, Op, OpId, Opcode, Uses, Value};
use crate::layout::Layout;

/// Butterfly chains of a kernel, and the layouts that the inference has selected for them.
#[derive(Default)]
pub struct ButterflyChains {
    /// Layout of each halved tile.
    pub layouts: FxHashMap<Value, Layout>,
    /// These layouts and those of the halves, each of the flat tile.
    pub known_layouts: FxHashSet<Layout>,
    /// `cat`s whose operands are registers of each thread.
    pub register_joins: FxHashSet<OpId>,
}

impl ButterflyChains {
    /// Returns the bits along which the chain halves the tile from op `id` on, each once and at
    /// most `most` of them, and the number of steps.
    pub fn next_bits(module: &Module, uses: &Uses, id: OpId, most: usize) -> (Vec<u32>, usize) {
        let bits = num_elements(module, module.op(id).operands[0]).trailing_zeros();
        // For each bit of the current tile its bit in the first tile, and the bits of the halvings.
        let (mut names, mut out): (Vec<u32>, _) = ((0..bits).collect_vec(), Vec::new());
        let (mut found, mut steps) = (Vec::new(), 0);
        let mut next = Some(id);
        while let Some(id) = next {
            let op = module.op(id);
            match op.code {
                Opcode::Extract => {
                    let Some(bit) = halved_bit(module, op) else { break };
                    let name = names.remove(bit as usize);
                    out.push(name);
                    steps += 1;
                    if !found.contains(&name) {
                        if found.len() == most {
                            break;
                        }
                        found.push(name);
                    }
                }
                Opcode::Cat => {
                    let (Some(bit), Some(name)) = (joined_bit(module, op), out.pop()) else { break };
                    names.insert(bit as usize, name);
                }
                _ => {}
            }
            next = Self::next_op(module, uses, op.results[0]);
        }
        (found, steps)
    }

    /// Returns the next op of the chain.
    fn next_op(module: &Module, uses: &Uses, value: Value) -> Option<OpId> {
        let count = num_elements(module, value);
        uses.users(value).iter().map(|&(id, _)| id).find(|&id| match module.op(id).code {
            Opcode::Extract => halved_bit(module, module.op(id)).is_some(),
            Opcode::Cat => joined_bit(module, module.op(id)).is_some(),
            Opcode::Reshape => true,
            code => code.is_elementwise() && num_elements(module, module.op(id).results[0]) == count,
        })
    }
}

fn num_elements(module: &Module, value: Value) -> usize {
    module.shape(value).iter().product::<i64>() as usize
}

/// Returns the layout of the flat tile.
pub fn flat(layout: &Layout) -> Layout {
    layout.reshape(&[layout.num_elements() as i64])
}

/// Returns the bit of the element index along which an `extract` halves its tile.
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

/// Returns the bit of the element index that distinguishes the operands of a `cat`.
pub fn joined_bit(module: &Module, op: &Op) -> Option<u32> {
    let [first, second] = [module.shape(op.operands[0]), module.shape(op.operands[1])];
    let inner = first[op.dim() as usize..].iter().product::<i64>();
    (first == second).then_some(inner.trailing_zeros())
}
