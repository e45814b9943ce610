//! Check that all tile blocks of a cluster execute its exchanges equally often.
//!
//! A value *varies* if it may differ between the tile blocks of a cluster. The tile block index
//! along axis 0 varies, and loaded data. Its quotient by the cluster size does not vary, and
//! neither does the result of an exchange. An exchange is an error under control flow that varies:
//! there the barrier of the cluster would never complete.

use rustc_hash::FxHashSet;

use crate::error::Diagnostic;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, ConstData, Module, Op, OpId, Opcode, RegionTree, Type, Value};

/// Checks all exchanges of a verified module.
///
/// # Errors
/// A diagnostic for each exchange under control flow that varies, and for a second cluster size.
pub fn check(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let mut problems = Vec::new();
    for entry in &module.entries {
        let Some(size) = module.cluster_size(entry.body) else { continue };
        let regions = RegionTree::new(module, entry.body);
        let mut varying = Varying { module, regions: &regions, size: i64::from(size), values: FxHashSet::default() };
        varying.propagate();
        let gathers = regions.ops().iter().filter(|&&id| module.op(id).code == Opcode::ClusterAllGather);
        problems.extend(gathers.filter_map(|&id| varying.problem(id, entry.body)));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The values that may differ between the tile blocks of a cluster.
struct Varying<'m> {
    module: &'m Module,
    regions: &'m RegionTree,
    size: i64,
    values: FxHashSet<Value>,
}

impl Varying<'_> {
    fn propagate(&mut self) {
        let mut known = usize::MAX;
        while known != self.values.len() {
            known = self.values.len();
            self.regions.ops().iter().for_each(|&id| self.op(id));
        }
    }

    fn any_varies(&self, values: &[Value]) -> bool {
        let is_token = |value: &Value| matches!(self.module.ty(*value), Type::Token);
        values.iter().any(|value| self.values.contains(value) && !is_token(value))
    }

    fn op(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        match op.code {
            Opcode::GetTileBlockId => drop(self.values.insert(op.results[0])),
            Opcode::ClusterAllGather => {}
            Opcode::DivI if self.is_cluster_index(op) => {}
            Opcode::Alloca => self.values.extend(&op.results),
            Opcode::Yield | Opcode::Continue | Opcode::Break => self.terminator(id, op),
            Opcode::For | Opcode::Loop | Opcode::If => self.enter(id, op),
            _ => {
                let reads =
                    matches!(op.code.spec().effect, Effect::Read | Effect::ReadWrite) || op.code.is_machine_query();
                if reads || self.any_varies(&op.operands) {
                    self.values.extend(&op.results);
                    let regions = op.regions.iter().flat_map(|&region| &module.block(region).args);
                    self.values.extend(regions);
                }
            }
        }
    }

    /// Propagates operands to the arguments and results of a loop or branch. All of them vary if
    /// its control flow varies.
    fn enter(&mut self, id: OpId, op: &Op) {
        let args = op.regions.first().map_or(&[][..], |&region| &self.module.block(region).args);
        if self.has_varying_executions(id) {
            self.values.extend(&op.results);
            if op.code != Opcode::If {
                self.values.extend(args);
            }
            return;
        }
        let (inits, first) = match op.code {
            Opcode::For => (op.group(3), 1),
            Opcode::Loop => (op.group(0), 0),
            _ => return,
        };
        for (&init, &arg) in inits.iter().zip(&args[first..]) {
            if self.values.contains(&init) {
                self.values.insert(arg);
            }
        }
        if op.code == Opcode::For {
            for (&arg, &result) in args[1..].iter().zip(&op.results) {
                if self.values.contains(&arg) {
                    self.values.insert(result);
                }
            }
        }
    }

    /// Propagates the operands of a terminator to the arguments and results of its target.
    fn terminator(&mut self, id: OpId, op: &Op) {
        let module = self.module;
        let Some(owner) = self.regions.target(id).map(|target| module.op(target)) else { return };
        let args = owner.regions.first().map_or(&[][..], |&region| &module.block(region).args);
        for (position, value) in op.operands.iter().enumerate() {
            if !self.values.contains(value) {
                continue;
            }
            match (op.code, owner.code) {
                (Opcode::Continue, Opcode::For) => self.values.extend([args[position + 1], owner.results[position]]),
                (Opcode::Continue, _) => drop(self.values.insert(args[position])),
                _ => self.values.extend(owner.results.get(position)),
            }
        }
    }

    /// Returns true if the number of executions of the regions of an op varies: a condition or
    /// bounds, or an exit under a condition that varies.
    fn has_varying_executions(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        match op.code {
            Opcode::If => self.any_varies(&op.operands),
            Opcode::For => (0..3).any(|group| self.any_varies(op.group(group))) || self.has_varying_exit(Some(id)),
            Opcode::Loop => self.has_varying_exit(Some(id)),
            _ => false,
        }
    }

    /// Returns true if an exit of a loop, or with `None` of the kernel, is within a branch whose
    /// condition varies.
    fn has_varying_exit(&self, target: Option<OpId>) -> bool {
        self.regions.ops().iter().any(|&exit| {
            let exits = match self.module.op(exit).code {
                Opcode::Break | Opcode::Continue => target.is_some() && self.regions.target(exit) == target,
                Opcode::Return => target.is_none(),
                _ => false,
            };
            exits
                && self
                    .enclosing(exit)
                    .take_while(|&outer| Some(outer) != target)
                    .any(|outer| self.has_varying_executions(outer))
        })
    }

    /// Returns the ops whose regions contain an op, the innermost first.
    fn enclosing(&self, id: OpId) -> impl Iterator<Item = OpId> {
        let outer = |id: &OpId| self.regions.block_of(*id).and_then(|block| self.regions.parent(block));
        std::iter::successors(outer(&id), outer)
    }

    /// Returns true for the quotient of the tile block index along axis 0 by a multiple of the
    /// cluster size.
    fn is_cluster_index(&self, op: &Op) -> bool {
        let module = self.module;
        let mut dividend = op.operands[0];
        while let Some(source) = module.defining_op(dividend).map(|id| module.op(id)) {
            match source.code {
                Opcode::GetTileBlockId => {
                    let is_multiple = |divisor: i64| divisor > 0 && divisor % self.size == 0;
                    return source.results[0] == dividend && self.constant(op.operands[1]).is_some_and(is_multiple);
                }
                Opcode::Assume | Opcode::ExtI => dividend = source.operands[0],
                _ => break,
            }
        }
        false
    }

    fn constant(&self, value: Value) -> Option<i64> {
        match self.module.op(self.module.defining_op(value)?).const_data()? {
            &ConstData::Splat(bits) => i64::try_from(bits).ok(),
            ConstData::Dense(_) => None,
        }
    }

    /// Returns the problem of an exchange, if it has one.
    fn problem(&self, id: OpId, body: BlockId) -> Option<Diagnostic> {
        let module = self.module;
        let op = module.op(id);
        let at = |id: OpId| module.location(module.op(id).loc).cloned();
        let size = i64::from(module.cluster_size(body).unwrap_or_default());
        if module.shape(op.results[0])[0] != size {
            let message = format!("an exchange of {} tile blocks", module.shape(op.results[0])[0]);
            return Some(
                Diagnostic::new(message, at(id)).note(format!("another one has {size}: use one cluster size")),
            );
        }
        let message = "tile blocks of a cluster may execute this exchange unequally often";
        let way_out = "exchange before the branch or loop, or make its condition equal for the cluster";
        if let Some(outer) = self.enclosing(id).find(|&outer| self.has_varying_executions(outer)) {
            let what =
                if module.op(outer).code == Opcode::If { "this condition" } else { "the iterations of this loop" };
            let note = format!("{what} may differ between the tile blocks of a cluster");
            return Some(Diagnostic::new(message, at(id)).note_at(note, at(outer)).note(way_out));
        }
        self.has_varying_exit(None).then(|| {
            let note = "a tile block may return early under a condition that differs within the cluster";
            Diagnostic::new(message, at(id)).note(note).note(way_out)
        })
    }
}
