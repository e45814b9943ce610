//! Driver: plans the schedule of a kernel, then lowers each partition.
//!
//! 1. [`start`] creates the state; parameters are declared and block-local arrays allocated.
//! 2. The schedule is planned and, in debug builds, verified.
//! 3. Without warp specialization all warps execute one sequence. Otherwise the warps branch by
//!    their number: consumer groups first, the producer last.
//! 4. [`lower`] finishes the function, estimates the occupancy and prints the text.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::memory::global_symbol;
use super::state::core::{Dispatch, Params, Report, Smem};
use super::state::sync_state::SyncState;
use super::state::sync_state::{BARRIER_BYTES, ORDER_BARRIER_BYTES, PipelineStates, StageBuffers};
use super::state::values::{Snapshot, Values};
use super::state::values::{ThreadIndexCache, Tile};
use super::state::vector_access;
use super::{Lowered, Lowering};
use crate::backend::ptx::builder::Builder;
use crate::backend::ptx::compiled::{Compiled, ParamKind};
use crate::backend::ptx::emit::{self, Function, Param};
use crate::backend::ptx::infer::Inference;
use crate::backend::ptx::inst::{Cmp, Operand, Space, Special, Ty};
use crate::backend::ptx::options::CompileOptions;
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::schedule::{KernelInfo, PRODUCER_REGISTERS, Schedule, Step, WarpRole, WarpSpecialization};
use crate::backend::ptx::shared::SharedMemory;
use crate::backend::ptx::source::SourceLines;
#[cfg(any(test, feature = "_suite"))]
use crate::backend::ptx::tensor_map::TensorMap;
use crate::backend::ptx::{pressure, whole_product, workarounds};
use crate::error::Diagnostic;
use crate::ir::{BlockId, Elem, Entry, Module, Opcode, Type};
use crate::layout::Layout;
use crate::target::Target;

/// Returns the state after the lowering of the whole kernel.
pub fn lowered<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Lowering<'m> {
    plan_and_lower(start(module, entry, inference, name, options), entry)
}

/// Returns the state after planning: a schedule without code.
pub fn planned<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    options: &CompileOptions,
) -> Lowering<'m> {
    let lowering = start(module, entry, inference, "kernel", options);
    plan_and_lower(Lowering { plan_only: true, ..lowering }, entry)
}

fn plan_and_lower<'m>(mut lowering: Lowering<'m>, entry: &Entry) -> Lowering<'m> {
    lowering.info.options.occupancy = lowering.info.possible_occupancy();
    lowering.b.come_from(entry.loc.0);
    lowering.params.kinds = lowering.entry_params(entry);
    lowering.reserve_allocas(entry.body);
    lowering.info.select_tma_stores(entry.body);
    let planned = lowering.info.plan_warp_specialization(entry.body, &lowering.smem.memory);
    lowering.report.remarks.alone = planned.alone;
    // Without a number of blocks ptxas may save registers for too many of them.
    let blocks = lowering.info.options.occupancy.unwrap_or(1);
    lowering.b.function().min_blocks = Some(blocks);
    match planned.roles {
        Some(warp_spec) => {
            if let Err(message) = lowering.lower_partitions(entry.body, Rc::new(warp_spec)) {
                lowering.report.errors.push(Diagnostic::new(message, None));
            }
        }
        None => {
            lowering.info.allocate_staging_buffers(entry.body, None, &mut lowering.smem.memory);
            lowering.info.select_privatized_atomics(entry.body, &mut lowering.smem.memory);
            lowering.plan_schedule(entry.body, None);
            if let Err(message) = lowering.prefetch_store_maps() {
                lowering.report.errors.push(Diagnostic::new(message, None));
            }
            lowering.clear_privatized();
            if !lowering.plan_only {
                lowering.lower_partition(WarpRole::All);
            }
        }
    }
    let unmet = lowering.info.unmet(entry.body, &lowering.schedule, &planned.unstreamed);
    lowering.report.remarks.unmet(lowering.module, unmet);
    lowering
}

