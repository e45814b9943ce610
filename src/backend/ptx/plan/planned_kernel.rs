//! Schedule of a kernel with its shared memory: the last stage of the plan, and the input of the
//! lowering.
//!
//! 1. Block-local arrays and, with a wait limit, mbarriers are allocated in shared memory.
//! 2. TMA stores and the warp specialization are selected, and their buffers are allocated.
//! 3. The schedule is built and, in debug builds, verified after each pass.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::backend::ptx::cost::registers_of_mma_loops;
use crate::backend::ptx::hardware::{MAX_REGISTERS_PER_THREAD, MBARRIER_BYTES, NAMED_BARRIERS, SWIZZLE_ATOM_BYTES};
use crate::backend::ptx::layout_inference::{Inference, Layouts};
use crate::backend::ptx::options::CompileOptions;
use crate::backend::ptx::schedule::{
    FIRST_COMPLETE, KernelInfo, OrderPoint, PINGPONG_GROUPS, RejectedLoads, Schedule, Step, WarpSpecialization,
};
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Entry, Module, OpId, Opcode, Type};

/// Bytes of the two mbarriers of a stage: full, empty.
pub const STAGE_BARRIER_BYTES: u32 = 2 * MBARRIER_BYTES;

/// Bytes from the full barrier to the empty one.
pub const EMPTY_BARRIER_OFFSET: i64 = MBARRIER_BYTES as i64;

/// Number of order mbarriers: one for each order point and group.
pub const ORDER_BARRIERS: u32 = PINGPONG_GROUPS * OrderPoint::PINGPONG.len() as u32;

/// Kernel with its schedule and the offsets of its buffers.
pub struct PlannedKernel<'m> {
    pub module: &'m Module,
    pub info: KernelInfo<'m>,
    pub schedule: Rc<Schedule>,
    /// The allocated ranges of shared memory.
    memory: SharedMemory,
    /// Block-local arrays, by `alloca`.
    pub arrays: FxHashMap<OpId, Buffer>,
    /// The kernel has block-local arrays.
    pub has_arrays: bool,
    /// Offset of the mbarriers that replace named barriers, with a wait limit.
    pub limited_barriers: Option<u32>,
    pub partitions: Partitions,
    /// Reasons against the kernel.
    pub errors: Vec<Diagnostic>,
    /// Reason why a requested cluster shares no loads.
    pub cluster_rejected: Option<&'static str>,
    pub rejected_loads: RejectedLoads,
}

/// Verification of a schedule in debug builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// After each pass of the schedule.
    EachPass,
    /// None: the schedule is for the cost model alone. It is verified when it is lowered.
    Off,
}

/// Partitions of the warps.
pub enum Partitions {
    /// All warps execute one sequence.
    All,
    /// A producer and consumers.
    Specialized(Rc<WarpSpecialization>, PipelineBuffers),
    /// A producer and consumers, whose pipelines do not fit into shared memory. The error is
    /// reported.
    Rejected,
}

/// Shared memory of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct StageBuffers {
    /// The stages.
    pub smem: Buffer,
    /// Offset of the mbarriers.
    pub barriers: u32,
}

/// Shared memory of all pipelines.
pub struct PipelineBuffers {
    /// By pipeline.
    pub stages: Vec<StageBuffers>,
    /// Offset of the mbarriers of order points.
    pub order_mbarriers: u32,
}

