//! Software pipelines: loads of a loop are copied ahead into stages of shared memory, as the schedule says.

use std::rc::Rc;

use super::control::unsigned;
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::isa::inst::{Addr, Cmp, MemMods, Operand, Prefetch, ProxyFence, Reg, RegClass, Space, Ty};
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::schedule::{CpAsync, CpAsyncPlan};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::OpId;

/// A tile of which each thread has its own elements in a stage.
pub struct OwnTile {
    /// The thread's place in shared memory.
    address: Operand,
    run: usize,
    /// Offsets of the pieces.
    pieces: Vec<u32>,
}

/// The registers of a running pipeline.
pub struct Running {
    pipeline: Rc<CpAsyncPlan>,
    slab: Buffer,
    /// Byte offset of the stage that is computed on, and of the one that is filled.
    compute: Reg,
    fill: Reg,
    thread: Vec<Operand>,
}

impl Running {
    /// Do threads copy their own elements, and no others?
    pub fn is_own(&self) -> bool {
        self.pipeline.is_thread_private()
    }
}

impl Lowering<'_> {
    /// A load whose elements their threads have copied: reads them.
    pub fn load_own(&mut self, load: OpId) -> Lowered {
        let tile = self.module.op(load).results[0];
        let layout = self.context.inference.accesses.get(&load).cloned().ok_or("a load without a layout")?;
        let OwnTile { address, run, pieces } = &self.own_tiles[&load];
        let base = self.b.reg(*address, RegClass::B32);
        let dtype = self.context.element_type(tile);
        let mut slots = Vec::with_capacity(layout.num_registers());
        for &offset in pieces {
            let place = Addr::new(base, i64::from(offset));
            slots.extend(vector::load(&mut self.b, Space::Shared, dtype, *run, &place, MemMods::default(), None));
        }
        self.tiles[tile.index()] = Some(Tile { layout, slots: slots.into() });
        Ok(())
    }

    /// Fills the first stages: `counter` is the first value of the loop counter.
    pub fn start_pipeline(
        &mut self,
        id: OpId,
        pipeline: Rc<CpAsyncPlan>,
        counter: Reg,
        upper: Operand,
        step: Operand,
        ty: Ty,
    ) -> Lowered<Running> {
        let slab = self.begin_write()?;
        for copy in &pipeline.copies {
            let tile = self.module.op(copy.load).results[0];
            let bytes = vector::run_bytes(self.context.element_type(tile), copy.vector);
            let way = Way::Ahead { bytes, stages: pipeline.stages as u32 };
            self.remarks.access(self.module, copy.load, tile, way);
        }
        let thread = pipeline.copies.iter().map(|copy| copy.thread_offsets.clone()).collect::<Vec<_>>();
        let thread = thread.iter().map(|images| self.linear_in_thread(images)).collect();
        let running = Running {
            slab,
            compute: self.b.copy(Operand::Imm(0), RegClass::B32),
            fill: self.b.copy(Operand::Imm(0), RegClass::B32),
            thread,
            pipeline,
        };
        let mut exists = self.b.setp(Cmp::Lt, ty, counter, upper);
        let mut left = self.b.sub(ty, upper, counter);
        let ahead = self.b.copy(counter, ty.class());
        for stage in 1..running.pipeline.stages {
            self.fill(id, &running, ahead.into(), exists)?;
            if stage + 1 < running.pipeline.stages {
                (exists, left) = self.one_further(exists, left, step, ty);
                let next = self.b.add(ty, ahead, step);
                self.b.mov_to(ahead, next);
            }
        }
        Ok(running)
    }

    /// Is there an iteration after the one that exists, with so much left of the range? By what is left, since counters
    /// beyond the range may not exist in their type.
    fn one_further(&mut self, exists: Reg, left: Operand, step: Operand, ty: Ty) -> (Reg, Operand) {
        let more = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        (self.b.and(Ty::Pred, exists, more).reg(), self.b.sub(ty, left, step))
    }

    /// At the head of an iteration: its stage is there, and all threads are done with the one before.
    pub fn advance_pipeline(&mut self, running: &Running) {
        self.b.cp_async_wait(running.pipeline.stages as u32 - 2);
        if running.pipeline.async_mma {
            self.land_all();
            self.b.fence_proxy(ProxyFence::AsyncShared);
        }
        if running.pipeline.barrier_at_head {
            self.barrier();
        }
        self.find_own_tiles(running);
        for copy in running.pipeline.copies.iter().filter(|copy| !copy.thread_private) {
            let offset = running.slab.offset + copy.smem_offset as u32;
            let place = self.b.add(Ty::U32, running.compute, offset);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, place);
            self.staged.insert(self.module.op(copy.load).results[0], address);
        }
    }

    /// Where threads find their own elements in this iteration.
    fn find_own_tiles(&mut self, running: &Running) {
        let copies = running.pipeline.copies.iter().zip(&running.thread);
        for (copy, &thread) in copies.filter(|(copy, _)| copy.thread_private) {
            let place = self.b.add(Ty::U32, thread, running.slab.offset + copy.smem_offset as u32);
            let place = self.b.add(Ty::U32, place, running.compute);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, place);
            let pieces = copy.accesses.iter().map(|piece| piece.offset).collect();
            self.own_tiles.insert(copy.load, OwnTile { address, run: copy.vector, pieces });
        }
    }

    /// At the end of an iteration, or at its head where threads copy their own elements: the stage of the iteration
    /// before is filled anew.
    pub fn refill_pipeline(
        &mut self,
        id: OpId,
        running: &Running,
        counter: Reg,
        upper: Operand,
        step: Operand,
        ty: Ty,
    ) -> Lowered {
        let distance = running.pipeline.stages as i64 - 1;
        let ahead = self.b.mad(ty, step, distance, counter);
        let left = self.b.sub(ty, upper, counter);
        let mut exists = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let mut left = self.b.sub(ty, left, step);
        for _ in 1..distance {
            (exists, left) = self.one_further(exists, left, step, ty);
        }
        self.fill(id, running, ahead, exists)?;
        self.next_stage(running, running.compute);
        Ok(())
    }

    /// On the way out of the loop: its products have landed.
    pub fn land_pipeline(&mut self, running: &Running) {
        if running.pipeline.async_mma {
            self.land_all();
        }
    }

    /// After the loop: nothing is on its way any more.
    pub fn stop_pipeline(&mut self, running: Running) {
        self.b.cp_async_wait(0);
        for copy in &running.pipeline.copies {
            self.staged.remove(&self.module.op(copy.load).results[0]);
            self.own_tiles.remove(&copy.load);
        }
    }

    /// Issues the copies of the iteration with this counter, if there is one; a group either way.
    fn fill(&mut self, id: OpId, running: &Running, counter: Operand, exists: Reg) -> Lowered {
        let skip = self.b.new_label();
        self.b.bra_if(exists, true, skip, true);
        let mark = self.mark();
        let argument = self.module.block(self.module.op(id).regions[0]).args[0];
        let before = self.tiles[argument.index()].take();
        self.single(argument, counter);
        for &op in &running.pipeline.address_ops {
            self.op(op)?;
        }
        for (copy, &thread) in running.pipeline.copies.iter().zip(&running.thread) {
            self.for_op(copy.load, |lowering| lowering.copy_tile(copy, running, thread))?;
        }
        self.tiles[argument.index()] = before;
        self.release(mark);
        self.b.place(skip);
        self.b.cp_async_commit();
        self.next_stage(running, running.fill);
        Ok(())
    }

    fn copy_tile(&mut self, copy: &CpAsync, running: &Running, thread: Operand) -> Lowered {
        let mut access = self.begin_load(copy.load)?;
        for piece in &copy.accesses {
            let (source, present) = self.copy_source(&mut access, piece.register);
            let offset = running.slab.offset as usize + copy.smem_offset;
            let place = self.b.xor(Ty::B32, thread, piece.xor);
            let place = self.b.add(Ty::U32, place, running.fill);
            let target = self.b.address(Operand::Smem, place).plus(offset as i64 + i64::from(piece.offset));
            let bytes = access.vector_bytes();
            let present = present.map(|mask| self.b.select(RegClass::B32, mask, bytes, 0));
            self.b.cp_async(&target, &source, bytes, present, Prefetch::B128);
        }
        Ok(())
    }

    fn next_stage(&mut self, running: &Running, offset: Reg) {
        let next = self.b.add(Ty::U32, offset, running.pipeline.stage_bytes as u32);
        let end = (running.pipeline.stage_bytes * running.pipeline.stages) as u32;
        let wraps = self.b.setp(Cmp::Eq, Ty::U32, next, end);
        let next = self.b.select(RegClass::B32, wraps, 0, next);
        self.b.mov_to(offset, next);
    }
}
