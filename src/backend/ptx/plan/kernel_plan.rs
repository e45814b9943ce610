//! Plan of a kernel, as data: the module to lower, its layouts, and the options.

use std::borrow::Cow;

use super::super::layout_inference::{Inference, Layouts};
use super::super::{CompileOptions, Optimization};
use super::mma_loops::rewrite_mma_loops;
use super::num_warps::num_warps;
use super::rematerialize::reloaded;
use crate::ir::{Entry, Module};
use crate::target::Target;

/// Everything that is decided about a kernel before its schedule.
pub struct Plan<'a> {
    /// The module to lower. It has one entry.
    pub module: Cow<'a, Module>,
    /// Layouts of its values.
    pub layouts: Layouts,
    /// Options of the schedule.
    pub options: CompileOptions,
}

impl<'a> Plan<'a> {
    /// Returns the plan of a module with one entry: loads of tiles that fill the registers are
    /// repeated, layouts are inferred, and work is made independent of asynchronous MMAs.
    pub fn new(module: Cow<'a, Module>, target: Target, options: CompileOptions) -> Plan<'a> {
        let (entry, enabled) = (&module.entries[0], options.optimizations);
        let warps = num_warps(&module, entry.body, &options);
        let inferred = |module: Module| {
            let layouts = Inference::run(&module, &module.entries[0], target, warps, enabled).into_layouts();
            Plan { module: Cow::Owned(module), layouts, options }
        };
        let repeats = enabled.contains(Optimization::RematerializeLoads);
        if let Some(repeated) = if repeats { reloaded(&module, entry.body, warps) } else { None } {
            return inferred(repeated);
        }
        let inference = Inference::run(&module, entry, target, warps, enabled);
        match rewrite_mma_loops(&module, entry, &inference, options.loaded_operands_in_registers) {
            Some(overlapped) => inferred(overlapped),
            None => {
                let layouts = inference.into_layouts();
                Plan { module, layouts, options }
            }
        }
    }

    /// The entry of the module.
    pub fn entry(&self) -> &Entry {
        &self.module.entries[0]
    }
}
