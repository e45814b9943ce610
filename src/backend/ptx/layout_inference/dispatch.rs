//! Dispatch: the phases of the inference in order, and one function for each opcode.
//!
//! `run` is the entry point. The walk of regions is here, so that op families need no other family.

use std::rc::Rc;

use super::analysis::adjacent_operands::AdjacentOperands;
use super::state::core::Inference;
use crate::backend::ptx::optimizations::{Optimization, OptimizationSet};
use crate::backend::ptx::plan::extract_groups::ExtractGroups;
use crate::ir::{BlockId, Entry, Module, OpId, Opcode, RegionTree, Type, Uses, Value};
use crate::layout::Layout;
use crate::pass::IntRanges;
use crate::target::Target;

impl<'m> Inference<'m> {
    /// Infers the layouts of an entry.
    pub fn run(
        module: &'m Module,
        entry: &Entry,
        target: Target,
        num_warps: u32,
        optimizations: OptimizationSet,
    ) -> Inference<'m> {
        let int_ranges = Rc::new(IntRanges::analyze(module, entry));
        let regions = Rc::new(RegionTree::new(module, entry.body));
        let uses = Rc::new(Uses::new(module, entry.body));
        let empty = || {
            let analyses = (regions.clone(), uses.clone(), int_ranges.clone());
            Inference::empty(module, analyses, (target, num_warps), optimizations)
        };
        let mut inference = empty();
        inference.infer(entry.body);
        let requested_layouts = inference.collect_requested_layouts();
        if requested_layouts.is_empty() || !optimizations.contains(Optimization::RequestedLayouts) {
            return inference;
        }
        let mut second = Inference { requested_layouts, ..empty() };
        second.infer(entry.body);
        second
    }

    /// Executes the phases before the requests once.
    fn infer(&mut self, body: BlockId) {
        self.collect_contiguous_pointers();
        self.extract_groups = ExtractGroups::new(self.module, body);
        if self.optimizations.contains(Optimization::AdjacentOperands) {
            self.adjacent_operands = AdjacentOperands::of(self.module, body);
        }
        self.set_coalesced_layouts();
        self.set_user_loads();
        self.set_pointer_layouts();
        self.block(body);
    }

    /// Propagates layouts through the ops of a block, in program order.
    fn block(&mut self, block: BlockId) {
        let module = self.module;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            for &result in &op.results {
                if matches!(module.ty(result), Type::Tile { .. }) {
                    self.origins[result.index()] = Some(self.compute_origin(result));
                }
            }
            self.op(id);
        }
    }

    /// Sets the layouts of one op.
    fn op(&mut self, id: OpId) {
        let module = self.module;
        let op = module.op(id);
        match op.code {
            Opcode::For => {
                let args = &module.block(op.regions[0]).args;
                self.set(args[0], Layout::replicated(&[], self.num_warps));
                self.loop_body(id, &args[1..], op.group(3));
                self.leave_for(id);
            }
            Opcode::Loop => {
                self.loop_body(id, &module.block(op.regions[0]).args, op.group(0));
                self.join_exits(id, Opcode::Break);
            }
            Opcode::If => {
                op.regions.iter().for_each(|&region| self.block(region));
                self.join_exits(id, Opcode::Yield);
            }
            Opcode::LoadView => {
                // A view that the lowering does not support has no access layout.
                let layout = self.load(id);
                self.set(op.results[0], layout);
            }
            Opcode::StoreView | Opcode::AtomicRedView => self.store(id),
            Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => self.pointer_access(id),
            Opcode::Reduce => self.reduce(id),
            Opcode::Scan => self.scan(id),
            Opcode::Cat => self.cat(id),
            Opcode::Pack | Opcode::Unpack => self.pack_unpack(id),
            Opcode::Extract => self.extract(id),
            Opcode::Insert => self.insert(id),
            Opcode::Gather => self.gather(id),
            Opcode::Histogram => self.histogram(id),
            Opcode::ClusterAllGather => self.cluster_all_gather(id),
            Opcode::Ranks => self.ranks(id),
            Opcode::WithLayout => self.with_layout(op),
            code if code.is_mma() => self.mma(id),
            code if code.is_elementwise() => self.elementwise(id),
            _ => self.other_op(id),
        }
    }

    /// Walks the body of a loop. A second walk follows if the first one changed a layout: without
    /// this condition, the number of walks would double with each level of nested loops.
    fn loop_body(&mut self, id: OpId, args: &[Value], inits: &[Value]) {
        let (body, before) = (self.module.op(id).regions[0], self.changes);
        self.block(body);
        self.join_carried(id, args, inits);
        if self.changes != before {
            self.block(body);
        }
    }
}
