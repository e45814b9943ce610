//! Options that every measured kernel takes.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use cutlet::aot::Format;
use cutlet::backend::tileir::Version;
use cutlet::kernel::{Kernel, KernelArgs};
use cutlet::{Backend, Checks, Device, Grid, Hints, Inspection, Launch, Target};

use similar::TextDiff;

use super::words::{Value, Words};

/// Options that every measured kernel takes; see [`Options::HELP`].
#[derive(Clone, Debug)]
pub struct Options {
    backend: Option<Backend>,
    emit: Option<Emit>,
    target: Target,
    bytecode_version: Option<Version>,
    output: Option<PathBuf>,
    pub(super) iterations: Option<usize>,
    num_warps: Option<u32>,
    occupancy: Option<u32>,
    stages: Option<u32>,
    num_ctas: Option<u32>,
    opt_level: Option<u32>,
    lines: bool,
    check: Option<Checks>,
    /// Every tile block runs twice, along an axis that the kernel does not ask for: each element is
    /// written by two then, which `--check races` has to find.
    twice: bool,
}

choice! {
    /// Forms of code that can be printed.
    Emit {
        /// The optimized Tile IR.
        Ir = "ir",
        /// The traced Tile IR, and the changes of each pass.
        Passes = "passes",
        /// Steps of the threads.
        Schedule = "schedule",
        /// The same with the values that have no instructions of their own.
        FullSchedule = "schedule=full",
        /// The same in time, as SVG.
        Picture = "picture",
        /// PTX.
        Ptx = "ptx",
        /// The lines whose values live in local memory, by the driver or ptxas.
        Spills = "spills",
        /// Tile IR for the driver or tileiras, with the order of memory accesses.
        Tileir = "tileir",
        /// Tile IR bytecode.
        Tilebc = "tilebc",
        /// Machine code, made by tileiras.
        Cubin = "cubin",
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backend: None,
            emit: None,
            target: Target::SM_90A,
            bytecode_version: None,
            output: None,
            iterations: None,
            num_warps: None,
            occupancy: None,
            stages: None,
            num_ctas: None,
            opt_level: None,
            lines: false,
            check: None,
            twice: false,
        }
    }
}

impl Options {
    /// Text of the options for `--help`.
    pub const HELP: &str = "
  --backend           cpu, ptx or tileir; default: the GPU where there is one, else cpu (CUTLET_BACKEND decides before)
  --emit              ir, passes (the traced Tile IR, and what each pass changes of it), schedule (the steps of each warp role; schedule=full: with values that are computed at their uses), picture (when they do it, by the cost model, as SVG), ptx, spills (the lines whose values live in local memory, by the driver or ptxas), tileir (as it goes to the assembler), tilebc (bytecode) or cubin (made by tileiras): print
                      the code instead of running it; no device is needed
  --target            what code is emitted for: sm_80, sm_90a (the default), sm_100, …
  --bytecode-version  of emitted bytecode: 13.1 to 13.5; default: the lowest that will do
  --output            write the emitted code to this file instead of standard output
  --iterations        timed launches; the median is printed
  --num-warps         warps of a block, if the compiler is not to choose
  --occupancy         blocks that should fit on a multiprocessor
  --stages            stages of loops whose loads are copied ahead; 1: none are
  --num-ctas          blocks of a cluster: in PTX, 2 share what both load; in Tile IR a block is divided among them
  --opt-level         how hard the assembler tries: 0 to 3
  --lines             have the code name the lines that it comes from
  --check             what is checked on the cpu back end, as by CUTLET_CHECK: all, or races, bounds, division, …
                      with commas between";

