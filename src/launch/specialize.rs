//! Specialization of a kernel for given arguments: a look-up by the specialization key, or a
//! compilation.

use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHasher;

use super::compile::compile;
use super::compile::executable::Executable;
use super::inspect::remarks::Stages;
use super::options::CompileRequest;
use crate::backend::{Hints, PlanOverride};
use crate::cache::kernel_cache::{Identity, IdentityRef, MemoryCache, Recent, Slot, hash_words};
use crate::cache::trace_hash::hash_trace;
use crate::error::{Error, Result};
use crate::ir::Module;
use crate::kernel::{AnyArgs, Call, StoredConstant, WordBuffer};
use crate::runtime::{Device, Stream};
use crate::util::process::PerProcess;

/// Slot of a specialization. It is filled when it is returned to other files, except by
/// [`Prepared`].
pub(super) type Specialized = Arc<Slot<Executable>>;

/// Limit of kernels in the cache that are not in use. The least recently launched one is removed.
/// One needs about 10 KiB, and on a GPU its code.
const MAX_KERNELS: usize = 1024;

/// Returns the cache of the kernels that this process compiled.
fn compiled() -> &'static MemoryCache<Executable> {
    static COMPILED: PerProcess<MemoryCache<Executable>> = PerProcess::new();
    COMPILED.get(|| MemoryCache::new(MAX_KERNELS))
}

thread_local! {
    static RECENT: Recent<Executable> = const { Recent::new() };
}

/// Returns the words at the start of every key: the properties that code depends on in addition to
/// kernel and arguments.
#[inline]
pub(super) fn specialization_key(device: Device, request: CompileRequest) -> WordBuffer {
    // A hint of 0 is rejected by the compilation; its word must differ from that of no hint.
    let word = |hint: Option<u32>| u64::from(hint.map_or(0, |n| if n == 0 { u32::MAX } else { n }));
    // Without `..`: a new field must be added to the key, or excluded here.
    let CompileRequest { hints, backend, programmatic_launch, checks, recorded, exact } = request;
    let Hints {
        num_warps,
        num_stages,
        num_ctas,
        occupancy,
        code_limit,
        loop_limit,
        wait_limit,
        opt_level,
        line_info,
        device_debug,
        memcheck,
        persistent,
        deterministic,
        trace,
        plan: PlanOverride { disable_search, disable_pingpong, disable_tma_loads, max_ctas, optimizations },
    } = hints;
    let mut key = WordBuffer::default();
    key.push(device.id() << 8 | u64::from(programmatic_launch) << 7 | backend as u64);
    key.push(word(num_warps) << 32 | word(num_stages));
    key.push(word(num_ctas) << 32 | word(occupancy));
    key.push(word(code_limit) << 32 | word(loop_limit));
    key.push(word(wait_limit));
    let lines = line_info.map_or(0, |wanted| 1 + u64::from(wanted));
    let plan = u64::from(disable_tma_loads) << 2 | u64::from(disable_pingpong) << 1 | u64::from(disable_search);
    let debug = u64::from(device_debug) << 1 | u64::from(memcheck);
    // The flag of further words keeps keys of different lengths apart.
    let differs = optimizations.bits() != 0 || max_ctas != 0;
    let form = persistent.map_or(0, |wanted| 1 + u64::from(wanted));
    let flags = u64::from(trace) << 15
        | u64::from(recorded.writes) << 14
        | u64::from(deterministic) << 13
        | u64::from(exact) << 12
        | u64::from(recorded.races) << 11
        | form << 9
        | u64::from(differs) << 8
        | plan << 5
        | u64::from(checks) << 4
        | lines << 2
        | debug;
    key.push(word(opt_level) << 32 | flags);
    if differs {
        key.push(optimizations.bits());
        key.push(max_ctas.into());
    }
    key
}

