//! Software pipelines: loads of a loop are copied ahead into stages of shared memory.
//!
//! With S stages, iteration i computes on stage i mod S while the copies of iterations i + 1 to i + S − 1 are on
//! their way (`cp.async`, 16 bytes a thread where alignment allows). What is copied is read from arrays that the
//! kernel does not write, at indices that are computed from the counter and from outside.
//!
//! *Operands*: a `for` loop qualifies if its body loads operands of a product, straight into the product. One barrier
//! at the head of an iteration does both: the copies of all threads have arrived, and all threads are done with the
//! stage that the end of the iteration fills. Products that run on their own do so until the next head.
//!
//! *Own elements*: in a loop without products every thread copies what it will hold itself, if that works for all
//! loads of the loop. It reads it back without any barrier, and fills the stage of the iteration before at the head.

use std::collections::HashMap;

use super::control::unsigned;
use super::ring::Role;
use super::{Lowered, Lowering, Tile, vector};
use crate::backend::ptx::infer::{ViewShape, contiguous_axis};
use crate::backend::ptx::inst::{Addr, Cmp, MemMods, Operand, Prefetch, ProxyFence, Reg, RegClass, Space, Ty};
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::remarks::Way;
use crate::backend::ptx::shared::Buffer;
use crate::ir::table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Padding, Type, Value};
use crate::layout::{Access, Side};

/// Alignment of a buffer in a stage: a whole swizzle pattern.
const ALIGN: usize = 1024;

/// Most stages, and the bytes above which fewer are better: other tile blocks want shared memory too.
const MOST_STAGES: usize = 4;
const PLENTY_BYTES: usize = 112 << 10;

/// Bytes of the stages of threads' own elements: on sm_90 three tile blocks have room for as much. Elsewhere two should.
const OWN_BYTES: usize = 72 << 10;

/// A load that is copied ahead.
struct Copy {
    load: OpId,
    /// Where its tile stands within a stage.
    offset: usize,
    /// Elements of one access.
    run: usize,
    /// Byte offset of each thread bit, by XOR.
    thread: Vec<u32>,
    pieces: Vec<Piece>,
}

/// One access of every thread.
struct Piece {
    /// The first register of the tile that it fills.
    slot: usize,
    /// Where it stands: the thread's offset XOR this,
    xor: u32,
    /// plus this.
    offset: u32,
}

impl Copy {
    fn of_side(load: OpId, offset: usize, side: Side) -> Copy {
        let run = side.accesses.first().map_or(0, |access| access.registers.len());
        let piece = |access: &Access| Piece { slot: access.registers[0], xor: access.xor, offset: access.offset };
        Copy { load, offset, run, pieces: side.accesses.iter().map(piece).collect(), thread: side.thread }
    }
}

/// A tile of which each thread has its own elements in a stage.
pub struct OwnTile {
    /// The thread's place in shared memory.
    address: Operand,
    run: usize,
    /// Offsets of the pieces.
    pieces: Vec<u32>,
}

/// The copies of a loop.
pub struct Pipeline {
    copies: Vec<Copy>,
    /// Scalar ops of the body that the indices of the copies come from, in order.
    slice: Vec<OpId>,
    stage_bytes: usize,
    stages: usize,
    /// Products run on their own: the head of an iteration waits for those of the one before.
    asynchronous: bool,
    /// Threads copy their own elements.
    own: bool,
}

/// The registers of a running pipeline.
pub struct Running {
    pipeline: Pipeline,
    slab: Buffer,
    /// Byte offset of the stage that is computed on, and of the one that is filled.
    compute: Reg,
    fill: Reg,
    thread: Vec<Operand>,
}

impl Running {
    /// Do threads copy their own elements?
    pub fn is_own(&self) -> bool {
        self.pipeline.own
    }
}

