//! Atomics, orders of accesses, and results that only some threads have.
//!
//! A tile block is one thread of the memory model. So before an access that releases, all threads meet, and what each
//! did is behind it; after one that acquires they meet again. An access of one vector a thread carries its order itself;
//! several go relaxed between fences. Of threads that hold the same element one accesses, and if the access says
//! something that another one might not, tells the others by shared memory: they must not come to differ.

use std::rc::Rc;

use super::pointer::{Mask, PointerAccess};
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::inst::{
    Addr, AtomOp, Cmp, CvtRound, FloatMods, FloatOp, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Ty,
};
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{AtomicMode, Attr, AttrKind, MemOrder, MemScope, Op, OpId};
use crate::layout::Layout;

/// First target with additions of several neighbours at once, and with those of single bf16.
const WIDE_ADDITIONS: u32 = 90;

/// How an op orders memory.
#[derive(Clone, Copy, Debug)]
pub struct Ordering {
    order: MemOrder,
    scope: Scope,
}

impl Ordering {
    /// As the attributes say.
    pub fn of(op: &Op) -> Ordering {
        let order = match op.attr(AttrKind::MemOrder) {
            Some(Attr::MemOrder(order)) => *order,
            _ => MemOrder::Weak,
        };
        let scope = match op.attr(AttrKind::MemScope) {
            Some(Attr::MemScope(MemScope::Device)) => Scope::Gpu,
            Some(Attr::MemScope(MemScope::System)) => Scope::Sys,
            _ => Scope::Cta,
        };
        Ordering { order, scope }
    }

    /// Does it say nothing about other tile blocks?
    pub fn is_weak(self) -> bool {
        self.order == MemOrder::Weak
    }

    /// In no order, for the tile block or the device?
    pub fn is_relaxed_on_device(self) -> bool {
        self.order == MemOrder::Relaxed && self.scope != Scope::Sys
    }

    fn acquires(self) -> bool {
        matches!(self.order, MemOrder::Acquire | MemOrder::AcqRel)
    }

    fn releases(self) -> bool {
        matches!(self.order, MemOrder::Release | MemOrder::AcqRel)
    }

    /// The order as one instruction carries it.
    fn sem(self) -> Sem {
        match self.order {
            MemOrder::Weak => Sem::Weak,
            MemOrder::Relaxed => Sem::Relaxed,
            MemOrder::Acquire => Sem::Acquire,
            MemOrder::Release => Sem::Release,
            MemOrder::AcqRel => Sem::AcqRel,
        }
    }
}

/// An ordered access that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    ordering: Ordering,
    fenced: bool,
}

impl Begun {
    /// What each instruction says.
    pub fn semantics(self) -> (Sem, Scope) {
        let sem = match (self.fenced, self.ordering.sem()) {
            (true, Sem::Weak) | (false, Sem::Weak) => Sem::Weak,
            (true, _) => Sem::Relaxed,
            (false, sem) => sem,
        };
        (sem, self.ordering.scope)
    }
}

