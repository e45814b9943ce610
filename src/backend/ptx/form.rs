//! The form in which a module is lowered: what instructions are not chosen for is rewritten, loops are turned around, layouts inferred.

use std::collections::HashSet;

use super::{CompileOptions, infer, plan, reload};
use crate::error::{Error, Result};
use crate::ir::{Distribution, Entry, Module, OpId, Opcode};
use crate::pass;
use crate::target::Target;

/// Gives `then` an optimised module in the form from which code is generated, with its entry. Also why a tile block has no bands of rows,
/// where so many warps are wished for.
pub fn in_the_end<T>(
    module: &Module,
    entry: &Entry,
    (target, options): (Target, &CompileOptions),
    mut then: impl FnMut(&Module, &Entry) -> Result<T>,
) -> Result<(T, Option<String>)> {
    let expanded = pass::expand_scaled_mma(module, false);
    let (module, entry) = expanded.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
    let mut in_powers = |module: &Module, entry: &Entry| {
        let in_powers = pass::split_extents(module, true).map_err(Error::Unsupported)?;
        let (module, entry) = in_powers.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
        then(module, entry)
    };
    let bands = plan::wished_bands(module, entry.body, options);
    if bands == 1 {
        return Ok((in_powers(module, entry)?, None));
    }
    let divided = match target.arch == 90 && target.accelerated {
        true => pass::data_partition::run(module, bands).map_err(|problem| problem.to_string()),
        false => Err(format!("{target} has no products that run on their own")),
    };
    // What nobody has wished for need not be explained.
    let said = |why: String| options.num_warps.is_some().then_some(why);
    let why = match divided {
        Ok(divided) => match in_powers(&divided, &divided.entries[0]) {
            Ok(made) => return Ok((made, None)),
            Err(Error::Unsupported(problems)) if !problems.is_empty() => problems[0].to_string(),
            Err(problem) => problem.to_string(),
        },
        Err(why) => why,
    };
    Ok((in_powers(module, entry)?, said(why)))
}

/// Gives `then` the module as it is lowered, with its layouts.
pub fn build_with<T>(
    module: &Module,
    entry: &Entry,
    target: Target,
    options: &CompileOptions,
    then: &mut dyn FnMut(&Module, &Entry, infer::Inference<'_>) -> T,
) -> T {
    let warps = plan::num_warps(module, entry.body, options);
    let inferred = |module: &Module, then: &mut dyn FnMut(&Module, &Entry, infer::Inference<'_>) -> T| {
        let entry = &module.entries[0];
        then(module, entry, infer::Inference::run(module, entry, target, warps))
    };
    if let Some(module) = reload::reloaded(module, entry.body, warps) {
        return inferred(&module, then);
    }
    let inference = infer::Inference::run(module, entry, target, warps);
    match turned(module, entry, &inference) {
        Some(module) => inferred(&module, then),
        None => then(module, entry, inference),
    }
}

/// The module with what its loops carry changed, so that work goes on beside products that run on their own: sums are kept in the parts that
/// threads have, and a product that waits for another one moves into the next iteration.
fn turned(module: &Module, entry: &Entry, inference: &infer::Inference<'_>) -> Option<Module> {
    let alone = |id: OpId| inference.runs_alone(id);
    let count = inference.products.keys().filter(|&&id| alone(id)).count();
    if count == 0 {
        return None;
    }
    let beside = beside_products(module, entry, &alone);
    let mut module = module.clone();
    let mut any =
        pass::thread_local_reduction(&mut module, &|id| beside.contains(&id).then(|| shared(inference, id))?);
    any |= count > 1 && pass::pipeline_dependent_mma(&mut module, &alone);
    any.then(|| {
        pass::optimize(&mut module);
        module
    })
}

/// The reductions that stand in one block with products that run on their own.
fn beside_products(module: &Module, entry: &Entry, alone: &dyn Fn(OpId) -> bool) -> HashSet<OpId> {
    let mut beside = HashSet::new();
    let mut pending = vec![entry.body];
    while let Some(block) = pending.pop() {
        let ops = &module.block(block).ops;
        pending.extend(ops.iter().flat_map(|&id| &module.op(id).regions));
        if ops.iter().any(|&id| alone(id)) {
            beside.extend(ops.iter().filter(|&&id| module.op(id).code == Opcode::Reduce));
        }
    }
    beside
}

/// How threads share the axis of a reduction, if each of them has neighbours, and those again after the ones of all others.
fn shared(inference: &infer::Inference<'_>, id: OpId) -> Option<pass::ReductionDistribution> {
    let layout = inference.accesses.get(&id)?;
    let dim = inference.module().op(id).dim() as usize;
    let axis = infer::AxisBits::of(layout.shape(), dim);
    let along = |images: &[u32]| images.iter().map(|&image| axis.coordinate(image)).fold(0, |all, bits| all | bits);
    let (own, others) = (along(layout.register_images()), along(&infer::thread_images(layout)));
    let images = layout.images();
    let bits = images.iter().filter(|&&image| image != 0).count();
    let plain = images.iter().all(|image| image.count_ones() <= 1) && 1 << bits == layout.num_elements();
    let (first, count) = (others.trailing_zeros(), others.count_ones());
    let side_by_side = others != 0 && others >> first == (1 << count) - 1;
    if !plain || own & others != 0 || !side_by_side {
        return None;
    }
    let (neighbours, parts) = (1 << first, 1 << count);
    let again = layout.shape()[dim] / (neighbours * parts);
    let mut shape = layout.shape().to_vec();
    shape.splice(dim..=dim, [again, parts, neighbours]);
    let each = layout.reshape(&shape).reduce(dim + 2).squeeze(dim + 2).reduce(dim).squeeze(dim);
    let (slots, threads) = (each.register_images().into(), infer::thread_images(&each).into());
    Some(pass::ReductionDistribution {
        adjacent: neighbours,
        parts,
        repetitions: again,
        layout: Distribution { slots, threads },
    })
}
