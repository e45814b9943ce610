//! Remarks of loads: the loads of loops that are not asynchronous, each with the first reason.

use crate::backend::ptx::layout_inference::ViewShape;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::load_path::LoadPath;
use crate::backend::ptx::schedule::ir::program::Schedule;
use crate::backend::ptx::schedule::ir::rejected_loads::CpAsyncRejection;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Returns the loads of loops that the threads execute, each with the first reason why no
    /// stage receives its tile.
    pub fn missed_copies(&self, schedule: &Schedule) -> Vec<(OpId, String)> {
        let is_load = |id: &OpId| matches!(self.module.op(*id).code, Opcode::LoadView | Opcode::LoadPtr);
        let loads = self.regions.ops().iter().copied().filter(is_load);
        let direct = loads.filter(|&load| schedule.load_path(load) == LoadPath::Direct);
        direct.filter_map(|load| Some((load, self.missed_copy(load, schedule)?))).collect_vec()
    }

    /// Returns the reason of a load; `None` outside of loops, and for a scalar.
    fn missed_copy(&self, load: OpId, schedule: &Schedule) -> Option<String> {
        let loop_op = self.regions.enclosing_loop(load)?;
        if self.inference.num_elements(self.module.op(load).results[0]) == 1 {
            return None;
        }
        let body = self.module.op(loop_op).regions[0];
        let has_mma = self.regions.has_mma(loop_op);
        let reason = match self.own_rejection(load, loop_op) {
            Some(reason) => reason,
            None if has_mma && !self.takes_private_copies(schedule, loop_op) => {
                self.operand_rejection(load, body).unwrap_or(CpAsyncRejection::SharedMemory)
            }
            None if has_mma && self.is_much_replicated(load) => CpAsyncRejection::Replicated,
            None if schedule.warp_spec.is_some() => CpAsyncRejection::Producer,
            None => return Some(self.rejection_by_others(load, loop_op)),
        };
        Some(reason.to_string())
    }

    /// Returns the reason that the load and its loop have by themselves.
    fn own_rejection(&self, load: OpId, loop_op: OpId) -> Option<CpAsyncRejection> {
        let op = self.module.op(loop_op);
        match () {
            () if !self.is_enabled(Optimization::CpAsync) => Some(CpAsyncRejection::Disabled),
            () if op.code != Opcode::For => Some(CpAsyncRejection::NoCounter),
            () if self.module.op(load).code == Opcode::LoadPtr => Some(CpAsyncRejection::Pointers),
            () if self.regions.block_of(load) != Some(op.regions[0]) => Some(CpAsyncRejection::Branch),
            () if self.regions.has_multiple_latches(loop_op) => Some(CpAsyncRejection::Continue),
            () => self.copy_vector(load).err().or_else(|| self.copy_addresses(op.regions[0], load).err()),
        }
    }

    /// Returns the reason why a tile is no operand that MMAs read in its stage.
    fn operand_rejection(&self, load: OpId, body: BlockId) -> Option<CpAsyncRejection> {
        let module = self.module;
        for &mma in module.block(body).ops.iter().filter(|&&id| module.op(id).code.is_mma()) {
            let Some(Ok(plan)) = self.inference.mma_plans.get(&mma) else { continue };
            for (&operand, plan) in module.op(mma).operands[..2].iter().zip([&plan.a, &plan.b]) {
                if self.source_load(operand) == Some(load) && !self.is_joined(operand) {
                    return self.operand_copy(body, operand, plan).err();
                }
            }
        }
        self.first_reader(module.op(load).results[0]).map(CpAsyncRejection::ReadBy)
    }

    /// Returns the first op that reads a tile or a view of it.
    fn first_reader(&self, value: Value) -> Option<Opcode> {
        let module = self.module;
        let mut readers = self.uses.users(value).iter().map(|&(user, _)| user);
        readers.find_map(|user| match module.op(user).code {
            code if code.is_alias() => self.first_reader(module.op(user).results[0]),
            code => Some(code),
        })
    }

    /// Returns true if threads may copy tiles of a loop with MMAs for themselves alone: there is no
    /// producer, and no MMA reads a copy.
    fn takes_private_copies(&self, schedule: &Schedule, loop_op: OpId) -> bool {
        let loads = self.regions.nested(loop_op).iter();
        let mut paths = loads.map(|&load| schedule.load_path(load));
        schedule.warp_spec.is_none()
            && self.has_sync_mmas(self.module.op(loop_op).regions[0])
            && !paths.any(|path| path == LoadPath::CpAsync { thread_private: false })
    }

    /// Returns the reason of a load that only other loads of its loop prevent.
    fn rejection_by_others(&self, load: OpId, loop_op: OpId) -> String {
        let module = self.module;
        let body = module.op(loop_op).regions[0];
        let loads = || module.block(body).ops.iter().copied().filter(|&id| module.op(id).code == Opcode::LoadView);
        let other =
            loads().filter(|&other| other != load).find_map(|other| Some((other, self.own_rejection(other, loop_op)?)));
        let view = |id: OpId| module.op(id).group(0)[0];
        let at_any_position =
            |id: OpId| !ViewShape::of(module, view(id)).is_some_and(|shape| shape.has_disjoint_tiles());
        let is_made_here =
            |id: OpId| module.defining_op(view(id)).is_none_or(|view| self.regions.block_of(view) == Some(body));
        if let Some((other, reason)) = other {
            return match module.location(module.op(other).loc) {
                Some(location) => format!("another load of this loop ({location}): {reason}"),
                None => format!("another load of this loop: {reason}"),
            };
        }
        let least = self.min_copy_bytes(body);
        let is_wide = |id: OpId| self.copy_vector(id).is_ok_and(|(_, bytes)| bytes >= least as usize);
        let reason = match () {
            () if loads().any(is_made_here) => CpAsyncRejection::View,
            () if loads().any(at_any_position) => CpAsyncRejection::Overlap,
            () if !loads().any(is_wide) => CpAsyncRejection::Narrow { least },
            () => CpAsyncRejection::SharedMemory,
        };
        reason.to_string()
    }
}