impl Lowering<'_> {
    /// The pipeline of a `for` loop, if it qualifies.
    pub fn pipeline_of(&self, id: OpId) -> Option<Pipeline> {
        let module = self.module;
        let body = module.op(id).regions[0];
        if self.ends_early(body) {
            return None;
        }
        let wish = self.stages_of(id);
        let mut copies: Vec<Copy> = Vec::new();
        let mut slice: Vec<OpId> = Vec::new();
        let mut stage_bytes = 0;
        let mut asynchronous = false;
        for &product in &module.block(body).ops {
            let op = module.op(product);
            if !matches!(op.code, Opcode::MmaF | Opcode::MmaI) {
                continue;
            }
            let Some(Ok(plan)) = self.inference.products.get(&product) else { continue };
            asynchronous |= plan.is_asynchronous();
            for (&operand, plan) in op.operands[..2].iter().zip([&plan.a, &plan.b]) {
                let Some((load, side)) = self.copyable(body, operand, plan) else { continue };
                if self.is_streamed(load) {
                    continue;
                }
                let Some(part) = self.index_slice(body, load) else { continue };
                slice.extend(part);
                copies.push(Copy::of_side(load, stage_bytes, side));
                stage_bytes += plan.shared.bytes().next_multiple_of(ALIGN);
            }
        }
        if copies.is_empty() {
            return self.own_pipeline(body, wish);
        }
        self.in_order(body, &mut slice);
        let copied = |load| copies.iter().any(|copy| copy.load == load);
        let others = self.other_shared_bytes(body, &copied, true) as usize;
        let room = (self.room_for_stages() as usize).saturating_sub(if others > 0 { others + ALIGN } else { 0 });
        let wanted = (PLENTY_BYTES / stage_bytes).clamp(2, MOST_STAGES);
        let wish = wish.or_else(|| self.stages_by_latency(copies.iter().map(|copy| copy.load)));
        let stages = wish.map_or(wanted, |stages| stages as usize).min(room / stage_bytes);
        (stages >= 2).then_some(Pipeline { copies, slice, stage_bytes, stages, asynchronous, own: false })
    }

    fn in_order(&self, body: BlockId, slice: &mut Vec<OpId>) {
        let ops = &self.module.block(body).ops;
        let order: HashMap<OpId, usize> = ops.iter().enumerate().map(|(i, &op)| (op, i)).collect();
        slice.sort_by_key(|op| order[op]);
        slice.dedup();
    }

    /// The pipeline of a loop without products, if every thread can copy its own elements of all that it loads.
    fn own_pipeline(&self, body: BlockId, wish: Option<u32>) -> Option<Pipeline> {
        let module = self.module;
        let mut multiplies = self.role != Role::All;
        module.walk(body, &mut |id| multiplies |= matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI));
        if multiplies {
            return None;
        }
        let threads = self.inference.num_warps * WARP as usize;
        let (mut copies, mut slice, mut stage_bytes, mut wide) = (Vec::new(), Vec::new(), 0, false);
        let loads = module.block(body).ops.iter().copied().filter(|&id| module.op(id).code == Opcode::LoadView);
        for load in loads.clone() {
            slice.extend(self.index_slice(body, load)?);
        }
        self.in_order(body, &mut slice);
        // What others are found by is loaded where it is needed.
        for load in loads.filter(|load| !slice.contains(load)) {
            let (run, bytes) = self.copied_run(load)?;
            let count = self.inference.accesses.get(&load)?.num_registers() / run;
            let places = (0..count).map(|index| (index * run, (index * threads * bytes) as u32));
            copies.push(Copy {
                load,
                offset: stage_bytes,
                run,
                thread: (0..threads.ilog2()).map(|bit| (bytes as u32) << bit).collect(),
                pieces: places.map(|(slot, offset)| Piece { slot, xor: 0, offset }).collect(),
            });
            stage_bytes += (count * threads * bytes).next_multiple_of(16);
            wide |= bytes == 16;
        }
        if !wide {
            return None;
        }
        let room = self.room_for_stages() as usize;
        let half = self.inference.target.max_shared_bytes() as usize / 2;
        let wanted = (OWN_BYTES.min(half) / stage_bytes).min(MOST_STAGES);
        let wish = wish.or_else(|| self.stages_by_latency(copies.iter().map(|copy| copy.load)));
        let stages = wish.map_or(wanted, |stages| stages as usize).min(room / stage_bytes);
        (stages >= 2).then_some(Pipeline { copies, slice, stage_bytes, stages, asynchronous: false, own: true })
    }

    /// Elements and bytes of the accesses with which a thread can copy its part of a load; `None` if it cannot.
    fn copied_run(&self, load: OpId) -> Option<(usize, usize)> {
        let module = self.module;
        let view = module.op(load).group(0)[0];
        let Type::PartitionView { padding, .. } = module.ty(view) else { return None };
        if !matches!(padding, None | Some(Padding::Zero)) || !self.is_steady(load) {
            return None;
        }
        let shape = ViewShape::of(module, view)?;
        let layout = self.inference.accesses.get(&load)?;
        let mut run = 1;
        if let Some(axis) = contiguous_axis(module, &shape) {
            run = shape.vector(module, &self.facts, axis).min(layout.vector_len(axis)).min(layout.num_registers());
            if run as u64 > shape.extent_divisor(module, &self.facts, shape.dim_map[axis]) {
                return None;
            }
        }
        let bytes = shape.elem.bytes_of(run)?;
        (shape.elem.storage_bits() >= 8 && matches!(bytes, 4 | 8 | 16)).then_some((run, bytes))
    }

    /// Is this a load of which the threads have their own elements in a stage?
    pub fn is_own(&self, load: OpId) -> bool {
        self.own_tiles.contains_key(&load)
    }

    /// A load whose elements their threads have copied: reads them.
    pub fn load_own(&mut self, load: OpId) -> Lowered {
        let tile = self.module.op(load).results[0];
        let layout = self.inference.accesses.get(&load).cloned().ok_or("a load without a layout")?;
        let OwnTile { address, run, pieces } = &self.own_tiles[&load];
        let base = self.b.reg(*address, RegClass::B32);
        let dtype = self.element_type(tile);
        let mut slots = Vec::with_capacity(layout.num_registers());
        for &offset in pieces {
            let place = Addr::new(base, i64::from(offset));
            slots.extend(vector::load(&mut self.b, Space::Shared, dtype, *run, &place, MemMods::default(), None));
        }
        self.tiles[tile.index()] = Some(Tile { layout, slots: slots.into() });
        Ok(())
    }

    /// The load behind an operand, and how the threads copy it, if it can be copied ahead.
    fn copyable(&self, body: BlockId, operand: Value, plan: &OperandPlan) -> Option<(OpId, Side)> {
        let module = self.module;
        let load = self.load_behind(operand)?;
        let op = module.op(load);
        let here = self.op_blocks[load.index()] == Some(body);
        if !here || !self.is_only_use(operand) {
            return None;
        }
        let shape = ViewShape::of(module, op.group(0)[0])?;
        let rounded = shape.elem != self.element_type(operand);
        if rounded && !plan.rounds || self.element_type(operand) != plan.dtype {
            return None;
        }
        let layout = self.inference.accesses.get(&load)?;
        let in_place = self.inference.natural(operand)?;
        if in_place.num_registers() != layout.num_registers() {
            return None;
        }
        contiguous_axis(module, &shape)?;
        let (vector, _) = self.copied_run(load)?;
        let side = plan.shared.accesses(&in_place);
        let fits = side.accesses.iter().all(|access| {
            access.registers.len() == vector && access.registers.windows(2).all(|pair| pair[1] == pair[0] + 1)
        });
        (fits && side.replicated == 0).then_some((load, side))
    }

    /// Is nothing between a load and this value used twice?
    fn is_only_use(&self, value: Value) -> bool {
        let mut value = value;
        loop {
            if self.use_counts[value.index()] != 1 {
                return false;
            }
            match self.module.defining_op(value) {
                Some(id) if self.passes_on(id) => value = self.module.op(id).operands[0],
                _ => return true,
            }
        }
    }

    /// Has the tile behind this value been fetched to shared memory, so that nothing is to be computed?
    pub fn is_fetched(&self, value: Value) -> bool {
        let load = self.load_behind(value);
        load.is_some_and(|load| self.is_streamed(load) || self.staged.contains_key(&self.module.op(load).results[0]))
    }

    /// The ops of the body that compute the indices of a load, if they are scalar and nothing that the kernel does
    /// changes them.
    fn index_slice(&self, body: BlockId, load: OpId) -> Option<Vec<OpId>> {
        let module = self.module;
        let mut found = Vec::new();
        let mut pending: Vec<Value> = module.op(load).group(1).to_vec();
        while let Some(value) = pending.pop() {
            match module.def(value) {
                Def::Arg(block, position) if block == body => {
                    if position != 0 {
                        return None;
                    }
                }
                Def::Arg(..) => {}
                Def::Result(op, _) => {
                    if self.op_blocks[op.index()] != Some(body) || matches!(module.ty(value), Type::Token) {
                        continue;
                    }
                    if !self.is_repeatable(op) {
                        return None;
                    }
                    found.push(op);
                    pending.extend(&module.op(op).operands);
                }
            }
        }
        // The view itself has to come from outside.
        let view = module.defining_op(module.op(load).group(0)[0])?;
        (self.op_blocks[view.index()] != Some(body)).then_some(found)
    }

    /// Does this op give scalars, and the same ones whenever it is run?
    fn is_repeatable(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let steady = match op.code {
            Opcode::LoadView => self.is_steady(id),
            code => code.spec().effect == Effect::Pure,
        };
        steady
            && op.results.iter().all(|&result| match self.module.ty(result) {
                Type::Tile { .. } => self.inference.num_elements(result) == 1,
                other => matches!(other, Type::Token),
            })
    }

    /// Fills the first stages: `counter` is the first value of the loop counter.
    pub fn start_pipeline(
        &mut self,
        id: OpId,
        pipeline: Pipeline,
        counter: Reg,
        upper: Operand,
        step: Operand,
        ty: Ty,
    ) -> Lowered<Running> {
        let bytes = (pipeline.stage_bytes * pipeline.stages) as u32;
        let slab = self.shared.reserve(bytes, ALIGN as u32).ok_or("shared memory for the stages of a loop")?;
        if self.shared.write(slab) {
            self.barrier();
        }
        for copy in &pipeline.copies {
            let tile = self.module.op(copy.load).results[0];
            let bytes = vector::run_bytes(self.element_type(tile), copy.run);
            let way = Way::Ahead { bytes, stages: pipeline.stages as u32 };
            self.remarks.access(self.module, copy.load, tile, way);
        }
        let thread = pipeline.copies.iter().map(|copy| copy.thread.clone()).collect::<Vec<_>>();
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
        if running.pipeline.own {
            return self.find_own_tiles(running);
        }
        if running.pipeline.asynchronous {
            self.land_all();
            self.b.fence_proxy(ProxyFence::AsyncShared);
        }
        self.barrier();
        for copy in &running.pipeline.copies {
            let offset = running.slab.offset + copy.offset as u32;
            let place = self.b.add(Ty::U32, running.compute, offset);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, place);
            self.staged.insert(self.module.op(copy.load).results[0], address);
        }
    }

    /// Where threads find their own elements in this iteration.
    fn find_own_tiles(&mut self, running: &Running) {
        for (copy, &thread) in running.pipeline.copies.iter().zip(&running.thread) {
            let place = self.b.add(Ty::U32, thread, running.slab.offset + copy.offset as u32);
            let place = self.b.add(Ty::U32, place, running.compute);
            let base = self.b.reg(Operand::Smem, RegClass::B32);
            let address = self.b.add(Ty::U32, base, place);
            let pieces = copy.pieces.iter().map(|piece| piece.offset).collect();
            self.own_tiles.insert(copy.load, OwnTile { address, run: copy.run, pieces });
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
        if running.pipeline.asynchronous {
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
        self.shared.release(running.slab);
    }

    /// Issues the copies of the iteration with this counter, if there is one; a group either way.
    fn fill(&mut self, id: OpId, running: &Running, counter: Operand, exists: Reg) -> Lowered {
        let skip = self.b.new_label();
        self.b.bra_if(exists, true, skip, true);
        let mark = self.mark();
        let argument = self.module.block(self.module.op(id).regions[0]).args[0];
        let before = self.tiles[argument.index()].take();
        self.single(argument, counter);
        for &op in &running.pipeline.slice {
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

    fn copy_tile(&mut self, copy: &Copy, running: &Running, thread: Operand) -> Lowered {
        let mut access = self.begin_load(copy.load)?;
        for piece in &copy.pieces {
            let (source, present) = self.copy_source(&mut access, piece.slot);
            let offset = running.slab.offset as usize + copy.offset;
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
