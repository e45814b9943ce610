//! The PTX that a launch would run, made without one.
//!
//! Code that is meant for several tile blocks of a multiprocessor may get too few registers from the assembler; a launch
//! makes it again then, for one. An assembler says so here, too, if there is one: that of the driver, where a GPU of the
//! target is there, or a `ptxas`.

use std::io;
use std::process::{Command, Output, Stdio};

use super::check_hints::assembly;
use super::ptx::{Maps, generate};
use crate::backend::Hints;
use crate::backend::ptx;
use crate::error::{Error, Result};
use crate::ir::Module;
use crate::launch::inspect::remarks;
use crate::runtime::{Gpu, assemble, uses_local_memory};
use crate::target::Target;
use crate::temporary::TemporaryFolder;

/// Generates PTX, as a launch would.
pub(crate) fn settled(module: &Module, target: Target, hints: Hints, maps: Maps<'_>) -> Result<ptx::Compiled> {
    let mut code = generate(module, target, hints, maps)?;
    let mut asked = None;
    if code.min_blocks > 1 && hints.occupancy.is_none() {
        asked = Some(log_of(&code, target, hints));
        if asked.as_ref().and_then(Option::as_deref).is_some_and(uses_local_memory) {
            code = generate(module, target, Hints { occupancy: Some(1), ..hints }, maps)?;
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
    let (output, _) = ptxas(&code.text, target, hints).ok()?;
    output.status.success().then(|| said(&output))
}

/// Machine code of PTX, made by `ptxas`.
///
/// # Errors
/// [`Error::NoDevice`] where there is none, [`Error::Compile`] with what it says.
pub(crate) fn machine_code(kernel: &str, text: &str, target: Target, hints: Hints) -> Result<Vec<u8>> {
    let refused = |log| Error::Compile { kernel: kernel.into(), stage: "ptxas", log };
    let (output, cubin) = ptxas(text, target, hints).map_err(|error| {
        Error::NoDevice(format!(
            "machine code of PTX is made by `ptxas`, which does not start ({error}): name one by CUTLET_PTXAS, or have \
             it on the search path"
        ))
    })?;
    if output.status.success() && !cubin.is_empty() { Ok(cubin) } else { Err(refused(said(&output))) }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// What `ptxas` answers to PTX, and the code that it makes.
fn ptxas(text: &str, target: Target, hints: Hints) -> io::Result<(Output, Vec<u8>)> {
    let folder = TemporaryFolder::new()?;
    let (source, to) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
    std::fs::write(&source, text)?;
    let ptxas = std::env::var_os("CUTLET_PTXAS").filter(|path| !path.is_empty()).unwrap_or_else(|| "ptxas".into());
    let mut command = Command::new(ptxas);
    if let Some(level) = assembly(hints).opt_level {
        command.arg(format!("-O{level}"));
    }
    if assembly(hints).lines {
        command.arg("-lineinfo");
    }
    command.args(["-v", &format!("-arch={target}"), "-o"]).arg(&to).arg(source);
    let output = command.stdin(Stdio::null()).output()?;
    // An assembler that only says something leaves none.
    let code = std::fs::read(to).unwrap_or_default();
    Ok((output, code))
}
