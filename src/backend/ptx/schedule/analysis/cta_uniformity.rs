//! CTA uniformity: the values that are equal in both CTAs of a cluster.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{BlockId, Def, Module, Op, OpId, Opcode, RegionTree, Type, Value};

/// Analysis of the values that may differ between the two CTAs of a cluster.
pub struct CtaUniformity<'m> {
    module: &'m Module,
    /// The values that may differ.
    pub values: FxHashSet<Value>,
    /// Loop counters that differ by the start of their loop alone, with this start.
    counters: FxHashMap<Value, Value>,
}

impl<'m> CtaUniformity<'m> {
    /// Returns the analysis of a module. It assumes that both CTAs execute equally many iterations
    /// of the loops around an op.
    pub fn new(module: &'m Module, regions: &RegionTree) -> CtaUniformity<'m> {
        let mut uniformity = CtaUniformity { module, values: FxHashSet::default(), counters: FxHashMap::default() };
        let mut known = usize::MAX;
        while known != uniformity.values.len() {
            known = uniformity.values.len();
            regions.ops().iter().for_each(|&id| uniformity.op(id, regions));
        }
        uniformity
    }

    /// Returns true if one of the values may differ. Tokens are ignored, since they only order ops.
    pub fn any_differs(&self, values: &[Value]) -> bool {
        values.iter().any(|value| self.values.contains(value) && !matches!(self.module.ty(*value), Type::Token))
    }

    fn op(&mut self, id: OpId, regions: &RegionTree) {
        let op = self.module.op(id);
        match op.code {
            Opcode::GetTileBlockId => drop(self.values.insert(op.results[0])),
            code if code.is_control_flow() => self.enter(op),
            Opcode::Continue | Opcode::Break | Opcode::Yield => self.leave(op, regions.target(id)),
            code if code.is_machine_query() => self.values.extend(&op.results),
            _ if self.any_differs(&op.operands) || !op.regions.is_empty() => self.values.extend(&op.results),
            _ => {}
        }
    }

    /// Propagates differences from the operands of a loop or branch to its arguments and results.
    fn enter(&mut self, op: &'m Op) {
        let args = op.regions.first().map_or(&[][..], |&region| &self.module.block(region).args);
        match op.code {
            Opcode::For => {
                if self.any_differs(op.group(1)) || self.any_differs(op.group(2)) {
                    self.values.extend(args.iter().chain(&op.results));
                } else if self.any_differs(op.group(0)) {
                    self.values.insert(args[0]);
                    self.counters.insert(args[0], op.group(0)[0]);
                }
                for (position, &start) in op.group(3).iter().enumerate() {
                    if self.any_differs(&[start]) {
                        self.values.extend([args[position + 1], op.results[position]]);
                    }
                }
            }
            Opcode::Loop => {
                for (&arg, &start) in args.iter().zip(op.group(0)) {
                    if self.any_differs(&[start]) {
                        self.values.insert(arg);
                    }
                }
            }
            _ if self.any_differs(&op.operands) => self.values.extend(&op.results),
            _ => {}
        }
    }

    /// Propagates differences from the operands of a terminator to the arguments and results of its
    /// target.
    fn leave(&mut self, op: &Op, target: Option<OpId>) {
        let module = self.module;
        let Some(owner) = target.map(|id| module.op(id)) else { return };
        let args = &module.block(owner.regions[0]).args;
        for (position, value) in op.operands.iter().enumerate() {
            if !self.values.contains(value) {
                continue;
            }
            match (op.code, owner.code) {
                (Opcode::Continue, Opcode::For) => {
                    self.values.extend([args[position + 1], owner.results[position]]);
                }
                (Opcode::Continue, _) => drop(self.values.insert(args[position])),
                _ => drop(self.values.insert(owner.results[position])),
            }
        }
    }

    /// Returns true if this CTA can compute the value that the peer has, and adds the ops of the
    /// computation to `ops`.
    pub fn peer_computable(&self, value: Value, ops: &mut FxHashSet<OpId>) -> bool {
        if !self.values.contains(&value) {
            return true;
        }
        if let Some(&start) = self.counters.get(&value) {
            return self.peer_computable(start, ops);
        }
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        (is_scalar_compute(op.code) || op.code == Opcode::GetTileBlockId)
            && (!ops.insert(id) || op.operands.iter().all(|&operand| self.peer_computable(operand, ops)))
    }

    /// Returns true if the value certainly differs in the peer: the CTA index, or its sum or
    /// difference with a uniform value.
    pub fn always_differs(&self, value: Value) -> bool {
        if let Some(&start) = self.counters.get(&value) {
            return self.always_differs(start);
        }
        let Some(op) = self.module.defining_op(value).map(|id| self.module.op(id)) else { return false };
        match op.code {
            Opcode::GetTileBlockId => self.values.contains(&value),
            code if code.has_operand_elements() || code == Opcode::ExtI => self.always_differs(op.operands[0]),
            Opcode::AddI | Opcode::SubI => {
                let [left, right] = [op.operands[0], op.operands[1]];
                (!self.values.contains(&left) && self.always_differs(right))
                    || (!self.values.contains(&right) && self.always_differs(left))
            }
            _ => false,
        }
    }
}

/// Returns true if an op of this code computes scalars from scalars.
fn is_scalar_compute(code: Opcode) -> bool {
    code.is_alias() || code == Opcode::Constant || code.is_elementwise()
}

/// Returns true if a value depends on the launch alone and all ops that compute it are in the body
/// of the entry. Adds these ops to `ops`.
pub fn is_known_at_entry(module: &Module, body: BlockId, value: Value, ops: &mut FxHashSet<OpId>) -> bool {
    use Opcode::*;
    match module.def(value) {
        Def::Arg(block, _) => block == body,
        Def::Result(id, _) => {
            let op = module.op(id);
            let extents = matches!(op.code, GetTensorShape | GetIndexSpaceShape | GetTileBlockId | GetNumTileBlocks);
            let known = extents || op.code.is_view() || is_scalar_compute(op.code);
            known
                && module.block(body).ops.contains(&id)
                && (!ops.insert(id) || op.operands.iter().all(|&operand| is_known_at_entry(module, body, operand, ops)))
        }
    }
}
