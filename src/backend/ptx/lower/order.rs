//! Orders of accesses, and results that only some threads have.
//!
//! A tile block is one thread of the memory model. So before an access that releases, all threads meet, and what each
//! did is behind it; after one that acquires they meet again. An access of one vector a thread carries its order itself;
//! several go relaxed between fences. Of threads that hold the same element one accesses, and if the access says
//! something that another one might not, tells the others by shared memory: they must not come to differ.

use std::rc::Rc;

use super::{Lowered, Lowering, vector};
use crate::backend::ptx::isa::inst::{Addr, MemMods, Operand, Scope, Sem, Space};
use crate::backend::ptx::layout_inference::{replica_bits, thread_images};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, MemOrder, MemScope, Op, OpId};
use crate::layout::Layout;

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

    pub fn acquires(self) -> bool {
        matches!(self.order, MemOrder::Acquire | MemOrder::AcqRel)
    }

    fn releases(self) -> bool {
        matches!(self.order, MemOrder::Release | MemOrder::AcqRel)
    }

    /// In no order, for its scope.
    pub fn relaxed(self) -> (Sem, Scope) {
        (Sem::Relaxed, self.scope)
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
    /// What comes before an access with so many instructions a thread; `carries`: they can say the order themselves. The
    /// last thing that other threads could notice before it.
    pub fn begin_ordered(&mut self, id: OpId, ordering: Ordering, count: usize, carries: bool) -> Lowered<Begun> {
        let fenced = (ordering.acquires() || ordering.releases()) && (count > 1 || !carries);
        if ordering.releases() {
            self.meet()?;
            if fenced {
                self.b.fence(Sem::AcqRel, ordering.scope);
            }
        }
        self.order(id)?;
        Ok(Begun { ordering, fenced })
    }

    /// What comes after it; `met`: all threads have met since.
    pub fn end_ordered(&mut self, begun: Begun, met: bool) -> Lowered {
        if begun.ordering.acquires() && !met {
            if begun.fenced {
                self.b.fence(Sem::AcqRel, begun.ordering.scope);
            }
            self.meet()?;
        }
        Ok(())
    }

    /// Slots that only the owners of elements have, in all threads; true if that took a barrier.
    pub fn share(
        &mut self,
        begun: Begun,
        dtype: DType,
        layout: &Layout,
        slots: Vec<Operand>,
    ) -> Lowered<(Rc<[Operand]>, bool)> {
        let Some(owner) = self.owner_of(replica_bits(layout)) else { return Ok((slots.into(), false)) };
        if begun.fenced && begun.ordering.acquires() {
            self.b.fence(Sem::AcqRel, begun.ordering.scope);
        }
        let stored = vector::shared_type(dtype);
        let size = vector::run_bytes(stored, 1);
        let images: Vec<u32> = thread_images(layout).iter().map(|&image| image * size).collect();
        let thread = self.linear_in_thread(&images);
        let buffer = self.begin_write()?;
        let places: Vec<Addr> = (0..layout.num_registers())
            .map(|slot| self.shared_place(buffer, thread, layout.element(slot, 0, 0) * size, 0))
            .collect();
        for (addr, &value) in places.iter().zip(&slots) {
            vector::store(&mut self.b, Space::Shared, stored, &[value], addr, MemMods::default(), Some(owner));
        }
        self.begin_read()?;
        let mut all = Vec::with_capacity(slots.len());
        for addr in &places {
            all.extend(vector::load(&mut self.b, Space::Shared, stored, 1, addr, MemMods::default(), None));
        }
        Ok((all.into(), true))
    }
}
