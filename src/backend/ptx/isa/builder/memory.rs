//! Loads, stores, atomics, asynchronous copies and fences.

use super::super::inst::*;
use super::Builder;
use crate::backend::ptx::isa::emit::Param;
use crate::util::collect::CollectVec as _;

impl Builder {
    /// Adds a scalar entry parameter and loads it.
    pub fn param_value(&mut self, ty: Ty) -> Operand {
        let param = self.param(Param::Scalar(ty));
        self.ld(Space::Param, ty, &param.into(), MemMods::default()).into()
    }

    /// Returns `base + offset` in bytes as an address: constants become part of the instruction.
    pub fn address(&mut self, base: impl Into<Operand>, offset: impl Into<Operand>) -> Addr {
        let (base, offset) = (base.into(), offset.into());
        match (base, offset.as_imm()) {
            (base, Some(bytes)) if i32::try_from(bytes).is_ok() => Addr::new(base, bytes),
            (Operand::Smem, None) => Addr::new(offset, 0).relative_to_smem(self),
            (base, _) => {
                let ty =
                    if matches!(base, Operand::Reg(reg) if reg.class == RegClass::B64) { Ty::S64 } else { Ty::S32 };
                Addr::new(self.add(ty, base, offset), 0)
            }
        }
    }

    /// Converts an address in shared memory to a generic one, both of 64 bits.
    pub fn generic_of_shared(&mut self, shared: Operand) -> Reg {
        let shared = self.reg(shared, RegClass::B64);
        let dst = self.fresh(RegClass::B64);
        self.push(Opcode::CvtaFromShared, vec![dst.into()], vec![shared.into()]);
        dst
    }

    /// Loads one value. Integers of 8 and 16 bits are extended to B32 according to `ty`.
    pub fn ld(&mut self, space: Space, ty: Ty, addr: &Addr, mods: MemMods) -> Reg {
        self.ld_vec(space, ty, 1, addr, mods)[0]
    }

    /// Loads `count` (1, 2 or 4) adjacent values by one instruction.
    pub fn ld_vec(&mut self, space: Space, ty: Ty, count: usize, addr: &Addr, mods: MemMods) -> Vec<Reg> {
        let dsts = self.fresh_vec(memory_class(ty), count);
        self.ld_to(&dsts, space, ty, addr, mods, None);
        dsts
    }

    /// Loads into existing registers, with an optional cache policy (a B64 register).
    pub fn ld_to(&mut self, dsts: &[Reg], space: Space, ty: Ty, addr: &Addr, mods: MemMods, policy: Option<Reg>) {
        let address = Arg::Mem(addr.clone());
        let mut srcs = vec![address];
        srcs.extend(policy.map(Arg::from));
        let op = Opcode::Ld { space, ty, vec: dsts.len() as u32, mods, hint: policy.is_some() };
        self.push(op, vec![vector(dsts.iter().map(|&d| d.into()).collect_vec())], srcs);
    }

    /// Stores one value.
    pub fn st(&mut self, space: Space, ty: Ty, addr: &Addr, value: impl Into<Operand>, mods: MemMods) {
        self.st_vec(space, ty, addr, &[value.into()], mods);
    }

    /// Stores 1, 2 or 4 adjacent values by one instruction.
    pub fn st_vec(&mut self, space: Space, ty: Ty, addr: &Addr, values: &[Operand], mods: MemMods) {
        let values: Vec<Operand> = values.iter().map(|&v| self.reg(v, memory_class(ty)).into()).collect_vec();
        let address = Arg::Mem(addr.clone());
        let op = Opcode::St { space, ty, vec: values.len() as u32, mods, hint: false };
        self.push(op, vec![], vec![address, vector(values)]);
    }

    /// Returns the generic address of a parameter (of a tensor map).
    pub fn param_address(&mut self, param: Operand) -> Reg {
        let raw = self.copy(param, RegClass::B64);
        let dst = self.fresh(RegClass::B64);
        self.push(Opcode::CvtaParam, vec![dst.into()], vec![raw.into()]);
        dst
    }

