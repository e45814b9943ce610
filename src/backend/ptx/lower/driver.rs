//! Driver: lowers a planned kernel.
//!
//! 1. [`start`] creates the state, and parameters are declared.
//! 2. Without warp specialization all warps execute one sequence. Otherwise the warps branch by
//!    their number: consumer groups first, the producer last.
//! 3. [`emit`] finishes the function, estimates the occupancy and prints the text.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Lowering;
use super::memory::global_symbol;
use super::state::core::{Dispatch, Params, Report, Smem};
use super::state::sync_state::SyncState;
use super::state::values::Tile;
use super::state::values::Values;
use super::state::vector_access;
use crate::backend::ptx::compiled::{Compiled, ParamKind};
use crate::backend::ptx::device_assert::FailureSites;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::emit::{self, Function, Param};
use crate::backend::ptx::isa::inst::{Space, Ty};
use crate::backend::ptx::isa::loc_directives::SourceLines;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::options::CompileOptions;
use crate::backend::ptx::plan::planned_kernel::{Partitions, PlannedKernel};
#[cfg(any(test, feature = "_suite"))]
use crate::backend::ptx::schedule::Schedule;
use crate::backend::ptx::schedule::{KernelInfo, WarpRole};
#[cfg(any(test, feature = "_suite"))]
use crate::backend::ptx::tensor_map::TensorMap;
use crate::backend::ptx::workarounds;
use crate::backend::ptx::{mul_wide, register_pressure};
use crate::error::Diagnostic;
use crate::ir::{Elem, Entry, Opcode, Type};
use crate::layout::Layout;
use crate::target::Target;

/// Additional registers of a kernel with generic addresses.
const GENERIC_SPARE: u32 = 16;

/// Returns the state before the first op.
pub fn start<'m>(kernel: PlannedKernel<'m>, name: &str) -> Lowering<'m> {
    let PlannedKernel { module, info, schedule, arrays, has_arrays, limited_barriers, errors, .. } = kernel;
    let target = info.inference.target;
    let threads = info.inference.num_warps as u32 * WARP_SIZE;
    Lowering {
        module,
        schedule,
        b: Builder::new(target, name, threads),
        params: Params::default(),
        values: Values::new(module.num_values()),
        smem: Smem {
            arrays,
            data_space: if has_arrays { Space::Generic } else { Space::Global },
            sub_steps: VecDeque::new(),
            double_buffers: Vec::new(),
        },
        sync: SyncState { limited_barriers, ..SyncState::new() },
        carried_step: None,
        stamps: None,
        report: Report { errors, ..Report::default() },
        regions: Vec::new(),
        info,
        dispatch: Dispatch {
            op: |lowering, id| lowering.lower_part(id),
            sequence: |lowering, sequence| lowering.sequence(sequence),
        },
    }
}

/// Returns the state after the lowering of the whole kernel.
pub fn lower<'m>(mut kernel: PlannedKernel<'m>, entry: &Entry, name: &str) -> Lowering<'m> {
    let partitions = std::mem::replace(&mut kernel.partitions, Partitions::All);
    let rejected_loads = std::mem::take(&mut kernel.rejected_loads);
    let cluster_rejected = kernel.cluster_rejected;
    let mut lowering = start(kernel, name);
    lowering.b.set_loc(entry.loc.0);
    lowering.params.kinds = lowering.entry_params(entry);
    lowering.report.remarks.cluster_rejected = cluster_rejected;
    // Without a number of CTAs ptxas may save registers for too many of them.
    let blocks = lowering.info.options.occupancy.unwrap_or(1);
    lowering.b.function().min_blocks = Some(blocks);
    let result = match partitions {
        Partitions::Specialized(warp_spec, buffers) => lowering.lower_partitions(entry.body, warp_spec, buffers),
        Partitions::Rejected => Ok(()),
        Partitions::All => {
            if let Err(message) = lowering.prefetch_store_maps() {
                lowering.report.errors.push(Diagnostic::new(message, None));
            }
            lowering.init_limited_barriers();
            lowering.clear_privatized();
            lowering.lower_partition(WarpRole::All);
            Ok(())
        }
    };
    if let Err(message) = result {
        lowering.report.errors.push(Diagnostic::new(message, None));
    }
    let missed = lowering.info.missed_loop_hints(&lowering.schedule, &rejected_loads);
    lowering.report.remarks.loop_hints(lowering.module, missed);
    let missed = lowering.info.missed_operand_buffers(&lowering.schedule);
    lowering.report.remarks.loop_hints(lowering.module, missed);
    let mut direct = lowering.info.missed_copies(&lowering.schedule);
    direct.extend(lowering.info.missed_stores());
    lowering.report.remarks.direct_accesses(direct);
    lowering
}

