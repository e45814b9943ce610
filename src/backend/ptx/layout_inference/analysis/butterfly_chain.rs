//! Butterfly chains: the bit at which a tile is halved, and the halves of a chain of such steps.

use std::collections::{HashMap, HashSet};

use crate::ir::{BlockId, Module, Op, OpId, Opcode, Value};
use crate::layout::Layout;

/// What is known of such chains.
#[derive(Default)]
pub struct ButterflyChains {
    /// The ops that each value goes into.
    pub users: HashMap<Value, Vec<OpId>>,
    /// The layout of each tile that is taken apart.
    pub of: HashMap<Value, Layout>,
    /// All of these, and those of the halves, as flat tiles.
    pub known: HashSet<Layout>,
    /// Halves that are put together as registers.
    pub joined: HashSet<OpId>,
}

impl ButterflyChains {
    /// Who uses what.
    pub fn collect(module: &Module, body: BlockId) -> ButterflyChains {
        let mut halves = ButterflyChains::default();
        module.walk(body, &mut |id| {
            for &operand in &module.op(id).operands {
                let users = halves.users.entry(operand).or_default();
                if users.last() != Some(&id) {
                    users.push(id);
                }
            }
        });
        halves
    }

    /// The bits that a tile is taken apart at from here on, each once, and the number of steps; at
    /// most so many bits.
    pub fn bits_ahead(&self, module: &Module, id: OpId, most: usize) -> (Vec<u32>, usize) {
        let bits = num_elements(module, module.op(id).operands[0]).trailing_zeros();
        // What the bits of the tile in question are called in the first one; those that are taken
        // out.
        let (mut names, mut out): (Vec<u32>, _) = ((0..bits).collect(), Vec::new());
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
            next = self.goes_on(module, op.results[0]);
        }
        (found, steps)
    }

    /// The op with which a chain goes on.
    fn goes_on(&self, module: &Module, value: Value) -> Option<OpId> {
        let count = num_elements(module, value);
        let users = self.users.get(&value)?;
        users.iter().copied().find(|&id| match module.op(id).code {
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
