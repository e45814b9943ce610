//! The PTX that a launch would run, made without one.
//!
//! Code that is meant for several tile blocks of a multiprocessor may get too few registers from the assembler; a launch
//! makes it again then, for one. An assembler says so here, too, if there is one: that of the driver, where a GPU of the
//! target is there, or a `ptxas`.

use std::process::{Command, Stdio};

use super::hints::assembly;
use super::ptx::generate;
use super::remarks;
use crate::backend::Hints;
use crate::backend::ptx;
use crate::error::Result;
use crate::ir::Module;
use crate::runtime::{Gpu, assemble, uses_local_memory};
use crate::target::Target;
use crate::temporary::TemporaryFolder;

/// Generates PTX, as a launch would.
pub(super) fn settled(module: &Module, target: Target, hints: Hints) -> Result<ptx::Compiled> {
    let mut code = generate(module, target, hints, true)?;
    let mut asked = None;
    if code.min_blocks > 1 && hints.occupancy.is_none() {
        asked = Some(log_of(&code, target, hints));
        if asked.as_ref().and_then(Option::as_deref).is_some_and(uses_local_memory) {
            code = generate(module, target, Hints { occupancy: Some(1), ..hints }, true)?;
        }
    }
    remarks::say_code(&code, asked == Some(None));
    Ok(code)
}

/// What an assembler says about code; `None` where there is no assembler for it.
fn log_of(code: &ptx::Compiled, target: Target, hints: Hints) -> Option<String> {
    if let Ok(gpu) = Gpu::get(0)
        && gpu.target() == target
    {
        return assemble(gpu, &code.entry, &code.text, assembly(hints)).ok().map(|cubin| cubin.log);
    }
    let folder = TemporaryFolder::new().ok()?;
    let (source, to) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
    std::fs::write(&source, &code.text).ok()?;
    let ptxas = std::env::var_os("CUTLET_PTXAS").filter(|path| !path.is_empty()).unwrap_or_else(|| "ptxas".into());
    let mut command = Command::new(ptxas);
    if let Some(level) = assembly(hints).opt_level {
        command.arg(format!("-O{level}"));
    }
    command.args(["-v", &format!("-arch={target}"), "-o"]).arg(to).arg(source);
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