    /// Takes the option of this name from the words after it; false: there is none.
    pub fn take(&mut self, name: &str, words: &mut Words) -> Result<bool> {
        match name {
            "backend" => self.backend = Value::take(words)?,
            "emit" => self.emit = Value::take(words)?,
            "target" => self.target = Value::take(words)?,
            "bytecode-version" => self.bytecode_version = Value::take(words)?,
            "output" => self.output = Value::take(words)?,
            "iterations" => self.iterations = Value::take(words)?,
            "num-warps" => self.num_warps = Value::take(words)?,
            "occupancy" => self.occupancy = Value::take(words)?,
            "stages" => self.stages = Value::take(words)?,
            "num-ctas" => self.num_ctas = Value::take(words)?,
            "opt-level" => self.opt_level = Value::take(words)?,
            "lines" => self.lines = Value::take(words)?,
            "check" => self.check = Value::take(words)?,
            "twice" => self.twice = Value::take(words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

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

    /// Returns true if code is printed instead of executed.
    pub fn emits(&self) -> bool {
        self.emit.is_some()
    }

    /// Returns true if the code is for Hopper, by the ptx back end.
    pub fn is_for_hopper(&self, device: &Device) -> bool {
        let target = if self.emits() { Some(self.target) } else { device.target() };
        target.is_some_and(|target| target.arch == 90 && target.accelerated)
            && self.backend.is_none_or(|backend| backend == Backend::Ptx)
    }

    /// Blocks that run on a multiprocessor at a time.
    pub fn blocks_each(&self) -> usize {
        self.occupancy.unwrap_or(1) as usize
    }

    /// These options, for a kernel that knows how many blocks should fit on a multiprocessor.
    pub fn with_occupancy(&self, blocks: u32) -> Options {
        Options { occupancy: self.occupancy.or(Some(blocks)), ..self.clone() }
    }

    fn hints(&self) -> Hints {
        let mut hints = Hints::new();
        (hints.num_warps, hints.occupancy) = (self.num_warps, self.occupancy);
        (hints.num_stages, hints.num_ctas) = (self.stages, self.num_ctas);
        hints.opt_level = self.opt_level;
        hints.line_info = self.lines.then_some(true);
        hints
    }

    /// A launch with the back end and the hints that were given.
    pub fn launch(&self, grid: impl Into<Grid>) -> Launch<'static> {
        let [x, y, z] = grid.into().extents();
        let mut launch = Launch::new([x, y, if self.twice { 2 * z } else { z }]).hints(self.hints());
        if let Some(checks) = self.check {
            launch = launch.checks(checks);
        }
        self.backend.map_or(launch, |backend| launch.backend(backend))
    }

    /// The code of a kernel with these choices.
    fn inspect<K, A, P>(&self, kernel: K, args: A) -> Inspection
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let code = cutlet::inspect(kernel, args).target(self.target).hints(self.hints());
        match self.check {
            Some(checks) => code.checks(checks),
            None => code,
        }
    }

    /// Prints the requested code, if any, of a launch with these arguments.
    pub fn emit<K, A, P>(&self, kernel: K, args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let code = match self.emit {
            None => return Ok(()),
            Some(Emit::Ir) => self.inspect(kernel, args).ir()?.into_bytes(),
            Some(Emit::Passes) => changes(&self.inspect(kernel, args).passes()?).into_bytes(),
            Some(Emit::Ptx) => self.inspect(kernel, args).ptx()?.into_bytes(),
            Some(Emit::Spills) => format!("{}\n", self.inspect(kernel, args).spills()?).into_bytes(),
            Some(Emit::Schedule) => self.inspect(kernel, args).schedule()?.into_bytes(),
            Some(Emit::FullSchedule) => self.inspect(kernel, args).full_schedule()?.into_bytes(),
            Some(Emit::Picture) => self.inspect(kernel, args).timeline_svg()?.into_bytes(),
            Some(Emit::Tileir) => self.inspect(kernel, args).tile_ir()?.into_bytes(),
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

/// The first form in full, then the lines that go (`-`) and come (`+`) from one to the next, with
/// three around them.
fn changes(forms: &[(&str, String)]) -> String {
    let mut out = forms.first().map_or_else(String::new, |(_, text)| text.clone());
    for pair in forms.windows(2) {
        let [(before, old), (after, new)] = pair else { unreachable!("windows of two") };
        let diff = TextDiff::from_lines(old, new);
        out += &format!("\n{}", diff.unified_diff().context_radius(3).header(before, after));
    }
    out
}
