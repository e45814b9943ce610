//! Multistage `cp.async` copies for loops without a producer.
//!
//! With S stages, iteration i computes on stage i mod S. The copies of iterations i + 1 to i + S −
//! 1 are in flight at the same time. Each `cp.async` copies 16 bytes per thread if the alignment
//! allows it. The kernel does not write the arrays. The indices depend on the loop counter and on
//! values from outside of the loop.
//!
//! A loop with `break` or `return` is no `for` (`ops/control/counted_loop`), and has no copies
//! (`CpAsyncRejection::NoCounter`). A `for` with `continue` has none either
//! (`CpAsyncRejection::Continue`).
//!
//! *Operands*: a `for` loop qualifies if its body loads operands of an MMA. One barrier at the head
//! of an iteration has two purposes. The copies of all threads have arrived, and all threads have
//! finished reading the stage that the end of the iteration fills. Asynchronous MMAs stay in flight
//! until the next head.
//!
//! *Thread-private*: in a loop without operand copies each thread copies the elements that it holds
//! later, of the loads for which that is possible, if these are most of the bytes. The thread reads
//! them without a barrier, and fills the stage of the previous iteration at the head. Lanes with
//! the same elements share a copy, after a synchronization of their warp. The loop has
//! no MMA, or synchronous ones whose operands are in registers: packed codes and their scales. In a
//! loop with operand copies, other tiles are copied in stages, too. The condition is that the
//! operands keep their number of stages. If a producer loads the operands, consumers copy such
//! tiles, and its pipelines get the rest of shared memory.

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::smem_budget::{CONVERSION_BYTES, MIN_CONVERSION_BYTES};
use crate::backend::ptx::schedule::copies::copy_addresses::CopyAddresses;
use crate::backend::ptx::schedule::copies::thread_private::{MAX_STAGES, PlannedCopies};
use crate::backend::ptx::schedule::ir::cp_async::{CpAsync, CpAsyncPlan};
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::rejected_loads::CpAsyncRejection;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::layout::{Access, Side};
use crate::util::collect::CollectVec as _;

/// Bytes of all stages above which fewer stages are used, to leave shared memory to other CTAs.
const MAX_BYTES: usize = 112 << 10;

/// Maximum bytes of thread-private stages. On sm_90 they fit three CTAs. On other targets half of
/// the shared memory is the limit, for two CTAs.
const THREAD_PRIVATE_BYTES: usize = 72 << 10;

/// Returns the number of stages of operands, if shared memory has space for them.
fn operand_stages(bytes: usize) -> usize {
    (MAX_BYTES / bytes).clamp(2, MAX_STAGES)
}

