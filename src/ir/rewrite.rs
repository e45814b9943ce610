//! Rewriting of a module: replaces values, clones regions, converts ops, removes results.
//!
//! Handles remain valid: removed values and ops are removed from lists, and the arenas only grow.

use super::attr::{Attr, ConstData};
use super::handle::{BlockId, OpId, Value};
use super::module::{Def, Module};
use super::op_table::Opcode;
use crate::util::collect::CollectVec as _;

/// Table of values and their replacements.
#[derive(Clone, Debug, Default)]
pub struct Substitution {
    map: Vec<Option<Value>>,
}

impl Substitution {
    /// Makes a table without replacements.
    pub fn new() -> Substitution {
        Substitution::default()
    }

    /// Replaces `old` by `new`, or by the replacement of `new`.
    pub fn replace(&mut self, old: Value, new: Value) {
        let new = self.resolve(new);
        if new != old {
            if self.map.len() <= old.index() {
                self.map.resize(old.index() + 1, None);
            }
            self.map[old.index()] = Some(new);
        }
    }

    /// Returns the replacement of a value, the value itself if it has none.
    pub fn resolve(&self, value: Value) -> Value {
        let mut current = value;
        while let Some(Some(next)) = self.map.get(current.index()) {
            current = *next;
        }
        current
    }

    /// Returns true if there is no replacement.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Replaces the operands of one op.
    pub fn apply_to(&self, module: &mut Module, op: OpId) {
        for value in &mut module.op_mut(op).operands {
            *value = self.resolve(*value);
        }
    }

    /// Replaces the operands of all ops of a block and its nested blocks.
    pub fn apply(&self, module: &mut Module, block: BlockId) {
        let mut ops = Vec::new();
        module.walk(block, &mut |id| ops.push(id));
        ops.into_iter().for_each(|op| self.apply_to(module, op));
    }
}

impl Module {
    /// Replaces `old` by `new` in all operands of a block and its nested blocks.
    pub fn replace_all_uses(&mut self, block: BlockId, old: Value, new: Value) {
        let mut substitution = Substitution::new();
        substitution.replace(old, new);
        substitution.apply(self, block);
    }

    /// Converts an op to a constant with the same result.
    pub fn make_constant(&mut self, id: OpId, data: ConstData) {
        let op = self.op_mut(id);
        op.code = Opcode::Constant;
        op.operands.clear();
        op.segments.clear();
        op.regions.clear();
        op.attrs = vec![Attr::Value(data)];
    }

    /// Keeps the results of an op for whose positions `keep` is true. The others must be unused.
    pub fn retain_results(&mut self, id: OpId, keep: impl Fn(usize) -> bool) {
        let results: Vec<Value> = retained(&self.op(id).results, &keep);
        for (i, &value) in results.iter().enumerate() {
            self.values[value.index()].def = Def::Result(id, i as u32);
        }
        self.op_mut(id).results = results;
    }

    /// Keeps the arguments of a block for whose positions `keep` is true. The others must be
    /// unused.
    pub fn retain_block_args(&mut self, block: BlockId, keep: impl Fn(usize) -> bool) {
        let args: Vec<Value> = retained(&self.block(block).args, &keep);
        for (i, &value) in args.iter().enumerate() {
            self.values[value.index()].def = Def::Arg(block, i as u32);
        }
        self.block_mut(block).args = args;
    }

    /// Keeps the operands of the last group for whose positions in the group `keep` is true.
    pub fn retain_last_group(&mut self, id: OpId, keep: impl Fn(usize) -> bool) {
        let op = self.op_mut(id);
        let Some(count) = op.segments.last().map(|&n| n as usize) else { return };
        let group = op.operands.split_off(op.operands.len() - count);
        let kept = retained(&group, &keep);
        *op.segments.last_mut().expect("a group") = kept.len() as u32;
        op.operands.extend(kept);
    }

    /// Clones a block with its nested blocks. The arguments of the copy are new values.
    ///
    /// `values` receives the mapping from the old values of the block to the new ones. It may map
    /// values of enclosing blocks beforehand.
    pub fn clone_block(&mut self, block: BlockId, values: &mut Substitution) -> BlockId {
        let args = self.block(block).args.clone();
        let types: Vec<_> = args.iter().map(|&arg| self.ty_id(arg)).collect_vec();
        let copy = self.add_block(&types);
        for (i, &arg) in args.iter().enumerate() {
            let new = self.block(copy).args[i];
            values.replace(arg, new);
        }
        for id in self.block(block).ops.clone() {
            let new = self.clone_op(id, values);
            self.block_mut(copy).ops.push(new);
        }
        copy
    }

    /// Clones an op with its regions. The copy is not in a block yet (see [`Module::clone_block`]).
    pub fn clone_op(&mut self, id: OpId, values: &mut Substitution) -> OpId {
        let op = self.op(id).clone();
        let regions: Vec<BlockId> = op.regions.iter().map(|&region| self.clone_block(region, values)).collect_vec();
        let operands: Vec<Value> = op.operands.iter().map(|&v| values.resolve(v)).collect_vec();
        let types: Vec<_> = op.results.iter().map(|&v| self.ty_id(v)).collect_vec();
        let groups: Vec<&[Value]> = if op.segments.is_empty() {
            operands.chunks(1).collect_vec()
        } else {
            let mut rest = operands.as_slice();
            let mut take = |n: &u32| {
                let (group, tail) = rest.split_at(*n as usize);
                rest = tail;
                group
            };
            op.segments.iter().map(&mut take).collect_vec()
        };
        let new = self.add_op(op.code, &groups, op.attrs.clone(), regions, &types, op.loc);
        if self.mma_parts.contains_key(&id) {
            self.add_mma_part(new, id);
        }
        for (i, &old) in op.results.iter().enumerate() {
            let copy = self.op(new).results[i];
            values.replace(old, copy);
        }
        new
    }
}

fn retained(list: &[Value], keep: &impl Fn(usize) -> bool) -> Vec<Value> {
    list.iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, &v)| v).collect_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ir::{Builder, Type, Uses, verify};

    #[test]
    fn a_cloned_loop_is_independent_of_the_original() {
        let mut b = Builder::new();
        let n = b.begin_entry("k", &[Type::scalar(DType::I32)])[0];
        let (zero, ty) = (b.splat(DType::I32, 0, &[]), b.module.ty_id(n));
        let body = b.begin_block(&[ty, ty]);
        let args = b.module.block(body).args.clone();
        let sum = b.simple(Opcode::AndI, &args, vec![], ty);
        b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
        b.end_block();
        let first = b.op(Opcode::For, &[&[zero], &[n], &[n], &[zero]], vec![], vec![body], &[ty]);
        let mut values = Substitution::new();
        values.replace(zero, n);
        let second = b.module.clone_op(first, &mut values);
        let entry = b.block();
        b.module.block_mut(entry).ops.push(second);
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        verify(&b.module).expect("a well-formed clone");
        assert_eq!(b.module.op(second).operands, [n, n, n, n]);
        let uses = Uses::new(&b.module, entry);
        assert_eq!((uses.count(zero), uses.count(n), uses.count(sum)), (2, 6, 1));
        let copied = values.resolve(sum);
        assert!(copied != sum && uses.count(copied) == 1);
    }
}