    /// Emits an atomic that returns the old value; operands of `Cas` are the expected and the new
    /// value.
    pub fn atom(
        &mut self,
        op: AtomOp,
        ty: Ty,
        space: Space,
        order: (Sem, Scope),
        addr: &Addr,
        values: &[Operand],
    ) -> Reg {
        let dst = self.fresh(ty.class());
        self.atom_to(dst, op, ty, space, order, addr, values);
        dst
    }

    /// Emits [`Builder::atom`] into an existing register.
    #[allow(clippy::too_many_arguments)]
    pub fn atom_to(
        &mut self,
        dst: Reg,
        op: AtomOp,
        ty: Ty,
        space: Space,
        order: (Sem, Scope),
        addr: &Addr,
        values: &[Operand],
    ) {
        let mut srcs = vec![Arg::Mem(addr.clone())];
        for &value in values {
            srcs.push(self.reg(value, ty.class()).into());
        }
        self.push(Opcode::Atom { op, ty, space, sem: order.0, scope: order.1 }, vec![dst.into()], srcs);
    }

    /// Emits an atomic without result, of 1, 2, 4 or 8 adjacent values.
    pub fn red(&mut self, op: AtomOp, ty: Ty, space: Space, order: (Sem, Scope), addr: &Addr, values: &[Operand]) {
        let values: Vec<Operand> = values.iter().map(|&v| self.reg(v, ty.class()).into()).collect_vec();
        let address = Arg::Mem(addr.clone());
        let vec = values.len() as u32;
        self.push(
            Opcode::Red { op, ty, vec, space, sem: order.0, scope: order.1 },
            vec![],
            vec![address, vector(values)],
        );
    }

    /// Emits `fence`: acquire-release for `AcqRel`, sequentially consistent otherwise.
    pub fn fence(&mut self, sem: Sem, scope: Scope) {
        self.push(Opcode::Fence(sem, scope), vec![], vec![]);
    }

    /// Makes earlier ordinary writes of this thread visible to asynchronous copies and wgmma.
    pub fn fence_proxy(&mut self, kind: ProxyFence) {
        self.push(Opcode::FenceProxy(kind), vec![], vec![]);
    }

    /// Copies `bytes` (4, 8 or 16) from global to shared memory; only the first `present` bytes are
    /// read, the rest is zero.
    pub fn cp_async(&mut self, dst: &Addr, src: &Addr, bytes: u32, present: Option<Operand>, prefetch: Prefetch) {
        let mut srcs = vec![Arg::Mem(dst.clone()), Arg::Mem(src.clone()), Operand::from(bytes).into()];
        if let Some(present) = present {
            srcs.push(self.source(present, Ty::U32).into());
        }
        self.push(Opcode::CpAsync { bypass_l1: bytes == 16, prefetch }, vec![], srcs);
    }

    /// Commits the current group of asynchronous copies.
    pub fn cp_async_commit_group(&mut self) {
        self.push(Opcode::CpAsyncCommitGroup, vec![], vec![]);
    }

    /// Waits until at most `pending` groups are in flight.
    pub fn cp_async_wait_group(&mut self, pending: u32) {
        self.push(Opcode::CpAsyncWaitGroup, vec![], vec![Operand::from(pending).into()]);
    }
}

impl Addr {
    /// Returns the address of a run-time offset from the start of shared memory.
    fn relative_to_smem(self, b: &mut Builder) -> Addr {
        let base = b.reg(Operand::Smem, RegClass::B32);
        Addr::new(b.add(Ty::S32, base, self.base), self.offset)
    }
}

/// Returns the class of a register that is loaded or stored. Memory instructions accept wider
/// registers, and integers below 32 bits are in B32.
fn memory_class(ty: Ty) -> RegClass {
    if matches!(ty, Ty::U16 | Ty::S16) { RegClass::B32 } else { ty.class() }
}

/// Returns one operand plain, several in braces.
pub(super) fn vector(list: Vec<Operand>) -> Arg {
    match list[..] {
        [one] => Arg::One(one),
        _ => Arg::Vector(list),
    }
}
