//! Launches without the bounds checks that a proof makes needless.
//!
//! 1. The trace of a kernel is kept by its specialization key.
//! 2. For each grid and each list of numbers, `pass::prove` decides the bounds once. The trace
//!    without needless checks is compiled as a kernel of its own. Equal traces share the code.
//! 3. Later launches with the same grid and numbers look the code up.
//!
//! Addresses are free: distinct arrays are distinct memory, and a proof ends at the extents.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHasher};

use super::{check_conditions, proof_arguments, unproved};
use crate::cache::kernel_cache::{Identity, IdentityRef, MemoryCache, Slot, hash_words};
use crate::cache::trace_hash::hash_trace;
use crate::error::{Error, Result};
use crate::ir::{Module, Type, verify};
use crate::kernel::{Call, StoredConstant, WordBuffer};
use crate::launch::inspect::remarks::Stages;
use crate::launch::options::{CompileRequest, Launch};
use crate::launch::run::make;
use crate::launch::specialize::{Specialized, refuse_captured, specialization_key, specialize_trace};
use crate::pass::{self, Argument, Property, Verdict};
use crate::runtime::Device;
use crate::util::process::PerProcess;

/// Limit of kernels in the cache that are not in use.
const MAX_KERNELS: usize = 256;

/// Limit of launches of one kernel that are remembered. Beyond it all are forgotten.
const MAX_LAUNCHES: usize = 1024;

/// Trace of a kernel, and its code by grid and numbers.
struct ProvedKernel {
    trace: Module,
    /// For each parameter: true for a number, false for an address.
    numbers: Box<[bool]>,
    launches: Mutex<FxHashMap<Box<[u64]>, Specialized>>,
}

type Known = Arc<Slot<ProvedKernel>>;

fn known() -> &'static MemoryCache<ProvedKernel> {
    static KNOWN: PerProcess<MemoryCache<ProvedKernel>> = PerProcess::new();
    KNOWN.get(|| MemoryCache::new(MAX_KERNELS))
}

impl ProvedKernel {
    fn new(trace: Module) -> ProvedKernel {
        let params = &trace.block(trace.entries[0].body).args;
        let is_number = |ty: &Type| ty.as_tile().is_some_and(|(elem, _)| elem.dtype().is_some());
        let numbers = params.iter().map(|&param| is_number(trace.ty(param))).collect();
        ProvedKernel { trace, numbers, launches: Mutex::default() }
    }

    /// Returns the grid, and the words that a proof depends on.
    fn key(&self, grid: [u32; 3], words: &[u64]) -> WordBuffer {
        let mut key = WordBuffer::default();
        grid.iter().for_each(|&blocks| key.push(blocks.into()));
        words.iter().zip(&self.numbers).filter(|(_, is_number)| **is_number).for_each(|(&word, _)| key.push(word));
        key
    }

    fn find(&self, key: &[u64]) -> Option<Specialized> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn remember(&self, key: &[u64], code: &Specialized) {
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        if launches.len() >= MAX_LAUNCHES {
            launches.clear();
        }
        launches.insert(key.into(), code.clone());
    }
}

/// Returns the trace of a kernel. It is traced at the first launch of a specialization.
#[track_caller]
fn traced(call: &Call<'_>, device: Device, request: CompileRequest) -> Result<Known> {
    let mut key = specialization_key(device, request);
    let Some(id) = call.identity() else {
        let trace = call.trace(&call.name())?;
        let hash = hash_words(hash_trace(&trace), key.words());
        let identity = || Identity::Trace(Box::new(trace.clone()));
        let slot = known().slot(hash, key.words(), &IdentityRef::Trace(&trace), &identity);
        slot.fill(|| Ok(ProvedKernel::new(trace.clone())))?;
        return Ok(slot);
    };
    let given = call.args();
    given.key(&mut key);
    let mut seed = FxHasher::default();
    id.hash(&mut seed);
    let same_constants = |stored: &[StoredConstant]| {
        let mut stored = stored.iter();
        given.same_constants(&mut stored) && stored.as_slice().is_empty()
    };
    let identity = || {
        let mut constants = Vec::new();
        given.store_constants(&mut constants);
        Identity::Type(id, constants)
    };
    let hash = hash_words(seed.finish(), key.words());
    let slot = known().slot(hash, key.words(), &IdentityRef::Type(id, &same_constants), &identity);
    if slot.get().is_none() {
        // Not in a closure: `track_caller` does not apply inside it.
        let trace = call.trace(&call.name())?;
        slot.fill(|| Ok(ProvedKernel::new(trace)))?;
    }
    Ok(slot)
}

