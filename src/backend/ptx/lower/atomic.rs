//! Atomics: one instruction an element, or several neighbours at once.

use super::order::Ordering;
use super::pointer::{Mask, PointerAccess};
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{Addr, AtomOp, Operand, Reg, Scope, Sem, Space, Ty};
use crate::backend::ptx::layout_inference::replica_bits;
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{AtomicMode, Attr, AttrKind, OpId};

/// First target with additions of several neighbours at once.
const WIDE_ADDITIONS: u32 = 90;

impl Lowering<'_> {
    /// `atomic_rmw_tko`.
    pub fn atomic_rmw(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) else {
            return Err("an atomic op without a mode".to_owned());
        };
        let layout = self.access_layout(id)?;
        let values = self.get(op.operands[1], &layout)?;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let is_read = self.context.is_result_used(id);
        let ordering = Ordering::of(op);
        let carries =
            !self.is_half_loop(access.dtype) && (is_read || *mode == AtomicMode::Xchg || !ordering.acquires());
        let slots = if is_read {
            let begun = self.begin_ordered(id, ordering, layout.num_registers(), carries)?;
            let old = self.each_slot(&access, &[&values], &|this, addr, guard, values| {
                this.atom(*mode, access.dtype, begun.semantics(), addr, guard, values)
            })?;
            let (all, met) = self.share(begun, access.dtype, &layout, old)?;
            self.end_ordered(begun, met)?;
            all
        } else {
            let width = self.red_width(*mode, &access);
            let begun = self.begin_ordered(id, ordering, layout.num_registers() / width, carries)?;
            self.reds(*mode, &access, width, &values, begun.semantics());
            self.end_ordered(begun, false)?;
            vec![Operand::Imm(0); layout.num_registers()].into()
        };
        self.lanes_meet();
        self.note_atomic(id, &access);
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    /// `atomic_red_view_tko`.
    pub fn atomic_red_view(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) else {
            return Err("an atomic op without a mode".to_owned());
        };
        let value = op.group(2)[0];
        let dtype = self.context.element_type(value);
        form(*mode, dtype)?;
        let layout = self.access_layout(id)?;
        let slots = self.get(value, &layout)?;
        let mut access = self.begin_reduction_of_view(id)?;
        if !self.adds_together(*mode, dtype) {
            access.go_one_by_one();
        }
        let (order, all) = (Ordering::of(op).relaxed(), 0..layout.num_registers());
        self.each_vector(&mut access, all, &mut |this, range, addr, guard| {
            this.red(*mode, dtype, order, addr, guard, &slots[range]);
        });
        self.lanes_meet();
        self.remarks.access(self.module, id, value, access.way());
        Ok(())
    }

    /// `atomic_cas_tko`.
    pub fn atomic_cas(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let layout = self.access_layout(id)?;
        let expected = self.get(op.group(1)[0], &layout)?;
        let desired = self.get(op.group(2)[0], &layout)?;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let begun = self.begin_ordered(id, Ordering::of(op), layout.num_registers(), true)?;
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
        self.end_ordered(begun, met)?;
        self.lanes_meet();
        self.note_atomic(id, &access);
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    /// After atomics that some lanes leave out. ptxas makes one addition of those that all lanes aim at one address, in a
    /// region of its own; where that ends a branch of the program, ptxas 13.0 lets the lanes without leave both regions
    /// at once but waits for them at the end of the inner one, for ever. With an instruction between the ends it does not.
    pub fn lanes_meet(&mut self) {
        self.b.bar_warp_sync();
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
        if self.is_half_loop(dtype) {
            return Ok(self.half_loop(mode, dtype, order.1, addr, guard, values[0]));
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

    /// Slots that one addition without result may cover.
    fn red_width(&self, mode: AtomicMode, access: &PointerAccess) -> usize {
        let together = !matches!(access.mask, Mask::Slots(_));
        if together && self.adds_together(mode, access.dtype) { access.vector } else { 1 }
    }

    /// Can the target add several neighbours at once?
    fn adds_together(&self, mode: AtomicMode, dtype: DType) -> bool {
        let adds = mode == AtomicMode::AddF && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        // Wide ones are for global memory alone.
        adds && self.b.target.arch >= WIDE_ADDITIONS && self.data_space == Space::Global
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
        if self.is_half_loop(dtype) {
            for &value in values {
                self.half_loop(mode, dtype, order.1, addr, guard, value);
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
