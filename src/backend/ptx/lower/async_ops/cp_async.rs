//! Multistage `cp.async` loops: prologue, refill and wait, as planned by the schedule.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, Cmp, MemMods, Operand, Prefetch, ProxyFence, Reg, RegClass, Space, Ty};
use crate::backend::ptx::lower::loop_counter::unsigned;
use crate::backend::ptx::lower::state::core::{CarriedMmaStep, FixedRegisters};
use crate::backend::ptx::lower::state::values::ThreadPrivateTile;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::measured::StampKind;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::remarks::DataPath;
use crate::backend::ptx::schedule::{CpAsync, CpAsyncPlan, For};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};

/// Registers of a multistage loop.
pub struct CpAsyncState {
    plan: Rc<CpAsyncPlan>,
    slab: Buffer,
    /// Byte offset of the stage that is read.
    read_offset: Reg,
    /// Byte offset of the stage that is written.
    write_offset: Reg,
    /// Offset of the thread in each copy, and whether it copies, if not all threads do.
    thread: Vec<(Operand, Option<Reg>)>,
}

impl CpAsyncState {
    /// Returns true if all copies are thread-private: each thread reads the elements that it has
    /// copied.
    pub fn is_thread_private(&self) -> bool {
        self.plan.is_thread_private()
    }
}