/// Returns the state before the first op.
pub fn start<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Lowering<'m> {
    let target = inference.target;
    let threads = inference.num_warps as u32 * WARP;
    Lowering {
        module,
        schedule: Rc::default(),
        b: Builder::new(target, name, threads),
        params: Params::default(),
        values: Values::new(module.num_values()),
        smem: Smem {
            memory: SharedMemory::new(target.max_shared_bytes()),
            arrays: HashMap::new(),
            data_space: Space::Global,
            sub_steps: VecDeque::new(),
        },
        sync: SyncState::new(),
        report: Report::default(),
        regions: Vec::new(),
        plan_only: false,
        info: KernelInfo::new(module, entry, inference, options),
        dispatch: Dispatch {
            op: |lowering, id| lowering.lower_part(id),
            sequence: |lowering, sequence| lowering.sequence(sequence),
        },
    }
}

/// Lowers an entry. The errors name every op without a lowering.
pub fn lower<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    let mut lowering = lowered(module, entry, inference, name, options);
    if !lowering.report.errors.is_empty() {
        return Err(lowering.report.errors);
    }
    let mut params = std::mem::take(&mut lowering.params.kinds);
    params.extend(lowering.params.tensor_maps.drain(..).map(|(map, _)| ParamKind::TensorMap(map)));
    let target = lowering.info.inference.target;
    let layout = lowering.info.layout_text(entry.body);
    let schedule = if options.schedule { lowering.schedule.to_text(module) } else { String::new() };
    let (shared_bytes, cluster) = (lowering.schedule.shared_bytes, lowering.sync.cluster_size());
    let assertions = lowering.report.assertions;
    let (mut remarks, warps) = (lowering.report.remarks, lowering.info.inference.num_warps as u32);
    let multiplies = !lowering.info.inference.products.is_empty();
    let generic = lowering.smem.data_space == Space::Generic;
    let (streams, lowered_wish) = (lowering.sync.pipelines.is_some(), lowering.info.options.occupancy);
    let mut function: Function = lowering.b.finish();
    workarounds::apply(&mut function);
    whole_product::merge(&mut function);
    // Kernels with MMAs plan their registers for one block.
    if !multiplies && options.occupancy.is_none() {
        // ptxas needs more registers for generic addresses than the text has.
        let spare = if generic { GENERIC_SPARE } else { 0 };
        function.min_blocks = Some(pressure::fitting_blocks(&function, target, shared_bytes, spare));
    }
    if !streams && let Some(wished) = lowered_wish {
        function.min_blocks = Some(without_thrashing(&function, wished, target, warps));
    }
    let min_blocks = function.min_blocks.unwrap_or(1);
    remarks.crowded = options.occupancy.filter(|&wished| wished > min_blocks).map(|wished| [wished, min_blocks]);
    remarks.finish(&function, warps);
    let threads = function.threads;
    if options.lines {
        function.source = Some(SourceLines::of(module, function.places()));
    }
    let text = emit::module(target, &global_symbol::globals(module), &[function]);
    Ok(Compiled {
        text,
        entry: name.to_owned(),
        threads,
        min_blocks,
        shared_bytes,
        cluster,
        params,
        assertions,
        layout,
        schedule,
        remarks,
    })
}

/// Additional registers of a kernel with generic addresses.
const GENERIC_SPARE: u32 = 16;

/// Returns the requested number of blocks, limited so that a thread has three quarters of its live
/// registers.
fn without_thrashing(function: &Function, wished: u32, target: Target, warps: u32) -> u32 {
    let needed = pressure::live_registers(function) * 3 / 4;
    wished.min(target.multiprocessor().fitting_blocks(warps, needed, 0).max(1))
}

/// Queries of the planned schedule, and the lowering of partitions.
impl<'m> Lowering<'m> {
    /// Returns the diagnostics of ops that could not be lowered.
    pub fn problems(&self) -> &[Diagnostic] {
        &self.report.errors
    }

    /// Returns the tensor maps that are kernel parameters.
    #[cfg(any(test, feature = "_suite"))]
    pub fn maps(&self) -> Vec<TensorMap> {
        self.params.tensor_maps.iter().map(|(map, _)| map.clone()).collect()
    }

    pub fn context(&self) -> &KernelInfo<'m> {
        &self.info
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the number of tile blocks per multiprocessor, as far as it is known without code.
    pub fn blocks(&self, body: BlockId) -> u32 {
        if self.schedule.warp_spec.is_some() {
            return self.info.blocks_of_roles();
        }
        let (inference, schedule) = (&self.info.inference, &self.schedule);
        let mut ahead = 0;
        for step in schedule.sequences.iter().flatten() {
            if let Step::For(plan) = step {
                ahead = ahead.max(plan.cp_async.as_ref().map_or(0, |ahead| ahead.bytes()));
            }
        }
        let warps = inference.num_warps as u32;
        let fits = |registers| {
            inference.target.multiprocessor().fitting_blocks(warps, registers, self.smem.memory.used() + ahead)
        };
        let most = fits(self.info.least_registers(body)).max(1);
        self.info.options.occupancy.map_or(most, |wished| wished.min(most))
    }

