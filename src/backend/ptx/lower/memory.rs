//! Loads and stores of views: all vectors of a tile, each where `access` says.

use std::ops::Range;

use super::access::Access;
use super::order::Ordering;
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{Addr, Operand, Reg, Space};
use crate::backend::ptx::layout_inference::{ViewShape, replica_bits};
use crate::backend::ptx::scalar::repr;
use crate::ir::OpId;

/// What is done for a vector: with its slots, its address and its mask.
type EachVector<'a> = &'a mut dyn FnMut(&mut Lowering<'_>, Range<usize>, &Addr, Option<Reg>);

impl Lowering<'_> {
    /// `load_view_tko`.
    pub fn load_view(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let ordering = Ordering::of(op);
        let mut access = self.begin_load(id)?;
        let layout = access.layout.clone();
        let all = 0..layout.num_registers();
        let slots = if ordering.is_weak() {
            self.load_slots(&mut access, all).into()
        } else {
            access.owner = self.owner_of(replica_bits(&layout));
            let begun = self.begin_ordered(id, ordering, access.num_instructions(), true)?;
            access.say(begun);
            let slots = self.load_slots(&mut access, all);
            let (slots, met) = self.share(begun, access.element_type(), &layout, slots)?;
            self.end_ordered(begun, met)?;
            slots
        };
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    /// `store_view_tko`.
    pub fn store_view(&mut self, id: OpId) -> Lowered {
        let layout =
            self.context.inference.accesses.get(&id).cloned().ok_or("only partition views can be stored to")?;
        let op = self.module.op(id);
        let slots = self.get(op.group(0)[0], &layout)?;
        let mut access = self.begin_store(id)?;
        let begun = self.begin_ordered(id, Ordering::of(op), access.num_instructions(), true)?;
        access.say(begun);
        self.store_slots(&mut access, 0, &slots);
        self.end_ordered(begun, false)?;
        Ok(())
    }

    /// What all vectors of a load share; orders it after earlier stores.
    pub fn begin_load(&mut self, id: OpId) -> Lowered<Access> {
        let op = self.module.op(id);
        let layout = self.context.inference.accesses.get(&id).cloned().ok_or("only partition views can be loaded")?;
        let view = op.group(0)[0];
        let shape = ViewShape::at(self.module, &self.context.inference.facts, view, op.group(1));
        let shift = shape.filter(|_| Ordering::of(op).is_weak());
        let shift = shift.and_then(|shape| self.shift_of(&shape, op.group(1), &layout));
        let mut access = self.access(id, view, op.group(1), &layout, shift)?;
        self.order(id)?;
        access.mods.nc = self.data_space == Space::Global && self.context.is_invariant_load(id);
        access.mods.cache = self.cache_hint(id);
        self.apart_in_lanes(id, &mut access);
        self.remarks.access(self.module, id, op.results[0], access.way());
        Ok(access)
    }

    /// What all vectors of a store share; orders it after earlier accesses.
    pub fn begin_store(&mut self, id: OpId) -> Lowered<Access> {
        let op = self.module.op(id);
        let layout =
            self.context.inference.accesses.get(&id).cloned().ok_or("only partition views can be stored to")?;
        let mut access = self.access(id, op.group(1)[0], op.group(2), &layout, None)?;
        self.order(id)?;
        access.mods.cache = self.cache_hint(id);
        access.owner = self.owner_of(replica_bits(&layout));
        self.remarks.access(self.module, id, op.group(0)[0], access.way());
        Ok(access)
    }

    /// Loads the slots of a range (a multiple of the vector).
    pub fn load_slots(&mut self, access: &mut Access, range: Range<usize>) -> Vec<Operand> {
        let Some(axis) = access.ragged else { return self.load_vectors(access, range) };
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let inside = self.whole(access, axis);
        self.b.bra_if(inside, true, slow, true);
        let fast = self.load_vectors(access, range.clone());
        let class = repr::class(access.element_type());
        let merged: Vec<Reg> = fast.iter().map(|&value| self.b.copy(value, class)).collect();
        self.b.bra(done, true);
        self.b.place(slow);
        let singles = access.element_by_element(|access| self.load_vectors(access, range));
        for (&dst, value) in merged.iter().zip(singles) {
            self.b.mov_to(dst, value);
        }
        self.b.place(done);
        merged.into_iter().map(Operand::from).collect()
    }

    /// Stores slots from `first` on (a multiple of the vector).
    pub fn store_slots(&mut self, access: &mut Access, first: usize, slots: &[Operand]) {
        let (dtype, mods) = (access.element_type(), access.mods);
        self.each_vector(access, first..first + slots.len(), &mut |this, range, addr, guard| {
            let run = &slots[range.start - first..range.end - first];
            vector::store(&mut this.b, this.data_space, dtype, run, addr, mods, guard);
        });
    }

    /// Something for each vector of a range of slots: with its slots, its address and its mask.
    pub fn each_vector(&mut self, access: &mut Access, slots: Range<usize>, body: EachVector<'_>) {
        let Some(axis) = access.ragged else { return self.vectors(access, slots, body) };
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let inside = self.whole(access, axis);
        self.b.bra_if(inside, true, slow, true);
        self.vectors(access, slots.clone(), body);
        self.b.bra(done, true);
        self.b.place(slow);
        access.element_by_element(|access| self.vectors(access, slots, body));
        self.b.place(done);
    }

    /// What all vectors of a reduction into an array share; orders it after earlier accesses.
    pub fn begin_reduction_of_view(&mut self, id: OpId) -> Lowered<Access> {
        let op = self.module.op(id);
        let layout =
            self.context.inference.accesses.get(&id).cloned().ok_or("only partition views can be reduced into")?;
        let mut access = self.access(id, op.group(0)[0], op.group(1), &layout, None)?;
        self.order(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        Ok(access)
    }

    fn load_vectors(&mut self, access: &mut Access, range: Range<usize>) -> Vec<Operand> {
        if let Some(shift) = access.shift {
            return self.load_shifted(access, range, shift);
        }
        let dtype = access.element_type();
        let mut slots = Vec::with_capacity(range.len());
        for start in range.step_by(access.vector()) {
            let addr = self.address(access, start);
            let guard = self.mask(access, start, (0, 0)).map(|pred| (pred, access.otherwise));
            slots.extend(vector::load(&mut self.b, self.data_space, dtype, access.vector(), &addr, access.mods, guard));
        }
        slots
    }

    fn vectors(&mut self, access: &mut Access, slots: Range<usize>, body: EachVector<'_>) {
        for start in slots.step_by(access.vector()) {
            let addr = self.address(access, start);
            let guard = self.mask(access, start, (0, 0));
            body(self, start..start + access.vector(), &addr, guard);
        }
    }
}
