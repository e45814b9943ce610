//! Code for a GPU that the machine lacks: with `CUTLET_TARGET`, compilations for the cpu back end
//! also generate the PTX of a launch on that GPU.
//!
//! `CUTLET_REMARKS=1` prints the remarks of this code, and `CUTLET_DUMP` gets its layouts,
//! schedule, picture and text. The code is not assembled.

use std::sync::OnceLock;

use super::ptx::{self, TensorMapUse};
use crate::backend::Hints;
use crate::error::Result;
use crate::ir::Module;
use crate::launch::inspect::dump::Dump;
use crate::launch::inspect::remarks;
use crate::target::Target;
use crate::util::report;

/// Returns the target that `CUTLET_TARGET` names. It is read once.
fn target() -> Option<Target> {
    static TARGET: OnceLock<Option<Target>> = OnceLock::new();
    *TARGET.get_or_init(|| std::env::var("CUTLET_TARGET").ok()?.parse().ok())
}

/// Generates the code of an optimized kernel for the target of `CUTLET_TARGET`, if remarks or files
/// are requested. If the target does not support the kernel, the remarks state why.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn generate(name: &str, module: &Module, hints: Hints, dump: &Dump) -> Result<()> {
    let Some(target) = target().filter(|_| remarks::wanted() || dump.is_wanted()) else { return Ok(()) };
    let code = match ptx::generate(module, target, hints, TensorMapUse::for_module(module)) {
        Ok(code) => code,
        Err(problem) => {
            report::requested(format_args!("{name}: no code for {target}: {problem}\n"));
            return Ok(());
        }
    };
    if remarks::wanted() {
        report::requested(format_args!("{name}: code for {target}, by `CUTLET_TARGET`:\n"));
    }
    remarks::emit_code_remarks(&code, code.min_blocks > 1);
    if dump.is_wanted() {
        dump.write("layout", code.layout.as_bytes())?;
        dump.write("schedule", ptx::full_schedule(module, target, hints, true)?.as_bytes())?;
        dump.write("svg", ptx::picture(name, module, target, hints, true)?.as_bytes())?;
        dump.write("ptx", code.text.as_bytes())?;
    }
    Ok(())
}
