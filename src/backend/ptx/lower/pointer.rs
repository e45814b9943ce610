//! Loads and stores through pointers, and the addresses that they take.
//!
//! Where neighbouring slots of a thread are neighbours in memory (`infer::pointer`), only the address of the first
//! one is asked for, and one access covers them all: under one mask, if the mask is the same in all of them. Else
//! threads whose elements are all there take the wide accesses, and the others go element by element.

use super::order::Ordering;
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{Addr, CvtMods, MemMods, Operand, Reg, RegClass, Space, Ty};
use crate::backend::ptx::layout_inference::{mask_of, pointers_of, replica_bits};
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::leaders;
use crate::dtype::DType;
use crate::ir::{Elem, OpId, Type, Value};
use crate::layout::Layout;

/// An access through pointers: what its vectors share.
#[derive(Clone)]
pub struct PointerAccess {
    /// Type of the elements in memory.
    pub dtype: DType,
    /// The layout of the elements.
    pub layout: Layout,
    /// Slots of one vector.
    pub vector: usize,
    /// The address of each vector.
    pub addresses: Vec<Operand>,
    /// The mask: one operand a vector, or one a slot.
    pub mask: Mask,
    /// Threads that access, where several hold the same element.
    pub owner: Option<Reg>,
}

/// Which elements are accessed.
#[derive(Clone, Debug)]
pub enum Mask {
    /// All.
    None,
    /// Those of vectors whose operand is true.
    Vectors(Vec<Operand>),
    /// Those whose operand is true.
    Slots(Vec<Operand>),
}