impl KernelInfo<'_> {
    /// Returns the copies of a `for` loop, if it qualifies. `no_producer`: the kernel has no
    /// producer.
    pub fn plan_cp_async(
        &self,
        id: OpId,
        (no_producer, warp_spec): (bool, Option<&WarpSpecialization>),
        smem: &SharedMemory,
    ) -> Option<PlannedCopies> {
        let module = self.module;
        let body = module.op(id).regions[0];
        if self.regions.has_multiple_latches(id) || !self.is_enabled(Optimization::CpAsync) {
            return None;
        }
        let requested = self.requested_stages(Some(id));
        let mut copies: Vec<CpAsync> = Vec::new();
        let mut addresses = CopyAddresses::default();
        let mut stage_bytes = 0;
        let mut async_mma = false;
        for &mma in &module.block(body).ops {
            let op = module.op(mma);
            if !op.code.is_mma() {
                continue;
            }
            let Some(Ok(plan)) = self.inference.mma_plans.get(&mma) else { continue };
            async_mma |= plan.is_asynchronous();
            for (&operand, plan) in op.operands[..2].iter().zip([&plan.a, &plan.b]) {
                let Ok((load, side)) = self.operand_copy(body, operand, plan) else { continue };
                if warp_spec.is_some_and(|warp_spec| warp_spec.operand_channel(load).is_some()) {
                    continue;
                }
                let Ok(part) = self.copy_addresses(body, load) else { continue };
                // Another MMA reads the same copy.
                if copies.iter().any(|copy| copy.load == load) {
                    continue;
                }
                addresses.extend(part);
                copies.push(CpAsync::from_side(load, stage_bytes, side));
                stage_bytes += plan.shared.bytes().next_multiple_of(SWIZZLE_ATOM_BYTES as usize);
            }
        }
        match warp_spec {
            Some(warp_spec) if copies.is_empty() && !no_producer => {
                return self.plan_with_producer(body, warp_spec, smem);
            }
            _ if copies.is_empty() => return self.plan_thread_private(body, requested, no_producer, smem),
            _ => {}
        }
        if no_producer {
            self.add_thread_private_copies(body, (&mut copies, &mut addresses), &mut stage_bytes);
        }
        let CopyAddresses { ops: mut address_ops, hoisted } = addresses;
        self.sort_in_program_order(body, &mut address_ops);
        // An operand of which threads copy their own parts is stored to shared memory later.
        let copied = |load| copies.iter().any(|copy| copy.load == load && !copy.thread_private);
        let others = self.other_smem_bytes(body, &copied, true, CONVERSION_BYTES) as usize;
        let reserved = if others > 0 { others + SWIZZLE_ATOM_BYTES as usize } else { 0 };
        let capacity = (self.smem_for_stages(smem) as usize).saturating_sub(reserved);
        let stages = operand_stages(stage_bytes);
        let barrier_at_head = true;
        let plan = CpAsyncPlan { copies, address_ops, stage_bytes, stages, async_mma, barrier_at_head };
        Some((self.with_stages_that_fit(plan, requested, capacity)?, hoisted))
    }

    /// Returns true if the body of a loop has MMAs outside of nested regions, and all of them are
    /// synchronous ones of tensor cores.
    ///
    /// Copies do not gain in loops with asynchronous MMAs: the operands go through shared memory,
    /// and the registers of the addresses spill.
    pub fn has_sync_mmas(&self, body: BlockId) -> bool {
        let mut mmas = self.module.block(body).ops.iter().filter(|&&id| self.module.op(id).code.is_mma()).peekable();
        let is_sync = |id: &OpId| match self.inference.mma_plans.get(id) {
            Some(Ok(plan)) => !plan.is_asynchronous() && !plan.is_fma(),
            _ => false,
        };
        mmas.peek().is_some() && mmas.all(is_sync)
    }

    /// Returns the bytes that the widest pieces of thread-private copies have at least. The
    /// elements of a scan wait for each other, and MMAs wait for all of their operands, so that
    /// narrower copies gain, too.
    pub fn min_copy_bytes(&self, body: BlockId) -> u32 {
        let has_scan = self.module.block(body).ops.iter().any(|&id| self.module.op(id).code == Opcode::Scan);
        if has_scan || self.has_sync_mmas(body) { 8 } else { 16 }
    }

    /// Returns a plan with the requested number of stages, if at least two fit. Without a request
    /// the plan keeps its number.
    fn with_stages_that_fit(&self, plan: CpAsyncPlan, requested: Option<u32>, capacity: usize) -> Option<CpAsyncPlan> {
        let for_latency = || self.stages_for_latency(plan.copies.iter().map(|copy| copy.load));
        let stages = requested.or_else(for_latency).map_or(plan.stages, |stages| stages as usize);
        let stages = stages.min(capacity / plan.stage_bytes);
        (stages >= 2).then_some(CpAsyncPlan { stages, ..plan })
    }

    /// Returns the copies of a loop without operand copies, if each thread can copy its own
    /// elements of the loads with most of the bytes.
    fn plan_thread_private(
        &self,
        body: BlockId,
        requested: Option<u32>,
        no_producer: bool,
        smem: &SharedMemory,
    ) -> Option<PlannedCopies> {
        let module = self.module;
        let has_mma = self.has_sync_mmas(body);
        if !no_producer || !has_mma && self.regions.parent(body).is_some_and(|id| self.regions.has_mma(id)) {
            return None;
        }
        let (mut copies, mut addresses, mut stage_bytes, mut wide) = (Vec::new(), CopyAddresses::default(), 0, false);
        let least = self.min_copy_bytes(body);
        let is_load = |&id: &OpId| module.op(id).code == Opcode::LoadView;
        let loads: Vec<OpId> = module.block(body).ops.iter().copied().filter(is_load).collect_vec();
        let part = |&load: &OpId| {
            // Tiles at any position overlap. The first-level cache, which copies bypass, has the
            // rest.
            let view = module.op(load).group(0)[0];
            let is_outside = module.defining_op(view).is_some_and(|view| self.regions.block_of(view) != Some(body));
            let has_disjoint_tiles = ViewShape::of(module, view).is_some_and(|shape| shape.has_disjoint_tiles());
            let copies = is_outside && has_disjoint_tiles && self.thread_private_copy(load, 0, false).is_some();
            let copies = copies && !(has_mma && self.is_much_replicated(load));
            self.copy_addresses(body, load).ok().filter(|_| copies)
        };
        let parts: Vec<Option<CopyAddresses>> = loads.iter().map(part).collect_vec();
        let (mut copied, mut direct) = (0, 0);
        for (&load, part) in loads.iter().zip(&parts) {
            // Loads that compute indices of other loads have no multistage copies.
            let is_index = parts.iter().flatten().any(|other| other.ops.contains(&load));
            match part.as_ref().filter(|_| !is_index).zip(self.thread_private_copy(load, stage_bytes, false)) {
                Some((part, (copy, bytes))) => {
                    addresses.extend(part.clone());
                    stage_bytes += bytes;
                    copied += self.tile_bytes(load);
                    wide |= self.copy_vector(load).is_ok_and(|(_, bytes)| bytes >= least as usize);
                    copies.push(copy);
                }
                None if is_index => {}
                None => direct += self.tile_bytes(load),
            }
        }
        let CopyAddresses { ops: mut address_ops, hoisted } = addresses;
        self.sort_in_program_order(body, &mut address_ops);
        // An iteration waits for what its threads load directly, so that this is the smaller part.
        if !wide || direct >= copied {
            return None;
        }
        let others = if has_mma { self.other_smem_bytes(body, &|_| false, true, CONVERSION_BYTES) as usize } else { 0 };
        let reserved = if others > 0 { others + SWIZZLE_ATOM_BYTES as usize } else { 0 };
        let capacity = (self.smem_for_stages(smem) as usize).saturating_sub(reserved);
        let half = self.inference.target.max_shared_bytes() as usize / 2;
        let stages = (THREAD_PRIVATE_BYTES.min(half) / stage_bytes).min(MAX_STAGES);
        let (async_mma, barrier_at_head) = (false, false);
        let plan = CpAsyncPlan { copies, address_ops, stage_bytes, stages, async_mma, barrier_at_head };
        Some((self.with_stages_that_fit(plan, requested, capacity)?, hoisted))
    }

    /// Returns the copies of consumers in a loop with MMAs whose other operands a producer loads.
    fn plan_with_producer(
        &self,
        body: BlockId,
        warp_spec: &WarpSpecialization,
        smem: &SharedMemory,
    ) -> Option<PlannedCopies> {
        let (plan, hoisted) = self.copies_with_producer(body, warp_spec)?;
        let fetched = |load| warp_spec.operand_channel(load).is_some();
        let others = self.other_smem_bytes(body, &fetched, true, MIN_CONVERSION_BYTES) as usize;
        let capacity = (self.smem_for_stages(smem) as usize).saturating_sub(others + SWIZZLE_ATOM_BYTES as usize);
        let stages = plan.stages.min(capacity / plan.stage_bytes);
        (stages >= 2).then_some((CpAsyncPlan { stages, ..plan }, hoisted))
    }

    /// Adds thread-private copies of other tiles of the body to the copies of operands, as long as
    /// the operands keep their number of stages.
    fn add_thread_private_copies(
        &self,
        body: BlockId,
        (copies, addresses): (&mut Vec<CpAsync>, &mut CopyAddresses),
        stage_bytes: &mut usize,
    ) {
        let operands = operand_stages(*stage_bytes);
        let loads =
            self.module.block(body).ops.iter().copied().filter(|&id| self.module.op(id).code == Opcode::LoadView);
        for load in loads {
            let known = copies.iter().any(|copy| copy.load == load) || addresses.ops.contains(&load);
            let Some(part) = self.copy_addresses(body, load).ok().filter(|_| !known) else { continue };
            let Some((copy, more)) = self.copy_in_mma_loop(load, *stage_bytes, true) else { continue };
            // No load computes an index of another one, and operands keep their number of stages.
            let bytes = (*stage_bytes + more).next_multiple_of(SWIZZLE_ATOM_BYTES as usize);
            if copies.iter().all(|copy| !part.ops.contains(&copy.load)) && operand_stages(bytes) == operands {
                addresses.extend(part);
                *stage_bytes += more;
                copies.push(copy);
            }
        }
        *stage_bytes = stage_bytes.next_multiple_of(SWIZZLE_ATOM_BYTES as usize);
    }

    /// Returns the load of an operand and the accesses of its copy, if a multistage copy is
    /// possible.
    pub fn operand_copy(
        &self,
        body: BlockId,
        operand: Value,
        plan: &OperandPlan,
    ) -> Result<(OpId, Side), CpAsyncRejection> {
        let module = self.module;
        let load = self.source_load(operand).ok_or(CpAsyncRejection::Order)?;
        let op = module.op(load);
        if self.regions.block_of(load) != Some(body) {
            return Err(CpAsyncRejection::Branch);
        }
        let uses = self.operand_uses(body, op.results[0]).unwrap_or_default();
        if uses.is_empty() {
            return Err(CpAsyncRejection::Uses);
        }
        let shape = ViewShape::of(module, op.group(0)[0]).ok_or(CpAsyncRejection::View)?;
        let rounded = shape.elem != self.element_type(operand);
        if rounded && !plan.may_be_unrounded || self.element_type(operand) != plan.dtype {
            return Err(CpAsyncRejection::Order);
        }
        let layout = self.inference.op_layouts.get(&load).ok_or(CpAsyncRejection::View)?;
        let in_place = self.inference.natural(operand).ok_or(CpAsyncRejection::Order)?;
        if in_place.num_registers() != layout.num_registers() {
            return Err(CpAsyncRejection::Order);
        }
        contiguous_axis(module, &shape).ok_or(CpAsyncRejection::Order)?;
        let (vector, bytes) = self.copy_vector(load)?;
        let mut side = plan.shared.accesses(&in_place);
        let fits = side.accesses.iter().all(|access| {
            access.registers.len() % vector == 0 && access.registers.windows(2).all(|pair| pair[1] == pair[0] + 1)
        });
        // All MMAs read the elements at the same offsets of the stage.
        let same = uses.iter().all(|&(other, other_plan)| {
            other == operand && std::ptr::eq(other_plan, plan)
                || other_plan.dtype == plan.dtype
                    && other_plan.may_be_unrounded == plan.may_be_unrounded
                    && other_plan.shared.bytes() == plan.shared.bytes()
                    && self.inference.natural(other).is_some_and(|layout| other_plan.shared.accesses(&layout) == side)
        });
        if !same {
            return Err(CpAsyncRejection::Uses);
        }
        if !fits || side.replicated != 0 {
            return Err(CpAsyncRejection::Order);
        }
        // A vector of registers may consist of several pieces in memory.
        let pieces = side.accesses.iter().flat_map(|access| {
            access.registers.chunks(vector).zip(0..).map(move |(registers, number)| Access {
                registers: registers.to_vec(),
                offset: access.offset + number * bytes as u32,
                ..access.clone()
            })
        });
        side.accesses = pieces.collect_vec();
        Ok((load, side))
    }

    /// Returns the operands of MMAs of a body that are a tile or views of it, with their plans;
    /// `None` if the tile has other uses.
    fn operand_uses(&self, body: BlockId, tile: Value) -> Option<Vec<(Value, &OperandPlan)>> {
        let (mut found, mut pending) = (Vec::new(), vec![tile]);
        while let Some(value) = pending.pop() {
            for &(user, position) in self.uses.users(value) {
                let op = self.module.op(user);
                if self.is_operand_view(user) {
                    pending.push(op.results[0]);
                    continue;
                }
                let Some(Ok(plan)) = self.inference.mma_plans.get(&user) else { return None };
                let operand = [&plan.a, &plan.b].into_iter().nth(position)?;
                if self.regions.block_of(user) != Some(body) {
                    return None;
                }
                found.push((value, operand));
            }
        }
        Some(found)
    }
}