    /// Declares the entry parameters and loads them.
    pub fn entry_params(&mut self, entry: &Entry) -> Vec<ParamKind> {
        let args = &self.module.block(entry.body).args;
        let layout = Layout::replicated(&[], self.info.inference.num_warps);
        let mut kinds = Vec::new();
        for (index, &arg) in args.iter().enumerate() {
            let Type::Tile { elem, .. } = self.module.ty(arg) else { continue };
            let (value, bytes) = match elem {
                Elem::Ptr { .. } => (self.b.param_value(Ty::U64), 8),
                Elem::Num(dtype) => {
                    let (raw, bytes) = vector_access::param(&mut self.b, *dtype);
                    (raw, bytes)
                }
            };
            kinds.push(ParamKind::Word { index: index as u32, bytes });
            self.values.define(arg, Tile { layout: layout.clone(), regs: Rc::from([value]) });
        }
        let mut asserts = false;
        self.module.walk(entry.body, &mut |id| asserts |= self.module.op(id).code == Opcode::Assert);
        if asserts {
            self.params.assert_note = Some(self.b.param(Param::Scalar(Ty::U64)));
            kinds.push(ParamKind::Failure);
        }
        kinds
    }

    /// Plans and verifies the schedule.
    pub fn plan_schedule(&mut self, body: BlockId, warp_spec: Option<Rc<WarpSpecialization>>) {
        self.schedule = Rc::new(self.info.schedule(body, warp_spec, &self.smem.memory));
        if self.info.bands > 1
            && let Err(problem) = self.info.verify_data_partition(body, &self.schedule)
        {
            return self.report.errors.push(Diagnostic::new(problem, None));
        }
        // A schedule for the cost model alone is verified when it is lowered.
        if cfg!(debug_assertions)
            && !self.plan_only
            && let Err(problem) = self.info.verify_schedule(body, &self.schedule)
        {
            let message =
                format!("internal error: the schedule of this kernel is invalid; please report it: {problem}");
            self.report.errors.push(Diagnostic::new(message, None));
        }
    }

    /// Lowers the sequence of a partition.
    pub fn lower_partition(&mut self, role: WarpRole) {
        let partition = self.schedule.partition(role).map(|partition| partition.body);
        self.sequence(partition.expect("an partition of the schedule"));
    }

