//! The requirements of an op, by its opcode.

use super::reduction_steps::LayoutBases;
use super::requirement::{OpRequirements, Requirement};
use crate::backend::ptx::layout_inference::{AxisBits, ValueOrigin};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{StripMine, StripRole};
use crate::ir::{OpId, Opcode, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Returns the requirements of an op that is a part of a step, in the order of lowering.
    pub fn requirements(&self, id: OpId) -> Vec<Requirement> {
        let op = self.module.op(id);
        let mut all = OpRequirements::new(self, id);
        match (op.code, self.inference.op_layouts.get(&id)) {
            (code, _)
                if code.is_elementwise() && self.inference.origin(op.results[0]) != ValueOrigin::Rematerialized =>
            {
                all.operands(&op.operands, &self.result_layout(op.results[0]));
            }
            (Opcode::WithLayout, _) => {
                let in_registers = self.inference.origin(op.results[0]) == ValueOrigin::Register;
                if let Some(layout) = self.inference.chosen(op).filter(|_| in_registers) {
                    all.operand(op.operands[0], &layout);
                }
            }
            (Opcode::Print, _) => all.print(),
            (Opcode::MemoryFenceAlias, _) => all.list.push(Requirement::Barrier),
            // One thread reads the time for all.
            (Opcode::Clock | Opcode::GlobalTimer, _) => {
                all.list.push(Requirement::SmemExchange(vec![size_of::<u64>()]));
            }
            (Opcode::Assert, _) => all.assertion(),
            (Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView, Some(layout)) => all.view_access(layout),
            (Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas, Some(layout)) => {
                all.pointer_access(layout);
            }
            (Opcode::Reduce, Some(layout)) => {
                all.operands(&op.operands, layout);
                all.reduction_exchanges(layout, LayoutBases::of(layout));
            }
            (Opcode::Scan, Some(layout)) => all.scan(layout),
            (Opcode::Cat | Opcode::Pack | Opcode::Unpack, Some(layout)) => all.operands(&op.operands, layout),
            (Opcode::Extract, Some(layout)) => all.extract(layout),
            (Opcode::Insert, Some(layout)) => all.insert(layout),
            (Opcode::Gather, Some(layout)) => all.gather(layout),
            (Opcode::Histogram, Some(layout)) => all.histogram(layout),
            (Opcode::ClusterAllGather, Some(layout)) => all.cluster_all_gather(layout),
            (Opcode::Ranks, Some(layout)) => all.ranks(layout),
            (Opcode::Continue | Opcode::Break | Opcode::Yield, _) => {
                let targets = self.terminator_targets(id).map_or(&[][..], |(_, targets)| targets);
                all.assignments(targets, &op.operands);
            }
            (Opcode::For, _) => all.assignments(&self.module.block(op.regions[0]).args[1..], op.group(3)),
            (Opcode::Loop, _) => all.assignments(&self.module.block(op.regions[0]).args, op.group(0)),
            _ => {}
        }
        all.list
    }

    /// Returns the layout of the result of an elementwise op that is computed once.
    pub fn result_layout(&self, result: Value) -> Layout {
        let layout = self.inference.layout(result).cloned();
        layout.unwrap_or_else(|| Layout::replicated(self.module.shape(result), self.inference.num_warps))
    }

    /// Returns the requirements of the ops of a strip-mined sequence before its first iteration.
    pub fn strip_requirements(&self, strip: &StripMine, layout: &Layout) -> Vec<(OpId, Vec<Requirement>)> {
        let inside = strip.defined_tiles(self.module);
        let of_op = |&(id, role): &(OpId, StripRole)| {
            if role != StripRole::Body {
                // Scalars, and ops without instructions.
                return (id, self.requirements(id));
            }
            let op = self.module.op(id);
            let values = match op.code {
                Opcode::LoadView => &[],
                Opcode::StoreView => op.group(0),
                _ => &op.operands[..],
            };
            let mut all = OpRequirements::new(self, id);
            for &value in values.iter().filter(|&value| !inside.contains(value)) {
                all.operand(value, &layout.reshape(self.module.shape(value)));
            }
            if let (Opcode::LoadView | Opcode::StoreView, Some(access)) = (op.code, self.inference.op_layouts.get(&id))
            {
                all.begin_view(access);
            }
            (id, all.list)
        };
        strip.ops.iter().map(of_op).collect_vec()
    }

    /// Returns the requirements of a reduction whose operands a strip-mined sequence has combined
    /// within each thread.
    pub fn strip_reduction_requirements(&self, id: OpId) -> Vec<Requirement> {
        let mut all = OpRequirements::new(self, id);
        if let Some(layout) = self.inference.op_layouts.get(&id) {
            let mut bases = LayoutBases::of(layout);
            bases.keep_off(AxisBits::of(layout.shape(), self.module.op(id).dim() as usize));
            all.reduction_exchanges(layout, bases);
        }
        all.list
    }
}
