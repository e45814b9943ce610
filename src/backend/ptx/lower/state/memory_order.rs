//! Memory order: fences, acquire and release accesses, results of one thread for all.
//!
//! A CTA is one thread of the memory model:
//! * Before an access that releases, a barrier orders the accesses of all threads.
//! * After an access that acquires, a barrier makes its effect visible to all threads.
//!
//! If a thread issues one instruction, the instruction has the order itself; otherwise relaxed
//! instructions are emitted between fences. Of threads that hold the same element one executes the
//! access. If the result may differ between executions, shared memory broadcasts it.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::core::{Lowered, Lowering};
use super::vector_access;
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Scope, Sem, Space};
use crate::backend::ptx::layout_inference::{replica_bits, thread_bases};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, MemOrder, MemScope, Op, OpId};
use crate::layout::Layout;

/// Memory order and scope of an op.
#[derive(Clone, Copy, Debug)]
pub struct MemoryOrdering {
    pub order: MemOrder,
    scope: Scope,
}

impl MemoryOrdering {
    /// Returns the order in the attributes of an op.
    pub fn of(op: &Op) -> MemoryOrdering {
        let scope = match op.attr(AttrKind::MemScope) {
            Some(Attr::MemScope(MemScope::Device)) => Scope::Gpu,
            Some(Attr::MemScope(MemScope::System)) => Scope::Sys,
            _ => Scope::Cta,
        };
        MemoryOrdering { order: op.mem_order(), scope }
    }

    /// Returns the semantics of a relaxed access with this scope.
    pub fn relaxed(self) -> (Sem, Scope) {
        (Sem::Relaxed, self.scope)
    }

    /// Returns the semantics of a single instruction.
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

/// An ordered access between its fences.
#[derive(Clone, Copy, Debug)]
pub struct FencedAccess {
    ordering: MemoryOrdering,
    fenced: bool,
}

impl FencedAccess {
    /// Returns the semantics of each instruction.
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
    /// Emits barriers and fences before an access with `count` instructions per thread.
    ///
    /// `carries`: the instruction can have the memory order itself.
    pub fn begin_ordered(&mut self, id: OpId, count: usize, carries: bool) -> Lowered<FencedAccess> {
        let ordering = MemoryOrdering::of(self.module.op(id));
        let fenced = (ordering.order.acquires() || ordering.order.releases()) && (count > 1 || !carries);
        if ordering.order.releases() {
            self.scheduled_barrier()?;
            if fenced {
                self.b.fence(Sem::AcqRel, ordering.scope);
            }
        }
        self.global_access(id)?;
        Ok(FencedAccess { ordering, fenced })
    }

    /// Emits fences and barriers after an access.
    pub fn end_ordered(&mut self, begun: FencedAccess) -> Lowered {
        if begun.ordering.order.acquires() {
            self.acquire_fence(begun);
            self.scheduled_barrier()?;
        }
        Ok(())
    }

    fn acquire_fence(&mut self, begun: FencedAccess) {
        if begun.fenced && begun.ordering.order.acquires() {
            self.b.fence(Sem::AcqRel, begun.ordering.scope);
        }
    }

    /// Emits fences and barriers after an access with results, and broadcasts the results of the
    /// owners to all threads.
    pub fn end_ordered_load(
        &mut self,
        begun: FencedAccess,
        dtype: DType,
        layout: &Layout,
        regs: Vec<Operand>,
    ) -> Lowered<Rc<[Operand]>> {
        let Some(owner) = self.owner_of(replica_bits(layout)) else {
            self.end_ordered(begun)?;
            return Ok(regs.into());
        };
        self.acquire_fence(begun);
        let stored = vector_access::shared_type(dtype);
        let size = vector_access::run_bytes(stored, 1);
        let bases: Vec<u32> = thread_bases(layout).iter().map(|&basis| basis * size).collect_vec();
        let thread = self.linear_in_thread(&bases);
        let buffer = self.next_write_buffer()?;
        let addresses: Vec<Addr> = (0..layout.num_registers())
            .map(|register| self.shared_address(buffer, thread, layout.element(register, 0, 0) * size, 0))
            .collect_vec();
        for (addr, &value) in addresses.iter().zip(&regs) {
            vector_access::store(&mut self.b, Space::Shared, stored, &[value], addr, MemMods::default(), Some(owner));
        }
        self.begin_read(buffer)?;
        let mut all = Vec::with_capacity(regs.len());
        for addr in &addresses {
            all.extend(vector_access::load(&mut self.b, Space::Shared, stored, 1, addr, MemMods::default(), None));
        }
        Ok(all.into())
    }
}