impl Lowering<'_> {
    /// Sets the carried step of a loop, and returns that of the outer loop.
    pub fn enter_carried_step(&mut self, plan: &For, carried: &[Option<FixedRegisters>]) -> Option<CarriedMmaStep> {
        let own = self.start_carried_step(plan, carried);
        std::mem::replace(&mut self.carried_step, own)
    }

    /// Returns the carried step of a loop: its only MMA is synchronous, reads copies of all
    /// threads, and adds to a carried value that no other op uses.
    fn start_carried_step(&mut self, plan: &For, carried: &[Option<FixedRegisters>]) -> Option<CarriedMmaStep> {
        let cp_async = plan.cp_async.as_ref().filter(|cp_async| cp_async.barrier_at_head && !cp_async.async_mma)?;
        let is_plain = plan.unroll.is_none() && plan.pingpong.is_none() && plan.carried_mmas.is_empty();
        if !is_plain || !self.info.is_enabled(Optimization::MmaCarry) {
            return None;
        }
        let module = self.module;
        let body = module.op(plan.op).regions[0];
        let mut products = Vec::new();
        module.walk(body, &mut |id| products.extend(module.op(id).code.is_mma().then_some(id)));
        let &[mma] = &products[..] else { return None };
        let op = module.op(mma);
        let copied = |value: Value| {
            let load = self.info.source_load(value);
            cp_async.copies.iter().any(|copy| Some(copy.load) == load && !copy.thread_private)
        };
        let position = module.block(body).args.iter().position(|&arg| arg == op.operands[2])?.checked_sub(1)?;
        let last = module.op(*module.block(body).ops.last()?);
        let is_carried = last.operands.get(position) == Some(&op.results[0])
            && self.info.uses.count(op.results[0]) == 1
            && self.info.regions.block_of(mma) == Some(body)
            && self.info.accumulates_in_place(mma);
        let mma_plan = self.info.inference.mma_plans.get(&mma)?.as_ref().ok()?;
        let in_place = carried.get(position)?.as_ref().is_some_and(|fixed| fixed.0.is_same(&mma_plan.acc));
        if !(is_carried && in_place && copied(op.operands[0]) && copied(op.operands[1])) {
            return None;
        }
        let fragments = mma_plan.start_carried_step(&mut self.b)?;
        Some(CarriedMmaStep { mma, fragments, refill: None })
    }

    /// Loads the thread-private elements of a tile from their stage.
    pub fn load_thread_private(&mut self, load: OpId) -> Lowered {
        let tile = self.module.op(load).results[0];
        let layout = self.info.inference.op_layouts.get(&load).cloned().ok_or("a load without a layout")?;
        let ThreadPrivateTile { address, vector, offsets } = &self.values.private_tiles[&load];
        let base = self.b.reg(*address, RegClass::B32);
        let dtype = self.info.element_type(tile);
        let mut regs = Vec::with_capacity(layout.num_registers());
        for &offset in offsets {
            let addr = Addr::new(base, i64::from(offset));
            regs.extend(vector_access::load(
                &mut self.b,
                Space::Shared,
                dtype,
                *vector,
                &addr,
                MemMods::default(),
                None,
            ));
        }
        self.values.define(tile, Tile { layout, regs: regs.into() });
        Ok(())
    }

    /// Emits the prologue: copies of the first stages. `counter` is the first value of the loop
    /// counter.
    pub fn start_cp_async(
        &mut self,
        id: OpId,
        plan: Rc<CpAsyncPlan>,
        counter: Reg,
        upper: Operand,
        step: Operand,
        ty: Ty,
    ) -> Lowered<CpAsyncState> {
        let slab = self.next_write_buffer()?;
        for copy in &plan.copies {
            let tile = self.module.op(copy.load).results[0];
            let bytes = vector_access::run_bytes(self.info.element_type(tile), copy.vector);
            let way = DataPath::CpAsync { bytes, stages: plan.stages as u32 };
            self.report.remarks.access(self.module, copy.load, tile, way);
        }
        let of_thread = |copy: &CpAsync| {
            let copies = (copy.replicas != 0).then(|| {
                let bits = (0..copy.thread_offsets.len()).map(|bit| copy.replicas & 1 << bit);
                let replica = self.linear_in_thread(&bits.collect_vec());
                self.b.setp(Cmp::Eq, Ty::B32, replica, 0)
            });
            (self.linear_in_thread(&copy.thread_offsets), copies)
        };
        let thread = plan.copies.iter().map(of_thread).collect_vec();
        let cp_async = CpAsyncState {
            slab,
            read_offset: self.b.copy(Operand::Imm(0), RegClass::B32),
            write_offset: self.b.copy(Operand::Imm(0), RegClass::B32),
            thread,
            plan,
        };
        let mut exists = self.b.setp(Cmp::Lt, ty, counter, upper);
        let mut left = self.b.sub(ty, upper, counter);
        let ahead = self.b.copy(counter, ty.class());
        for stage in 1..cp_async.plan.stages {
            self.copy_stage(id, &cp_async, ahead.into(), exists)?;
            if stage + 1 < cp_async.plan.stages {
                (exists, left) = self.next_exists(exists, left, step, ty);
                let next = self.b.add(ty, ahead, step);
                self.b.mov_to(ahead, next);
            }
        }
        Ok(cp_async)
    }

    /// Returns whether the next iteration exists, and the rest of the range. The rest is compared,
    /// because a counter beyond the range may overflow its type.
    fn next_exists(&mut self, exists: Reg, left: Operand, step: Operand, ty: Ty) -> (Reg, Operand) {
        let more = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        (self.b.and(Ty::Pred, exists, more).reg(), self.b.sub(ty, left, step))
    }

    /// Waits for the stage of this iteration, at its head. All threads have finished the previous
    /// iteration.
    pub fn advance_cp_async(&mut self, cp_async: &CpAsyncState) {
        let start = self.stamp_start();
        self.b.cp_async_wait_group(cp_async.plan.stages as u32 - 2);
        self.stamp_wait(start, None, None);
        if cp_async.plan.async_mma {
            self.wait_all_mmas();
            self.b.fence_proxy(ProxyFence::AsyncShared);
        }
        if cp_async.plan.barrier_at_head {
            self.emit_bar_sync();
        } else if cp_async.plan.needs_warp_sync() {
            self.b.bar_warp_sync();
        }
        self.locate_private_tiles(cp_async);
        for copy in cp_async.plan.copies.iter().filter(|copy| !copy.thread_private) {
            let offset = cp_async.slab.offset + copy.smem_offset as u32;
            let smem_offset = self.b.add(Ty::U32, cp_async.read_offset, offset);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, smem_offset);
            self.values.stage_addresses.insert(self.module.op(copy.load).results[0], address);
        }
    }

    /// Computes the addresses of the thread-private elements of this iteration.
    fn locate_private_tiles(&mut self, cp_async: &CpAsyncState) {
        let copies = cp_async.plan.copies.iter().zip(&cp_async.thread);
        for (copy, &(thread, _)) in copies.filter(|(copy, _)| copy.thread_private) {
            let smem_offset = self.b.add(Ty::U32, thread, cp_async.slab.offset + copy.smem_offset as u32);
            let smem_offset = self.b.add(Ty::U32, smem_offset, cp_async.read_offset);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, smem_offset);
            let offsets = copy.accesses.iter().map(|piece| piece.offset).collect_vec();
            self.values.private_tiles.insert(copy.load, ThreadPrivateTile { address, vector: copy.vector, offsets });
        }
    }

    /// Copies the tiles of a later iteration to the stage of the previous one.
    ///
    /// This is at the end of an iteration, or at its head if all copies are thread-private.
    pub fn refill_cp_async(
        &mut self,
        id: OpId,
        cp_async: &CpAsyncState,
        counter: Reg,
        upper: Operand,
        step: Operand,
        ty: Ty,
    ) -> Lowered {
        let distance = cp_async.plan.stages as i64 - 1;
        let ahead = self.b.mad(ty, step, distance, counter);
        let left = self.b.sub(ty, upper, counter);
        let mut exists = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let mut left = self.b.sub(ty, left, step);
        for _ in 1..distance {
            (exists, left) = self.next_exists(exists, left, step, ty);
        }
        self.copy_stage(id, cp_async, ahead, exists)?;
        self.advance_offset(cp_async, cp_async.read_offset);
        Ok(())
    }

    /// Waits for all copies, after the loop.
    pub fn stop_cp_async(&mut self, cp_async: &CpAsyncState) {
        self.b.cp_async_wait_group(0);
        for copy in &cp_async.plan.copies {
            self.values.stage_addresses.remove(&self.module.op(copy.load).results[0]);
            self.values.private_tiles.remove(&copy.load);
        }
    }

    /// Issues the copies of the iteration with this counter, if it exists. The copy group is
    /// committed in either case.
    fn copy_stage(&mut self, id: OpId, cp_async: &CpAsyncState, counter: Operand, exists: Reg) -> Lowered {
        let skip = self.b.new_label();
        let start = self.stamp_start();
        self.b.bra_if(exists, true, skip, true);
        let mark = self.mark();
        let argument = self.module.block(self.module.op(id).regions[0]).args[0];
        let before = self.values.tiles[argument.index()].take();
        self.define_scalar(argument, counter);
        for &op in &cp_async.plan.address_ops {
            self.nested_op(op)?;
        }
        for (copy, &thread) in cp_async.plan.copies.iter().zip(&cp_async.thread) {
            let requirements = self.info.requirements(copy.load);
            let copied = |lowering: &mut Self| lowering.copy_tile(copy, cp_async, thread);
            self.for_op(copy.load, |lowering| lowering.with_requirements(requirements, copied))?;
        }
        self.values.tiles[argument.index()] = before;
        self.release(mark);
        self.b.emit_label(skip);
        self.b.cp_async_commit_group();
        self.stamp(start, StampKind::Copy, cp_async.plan.copies.first().map(|copy| copy.load));
        self.advance_offset(cp_async, cp_async.write_offset);
        Ok(())
    }

    fn copy_tile(
        &mut self,
        copy: &CpAsync,
        cp_async: &CpAsyncState,
        (thread, copies): (Operand, Option<Reg>),
    ) -> Lowered {
        let mut access = self.begin_copy(copy.load)?;
        for piece in &copy.accesses {
            let (source, present) = self.copy_source(&mut access, piece.register);
            let offset = cp_async.slab.offset as usize + copy.smem_offset;
            let smem_offset = self.b.xor(Ty::B32, thread, piece.xor);
            let smem_offset = self.b.add(Ty::U32, smem_offset, cp_async.write_offset);
            let target = self.b.address(Operand::Smem, smem_offset).plus(offset as i64 + i64::from(piece.offset));
            let bytes = access.vector_bytes();
            match present {
                // The copy writes zeros alone. Another padding is stored by the thread that copies.
                Some(inside) if access.padding != 0 => {
                    let guard = copies.map_or(inside, |copies| self.b.and(Ty::Pred, copies, inside).reg());
                    self.b.guarded(guard, false, |b| b.cp_async(&target, &source, bytes, None, Prefetch::B128));
                    let dtype = access.element_type();
                    let fill = (inside, access.padding);
                    vector_access::store_padding(&mut self.b, Space::Shared, dtype, copy.vector, &target, fill);
                }
                _ => {
                    let present = present.map(|mask| self.b.select(RegClass::B32, mask, bytes, 0));
                    let copy = |b: &mut Builder| b.cp_async(&target, &source, bytes, present, Prefetch::B128);
                    self.b.guarded_if(copies, copy);
                }
            }
        }
        Ok(())
    }

    fn advance_offset(&mut self, cp_async: &CpAsyncState, offset: Reg) {
        let next = self.b.add(Ty::U32, offset, cp_async.plan.stage_bytes as u32);
        let end = (cp_async.plan.stage_bytes * cp_async.plan.stages) as u32;
        let wraps = self.b.setp(Cmp::Eq, Ty::U32, next, end);
        let next = self.b.select(RegClass::B32, wraps, 0, next);
        self.b.mov_to(offset, next);
    }
}