impl<'m> PlannedKernel<'m> {
    /// Returns the kernel before its schedule.
    pub fn unscheduled(
        module: &'m Module,
        entry: &Entry,
        inference: Inference<'m>,
        options: &CompileOptions,
    ) -> PlannedKernel<'m> {
        let memory = SharedMemory::new(inference.target.max_shared_bytes());
        PlannedKernel {
            module,
            info: KernelInfo::new(module, entry, inference, options),
            schedule: Rc::default(),
            memory,
            arrays: FxHashMap::default(),
            has_arrays: false,
            limited_barriers: None,
            partitions: Partitions::All,
            errors: Vec::new(),
            cluster_rejected: None,
            rejected_loads: RejectedLoads::default(),
        }
    }

    /// Returns the kernel of a module of one entry, with its schedule.
    pub fn scheduled(
        module: &'m Module,
        layouts: Layouts,
        options: &CompileOptions,
        verification: Verification,
    ) -> PlannedKernel<'m> {
        let entry = &module.entries[0];
        let mut kernel = PlannedKernel::unscheduled(module, entry, layouts.of(module), options);
        kernel.info.options.occupancy = kernel.info.possible_occupancy();
        kernel.reserve_allocas(entry.body);
        if kernel.info.options.wait_limit.is_some() {
            kernel.reserve_limited_barriers();
        }
        kernel.info.select_tma_stores();
        let selected = kernel.info.plan_warp_specialization(entry.body, &kernel.memory);
        (kernel.cluster_rejected, kernel.rejected_loads) = (selected.cluster_rejected, selected.rejected_loads);
        match selected.warp_spec {
            Some(warp_spec) => kernel.plan_partitions(entry.body, Rc::new(warp_spec), verification),
            None => {
                kernel.info.allocate_staging_buffers(entry.body, None, &mut kernel.memory);
                kernel.info.select_privatized_atomics(&mut kernel.memory);
                kernel.build(entry.body, None, verification);
            }
        }
        kernel
    }

    /// Allocates the pipelines, and builds the schedule.
    fn plan_partitions(&mut self, body: BlockId, warp_spec: Rc<WarpSpecialization>, verification: Verification) {
        let buffers = match self.allocate_pipelines(&warp_spec) {
            Ok(buffers) => buffers,
            Err(message) => {
                self.errors.push(Diagnostic::new(message.to_owned(), None));
                self.partitions = Partitions::Rejected;
                return;
            }
        };
        self.info.allocate_staging_buffers(body, Some(&warp_spec), &mut self.memory);
        self.build(body, Some(Rc::clone(&warp_spec)), verification);
        self.partitions = Partitions::Specialized(warp_spec, buffers);
    }

    /// Builds the schedule, and verifies it after each pass.
    fn build(&mut self, body: BlockId, warp_spec: Option<Rc<WarpSpecialization>>, verification: Verification) {
        let verifies = cfg!(debug_assertions) && verification == Verification::EachPass;
        let mut invalid = None;
        let schedule = self.info.schedule(body, warp_spec, &self.memory, &mut |pass, schedule| {
            if pass == FIRST_COMPLETE {
                // A schedule within less shared memory may have been dropped.
                invalid = None;
            }
            if verifies
                && invalid.is_none()
                && let Err(problem) = self.info.verify_schedule(body, schedule)
            {
                invalid = Some((pass, problem));
            }
        });
        self.schedule = Rc::new(schedule);
        if self.info.data_partitions > 1
            && let Err(problem) = self.info.verify_data_partition(body, &self.schedule)
        {
            return self.errors.push(Diagnostic::new(problem, None));
        }
        if let Some((pass, problem)) = invalid {
            let message = format!(
                "internal error: the schedule of this kernel is invalid after pass `{pass}`; please report it: {problem}"
            );
            // Otherwise another strategy would replace the invalid one, and no test would fail.
            if cfg!(feature = "_suite") {
                panic!("{message}");
            }
            self.errors.push(Diagnostic::new(message, None));
        }
    }

    /// Returns an estimate of the number of CTAs per SM, as far as it is known without code.
    pub fn ctas_per_sm(&self) -> u32 {
        let (inference, schedule) = (&self.info.inference, &self.schedule);
        let requested = self.info.options.occupancy;
        // ptxas compiles MMAs without a requested occupancy for one CTA.
        let of_loops = if requested.is_none() { registers_of_mma_loops(&self.info) } else { 0 };
        let registers = self.info.min_registers().max(of_loops.min(MAX_REGISTERS_PER_THREAD));
        let multiprocessor = inference.target.multiprocessor();
        if schedule.warp_spec.is_some() {
            let planned = self.info.warp_specialized_occupancy();
            if requested.is_some() || self.info.transfers_registers() {
                return planned;
            }
            let warps = self.info.consumer_warps() + self.info.producer_warps();
            return multiprocessor.fitting_blocks(warps, registers, self.memory.used()).max(planned);
        }
        let mut cp_async_bytes = 0;
        for step in schedule.sequences.iter().flatten() {
            if let Step::For(plan) = step {
                cp_async_bytes = cp_async_bytes.max(plan.cp_async.as_ref().map_or(0, |plan| plan.bytes()));
            }
        }
        let warps = inference.num_warps as u32;
        let most = multiprocessor.fitting_blocks(warps, registers, self.memory.used() + cp_async_bytes).max(1);
        requested.map_or(most, |requested| requested.min(most))
    }

    // Allocations in shared memory.

    /// Allocates all block-local arrays, and reports those that do not fit.
    fn reserve_allocas(&mut self, body: BlockId) {
        let module = self.module;
        let mut all = Vec::new();
        module.walk(body, &mut |id| all.extend((module.op(id).code == Opcode::Alloca).then_some(id)));
        for id in all {
            self.has_arrays = true;
            let extent = extent(module, id);
            let buffer = extent.and_then(|(bytes, align)| self.memory.reserve(bytes, align));
            match buffer {
                Some(buffer) => drop(self.arrays.insert(id, buffer)),
                None => {
                    let (bytes, all) = (extent.map_or(u32::MAX, |(bytes, _)| bytes), self.memory.budget());
                    let message = format!("there is no room for {bytes} bytes of a tile block's own in shared memory");
                    let location = module.location(module.op(id).loc).cloned();
                    let note = format!("a tile block has {all} bytes of it in all on {}", self.info.inference.target);
                    self.errors.push(Diagnostic::new(message, location).note(note));
                }
            }
        }
    }

    /// Allocates the mbarriers of a kernel with a wait limit.
    fn reserve_limited_barriers(&mut self) {
        match self.memory.reserve(NAMED_BARRIERS * MBARRIER_BYTES, 16) {
            Some(buffer) => self.limited_barriers = Some(buffer.offset),
            None => {
                let message = "there is no shared memory for the barriers of a kernel with a wait limit";
                self.errors.push(Diagnostic::new(message, None));
            }
        }
    }

    /// Allocates stages and mbarriers of all pipelines, and the mbarriers of order points.
    fn allocate_pipelines(&mut self, warp_spec: &WarpSpecialization) -> Result<PipelineBuffers, &'static str> {
        let mut pipelines = Vec::new();
        for pipeline in &warp_spec.pipelines {
            let bytes = pipeline.num_stages * pipeline.stage_bytes;
            let slab =
                self.memory.reserve(bytes, SWIZZLE_ATOM_BYTES).ok_or("shared memory for the stages of the loads")?;
            pipelines.push(StageBuffers { smem: slab, barriers: 0 });
        }
        let stages: u32 = warp_spec.pipelines.iter().map(|pipeline| pipeline.num_stages).sum();
        let order_bytes = if self.info.pingpong_groups > 1 { MBARRIER_BYTES * ORDER_BARRIERS } else { 0 };
        let barriers =
            self.memory.reserve(stages * STAGE_BARRIER_BYTES + order_bytes, 16).ok_or("shared memory for barriers")?;
        let mut next = barriers.offset;
        for (pipeline, plan) in pipelines.iter_mut().zip(&warp_spec.pipelines) {
            pipeline.barriers = next;
            next += plan.num_stages * STAGE_BARRIER_BYTES;
        }
        Ok(PipelineBuffers { stages: pipelines, order_mbarriers: next })
    }
}

/// Returns bytes and alignment of a block-local array.
fn extent(module: &Module, id: OpId) -> Option<(u32, u32)> {
    let op = module.op(id);
    let Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } = module.ty(op.results[0]) else { return None };
    let number = |kind| match op.attr(kind) {
        Some(Attr::NumElem(n) | Attr::Alignment(n)) => Some(*n),
        _ => None,
    };
    let bits = number(AttrKind::NumElem)?.checked_mul(pointee.storage_bits().into())?;
    let align = number(AttrKind::Alignment)?.max(16);
    Some((u32::try_from(bits.div_ceil(8)).ok()?, u32::try_from(align).ok()?))
}
