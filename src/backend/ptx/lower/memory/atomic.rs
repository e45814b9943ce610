//! Atomics: scalar and vector `red` and `atom`.

use super::pointer_access::{Mask, PointerAccess};
use crate::backend::ptx::isa::inst::{Addr, AtomOp, Operand, Reg, Scope, Sem, Space, Ty};
use crate::backend::ptx::layout_inference::replica_bits;
use crate::backend::ptx::lower::state::memory_order::MemoryOrdering;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::remarks::DataPath;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{AtomicMode, Attr, AttrKind, OpId};
use crate::util::collect::CollectVec as _;

/// First target with vector additions.
const WIDE_ADDITIONS: u32 = 90;

impl Lowering<'_> {
    /// Lowers `atomic_rmw_tko`.
    pub fn atomic_rmw(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) else {
            return Err("an atomic op without a mode".to_owned());
        };
        let Tile { layout, regs: values } = self.operand()?;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let is_read = self.info.is_result_used(id);
        let carries =
            !self.needs_cas_loop(access.dtype) && (is_read || *mode == AtomicMode::Xchg || !op.mem_order().acquires());
        let regs = if is_read {
            let begun = self.begin_ordered(id, layout.num_registers(), carries)?;
            let old = self.each_register(&access, &[&values], &|this, addr, guard, values| {
                this.atom(*mode, access.dtype, begun.semantics(), addr, guard, values)
            })?;
            self.end_ordered_load(begun, access.dtype, &layout, old)?
        } else {
            let width = self.vector_of_red(*mode, &access);
            let begun = self.begin_ordered(id, layout.num_registers() / width, carries)?;
            self.reds(*mode, &access, width, &values, begun.semantics());
            self.end_ordered(begun)?;
            vec![Operand::Imm(0); layout.num_registers()].into()
        };
        self.reconverge_warp();
        self.note_atomic(id, &access);
        self.values.define(op.results[0], Tile { layout, regs });
        Ok(())
    }

    /// Lowers `atomic_red_view_tko`.
    pub fn atomic_red_view(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) else {
            return Err("an atomic op without a mode".to_owned());
        };
        let value = op.group(2)[0];
        let dtype = self.info.element_type(value);
        form(*mode, dtype)?;
        let Tile { layout, regs } = self.operand()?;
        let mut access = self.begin_view(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        if !self.has_vector_add(*mode, dtype) {
            access.use_single_elements();
        }
        let (order, all) = (MemoryOrdering::of(op).relaxed(), 0..layout.num_registers());
        self.each_vector(&mut access, all, &mut |this, range, addr, guard| {
            this.red(*mode, dtype, order, addr, guard, &regs[range]);
        });
        self.reconverge_warp();
        self.report.remarks.access(self.module, id, value, access.summary());
        Ok(())
    }

    /// Lowers `atomic_cas_tko`.
    pub fn atomic_cas(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Tile { layout, regs: expected } = self.operand()?;
        let desired = self.operand()?.regs;
        let mut access = self.pointer_access(id)?;
        access.owner = self.owner_of(replica_bits(&layout));
        let begun = self.begin_ordered(id, layout.num_registers(), true)?;
        let ty = match access.dtype.bits() {
            64 => Ty::B64,
            16 => Ty::B16,
            _ => Ty::B32,
        };
        let class = repr::class(access.dtype);
        let old = self.each_register(&access, &[&expected, &desired], &|this, addr, guard, values| {
            let bits = values.iter().map(|&value| match ty {
                Ty::B16 => repr::from_word(&mut this.b, DType::F16, value, 0),
                _ => this.b.bitcast(value, ty.class()),
            });
            let bits: Vec<Operand> = bits.collect_vec();
            let dst = this.b.copy(bits[0], ty.class());
            let (sem, scope) = begun.semantics();
            let space = this.smem.data_space;
            this.b.guarded_if(guard, |b| b.atom_to(dst, AtomOp::Cas, ty, space, (sem, scope), addr, &bits));
            Ok(match ty {
                Ty::B16 => repr::to_word(&mut this.b, DType::F16, dst.into()),
                _ => this.b.bitcast(dst, class),
            })
        })?;
        let regs = self.end_ordered_load(begun, access.dtype, &layout, old)?;
        self.reconverge_warp();
        self.note_atomic(id, &access);
        self.values.define(op.results[0], Tile { layout, regs });
        Ok(())
    }

    /// Reconverges the warp after predicated atomics.
    ///
    /// Symptom: ptxas 13.0 combines atomics of a warp to one address in a region of its own. If
    /// this region ends a branch of the program, lanes without an atomic leave both regions at
    /// once. The warp then waits for them forever at the end of the inner region. Workaround: an
    /// instruction between the ends.
    pub fn reconverge_warp(&mut self) {
        self.b.bar_warp_sync();
    }

    fn note_atomic(&mut self, id: OpId, access: &PointerAccess) {
        let (count, bytes) = (access.layout.num_registers() as u32, vector_access::run_bytes(access.dtype, 1));
        let tile = self.module.op(id).results[0];
        self.report.remarks.access(self.module, id, tile, DataPath::Direct { accesses: count, bytes, masked: false });
    }

    /// Calls `body` for each register, with its address, its guard and its operands.
    #[allow(clippy::type_complexity)]
    fn each_register(
        &mut self,
        access: &PointerAccess,
        operands: &[&[Operand]],
        body: &dyn Fn(&mut Self, &Addr, Option<Reg>, &[Operand]) -> Lowered<Operand>,
    ) -> Lowered<Vec<Operand>> {
        let mut results = Vec::with_capacity(access.layout.num_registers());
        for register in 0..access.layout.num_registers() {
            let addr = self.register_address(access, register);
            let guard = self.guard(access, register / access.vector, register);
            let values: Vec<Operand> = operands.iter().map(|regs| regs[register]).collect_vec();
            results.push(body(self, &addr, guard, &values)?);
        }
        Ok(results)
    }

    /// Emits one atomic. Its result is 0 if the guard is false.
    fn atom(
        &mut self,
        mode: AtomicMode,
        dtype: DType,
        order: (Sem, Scope),
        addr: &Addr,
        guard: Option<Reg>,
        values: &[Operand],
    ) -> Lowered<Operand> {
        if self.needs_cas_loop(dtype) {
            return Ok(self.cas_loop(mode, dtype, order.1, addr, guard, values[0]));
        }
        let (op, ty) = form(mode, dtype)?;
        let value = self.b.bitcast(values[0], ty.class());
        let dst = match guard {
            Some(_) => self.b.copy(Operand::Imm(0), ty.class()),
            None => self.b.fresh(ty.class()),
        };
        let space = self.smem.data_space;
        self.b.guarded_if(guard, |b| b.atom_to(dst, op, ty, space, order, addr, &[value]));
        Ok(self.b.bitcast(dst, repr::class(dtype)))
    }

    /// Returns the number of registers that one reduction covers.
    fn vector_of_red(&self, mode: AtomicMode, access: &PointerAccess) -> usize {
        let together = !matches!(access.mask, Mask::Registers(_));
        if together && self.has_vector_add(mode, access.dtype) { access.vector } else { 1 }
    }

    /// Returns true if the target can add vectors of this type.
    fn has_vector_add(&self, mode: AtomicMode, dtype: DType) -> bool {
        let adds = mode == AtomicMode::AddF && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        // Vector additions exist for global memory alone.
        adds && self.info.is_enabled(Optimization::VectorAtomics)
            && self.b.target.arch >= WIDE_ADDITIONS
            && self.smem.data_space == Space::Global
    }

    /// Emits reductions of `width` adjacent elements each.
    fn reds(
        &mut self,
        mode: AtomicMode,
        access: &PointerAccess,
        width: usize,
        values: &[Operand],
        order: (Sem, Scope),
    ) {
        for first in (0..values.len()).step_by(width) {
            let addr = self.register_address(access, first);
            let guard = self.guard(access, first / access.vector, first);
            self.red(mode, access.dtype, order, &addr, guard, &values[first..first + width]);
        }
    }

    /// Emits one reduction: an atomic without result.
    pub fn red(
        &mut self,
        mode: AtomicMode,
        dtype: DType,
        order: (Sem, Scope),
        addr: &Addr,
        guard: Option<Reg>,
        values: &[Operand],
    ) {
        if self.needs_cas_loop(dtype) {
            for &value in values {
                self.cas_loop(mode, dtype, order.1, addr, guard, value);
            }
            return;
        }
        let Ok((op, ty)) = form(mode, dtype) else { return };
        let values: Vec<Operand> = values.iter().map(|&value| self.b.bitcast(value, ty.class())).collect_vec();
        let space = self.smem.data_space;
        if op == AtomOp::Exch {
            // There is no exchange without result.
            let dst = self.b.fresh(ty.class());
            self.b.guarded_if(guard, |b| b.atom_to(dst, op, ty, space, order, addr, &values));
            return;
        }
        let values: Vec<Operand> = values.iter().map(|&value| self.b.reg(value, ty.class()).into()).collect_vec();
        self.b.guarded_if(guard, |b| b.red(op, ty, space, order, addr, &values));
    }
}

/// Returns operation and type of the instruction.
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
