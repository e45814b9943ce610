//! Compilation of candidates on all cores before their execution, and the properties of their code.

use crate::util::collect::CollectVec as _;
use std::time::Duration;

use super::key::hash;
use super::prune::{Qualities, estimate};
use crate::backend::ptx::remarks::DataPath;
use crate::error::{Error, Result};
use crate::launch::aot::compile_all::{Described, Kernels, compile_each};
use crate::runtime::Device;

/// Function that lists the kernels of a configuration.
pub(super) type Describe<S, C> = Box<dyn Fn(&mut S, &C, Kernels) -> Kernels>;

/// Returns the hash of the kernels of a configuration.
///
/// # Errors
/// Errors of the kernels.
pub(super) fn hash_of<S, C>(
    device: Device,
    state: &mut S,
    configuration: &C,
    describe: &Describe<S, C>,
) -> Result<String> {
    let (_, described) = described(device, state, configuration, describe)?;
    Ok(hash(&described.into_iter().map(|kernel| kernel.hash).collect_vec()))
}

fn described<S, C>(
    device: Device,
    state: &mut S,
    configuration: &C,
    describe: &Describe<S, C>,
) -> Result<(Kernels, Vec<Described>)> {
    describe(state, configuration, Kernels::on(device).with_descriptions()).described()
}

/// Compiles the kernels of all configurations, each with a time limit. Returns the properties of
/// the code of each, or its error.
pub(super) fn compiled<S, C>(
    device: Device,
    state: &mut S,
    configurations: &[C],
    describe: &Describe<S, C>,
    limit: Option<Duration>,
) -> Vec<Result<Qualities>> {
    let mut all = Kernels::on(device);
    let mut kernels = Vec::with_capacity(configurations.len());
    for configuration in configurations {
        kernels.push(described(device, state, configuration, describe).map(|(own, described)| {
            all.append(own);
            described
        }));
    }
    // A failure is reported by the execution, which fails with the same error.
    let _ = compile_each(all, limit, |_| ());
    kernels.into_iter().map(|kernels| Ok(qualities(device, &kernels?))).collect::<Vec<Result<_, Error>>>()
}

fn qualities(device: Device, kernels: &[Described]) -> Qualities {
    let mut sum = Qualities::default();
    for kernel in kernels {
        let Some(remarks) = kernel.slot.get().map(|executable| executable.remarks()) else { continue };
        sum.spilled += remarks.local_bytes();
        for product in remarks.code().into_iter().flat_map(|code| code.products()) {
            sum.products += 1;
            sum.on_tensor_cores += u32::from(product.instruction.contains("mma"));
        }
        for access in remarks.code().into_iter().flat_map(|code| code.accesses()) {
            sum.accesses += 1;
            sum.by_copy_engine +=
                u32::from(matches!(access.path, DataPath::TmaPipelined { .. } | DataPath::Tma { .. }));
        }
        let at_once = u64::from(remarks.blocks_per_multiprocessor()) * device.num_multiprocessors() as u64;
        if let Some(least) = kernel.least {
            sum.estimate = Some(sum.estimate.unwrap_or_default() + estimate(least, kernel.blocks, at_once));
        }
    }
    sum
}
