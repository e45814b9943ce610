//! Loads and stores of views, vector by vector.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

use super::view_access::ViewAccess;
use crate::backend::ptx::isa::inst::{Addr, Operand, Reg, Space};
use crate::backend::ptx::layout_inference::{ViewShape, replica_bits, stored};
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::ir::{MemOrder, OpId, Opcode};

/// Function of a vector: its registers, address and mask.
type EachVector<'a> = &'a mut dyn FnMut(&mut Lowering<'_>, Range<usize>, &Addr, Option<Reg>);

impl Lowering<'_> {
    /// Lowers `load_view_tko`.
    pub fn load_view(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let mut access = self.begin_load(id)?;
        let layout = access.layout.clone();
        let all = 0..layout.num_registers();
        let regs = if op.mem_order() == MemOrder::Weak {
            self.load_registers(&mut access, all).into()
        } else {
            access.owner = self.owner_of(replica_bits(&layout));
            let begun = self.begin_ordered(id, access.num_instructions(), true)?;
            access.set_ordering(begun);
            let regs = self.load_registers(&mut access, all);
            self.end_ordered_load(begun, access.element_type(), &layout, regs)?
        };
        self.values.define(op.results[0], Tile { layout, regs });
        Ok(())
    }

    /// Lowers `store_view_tko`.
    pub fn store_view(&mut self, id: OpId) -> Lowered {
        let regs = self.operand()?.regs;
        let mut access = self.begin_store(id)?;
        let begun = self.begin_ordered(id, access.num_instructions(), true)?;
        access.set_ordering(begun);
        self.store_registers(&mut access, 0, &regs);
        self.end_ordered(begun)
    }

    /// Computes the shared part of a load, and orders it after earlier stores.
    pub fn begin_load(&mut self, id: OpId) -> Lowered<ViewAccess> {
        let op = self.module.op(id);
        let mut access = self.begin_view(id)?;
        access.mods.nc = self.smem.data_space == Space::Global
            && self.info.is_invariant_load(id)
            && self.info.written_memory.is_constant(self.module, op.operands[0]);
        access.mods.cache = self.cache_hint(id);
        self.report.remarks.access(self.module, id, op.results[0], access.summary());
        self.report.remarks.has_loads_in_mma_loops |= self.info.is_in_mma_loop(id);
        Ok(access)
    }

    /// Computes the shared part of an asynchronous copy. Its pieces are in memory as they are in
    /// the stage, so none of them is put together from aligned vectors.
    pub fn begin_copy(&mut self, id: OpId) -> Lowered<ViewAccess> {
        let op = self.module.op(id);
        let layout = self.info.inference.op_layouts.get(&id).cloned().ok_or("a load without a layout")?;
        let access = self.access(id, op.group(0)[0], op.group(1), &layout, None)?;
        self.report.remarks.has_loads_in_mma_loops |= self.info.is_in_mma_loop(id);
        Ok(access)
    }

    /// Computes the shared part of a store, and orders it after earlier accesses.
    pub fn begin_store(&mut self, id: OpId) -> Lowered<ViewAccess> {
        let mut access = self.begin_view(id)?;
        access.mods.cache = self.cache_hint(id);
        access.owner = self.owner_of(replica_bits(&access.layout));
        self.report.remarks.access(self.module, id, stored(self.module.op(id)), access.summary());
        Ok(access)
    }

    /// Computes the shared part of an access, and orders it after earlier accesses.
    pub fn begin_view(&mut self, id: OpId) -> Lowered<ViewAccess> {
        let op = self.module.op(id);
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        let layout = self.info.inference.op_layouts.get(&id).cloned().ok_or("only partition views can be accessed")?;
        let shape = ViewShape::at(self.module, &self.info.inference.int_ranges, view, index);
        let shift = shape.filter(|_| op.code == Opcode::LoadView && op.mem_order() == MemOrder::Weak);
        let shift = shift.and_then(|shape| self.misalignment_of(&shape, index, &layout));
        let access = self.access(id, view, index, &layout, shift)?;
        self.global_access(id)?;
        Ok(access)
    }

    /// Loads the registers of a range, which is a multiple of the vector.
    pub fn load_registers(&mut self, access: &mut ViewAccess, range: Range<usize>) -> Vec<Operand> {
        let Some(axis) = access.ragged else { return self.load_vectors(access, range) };
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let inside = self.is_whole_inside(access, axis);
        self.b.bra_if(inside, true, slow, true);
        let fast = self.load_vectors(access, range.clone());
        let class = repr::class(access.element_type());
        let merged: Vec<Reg> = fast.iter().map(|&value| self.b.copy(value, class)).collect_vec();
        self.b.bra(done, true);
        self.b.emit_label(slow);
        let singles = access.element_by_element(|access| self.load_vectors(access, range));
        for (&dst, value) in merged.iter().zip(singles) {
            self.b.mov_to(dst, value);
        }
        self.b.emit_label(done);
        merged.into_iter().map(Operand::from).collect_vec()
    }

    /// Stores registers from `first` on, a multiple of the vector.
    pub fn store_registers(&mut self, access: &mut ViewAccess, first: usize, regs: &[Operand]) {
        let (dtype, mods) = (access.element_type(), access.mods);
        self.each_vector(access, first..first + regs.len(), &mut |this, range, addr, guard| {
            let run = &regs[range.start - first..range.end - first];
            vector_access::store(&mut this.b, this.smem.data_space, dtype, run, addr, mods, guard);
        });
    }

    /// Calls `body` for each vector of a range of registers.
    pub fn each_vector(&mut self, access: &mut ViewAccess, regs: Range<usize>, body: EachVector<'_>) {
        let Some(axis) = access.ragged else { return self.vectors(access, regs, body) };
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let inside = self.is_whole_inside(access, axis);
        self.b.bra_if(inside, true, slow, true);
        self.vectors(access, regs.clone(), body);
        self.b.bra(done, true);
        self.b.emit_label(slow);
        access.element_by_element(|access| self.vectors(access, regs, body));
        self.b.emit_label(done);
    }

    fn load_vectors(&mut self, access: &mut ViewAccess, range: Range<usize>) -> Vec<Operand> {
        if let Some(shift) = access.misalignment {
            return self.load_unaligned(access, range, shift);
        }
        let dtype = access.element_type();
        let mut regs = Vec::with_capacity(range.len());
        for start in range.step_by(access.vector()) {
            let addr = self.address(access, start);
            let guard = self.mask(access, start, (0, 0)).map(|pred| (pred, access.padding));
            regs.extend(vector_access::load(
                &mut self.b,
                self.smem.data_space,
                dtype,
                access.vector(),
                &addr,
                access.mods,
                guard,
            ));
        }
        regs
    }

    fn vectors(&mut self, access: &mut ViewAccess, regs: Range<usize>, body: EachVector<'_>) {
        for start in regs.step_by(access.vector()) {
            let addr = self.address(access, start);
            let guard = self.mask(access, start, (0, 0));
            body(self, start..start + access.vector(), &addr, guard);
        }
    }
}