/// Returns the kernel compiled for these arguments. `stream`: the stream of the launch.
///
/// # Errors
/// Errors of tracing and compilation, if no compiled kernel matches; [`Error::Argument`] for a
/// compilation while that stream is captured.
#[track_caller]
pub(super) fn specialize(
    call: &Call<'_>,
    device: Device,
    request: CompileRequest,
    stream: Option<&Stream>,
) -> Result<Specialized> {
    let Some(id) = call.identity() else {
        let name = call.name();
        let start = Instant::now();
        // Not in a closure: `track_caller` does not apply inside it.
        let module = call.trace(&name)?;
        let stages = Stages::begun("trace", start);
        return specialize_trace(&name, module, (device, request, stream), stages);
    };
    let slot = slot_of_type(id, call.args(), device, request);
    if slot.get().is_none() {
        // Without a lock, because the kernel is user code. Concurrent threads each trace it.
        let name = call.name();
        refuse_captured(&name, stream)?;
        let start = Instant::now();
        // Not in a closure: `track_caller` does not apply inside it.
        let module = call.trace(&name)?;
        let stages = Stages::begun("trace", start);
        fill(&slot, &name, module, device, request, stages)?;
    }
    Ok(slot)
}

/// Kernel to be compiled: its slot, and its trace if the slot is empty.
pub(super) struct Prepared {
    slot: Specialized,
    trace: Option<(Module, Stages)>,
    device: Device,
    request: CompileRequest,
}

impl Prepared {
    pub fn slot(&self) -> &Specialized {
        &self.slot
    }

    /// Returns true if the kernel was compiled before.
    pub fn is_done(&self) -> bool {
        self.trace.is_none()
    }

    /// Compiles the kernel.
    ///
    /// # Errors
    /// Errors of the compilation.
    pub fn compile(self, name: &str) -> Result<()> {
        let Prepared { slot, trace, device, request } = self;
        let Some((module, stages)) = trace else { return Ok(()) };
        slot.fill(|| compile(name, module, device, request, stages)).map(drop)
    }
}

/// Prepares the compilation for these arguments. Traces the kernel, unless its type identifies a
/// compiled one.
///
/// # Errors
/// Errors of tracing.
#[track_caller]
pub(super) fn prepare(call: &Call<'_>, device: Device, request: CompileRequest) -> Result<Prepared> {
    let known = call.identity().map(|id| slot_of_type(id, call.args(), device, request));
    if let Some(slot) = known.as_ref().filter(|slot| slot.get().is_some()) {
        return Ok(Prepared { slot: slot.clone(), trace: None, device, request });
    }
    let start = Instant::now();
    // Not in a closure: `track_caller` does not apply inside it.
    let module = call.trace(&call.name())?;
    let stages = Stages::begun("trace", start);
    let slot = known.unwrap_or_else(|| slot_of_trace(&module, device, request));
    let trace = slot.get().is_none().then_some((module, stages));
    Ok(Prepared { slot, trace, device, request })
}

/// Returns the slot of a kernel that is identified by its type. The slot may be empty.
#[inline]
fn slot_of_type(id: TypeId, given: &dyn AnyArgs, device: Device, request: CompileRequest) -> Specialized {
    let mut key = specialization_key(device, request);
    given.key(&mut key);
    let mut seed = FxHasher::default();
    id.hash(&mut seed);
    let hash = hash_words(seed.finish(), key.words());
    let same_constants = |stored: &[StoredConstant]| {
        let mut stored = stored.iter();
        given.same_constants(&mut stored) && stored.as_slice().is_empty()
    };
    let wanted = IdentityRef::Type(id, &same_constants);
    recent(hash, key.words(), &wanted).unwrap_or_else(|| {
        shared(hash, key.words(), &wanted, &|| {
            let mut constants = Vec::new();
            given.store_constants(&mut constants);
            Identity::Type(id, constants)
        })
    })
}

/// Returns the slot of the cache of all threads. The slot may be empty.
#[cold]
fn shared(hash: u64, words: &[u64], wanted: &IdentityRef<'_>, identity: &dyn Fn() -> Identity) -> Specialized {
    let slot = compiled().slot(hash, words, wanted, identity);
    if slot.get().is_some() {
        remember(&slot);
    }
    slot
}