impl Lowering<'_> {
    /// What comes before an access with so many instructions a thread; `carries`: they can say the order themselves.
    pub fn begin_ordered(&mut self, ordering: Ordering, count: usize, carries: bool) -> Begun {
        let fenced = (ordering.acquires() || ordering.releases()) && (count > 1 || !carries);
        if ordering.releases() {
            self.barrier();
            if fenced {
                self.b.fence(Sem::AcqRel, ordering.scope);
            }
        }
        Begun { ordering, fenced }
    }

    /// What comes after it; `met`: all threads have met since.
    pub fn end_ordered(&mut self, begun: Begun, met: bool) {
        if begun.ordering.acquires() && !met {
            if begun.fenced {
                self.b.fence(Sem::AcqRel, begun.ordering.scope);
            }
            self.barrier();
        }
    }

    /// Slots that only the owners of elements have, in all threads; true if that took a barrier.
    pub fn share(
        &mut self,
        begun: Begun,
        dtype: DType,
        layout: &Layout,
        slots: Vec<Operand>,
    ) -> Lowered<(Rc<[Operand]>, bool)> {
        let Some(owner) = self.owner_of(Self::replica_bits(layout)) else { return Ok((slots.into(), false)) };
        if begun.fenced && begun.ordering.acquires() {
            self.b.fence(Sem::AcqRel, begun.ordering.scope);
        }
        let stored = vector::shared_type(dtype);
        let size = vector::run_bytes(stored, 1);
        let buffer = self.allocate(layout.num_elements() * size as usize)?;
        let images: Vec<u32> = Self::thread_images(layout).iter().map(|&image| image * size).collect();
        let thread = self.linear_in_thread(&images);
        if self.shared.write(buffer) {
            self.barrier();
            self.shared.write(buffer);
        }
        let places: Vec<Addr> = (0..layout.num_registers())
            .map(|slot| self.shared_place(buffer, thread, layout.element(slot, 0, 0) * size, 0))
            .collect();
        for (addr, &value) in places.iter().zip(&slots) {
            vector::store(&mut self.b, Space::Shared, stored, &[value], addr, MemMods::default(), Some(owner));
        }
        self.shared.read(buffer);
        self.barrier();
        self.shared.read(buffer);
        let mut all = Vec::with_capacity(slots.len());
        for addr in &places {
            all.extend(vector::load(&mut self.b, Space::Shared, stored, 1, addr, MemMods::default(), None));
        }
        Ok((all.into(), true))
    }

    /// `atomic_rmw_tko`.
    pub fn atomic_rmw(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) else {
            return Err("an atomic op without a mode".to_owned());
        };
        let layout = self.access_layout(id)?;
        let values = self.get(op.operands[1], &layout)?;
        self.order(id);
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(Self::replica_bits(&layout));
        let is_read = self.is_result_read(id);
        let loops = access.dtype == DType::BF16 && self.b.target.arch < WIDE_ADDITIONS;
        let ordering = Ordering::of(op);
        let carries = !loops && (is_read || *mode == AtomicMode::Xchg || !ordering.acquires());
        let slots = if is_read {
            let begun = self.begin_ordered(ordering, layout.num_registers(), carries);
            let old = self.each_slot(&access, &[&values], &|this, addr, guard, values| {
                this.atom(*mode, access.dtype, begun.semantics(), addr, guard, values)
            })?;
            let (all, met) = self.share(begun, access.dtype, &layout, old)?;
            self.end_ordered(begun, met);
            all
        } else if self.combine_in_block(id, &access, &values)? {
            vec![Operand::Imm(0); layout.num_registers()].into()
        } else {
            let width = self.red_width(*mode, &access);
            let begun = self.begin_ordered(ordering, layout.num_registers() / width, carries);
            self.reds(*mode, &access, width, &values, begun.semantics());
            self.end_ordered(begun, false);
            vec![Operand::Imm(0); layout.num_registers()].into()
        };
        self.note_atomic(id, &access);
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    /// `atomic_cas_tko`.
    pub fn atomic_cas(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let layout = self.access_layout(id)?;
        let expected = self.get(op.group(1)[0], &layout)?;
        let desired = self.get(op.group(2)[0], &layout)?;
        self.order(id);
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(Self::replica_bits(&layout));
        let begun = self.begin_ordered(Ordering::of(op), layout.num_registers(), true);
        let ty = if access.dtype.bits() == 64 { Ty::B64 } else { Ty::B32 };
        let class = repr::class(access.dtype);
        let old = self.each_slot(&access, &[&expected, &desired], &|this, addr, guard, values| {
            let bits: Vec<Operand> = values.iter().map(|&value| this.b.bitcast(value, ty.class())).collect();
            let dst = this.b.copy(bits[0], ty.class());
            let (sem, scope) = begun.semantics();
            let space = this.data_space;
            this.b.guarded_if(guard, |b| b.atom_to(dst, AtomOp::Cas, ty, space, (sem, scope), addr, &bits));
            Ok(this.b.bitcast(dst, class))
        })?;
        let (slots, met) = self.share(begun, access.dtype, &layout, old)?;
        self.end_ordered(begun, met);
        self.note_atomic(id, &access);
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    fn note_atomic(&mut self, id: OpId, access: &PointerAccess) {
        let (count, bytes) = (access.layout.num_registers() as u32, vector::run_bytes(access.dtype, 1));
        let tile = self.module.op(id).results[0];
        self.remarks.access(self.module, id, tile, Way::Threads { count, bytes, ragged: false });
    }

    /// Something for each slot, with its address, its guard and its operands.
    #[allow(clippy::type_complexity)]
    fn each_slot(
        &mut self,
        access: &PointerAccess,
        operands: &[&[Operand]],
        body: &dyn Fn(&mut Self, &Addr, Option<Reg>, &[Operand]) -> Lowered<Operand>,
    ) -> Lowered<Vec<Operand>> {
        let mut results = Vec::with_capacity(access.layout.num_registers());
        for slot in 0..access.layout.num_registers() {
            let addr = self.slot_address(access, slot);
            let guard = self.guard(access, slot / access.vector, slot);
            let values: Vec<Operand> = operands.iter().map(|slots| slots[slot]).collect();
            results.push(body(self, &addr, guard, &values)?);
        }
        Ok(results)
    }

    /// One atomic with its result: 0 where the guard does not hold.
    fn atom(
        &mut self,
        mode: AtomicMode,
        dtype: DType,
        order: (Sem, Scope),
        addr: &Addr,
        guard: Option<Reg>,
        values: &[Operand],
    ) -> Lowered<Operand> {
        if dtype == DType::BF16 && self.b.target.arch < WIDE_ADDITIONS {
            return Ok(self.add_bf16(order.1, addr, guard, values[0]));
        }
        let (op, ty) = form(mode, dtype)?;
        let value = self.b.bitcast(values[0], ty.class());
        let dst = match guard {
            Some(_) => self.b.copy(Operand::Imm(0), ty.class()),
            None => self.b.fresh(ty.class()),
        };
        let space = self.data_space;
        self.b.guarded_if(guard, |b| b.atom_to(dst, op, ty, space, order, addr, &[value]));
        Ok(self.b.bitcast(dst, repr::class(dtype)))
    }

    /// Additions of bf16 by compare-and-swap, for targets without them.
    fn add_bf16(&mut self, scope: Scope, addr: &Addr, guard: Option<Reg>, value: Operand) -> Operand {
        let (again, done) = (self.b.new_label(), self.b.new_label());
        let result = self.b.copy(Operand::Imm(0), RegClass::B16);
        if let Some(guard) = guard {
            self.b.bra_if(guard, true, done, false);
        }
        let value = self.b.cvt(Ty::F32, Ty::BF16, CvtRound::None, value);
        let mods = MemMods { sem: Sem::Relaxed, scope, ..MemMods::default() };
        self.b.ld_to(&[result], self.data_space, Ty::B16, addr, mods, None);
        self.b.place(again);
        let old = self.b.copy(result, RegClass::B16);
        let wide = self.b.cvt(Ty::F32, Ty::BF16, CvtRound::None, old);
        let sum = self.b.float(FloatOp::Add, Ty::F32, FloatMods::RN, &[wide, value]);
        let sum = self.b.cvt(Ty::BF16, Ty::F32, CvtRound::Rn, sum);
        let order = (Sem::Relaxed, scope);
        self.b.atom_to(result, AtomOp::Cas, Ty::B16, self.data_space, order, addr, &[old.into(), sum]);
        let words = [old, result].map(|half| self.b.pack(half, Operand::Imm(0)));
        let changed = self.b.setp(Cmp::Ne, Ty::B32, words[0], words[1]);
        self.b.bra_if(changed, false, again, false);
        self.b.place(done);
        result.into()
    }

    /// Slots that one addition without result may cover.
    fn red_width(&self, mode: AtomicMode, access: &PointerAccess) -> usize {
        let adds = mode == AtomicMode::AddF && matches!(access.dtype, DType::F32 | DType::F16 | DType::BF16);
        // Wide ones are for global memory alone.
        let together = !matches!(access.mask, Mask::Slots(_)) && self.data_space == Space::Global;
        if adds && together && self.b.target.arch >= WIDE_ADDITIONS { access.vector } else { 1 }
    }

    /// Atomics without results, `width` neighbours at a time.
    fn reds(
        &mut self,
        mode: AtomicMode,
        access: &PointerAccess,
        width: usize,
        values: &[Operand],
        order: (Sem, Scope),
    ) {
        for first in (0..values.len()).step_by(width) {
            let addr = self.slot_address(access, first);
            let guard = self.guard(access, first / access.vector, first);
            self.red(mode, access.dtype, order, &addr, guard, &values[first..first + width]);
        }
    }

    /// One atomic without result.
    pub fn red(
        &mut self,
        mode: AtomicMode,
        dtype: DType,
        order: (Sem, Scope),
        addr: &Addr,
        guard: Option<Reg>,
        values: &[Operand],
    ) {
        if dtype == DType::BF16 && self.b.target.arch < WIDE_ADDITIONS {
            for &value in values {
                self.add_bf16(order.1, addr, guard, value);
            }
            return;
        }
        let Ok((op, ty)) = form(mode, dtype) else { return };
        let values: Vec<Operand> = values.iter().map(|&value| self.b.bitcast(value, ty.class())).collect();
        let space = self.data_space;
        if op == AtomOp::Exch {
            // There is no exchange without result.
            let dst = self.b.fresh(ty.class());
            self.b.guarded_if(guard, |b| b.atom_to(dst, op, ty, space, order, addr, &values));
            return;
        }
        let values: Vec<Operand> = values.iter().map(|&value| self.b.reg(value, ty.class()).into()).collect();
        self.b.guarded_if(guard, |b| b.red(op, ty, space, order, addr, &values));
    }
}

