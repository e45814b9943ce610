//! What every example shares: its command line, timing, inputs, and the line that it prints.

#![allow(dead_code, unused_imports, reason = "each example compiles this module for itself and uses a part of it")]

mod data;
mod product;
mod report;
mod timing;

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use cutlet::backend::tileir::Version;
use cutlet::kernel::{ArrivesAs, Kernel};
use cutlet::{Backend, Checks, Device, Format, Grid, Hints, Launch, Target};

pub use data::{Expected, largest_error, normal};
pub use product::{expected_rows, sample_rows};
pub use report::{Report, Work};
pub use timing::Rotation;

/// Options that every example takes.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Where to run: cpu, ptx or tileir. Default: the GPU where there is one, else cpu (`CUTLET_BACKEND` decides before that).
    #[arg(long)]
    backend: Option<Backend>,
    /// Print the kernel's code instead of running it; no device is needed.
    #[arg(long, value_enum)]
    emit: Option<Emit>,
    /// What code is emitted for: sm_80, sm_90a, sm_100, …
    #[arg(long, default_value_t = Target::SM_90A)]
    target: Target,
    /// Version of emitted bytecode: 13.1 to 13.5. Default: the lowest that will do.
    #[arg(long)]
    bytecode_version: Option<Version>,
    /// Write the emitted code to this file instead of standard output.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Timed launches; the median is printed.
    #[arg(long)]
    iterations: Option<usize>,
    /// Warps of a block, if the compiler is not to choose.
    #[arg(long)]
    num_warps: Option<u32>,
    /// Blocks that should fit on a multiprocessor.
    #[arg(long)]
    occupancy: Option<u32>,
    /// Stages of loops whose loads are copied ahead; 1: none are.
    #[arg(long)]
    stages: Option<u32>,
    /// Blocks of a cluster. In PTX, 2 share what both load; in Tile IR a tile block is divided among them.
    #[arg(long)]
    num_ctas: Option<u32>,
    /// How hard the assembler tries: 0 to 3.
    #[arg(long)]
    opt_level: Option<u32>,
    /// Have the code name the lines that it comes from.
    #[arg(long)]
    lines: bool,
    /// What is checked on the cpu back end, as by `CUTLET_CHECK`: all, or races, bounds, division, … with commas between.
    #[arg(long)]
    check: Option<Checks>,
    /// Run every tile block twice, along an axis that the kernel does not ask for: each element is written by two then, which
    /// `--check races` has to find.
    #[arg(long, hide = true)]
    twice: bool,
}

/// Forms of code that can be printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum Emit {
    /// The optimised Tile IR.
    Ir,
    /// PTX.
    Ptx,
    /// Tile IR as it goes to the driver or to tileiras, with the order of memory accesses.
    Tileir,
    /// Tile IR bytecode.
    Tilebc,
    /// Machine code, made by tileiras.
    Cubin,
}

impl Options {
    /// The device to run on; the cpu device when code is only printed.
    pub fn device(&self) -> Result<Device> {
        Ok(match (self.emit, self.backend) {
            (Some(_), _) | (None, Some(Backend::Cpu)) => Device::cpu(),
            (None, Some(Backend::Ptx | Backend::TileIr)) => Device::gpu(0)?,
            (None, None) => Device::first()?,
        })
    }

    /// A size that was not given: the full one on a GPU and for emitted code, else one that the
    /// interpreter runs in about a second.
    pub fn size(&self, given: Option<usize>, device: &Device, full: usize, small: usize) -> usize {
        let run_on_cpu = self.emit.is_none() && device.backend() == Backend::Cpu;
        given.unwrap_or(if run_on_cpu { small } else { full })
    }

    /// Is code printed instead of run?
    pub fn emits(&self) -> bool {
        self.emit.is_some()
    }

    /// Blocks that run on a multiprocessor at a time.
    pub fn blocks_each(&self) -> usize {
        self.occupancy.unwrap_or(1) as usize
    }

    /// These options, for an example that knows how many blocks should fit on a multiprocessor.
    pub fn with_occupancy(&self, blocks: u32) -> Options {
        Options { occupancy: self.occupancy.or(Some(blocks)), ..self.clone() }
    }

    /// A launch with the back end and the hints that were given.
    pub fn launch(&self, grid: impl Into<Grid>) -> Launch<'static> {
        let mut hints = Hints::new();
        (hints.num_warps, hints.occupancy) = (self.num_warps, self.occupancy);
        (hints.stages, hints.num_ctas) = (self.stages, self.num_ctas);
        hints.opt_level = self.opt_level;
        hints.line_info = self.lines.then_some(true);
        let [x, y, z] = grid.into().extents();
        let mut launch = Launch::new([x, y, if self.twice { 2 * z } else { z }]).hints(hints);
        if let Some(checks) = self.check {
            launch = launch.check(checks);
        }
        self.backend.map_or(launch, |backend| launch.backend(backend))
    }

    /// Prints the code that was asked for, if any was, of a launch with these arguments.
    pub fn emit<K, A, P>(&self, kernel: K, args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: ArrivesAs<P>,
    {
        let code = match self.emit {
            None => return Ok(()),
            Some(Emit::Ir) => cutlet::code_ir(kernel, args)?.into_bytes(),
            Some(Emit::Ptx) => self.launch(1).code_ptx(kernel, args, self.target)?.into_bytes(),
            Some(Emit::Tileir) => cutlet::code_tiled(kernel, args, self.target)?.into_bytes(),
            Some(Emit::Tilebc) => {
                self.launch(1).export(kernel, args, self.target, Format::TileIr(self.bytecode_version))?.bytes
            }
            Some(Emit::Cubin) => self.launch(1).export(kernel, args, self.target, Format::Cubin)?.bytes,
        };
        match &self.output {
            Some(path) => fs::write(path, code).with_context(|| path.display().to_string()),
            None => Ok(std::io::stdout().write_all(&code)?),
        }
    }
}