impl Launch<'_> {
    /// Returns the code for this grid and these arguments, without needless checks.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) with the counter-example if an access is outside, or
    /// with the operation if that is not decided; errors of tracing and compilation.
    #[track_caller]
    pub(in crate::launch) fn proved_code(
        &self,
        call: &Call<'_>,
        device: Device,
        request: CompileRequest,
        grid: [u32; 3],
    ) -> Result<Specialized> {
        make(call.args(), device)?;
        let slot = traced(call, device, request)?;
        let kernel = slot.get().expect("a slot that was traced is filled");
        let mut words = WordBuffer::default();
        call.args().pack(&mut |word| words.push(word));
        let key = kernel.key(grid, words.words());
        if let Some(code) = kernel.find(key.words()) {
            return Ok(code);
        }
        let name = call.name();
        refuse_captured(&name, self.stream)?;
        let start = Instant::now();
        let (words, arguments) = proof_arguments(call);
        check_conditions(&name, &kernel.trace, grid, words.words())?;
        let module = without_checks(&name, kernel.trace.clone(), grid, (words.words(), &arguments))?;
        let stages = Stages::begun("proof", start);
        let code = specialize_trace(&name, module, (device, request, self.stream), stages)?;
        kernel.remember(key.words(), &code);
        Ok(code)
    }
}

/// Returns a trace without the bounds checks that a launch with this grid does not need.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) unless the bounds are proved.
pub(in crate::launch) fn without_checks(
    name: &str,
    mut module: Module,
    grid: [u32; 3],
    given: (&[u64], &[Argument]),
) -> Result<Module> {
    verify(&module).map_err(Error::Kernel)?;
    match pass::remove_needless_checks(&mut module, grid, given) {
        Verdict::Proved => Ok(module),
        verdict => Err(unproved(name, [(Property::Bounds, verdict)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Hints;
    use crate::backend::cpu::Checks;
    use crate::kernel::{Arguments, Bound, Kernel, KernelArgs};
    use crate::launch::checks::Recorded;
    use crate::launch::run::run;
    use crate::prelude::*;
    use crate::runtime::Backend;
    use crate::{ArraySpec, arange, bid};

    /// Launches a kernel without the checks that a launch with `others` would not need: an unsound
    /// proof.
    fn planted<K, A, B, P>(kernel: K, grid: u32, others: B, args: A) -> Result<()>
    where
        K: Kernel<P> + Copy,
        A: KernelArgs<P>,
        B: KernelArgs<P>,
    {
        let (others, args) = (Arguments::new(others), Arguments::new(args));
        let (wrong, right) = (Bound::new(&kernel, &others), Bound::new(&kernel, &args));
        let (words, arguments) = proof_arguments(&wrong.call());
        let trace = right.call().trace("planted")?;
        let module = without_checks("planted", trace, [grid, 1, 1], (words.words(), &arguments))?;
        let (hints, backend) = (Hints::default(), Backend::Cpu);
        let (checks, recorded, exact, programmatic_launch) = (false, Recorded::NONE, false, false);
        let request = CompileRequest { hints, backend, programmatic_launch, checks, recorded, exact };
        let code = specialize_trace("planted", module, (Device::cpu(), request, None), Stages::default())?;
        run(&code, None, [grid, 1, 1], false, Checks::none(), args.given())
    }

    #[test]
    fn the_interpreter_finds_an_unsound_proof() -> Result<()> {
        let tiles = |y: ArrayMut<i32, 1>| y.store(bid(0), y.load(bid(0), [16]) + 1);
        let masked = |y: ArrayMut<i32, 1>| {
            let at = bid(0) * 16 + arange(0..16);
            y.scatter(at, y.gather(at) + 1);
        };
        let whole = || ArraySpec::<i32, 1>::new([64]).mutable();
        let device = Device::cpu();
        for extent in [64, 63, 49] {
            let (mut y, mut z) = (device.zeros([extent])?, device.zeros([extent])?);
            let results = [planted(tiles, 4, (whole(),), (&mut y,)), planted(masked, 4, (whole(),), (&mut z,))];
            for result in results {
                assert_eq!(result.is_ok(), extent == 64, "{extent}: {result:?}");
            }
        }
        Ok(())
    }
}