/// Operation and type of the instruction.
pub fn form(mode: AtomicMode, dtype: DType) -> Lowered<(AtomOp, Ty)> {
    let wide = dtype.bits() == 64;
    let pick = |narrow: Ty, wide_ty: Ty| if wide { wide_ty } else { narrow };
    Ok(match mode {
        AtomicMode::Add => (AtomOp::Add, pick(Ty::U32, Ty::U64)),
        AtomicMode::Max => (AtomOp::Max, pick(Ty::S32, Ty::S64)),
        AtomicMode::Min => (AtomOp::Min, pick(Ty::S32, Ty::S64)),
        AtomicMode::UMax => (AtomOp::Max, pick(Ty::U32, Ty::U64)),
        AtomicMode::UMin => (AtomOp::Min, pick(Ty::U32, Ty::U64)),
        AtomicMode::And => (AtomOp::And, pick(Ty::B32, Ty::B64)),
        AtomicMode::Or => (AtomOp::Or, pick(Ty::B32, Ty::B64)),
        AtomicMode::Xor => (AtomOp::Xor, pick(Ty::B32, Ty::B64)),
        AtomicMode::Xchg => (AtomOp::Exch, pick(Ty::B32, Ty::B64)),
        AtomicMode::AddF => {
            let ty = match dtype {
                DType::F16 => Ty::F16,
                DType::BF16 => Ty::BF16,
                DType::F32 => Ty::F32,
                DType::F64 => Ty::F64,
                other => return Err(format!("no atomic addition of {other}")),
            };
            (AtomOp::Add, ty)
        }
    })
}
