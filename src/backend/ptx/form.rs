//! The form in which a module is lowered: what instructions are not chosen for is rewritten, loops are turned around, layouts inferred.

use super::{CompileOptions, infer, plan, reload};
use crate::error::{Error, Result};
use crate::ir::{Entry, Module, OpId};
use crate::pass;
use crate::target::Target;

/// Gives `then` an optimised module in the form from which code is generated, with its entry.
pub fn in_the_end<T>(module: &Module, entry: &Entry, then: impl FnOnce(&Module, &Entry) -> Result<T>) -> Result<T> {
    let expanded = pass::without_scaled_products(module, false);
    let (module, entry) = expanded.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
    let in_powers = pass::apart(module, true).map_err(Error::Unsupported)?;
    let (module, entry) = in_powers.as_ref().map_or((module, entry), |module| (module, &module.entries[0]));
    then(module, entry)
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
    match rotated(module, &inference) {
        Some(module) => inferred(&module, then),
        None => then(module, entry, inference),
    }
}

/// The module with its loops rotated, if there are loops in which a product that runs on its own waits
/// for another one.
fn rotated(module: &Module, inference: &infer::Inference<'_>) -> Option<Module> {
    let alone = |id: OpId| inference.runs_alone(id);
    if inference.products.keys().filter(|&&id| alone(id)).count() < 2 {
        return None;
    }
    let mut module = module.clone();
    let any = pass::rotate(&mut module, &alone);
    any.then(|| {
        pass::optimize(&mut module);
        module
    })
}