/// Compiles a trace into its slot.
#[cold]
fn fill(
    slot: &Specialized,
    name: &str,
    module: Module,
    device: Device,
    request: CompileRequest,
    stages: Stages,
) -> Result<()> {
    slot.fill(|| compile(name, module, device, request, stages))?;
    remember(slot);
    Ok(())
}

/// Returns the compiled form of a kernel that is identified by its trace.
#[track_caller]
pub(super) fn specialize_trace(
    name: &str,
    module: Module,
    (device, request, stream): (Device, CompileRequest, Option<&Stream>),
    stages: Stages,
) -> Result<Specialized> {
    let slot = slot_of_trace(&module, device, request);
    if slot.get().is_none() {
        refuse_captured(name, stream)?;
        fill(&slot, name, module, device, request, stages)?;
    }
    Ok(slot)
}

/// Returns the slot of a kernel that is identified by its trace. The slot may be empty.
fn slot_of_trace(module: &Module, device: Device, request: CompileRequest) -> Specialized {
    let key = specialization_key(device, request);
    let hash = hash_words(hash_trace(module), key.words());
    recent(hash, key.words(), &IdentityRef::Trace(module)).unwrap_or_else(|| {
        let identity = || Identity::Trace(Box::new(module.clone()));
        shared(hash, key.words(), &IdentityRef::Trace(module), &identity)
    })
}

/// Rejects a compilation while the stream is captured: loading code would invalidate the capture.
#[cold]
#[track_caller]
pub(super) fn refuse_captured(name: &str, stream: Option<&Stream>) -> Result<()> {
    match stream.and_then(Stream::as_gpu) {
        Some(stream) if stream.is_captured()? => Err(Error::argument(format!(
            "kernel `{name}` is launched for the first time, on a stream that is being captured: compile it before \
             (`compile`, `Launch::compile`), or record the work with `Graph::capture`, which compiles what it needs"
        ))),
        _ => Ok(()),
    }
}

#[inline]
fn recent(hash: u64, words: &[u64], wanted: &IdentityRef<'_>) -> Option<Specialized> {
    // During the exit of a thread, its table may already be dropped.
    RECENT.try_with(|recent| recent.find(hash, words, wanted)).ok().flatten()
}

fn remember(slot: &Specialized) {
    let _ = RECENT.try_with(|recent| recent.put(slot));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use crate::backend::ptx::{Optimization, OptimizationSet};
    use crate::launch::checks::Recorded;

    #[test]
    fn each_option_of_the_code_is_another_kernel() {
        let hints = Hints::new();
        let plan = PlanOverride::default();
        let all = [
            hints,
            hints.num_warps(4),
            hints.num_stages(4),
            hints.num_ctas(4),
            hints.occupancy(4),
            hints.code_limit(4),
            hints.loop_limit(4),
            hints.wait_limit(4),
            hints.opt_level(1),
            hints.line_info(true),
            hints.line_info(false),
            Hints { device_debug: true, ..hints },
            Hints { memcheck: true, ..hints },
            hints.persistent(true),
            hints.persistent(false),
            hints.deterministic(true),
            hints.trace(true),
            hints.plan(PlanOverride { disable_search: true, ..plan }),
            hints.plan(PlanOverride { disable_pingpong: true, ..plan }),
            hints.plan(PlanOverride { disable_tma_loads: true, ..plan }),
            hints.plan(PlanOverride { max_ctas: 3, ..plan }),
            hints.plan(PlanOverride { optimizations: OptimizationSet::ALL.without(Optimization::TryWait), ..plan }),
            hints.plan(PlanOverride { optimizations: OptimizationSet::ALL.without(Optimization::ExpOrder), ..plan }),
        ];
        let key = |hints| {
            let request = CompileRequest {
                hints,
                backend: Backend::Ptx,
                programmatic_launch: false,
                checks: false,
                exact: false,
                recorded: Recorded::NONE,
            };
            specialization_key(Device::cpu(), request).words().to_vec()
        };
        let keys: std::collections::HashSet<Vec<u64>> = all.into_iter().map(key).collect();
        assert_eq!(keys.len(), all.len());
    }
}