impl Lowering<'_> {
    /// `load_ptr_tko`.
    pub fn load_ptr(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let ordering = Ordering::of(op);
        let mut access = self.pointer_access(id)?;
        if !ordering.is_weak() {
            access.owner = self.owner_of(replica_bits(&access.layout));
        }
        let begun = self.begin_ordered(id, ordering, access.addresses.len(), true)?;
        let (sem, scope) = begun.semantics();
        let nc = ordering.is_weak()
            && self.data_space == Space::Global
            && self.context.written.is_read_only(module, op.operands[0]);
        let cache = self.cache_hint(id);
        let mods = MemMods { sem, scope, nc, cache, ..MemMods::default() };
        let padding = op.operand_group("padding_value").first().copied();
        let otherwise = self.context.constant_padding(padding);
        let mut slots = self.load_pointers(&mut access, mods, otherwise.unwrap_or(0));
        if !ordering.is_weak() {
            let (shared, met) = self.share(begun, access.dtype, &access.layout, slots)?;
            slots = shared.to_vec();
            self.end_ordered(begun, met)?;
        }
        let slots = match padding.filter(|_| otherwise.is_none()) {
            Some(padding) => self.pad(&access, slots, padding)?,
            None => slots,
        };
        self.note_way(id, op.results[0], &access);
        self.tiles[op.results[0].index()] = Some(Tile { layout: access.layout, slots: slots.into() });
        Ok(())
    }

    /// `store_ptr_tko`.
    pub fn store_ptr(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let value = op.group(1)[0];
        let layout = self.access_layout(id)?;
        let slots = self.get(value, &layout)?;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let begun = self.begin_ordered(id, Ordering::of(op), access.addresses.len(), true)?;
        let (sem, scope) = begun.semantics();
        let cache = self.cache_hint(id);
        self.store_pointers(&mut access, &slots, MemMods { sem, scope, cache, ..MemMods::default() });
        self.end_ordered(begun, false)?;
        self.note_way(id, value, &access);
        Ok(())
    }

    /// The layout of an access through pointers.
    pub fn access_layout(&self, id: OpId) -> Lowered<Layout> {
        self.context
            .inference
            .accesses
            .get(&id)
            .cloned()
            .ok_or_else(|| "an access through pointers has no layout".to_owned())
    }

    /// Addresses and masks of an access.
    pub fn pointer_access(&mut self, id: OpId) -> Lowered<PointerAccess> {
        let module = self.module;
        let op = module.op(id);
        let pointers = pointers_of(op).ok_or("an access without pointers")?;
        let Type::Tile { elem: Elem::Ptr { pointee: dtype, .. }, .. } = *module.ty(pointers) else {
            return Err("an access through numbers".to_owned());
        };
        if dtype.storage_bits() < 8 {
            return Err(format!("a pointer to one {dtype}: two of them share a byte"));
        }
        let layout = self.access_layout(id)?;
        let run = self.context.inference.pointer_contiguity.get(&id).copied();
        let vector = run.map_or(1, |run| run.vector.min(layout.vector_len(run.axis)).min(layout.num_registers()));
        let leaders = leaders(&layout, vector);
        // An address that is known is no operand of a memory instruction: ptxas would judge it.
        let addresses = self.get(pointers, &leaders)?.to_vec();
        let addresses = addresses.into_iter().map(|address| self.b.reg(address, RegClass::B64).into()).collect();
        let mask = match mask_of(op) {
            Some(mask) if self.is_true(mask) => Mask::None,
            Some(mask) => {
                let axis = run.map_or(0, |run| run.axis);
                match self.context.inference.is_same_in_groups(mask, axis, vector) {
                    true => Mask::Vectors(self.get(mask, &leaders)?.to_vec()),
                    false => Mask::Slots(self.get(mask, &layout)?.to_vec()),
                }
            }
            None => Mask::None,
        };
        Ok(PointerAccess { dtype, layout, vector, addresses, mask, owner: None })
    }

    fn is_true(&self, mask: Value) -> bool {
        self.context.inference.facts.constant(mask).is_some_and(|value| value != 0)
    }

    fn note_way(&mut self, id: OpId, tile: Value, access: &PointerAccess) {
        let count = (access.layout.num_registers() / access.vector) as u32;
        let bytes = vector::run_bytes(access.dtype, access.vector);
        let ragged = access.vector > 1 && matches!(access.mask, Mask::Slots(_));
        self.remarks.access(self.module, id, tile, Way::Threads { count, bytes, ragged });
    }

    /// Puts the padding where the mask is false.
    fn pad(&mut self, access: &PointerAccess, loaded: Vec<Operand>, padding: Value) -> Lowered<Vec<Operand>> {
        let padding = self.get(padding, &access.layout)?;
        let class = repr::class(access.dtype);
        let mut slots = Vec::with_capacity(loaded.len());
        for (slot, (&value, &otherwise)) in loaded.iter().zip(padding.iter()).enumerate() {
            let mask = match &access.mask {
                Mask::None => None,
                Mask::Vectors(mask) => Some(mask[slot / access.vector]),
                Mask::Slots(mask) => Some(mask[slot]),
            };
            slots.push(match mask {
                None => value,
                Some(mask) => {
                    let mask = self.b.reg(mask, RegClass::Pred);
                    self.b.select(class, mask, value, otherwise)
                }
            });
        }
        Ok(slots)
    }

    /// True in threads all of whose slots are accessed.
    fn all_of(&mut self, mask: &[Operand]) -> Operand {
        let mut different: Vec<Operand> = Vec::new();
        for &slot in mask {
            if !different.contains(&slot) {
                different.push(slot);
            }
        }
        different.into_iter().reduce(|all, slot| self.b.and(Ty::Pred, all, slot)).unwrap_or(Operand::Imm(1))
    }

    fn load_pointers(&mut self, access: &mut PointerAccess, mods: MemMods, otherwise: u64) -> Vec<Operand> {
        let Mask::Slots(mask) = &access.mask else { return self.load_runs(access, mods, otherwise) };
        if access.vector == 1 {
            return self.load_runs(access, mods, otherwise);
        }
        let mask = mask.clone();
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let all = self.all_of(&mask);
        let all = self.b.reg(all, RegClass::Pred);
        self.b.bra_if(all, true, slow, false);
        access.mask = Mask::None;
        let fast = self.load_runs(access, mods, otherwise);
        let class = repr::class(access.dtype);
        let merged: Vec<Reg> = fast.iter().map(|&value| self.b.copy(value, class)).collect();
        self.b.bra(done, false);
        self.b.place(slow);
        access.mask = Mask::Slots(mask);
        let singles = self.load_singles(access, mods, otherwise);
        for (&dst, value) in merged.iter().zip(singles) {
            self.b.mov_to(dst, value);
        }
        self.b.place(done);
        merged.into_iter().map(Operand::from).collect()
    }

    /// One access a vector.
    fn load_runs(&mut self, access: &PointerAccess, mods: MemMods, otherwise: u64) -> Vec<Operand> {
        let mut slots = Vec::with_capacity(access.layout.num_registers());
        for (index, &address) in access.addresses.iter().enumerate() {
            let guard = self.guard(access, index, index).map(|pred| (pred, otherwise));
            let addr = self.b.address(address, 0);
            slots.extend(vector::load(&mut self.b, self.data_space, access.dtype, access.vector, &addr, mods, guard));
        }
        slots
    }

    /// One access a slot, at its place in the vector.
    fn load_singles(&mut self, access: &PointerAccess, mods: MemMods, otherwise: u64) -> Vec<Operand> {
        let mut slots = Vec::with_capacity(access.layout.num_registers());
        for slot in 0..access.layout.num_registers() {
            let guard = self.guard(access, slot / access.vector, slot).map(|pred| (pred, otherwise));
            let addr = self.slot_address(access, slot);
            slots.extend(vector::load(&mut self.b, self.data_space, access.dtype, 1, &addr, mods, guard));
        }
        slots
    }

    /// Stores slots where the mask and the ownership allow it.
    fn store_pointers(&mut self, access: &mut PointerAccess, slots: &[Operand], mods: MemMods) {
        let Mask::Slots(mask) = &access.mask else { return self.store_runs(access, slots, mods) };
        if access.vector == 1 {
            return self.store_runs(access, slots, mods);
        }
        let mask = mask.clone();
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let all = self.all_of(&mask);
        let all = self.b.reg(all, RegClass::Pred);
        self.b.bra_if(all, true, slow, false);
        access.mask = Mask::None;
        self.store_runs(access, slots, mods);
        self.b.bra(done, false);
        self.b.place(slow);
        access.mask = Mask::Slots(mask);
        for (slot, &value) in slots.iter().enumerate() {
            let guard = self.guard(access, slot / access.vector, slot);
            let addr = self.slot_address(access, slot);
            vector::store(&mut self.b, self.data_space, access.dtype, &[value], &addr, mods, guard);
        }
        self.b.place(done);
    }

    fn store_runs(&mut self, access: &PointerAccess, slots: &[Operand], mods: MemMods) {
        for (index, run) in slots.chunks(access.vector).enumerate() {
            let guard = self.guard(access, index, index);
            let addr = self.b.address(access.addresses[index], 0);
            vector::store(&mut self.b, self.data_space, access.dtype, run, &addr, mods, guard);
        }
    }

    /// The address of the element in a slot.
    pub fn slot_address(&mut self, access: &PointerAccess, slot: usize) -> Addr {
        let size = i64::from(access.dtype.storage_bits() / 8);
        self.b.address(access.addresses[slot / access.vector], (slot % access.vector) as i64 * size)
    }

    /// The predicate of a vector, or of a slot; none where the access happens in any case.
    pub fn guard(&mut self, access: &PointerAccess, vector: usize, slot: usize) -> Option<Reg> {
        let mask = match &access.mask {
            Mask::None => return access.owner,
            Mask::Vectors(mask) => mask[vector],
            Mask::Slots(mask) => mask[slot],
        };
        if mask.as_imm().is_some_and(|value| value != 0) {
            return access.owner;
        }
        Some(match access.owner {
            Some(owner) => {
                let both = self.b.and(Ty::Pred, owner, mask);
                self.b.reg(both, RegClass::Pred)
            }
            None => self.b.reg(mask, RegClass::Pred),
        })
    }

    /// `offset`: the address plus so many elements.
    pub fn offset(&mut self, id: OpId, operands: &[&[Operand]], count: usize) -> Lowered<Vec<Operand>> {
        let op = self.module.op(id);
        let Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } = *self.module.ty(op.results[0]) else {
            return Err("an offset of a number".to_owned());
        };
        let bits = i64::from(pointee.storage_bits());
        let dtype = self.module.dtype(op.operands[1]);
        let mut slots: Vec<Operand> = Vec::with_capacity(count);
        for slot in 0..count {
            let (base, offset) = (operands[0][slot], operands[1][slot]);
            let same = (0..slot).rev().take(16).find(|&s| operands[0][s] == base && operands[1][s] == offset);
            if let Some(same) = same {
                slots.push(slots[same]);
                continue;
            }
            let offset = repr::sign_extended(&mut self.b, dtype, offset);
            let bytes = match (dtype, bits) {
                (DType::I64, 8..) => self.b.mul(Ty::S64, offset, bits / 8),
                (DType::I64, _) => self.b.shr(Ty::S64, offset, 1),
                (_, 8) => self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), offset),
                (_, 9..) => self.b.mul_wide(Ty::S32, offset, bits / 8),
                _ => {
                    let half = self.b.shr(Ty::S32, offset, 1);
                    self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), half)
                }
            };
            slots.push(self.b.add(Ty::S64, base, bytes));
        }
        Ok(slots)
    }
}
