//! Copies and fingerprints of partitions, for the exploration of all interleavings.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::warp_state::{Accumulator, Level, LevelKind, Partition, Promise, SimulatedMma};
use crate::backend::cpu::SlotContent;
use crate::backend::ptx::schedule::{Step, SubStep};
use crate::ir::op_table::Effect;
use crate::ir::{OpId, Opcode};

/// Copies of the results of MMAs in flight. Equal results have one copy.
#[derive(Default)]
struct Copies(FxHashMap<*const std::cell::RefCell<SlotContent>, Promise>);

impl Copies {
    fn of(&mut self, promise: &Promise) -> Promise {
        let copy = || Rc::new(std::cell::RefCell::new(promise.borrow().clone()));
        Rc::clone(self.0.entry(Rc::as_ptr(promise)).or_insert_with(copy))
    }

    fn of_mma(&mut self, group: &SimulatedMma) -> SimulatedMma {
        let mut copy = group.clone();
        for (_, sum, promise) in &mut copy.mmas {
            *promise = self.of(promise);
            if let Accumulator::Promised(earlier) = sum {
                *earlier = self.of(earlier);
            }
        }
        copy
    }
}

impl Level<'_> {
    fn fork(&self) -> Option<Self> {
        let Level { block, body, next, allocations, .. } = *self;
        Some(Level { kind: self.kind.fork()?, block, body, next, allocations })
    }
}

impl<'a> Partition<'a> {
    /// Returns a copy with the same future. `None` inside of a loop without a range, and if the
    /// block has allocated memory.
    pub fn fork(&self) -> Option<Partition<'a>> {
        let mut copies = Copies::default();
        let values = self.in_flight_values.iter();
        Some(Partition {
            role: self.role,
            kernel: self.kernel,
            frame: self.frame.fork()?,
            levels: self.levels.iter().map(Level::fork).collect::<Option<_>>()?,
            in_flight: self.in_flight.iter().map(|group| copies.of_mma(group)).collect(),
            in_flight_values: values.map(|(&v, (group, promise))| (v, (*group, copies.of(promise)))).collect(),
            deferred: self.deferred.clone(),
            acquired: self.acquired.clone(),
            try_waited: self.try_waited.clone(),
            deferred_releases: self.deferred_releases.clone(),
            cp_async_loads: self.cp_async_loads.clone(),
            tma_stores: self.tma_stores.clone(),
            group: self.group,
            is_silent: self.is_silent,
            skipped_stages: self.skipped_stages.clone(),
            order_counts: self.order_counts,
            barrier_count: self.barrier_count,
            barriers: self.barriers.clone(),
        })
    }

    /// Hashes the state.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        self.frame.fingerprint(hasher);
        for level in &self.levels {
            (level.block, level.body.0, level.next, level.allocations).hash(hasher);
            if let LevelKind::For { at, range, iteration, copies, .. } = level.kind {
                (at, range, iteration, copies).hash(hasher);
            }
        }
        for group in &self.in_flight {
            (group.number, group.last, &group.ops, &group.releases, group.from_previous_iteration).hash(hasher);
            for (id, sum, promise) in &group.mmas {
                id.hash(hasher);
                match sum {
                    Accumulator::Content(content) => content.fingerprint(hasher),
                    Accumulator::Promised(earlier) => earlier.borrow().fingerprint(hasher),
                }
                promise.borrow().fingerprint(hasher);
            }
        }
        let mut values: Vec<_> = self.in_flight_values.iter().map(|(&value, &(group, _))| (value, group)).collect();
        values.sort_unstable();
        values.hash(hasher);
        sorted(&self.deferred).hash(hasher);
        sorted_by_key(&self.acquired).hash(hasher);
        sorted_by_key(&self.try_waited).hash(hasher);
        sorted(&self.cp_async_loads).hash(hasher);
        for store in &self.tma_stores {
            store.id.hash(hasher);
            store.operands.iter().flatten().for_each(|content| content.fingerprint(hasher));
        }
        (&self.deferred_releases, &self.skipped_stages, self.order_counts).hash(hasher);
        (self.barrier_count, &self.barriers).hash(hasher);
    }

    /// Returns true if the next step, which is not blocked, is independent of all steps and events
    /// of others: it accesses neither stages nor arrays, and nothing that others change. It may
    /// enable steps of others.
    pub fn is_next_step_local(&self) -> bool {
        let Ok(Some(step)) = self.next_step() else { return false };
        let is_pure = |id: OpId| {
            let op = self.kernel.module.op(id);
            op.code.spec().effect == Effect::Pure || matches!(op.code, Opcode::Reduce | Opcode::Scan)
        };
        // Deferred values are computed at their uses.
        if !self.deferred.values().all(|&id| is_pure(id)) {
            return false;
        }
        match step {
            &Step::Deferred(id) | &Step::Exec(id) => is_pure(id),
            Step::StripMine(strip_mine) => strip_mine.ops().all(is_pure),
            &Step::Sub(SubStep::MmaReadWait { pending }) => self.in_flight.len() <= pending as usize,
            Step::Sub(SubStep::Barrier { .. }) => self.kernel.groups == 1,
            Step::MmaWait(wait) => self.in_flight.len() <= wait.pending,
            Step::For(plan) => plan.cp_async.is_none(),
            Step::Sub(_) | Step::If { .. } | Step::Advance(_) | Step::Prefetch(_) | Step::OrderWait { .. } => true,
            &Step::End(id) => self.is_end_local(id),
            Step::PrivatizedAtomic(_)
            | Step::LocalLoad(_)
            | Step::TmaStore(_)
            | Step::Mma(_)
            | Step::Produce(_)
            | Step::ConsumerWait(_)
            | Step::ConsumerTryWait(_)
            | Step::ConsumerRelease(_)
            | Step::OrderArrive(_)
            | Step::Loop(_) => false,
        }
    }

    fn is_end_local(&self, id: OpId) -> bool {
        if self.kernel.module.op(id).code == Opcode::Return {
            return self.tma_stores.is_empty();
        }
        self.levels.iter().all(|level| match level.kind {
            LevelKind::For { plan, .. } => plan.cp_async.is_none() && plan.epilogue.is_none(),
            LevelKind::Loop { .. } => false,
            LevelKind::Entry | LevelKind::If { .. } => true,
        })
    }
}

fn sorted<K: Copy + Ord, V: Copy + Ord>(map: &FxHashMap<K, V>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = map.iter().map(|(&key, &value)| (key, value)).collect();
    entries.sort_unstable();
    entries
}

fn sorted_by_key<K: Copy + Ord, V: Copy>(map: &FxHashMap<K, V>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = map.iter().map(|(&key, &value)| (key, value)).collect();
    entries.sort_unstable_by_key(|&(key, _)| key);
    entries
}