/// Finishes the function of a lowered entry, and emits the text. The errors name every op without a
/// lowering.
pub fn emit(
    mut lowering: Lowering<'_>,
    entry: &Entry,
    name: &str,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    let module = lowering.module;
    if !lowering.report.errors.is_empty() {
        return Err(lowering.report.errors);
    }
    let mut params = std::mem::take(&mut lowering.params.kinds);
    params.extend(lowering.params.tensor_maps.drain(..).map(|(map, _)| ParamKind::TensorMap(map)));
    let target = lowering.info.inference.target;
    let layout = lowering.info.layout_text(entry.body);
    let schedule = match options.schedule {
        true => lowering.schedule.to_report(module, entry.body, name, target),
        false => String::new(),
    };
    let exchanging = module.cluster_size(entry.body);
    let shared_bytes = lowering.schedule.smem_bytes;
    let cluster = exchanging.unwrap_or(lowering.sync.cluster_size());
    let stamps = lowering.take_stamps();
    let wait_limit = lowering.info.options.wait_limit;
    let failures = FailureSites { assertions: lowering.report.assertions, wait_limit, waits: lowering.report.waits };
    let (mut remarks, warps) = (lowering.report.remarks, lowering.info.inference.num_warps as u32);
    let has_mmas = !lowering.info.inference.mma_plans.is_empty();
    let fma_registers = fma_registers(&lowering.info);
    let generic = lowering.smem.data_space == Space::Generic;
    let (is_specialized, requested) = (lowering.sync.pipelines.is_some(), lowering.info.options.occupancy);
    let mut function: Function = lowering.b.finish();
    function.cluster = exchanging;
    workarounds::apply(&mut function);
    if options.optimizations.contains(Optimization::MulWide) {
        mul_wide::merge(&mut function);
    }
    // Kernels with MMAs plan their registers for one CTA. ptxas moves the loads from the other CTAs
    // of a cluster together. This needs more registers than the text has.
    let limits = options.optimizations.contains(Optimization::MinBlocks);
    if limits && !has_mmas && exchanging.is_none() && options.occupancy.is_none() {
        // ptxas needs more registers for generic addresses than the text has.
        let spare = if generic { GENERIC_SPARE } else { 0 };
        function.min_blocks = Some(register_pressure::fitting_ctas(&function, target, shared_bytes, spare));
    }
    if let Some(registers) = fma_registers.filter(|_| limits && options.occupancy.is_none()) {
        let fitting = target.multiprocessor().fitting_blocks(warps, registers, shared_bytes);
        function.min_blocks = Some(without_thrashing(&function, fitting, target, warps).max(1));
    }
    if !is_specialized && let Some(requested) = requested {
        function.min_blocks = Some(without_thrashing(&function, requested, target, warps));
    }
    let min_blocks = function.min_blocks.unwrap_or(1);
    remarks.occupancy_limited =
        options.occupancy.filter(|&requested| requested > min_blocks).map(|requested| [requested, min_blocks]);
    remarks.finish(&function, warps);
    let threads = function.threads;
    if options.line_info {
        function.source = Some(SourceLines::collect(module, function.locs()));
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
        positive_params: Vec::new(),
        failures,
        stamps,
        layout,
        schedule,
        remarks,
    })
}

/// Returns the registers of a thread in a kernel whose MMAs are all by FMA: CTAs on one SM fill
/// each other's barriers, so a thread has no more than twice its accumulator.
fn fma_registers(info: &KernelInfo<'_>) -> Option<u32> {
    const MIN_REGISTERS: u32 = 128;
    let mut most = None;
    for plan in info.inference.mma_plans.values() {
        let plan = plan.as_ref().ok().filter(|plan| plan.is_fma())?;
        most = most.max(Some(plan.acc.num_registers() as u32));
    }
    most.map(|accumulators| MIN_REGISTERS.max(2 * accumulators))
}

/// Returns the requested number of CTAs, limited so that a thread has three quarters of its live
/// registers.
fn without_thrashing(function: &Function, requested: u32, target: Target, warps: u32) -> u32 {
    let needed = register_pressure::live_registers(function) * 3 / 4;
    requested.min(target.multiprocessor().fitting_blocks(warps, needed, 0).max(1))
}

/// Parameters, and queries of the lowered kernel.
impl<'m> Lowering<'m> {
    /// Returns the diagnostics of ops that could not be lowered.
    #[cfg(any(test, feature = "_suite"))]
    pub fn problems(&self) -> &[Diagnostic] {
        &self.report.errors
    }

    /// Returns the tensor maps that are kernel parameters.
    #[cfg(any(test, feature = "_suite"))]
    pub fn maps(&self) -> Vec<TensorMap> {
        self.params.tensor_maps.iter().map(|(map, _)| map.clone()).collect()
    }

    /// Returns the properties of the kernel.
    #[cfg(any(test, feature = "_suite"))]
    pub fn context(&self) -> &KernelInfo<'m> {
        &self.info
    }

    /// Returns the schedule.
    #[cfg(any(test, feature = "_suite"))]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
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
        let asserts = self.info.regions.ops().iter().any(|&id| self.module.op(id).code == Opcode::Assert);
        if asserts || self.info.options.wait_limit.is_some() {
            self.params.assert_note = Some(self.b.param(Param::Scalar(Ty::U64)));
            kinds.push(ParamKind::Failure);
        }
        self.declare_stamps(&mut kinds);
        kinds
    }
}
