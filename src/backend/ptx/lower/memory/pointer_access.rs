//! Loads and stores through pointer tiles, with their addresses and masks.
//!
//! If consecutive registers of a thread are contiguous in memory (analysis of pointer contiguity),
//! one access covers them:
//! * Only the address of its first element is computed.
//! * If all of its elements have the same mask, this mask guards the access.
//! * Otherwise threads with complete masks use vectors, and the others access single elements.

use crate::backend::ptx::isa::inst::{Addr, Label, MemMods, Operand, Reg, RegClass, Space, Ty};
use crate::backend::ptx::layout_inference::{pointee, replica_bits};
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::remarks::DataPath;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{MemOrder, OpId, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// An access through pointers: addresses and masks of its vectors.
#[derive(Clone)]
pub struct PointerAccess {
    /// Element type in memory.
    pub dtype: DType,
    /// Layout of the elements.
    pub layout: Layout,
    /// Registers per vector.
    pub vector: usize,
    /// Address of each vector.
    pub addresses: Vec<Operand>,
    /// Mask, for each vector or for each register.
    pub mask: Mask,
    /// Predicate of the threads that access, if several hold the same element.
    pub owner: Option<Reg>,
}

/// Mask of an access.
#[derive(Clone, Debug)]
pub enum Mask {
    /// All elements.
    None,
    /// One operand for each vector.
    Vectors(Vec<Operand>),
    /// One operand for each register.
    Registers(Vec<Operand>),
}

/// Code under the mask of an access, for threads with elements outside of the mask.
struct MaskedCode {
    mask: Vec<Operand>,
    label: Label,
    /// The label after both codes.
    done: Label,
}

impl Lowering<'_> {
    /// Lowers `load_ptr_tko`.
    pub fn load_ptr(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let op = module.op(id);
        let mut access = self.pointer_access(id)?;
        let is_weak = op.mem_order() == MemOrder::Weak;
        if !is_weak {
            access.owner = self.owner_of(replica_bits(&access.layout));
        }
        let begun = self.begin_ordered(id, access.addresses.len(), true)?;
        let (sem, scope) = begun.semantics();
        let nc = is_weak
            && self.smem.data_space == Space::Global
            && self.info.written_memory.is_constant(module, op.operands[0]);
        let cache = self.cache_hint(id);
        let mods = MemMods { sem, scope, nc, cache, ..MemMods::default() };
        let padding = op.operand_group("padding_value").first().copied();
        let constant_padding = self.info.constant_padding(padding);
        let mut regs = self.load_pointers(&mut access, mods, constant_padding.unwrap_or(0));
        if !is_weak {
            regs = self.end_ordered_load(begun, access.dtype, &access.layout, regs)?.to_vec();
        }
        let regs = if constant_padding.is_none() { self.pad(&access, regs)? } else { regs };
        self.remark_access(id, op.results[0], &access);
        self.values.define(op.results[0], Tile { layout: access.layout, regs: regs.into() });
        Ok(())
    }

    /// Lowers `store_ptr_tko`.
    pub fn store_ptr(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Tile { layout, regs } = self.operand()?;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let begun = self.begin_ordered(id, access.addresses.len(), true)?;
        let (sem, scope) = begun.semantics();
        let cache = self.cache_hint(id);
        self.store_pointers(&mut access, &regs, MemMods { sem, scope, cache, ..MemMods::default() });
        self.end_ordered(begun)?;
        self.remark_access(id, op.group(1)[0], &access);
        Ok(())
    }

    /// Computes addresses and masks of an access.
    pub fn pointer_access(&mut self, id: OpId) -> Lowered<PointerAccess> {
        let module = self.module;
        let op = module.op(id);
        let dtype = pointee(module, op.operands[0]).ok_or("an access through numbers")?;
        if dtype.storage_bits() < 8 {
            return Err(format!("a pointer to one {dtype}: two of them share a byte"));
        }
        let layout = self.info.inference.op_layouts.get(&id).cloned();
        let layout = layout.ok_or("an access through pointers has no layout")?;
        // Constant addresses are copied to registers: ptxas rejects some constants as addresses.
        let addresses = self.operand()?.regs;
        let addresses: Vec<Operand> =
            addresses.iter().map(|&address| self.b.reg(address, RegClass::B64).into()).collect_vec();
        let mask = match self.info.access_mask(id) {
            Some(_) => match self.operand()?.regs.to_vec() {
                mask if mask.len() == addresses.len() => Mask::Vectors(mask),
                mask => Mask::Registers(mask),
            },
            None => Mask::None,
        };
        let vector = layout.num_registers() / addresses.len();
        Ok(PointerAccess { dtype, layout, vector, addresses, mask, owner: None })
    }

    fn remark_access(&mut self, id: OpId, tile: Value, access: &PointerAccess) {
        let count = (access.layout.num_registers() / access.vector) as u32;
        let bytes = vector_access::run_bytes(access.dtype, access.vector);
        let ragged = access.vector > 1 && matches!(access.mask, Mask::Registers(_));
        self.report.remarks.access(self.module, id, tile, DataPath::Direct { accesses: count, bytes, masked: ragged });
        let is_load = self.module.op(id).results.contains(&tile);
        self.report.remarks.has_loads_in_mma_loops |= is_load && self.info.is_in_mma_loop(id);
    }

    /// Selects the padding where the mask is false.
    fn pad(&mut self, access: &PointerAccess, loaded: Vec<Operand>) -> Lowered<Vec<Operand>> {
        let padding = self.operand()?.regs;
        let class = repr::class(access.dtype);
        let mut regs = Vec::with_capacity(loaded.len());
        for (register, (&value, &padding)) in loaded.iter().zip(padding.iter()).enumerate() {
            let mask = match &access.mask {
                Mask::None => None,
                Mask::Vectors(mask) => Some(mask[register / access.vector]),
                Mask::Registers(mask) => Some(mask[register]),
            };
            regs.push(match mask {
                None => value,
                Some(mask) => {
                    let mask = self.b.reg(mask, RegClass::Pred);
                    self.b.select(class, mask, value, padding)
                }
            });
        }
        Ok(regs)
    }

    /// Returns a predicate: all registers of the thread are accessed.
    fn all_of(&mut self, mask: &[Operand]) -> Operand {
        let mut different: Vec<Operand> = Vec::new();
        for &register in mask {
            if !different.contains(&register) {
                different.push(register);
            }
        }
        different.into_iter().reduce(|all, register| self.b.and(Ty::Pred, all, register)).unwrap_or(Operand::Imm(1))
    }

    /// Begins the code of an access for threads whose elements are all inside of the mask, and
    /// removes the mask. Returns `None` if one code is enough.
    fn begin_unmasked(&mut self, access: &mut PointerAccess) -> Option<MaskedCode> {
        let mask = match &access.mask {
            Mask::Registers(mask) if access.vector > 1 => mask.clone(),
            _ => return None,
        };
        let (label, done) = (self.b.new_label(), self.b.new_label());
        let all = self.all_of(&mask);
        let all = self.b.reg(all, RegClass::Pred);
        self.b.bra_if(all, true, label, false);
        access.mask = Mask::None;
        Some(MaskedCode { mask, label, done })
    }

    /// Ends the code of [`begin_unmasked`](Self::begin_unmasked), and begins that under the mask.
    /// Returns the label after both.
    fn begin_masked(&mut self, access: &mut PointerAccess, masked: MaskedCode) -> Label {
        self.b.bra(masked.done, false);
        self.b.emit_label(masked.label);
        access.mask = Mask::Registers(masked.mask);
        masked.done
    }

    fn load_pointers(&mut self, access: &mut PointerAccess, mods: MemMods, padding: u64) -> Vec<Operand> {
        let Some(masked) = self.begin_unmasked(access) else { return self.load_runs(access, mods, padding) };
        let fast = self.load_runs(access, mods, padding);
        let class = repr::class(access.dtype);
        let merged: Vec<Reg> = fast.iter().map(|&value| self.b.copy(value, class)).collect_vec();
        let done = self.begin_masked(access, masked);
        let singles = self.load_singles(access, mods, padding);
        for (&dst, value) in merged.iter().zip(singles) {
            self.b.mov_to(dst, value);
        }
        self.b.emit_label(done);
        merged.into_iter().map(Operand::from).collect_vec()
    }

    /// Emits one load for each vector.
    fn load_runs(&mut self, access: &PointerAccess, mods: MemMods, padding: u64) -> Vec<Operand> {
        let mut regs = Vec::with_capacity(access.layout.num_registers());
        for (index, &address) in access.addresses.iter().enumerate() {
            let guard = self.guard(access, index, index).map(|pred| (pred, padding));
            let addr = self.b.address(address, 0);
            regs.extend(vector_access::load(
                &mut self.b,
                self.smem.data_space,
                access.dtype,
                access.vector,
                &addr,
                mods,
                guard,
            ));
        }
        regs
    }

    /// Emits one load for each register.
    fn load_singles(&mut self, access: &PointerAccess, mods: MemMods, padding: u64) -> Vec<Operand> {
        let mut regs = Vec::with_capacity(access.layout.num_registers());
        for register in 0..access.layout.num_registers() {
            let guard = self.guard(access, register / access.vector, register).map(|pred| (pred, padding));
            let addr = self.register_address(access, register);
            regs.extend(vector_access::load(&mut self.b, self.smem.data_space, access.dtype, 1, &addr, mods, guard));
        }
        regs
    }

    /// Emits stores under the mask and the ownership.
    fn store_pointers(&mut self, access: &mut PointerAccess, regs: &[Operand], mods: MemMods) {
        let Some(masked) = self.begin_unmasked(access) else { return self.store_runs(access, regs, mods) };
        self.store_runs(access, regs, mods);
        let done = self.begin_masked(access, masked);
        for (register, &value) in regs.iter().enumerate() {
            let guard = self.guard(access, register / access.vector, register);
            let addr = self.register_address(access, register);
            vector_access::store(&mut self.b, self.smem.data_space, access.dtype, &[value], &addr, mods, guard);
        }
        self.b.emit_label(done);
    }

    fn store_runs(&mut self, access: &PointerAccess, regs: &[Operand], mods: MemMods) {
        for (index, run) in regs.chunks(access.vector).enumerate() {
            let guard = self.guard(access, index, index);
            let addr = self.b.address(access.addresses[index], 0);
            vector_access::store(&mut self.b, self.smem.data_space, access.dtype, run, &addr, mods, guard);
        }
    }

    /// Returns the address of the element in a register.
    pub fn register_address(&mut self, access: &PointerAccess, register: usize) -> Addr {
        let size = i64::from(access.dtype.storage_bits() / 8);
        self.b.address(access.addresses[register / access.vector], (register % access.vector) as i64 * size)
    }

    /// Returns the guard of a vector or register; `None` if the access is unconditional.
    pub fn guard(&mut self, access: &PointerAccess, vector: usize, register: usize) -> Option<Reg> {
        let mask = match &access.mask {
            Mask::None => return access.owner,
            Mask::Vectors(mask) => mask[vector],
            Mask::Registers(mask) => mask[register],
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
}
