//! Address ops of multistage copies: the ops of a loop body that make the view of a load and
//! compute its indices.
//!
//! The threads execute them for a later iteration, outside of all steps. So each of them has the
//! same result in each execution, and no op needs an exchange between threads. A tile of indices is
//! either computed in the layout of the load, or converted to it before the loop.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::rejected_loads::CpAsyncRejection;
use crate::backend::ptx::schedule::requirements::requirement::Requirement;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Maximum number of elements of a tile of indices that an earlier iteration computes.
const MAX_INDICES: usize = 512;

/// The ops of a loop body that compute the indices of loads, and values from outside of the loop.
/// Each value has the layout to which it is converted before the loop.
#[derive(Clone, Debug, Default)]
pub struct CopyAddresses {
    pub ops: Vec<OpId>,
    pub hoisted: Vec<(Value, Layout)>,
}

impl CopyAddresses {
    /// Adds those of another load.
    pub fn extend(&mut self, other: CopyAddresses) {
        self.ops.extend(other.ops);
        let is_new = |(value, layout): &(Value, Layout)| {
            !self.hoisted.iter().any(|(known, other)| known == value && other.is_same(layout))
        };
        let hoisted: Vec<_> = other.hoisted.into_iter().filter(is_new).collect_vec();
        self.hoisted.extend(hoisted);
    }
}

impl KernelInfo<'_> {
    /// Returns the address ops of a load, if the threads can execute them in an earlier iteration.
    pub fn copy_addresses(&self, body: BlockId, load: OpId) -> Result<CopyAddresses, CpAsyncRejection> {
        let module = self.module;
        let mut found = CopyAddresses::default();
        let mut pending: Vec<Value> =
            module.op(load).group(0).iter().chain(module.op(load).group(1)).copied().collect_vec();
        while let Some(value) = pending.pop() {
            match module.def(value) {
                Def::Arg(block, position) if block == body => {
                    if position != 0 {
                        return Err(CpAsyncRejection::Index);
                    }
                }
                Def::Arg(..) => {}
                Def::Result(op, _) => {
                    if self.regions.block_of(op) != Some(body) || matches!(module.ty(value), Type::Token) {
                        continue;
                    }
                    if !self.is_repeatable(op) {
                        return Err(CpAsyncRejection::Index);
                    }
                    found.ops.push(op);
                    pending.extend(&module.op(op).operands);
                }
            }
        }
        let ops: FxHashSet<OpId> = found.ops.iter().copied().collect();
        for &id in found.ops.iter().chain([&load]) {
            for requirement in self.requirements(id) {
                match requirement {
                    Requirement::Operand(value, layout) => {
                        if !self.is_free_before((value, &layout), &ops, &mut found.hoisted) {
                            return Err(CpAsyncRejection::Index);
                        }
                    }
                    Requirement::GlobalAccess => {}
                    _ => return Err(CpAsyncRejection::Index),
                }
            }
        }
        Ok(found)
    }

    /// Returns true if an op has the same results in each execution, and these are few.
    fn is_repeatable(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let steady = match op.code {
            Opcode::LoadView => self.is_invariant_load(id),
            code => code.spec().effect == Effect::Pure,
        };
        let is_tile = |value: &Value| {
            matches!(self.module.ty(*value), Type::Tile { .. }) && self.inference.num_elements(*value) > 1
        };
        let is_elementwise = matches!(op.code, Opcode::LoadView | Opcode::Constant | Opcode::Iota)
            || op.code.is_elementwise()
            || op.code.is_alias();
        steady
            && (is_elementwise || !op.operands.iter().chain(&op.results).any(is_tile))
            && op.results.iter().all(|&result| match self.module.ty(result) {
                Type::Tile { .. } => self.inference.num_elements(result) <= MAX_INDICES,
                _ => true,
            })
    }

    /// Returns true if an address op has its operand in a layout without a conversion in the loop.
    /// `ops`: the address ops. Conversions before the loop are added to `hoisted`.
    fn is_free_before(
        &self,
        (value, layout): (Value, &Layout),
        ops: &FxHashSet<OpId>,
        hoisted: &mut Vec<(Value, Layout)>,
    ) -> bool {
        if self.inference.num_elements(value) == 1 {
            return true;
        }
        if self.inference.origin(value) == ValueOrigin::Register {
            let own = self.inference.own_layout(value);
            let is_address_op = self.module.defining_op(value).is_some_and(|id| ops.contains(&id));
            if !is_address_op && !own.is_same(layout) {
                hoisted.push((value, layout.clone()));
            }
            return !is_address_op || own.is_same(layout);
        }
        let Some(id) = self.module.defining_op(value) else { return false };
        let inputs = self.inference_inputs(id, layout);
        inputs.iter().all(|(operand, layout)| self.is_free_before((*operand, layout), ops, hoisted))
    }

    /// Returns the operands of an op that is computed at its use, each with its layout. Scalars
    /// have none.
    fn inference_inputs(&self, id: OpId, layout: &Layout) -> Vec<(Value, Layout)> {
        let operands = &self.module.op(id).operands;
        if operands.iter().all(|&operand| self.inference.num_elements(operand) == 1) {
            return Vec::new();
        }
        self.inputs_in_layout(id, layout)
    }
}