    /// Lowers the partitions of a kernel with warp specialization.
    pub fn lower_partitions(&mut self, body: BlockId, warp_spec: Rc<WarpSpecialization>) -> Lowered {
        let (warps, groups) = (self.info.inference.num_warps as u32, self.info.teams);
        let bands = self.info.bands;
        let consumers = self.info.consumer_warps() * WARP;
        let blocks = self.info.blocks_of_roles();
        self.b.function().threads = consumers + self.info.producer_warps() * WARP;
        self.b.function().min_blocks = Some(blocks);
        let count = warp_spec.channels.len();
        let mut pipelines = Vec::new();
        for pipeline in &warp_spec.pipelines {
            let bytes = pipeline.num_stages * pipeline.stage_bytes;
            let slab = self.smem.memory.reserve(bytes, 1024).ok_or("shared memory for the stages of the loads")?;
            pipelines.push(StageBuffers { smem: slab, barriers: 0 });
        }
        let stages: u32 = warp_spec.pipelines.iter().map(|pipeline| pipeline.num_stages).sum();
        let turns = if groups > 1 { ORDER_BARRIER_BYTES } else { 0 };
        let barriers =
            self.smem.memory.reserve(stages * BARRIER_BYTES + turns, 16).ok_or("shared memory for barriers")?;
        let mut next = barriers.offset;
        for (pipeline, plan) in pipelines.iter_mut().zip(&warp_spec.pipelines) {
            pipeline.barriers = next;
            next += plan.num_stages * BARRIER_BYTES;
        }
        self.sync.group.order_barriers = next;
        self.info.allocate_staging_buffers(body, Some(&warp_spec), &mut self.smem.memory);
        self.plan_schedule(body, Some(Rc::clone(&warp_spec)));
        self.prefetch_store_maps()?;
        self.compare_trip_counts(body, &warp_spec)?;
        self.init_barriers(&pipelines, &warp_spec, warps * bands);
        let tid = self.b.special(Special::TidX);
        let producer = self.b.new_label();
        let is_producer = self.b.setp(Cmp::Ge, Ty::U32, tid, consumers);
        self.b.bra_if(is_producer, false, producer, true);

        if self.plan_only {
            return Ok(());
        }
        if self.info.crews() > 1 {
            // Thread indices depend on the consumer group.
            self.values.thread_indices = ThreadIndexCache::default();
        }
        let before = self.values.snapshot();
        let positions = Vec::new();
        self.sync.pipelines = Some(PipelineStates {
            warp_spec,
            buffers: pipelines,
            states: positions,
            acquired: vec![None; count],
            try_wait: vec![None; count],
            warp_leader: None,
            opaque_branch: None,
            peer_rank: None,
            remote_leader: None,
            uniform: None,
            data_partition: None,
        });
        self.report.remarks.teams = (groups > 1).then_some(groups);
        self.report.remarks.bands = (bands > 1).then_some(bands);
        self.sync.role = WarpRole::Consumer;
        self.lower_consumer_groups(&before, (tid, blocks));
        self.values.restore(&before);
        self.sync.role = WarpRole::Producer;
        // The registers of these values belong to the consumers.
        let pipelines = self.sync.pipelines.as_mut().expect("pipelines");
        (pipelines.uniform, pipelines.data_partition) = (None, None);
        self.b.place(producer);
        self.reallocate_registers(false, blocks);
        let works = self.b.setp(Cmp::Eq, Ty::U32, tid, consumers);
        let idle = self.b.new_label();
        self.b.bra_if(works, true, idle, false);
        self.init_pipeline_states(None);
        self.lower_partition(WarpRole::Producer);
        self.b.place(idle);
        self.b.ret();
        self.sync.role = WarpRole::All;
        Ok(())
    }

    /// Lowers the sequences of the consumer groups.
    pub fn lower_consumer_groups(&mut self, before: &Snapshot, (tid, blocks): (Operand, u32)) {
        let (threads, groups) = (self.info.inference.num_warps as u32 * WARP, self.info.teams);
        if self.info.crews() == 1 {
            return self.lower_consumer(tid, blocks);
        }
        self.b.threads_of_team = threads;
        if groups == 1 {
            // All data partitions execute the same code.
            self.lower_consumer(tid, blocks);
            self.b.threads_of_team = 0;
            return;
        }
        for group in 0..groups {
            let next = self.b.new_label();
            if group + 1 < groups {
                let is_later = self.b.setp(Cmp::Ge, Ty::U32, tid, (group + 1) * threads);
                self.b.bra_if(is_later, false, next, true);
            }
            self.sync.group.index = group;
            self.lower_consumer(tid, blocks);
            self.values.restore(before);
            self.b.place(next);
        }
        self.b.threads_of_team = 0;
    }

    /// Lowers the sequence of the consumers.
    pub fn lower_consumer(&mut self, tid: Operand, blocks: u32) {
        self.reallocate_registers(true, blocks);
        let lane = self.b.and(Ty::B32, tid, WARP - 1);
        let leader = self.b.setp(Cmp::Eq, Ty::U32, lane, 0);
        self.init_pipeline_states(Some(leader));
        self.init_data_partition(tid);
        let known = self.init_warp_uniform();
        self.sync.pipelines.as_mut().expect("pipelines").uniform = Some(known);
        let grid = self.b.special(Special::NCtaIdX);
        let opaque_false = self.b.setp(Cmp::Eq, Ty::U32, grid, 0);
        let target = self.b.new_label();
        self.sync.pipelines.as_mut().expect("pipelines").opaque_branch = Some((opaque_false, target));
        self.init_order();
        self.lower_partition(WarpRole::Consumer);
        self.b.place(target);
        self.b.trap();
    }

    /// Moves registers from the producer to the consumers (`setmaxnreg`).
    pub fn reallocate_registers(&mut self, consumer: bool, blocks: u32) {
        let (at_entry, more) = self.info.registers(blocks);
        let whole_groups = self.info.producer_warps() == 4 && self.info.consumer_warps().is_multiple_of(4);
        if whole_groups && more > at_entry && at_entry > PRODUCER_REGISTERS {
            self.b.set_max_registers(consumer, if consumer { more } else { PRODUCER_REGISTERS });
        }
    }
}
