//! Compilation remarks of a kernel: by
//! [`CompiledKernel::remarks`](crate::launch::CompiledKernel::remarks), and on standard error if
//! `CUTLET_REMARKS=1` is set.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::spills::Spills;
use crate::backend::ptx::{self, remarks::CodeRemarks};
use crate::error::Result;
use crate::runtime::{Gpu, GpuKernel};
use crate::util::report;

/// Compilation remarks: data paths, instructions, register and memory use of a kernel, and notes of
/// the assembler. `Display` writes a report of several lines.
///
/// ```
/// # use cutlet::doctest::*;
/// let mut x = ct::Device::cpu().zeros([4])?;
/// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
/// println!("{}", fill.remarks());
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Remarks {
    kernel: String,
    code: Option<CodeRemarks>,
    resources: Resources,
    notes: Vec<String>,
    spills: Option<Spills>,
    stages: Stages,
    /// The work of a launch has been reported.
    reported: AtomicBool,
    /// The proofs of a launch have been reported.
    proved: AtomicBool,
}

/// Resources of a kernel on a GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Resources {
    threads: u32,
    registers: u32,
    local_bytes: u32,
    shared_bytes: u32,
    /// Number of tile blocks that a multiprocessor executes at the same time.
    blocks: u32,
}

/// Times of the compilation stages, in order.
#[derive(Debug, Default)]
pub(crate) struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    /// Returns a list with one finished stage, which began at `start`.
    pub fn begun(stage: &'static str, start: Instant) -> Stages {
        Stages(vec![(stage, start.elapsed())])
    }

    /// Executes a stage and records its time.
    pub fn time<X>(&mut self, stage: &'static str, work: impl FnOnce() -> X) -> X {
        let start = Instant::now();
        let result = work();
        self.0.push((stage, start.elapsed()));
        result
    }
}

impl Remarks {
    /// Returns the remarks of an interpreted kernel.
    pub(crate) fn of_interpreted(kernel: &str, stages: Stages) -> Remarks {
        Remarks { kernel: kernel.to_owned(), stages, ..Remarks::default() }
    }

    /// Inserts stages before the recorded ones.
    pub(crate) fn precede(&mut self, stages: Stages) {
        self.stages.0.splice(0..0, stages.0);
    }

    /// Returns the times of the compilation stages, in order:
    /// * `trace`: execution of the kernel's function on traced values;
    /// * `passes`;
    /// * `code`: code generation (on the cpu device: the program of the interpreter);
    /// * assembler and driver: assembly and loading, or reading from the disk cache.
    ///
    /// Other forms of the kernel that are compiled later, for launches that need them, are not
    /// included.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn fill(y: ct::ArrayMut<i32, 1>) {
    ///     y.store(ct::bid(0), ct::full::<i32, 1>([8], 7));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros::<i32, 1>([16])?;
    /// let compiled = ct::compile(fill, (&mut y,))?;
    /// let stages: Vec<&str> = compiled.remarks().stages().iter().map(|(stage, _)| *stage).collect();
    /// assert_eq!(stages, ["trace", "passes", "code"]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn stages(&self) -> &[(&'static str, Duration)] {
        &self.stages.0
    }

    /// Returns the remarks of a kernel on a GPU, and writes them if `CUTLET_REMARKS` is set.
    ///
    /// # Errors
    /// If the driver reports an error.
    pub(crate) fn of_gpu(
        name: &str,
        gpu: &Gpu,
        kernel: &GpuKernel,
        code: Option<CodeRemarks>,
        notes: Vec<String>,
        stages: Stages,
    ) -> Result<Remarks> {
        let (registers, local_bytes) = kernel.resources()?;
        let (_, config) = kernel.raw();
        let resources = Resources {
            threads: config.threads,
            registers,
            local_bytes,
            shared_bytes: config.shared_bytes,
            blocks: gpu.target().multiprocessor().fitting_blocks(
                config.threads.div_ceil(32).max(1),
                registers,
                config.shared_bytes,
            ),
        };
        let remarks = Remarks { kernel: name.to_owned(), code, resources, notes, stages, ..Remarks::default() };
        if wanted() {
            report::requested(format_args!("{remarks}"));
        }
        Ok(remarks)
    }

    /// Adds the lines of values in local memory, and writes them if `CUTLET_REMARKS` is set.
    pub(crate) fn add_spills(&mut self, spills: Spills) {
        if wanted() {
            report::requested(format_args!("{}\n", Indented(&spills)));
        }
        self.spills = Some(spills);
    }

    /// Returns the lines whose values live in local memory, if `CUTLET_REMARKS` or `CUTLET_DUMP` is
    /// set and the kernel uses local memory: the code is then assembled once more, with lines.
    /// [`Inspection::spills`](crate::Inspection::spills) has them for any kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert!(fill.remarks().spills().is_none());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn spills(&self) -> Option<&Spills> {
        self.spills.as_ref()
    }

    /// Returns the name of the kernel.
    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Returns the remarks of the code generator.
    pub(crate) fn code(&self) -> Option<&CodeRemarks> {
        self.code.as_ref()
    }

    /// Returns true at the first call: the proofs of a launch are reported once.
    pub(in crate::launch) fn is_first_proof(&self) -> bool {
        !self.proved.swap(true, Ordering::Relaxed)
    }

    /// Returns true at the first call: the work of a launch is reported once.
    pub(super) fn is_first_launch(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// Returns the notes of the assembler on performance: spilled registers, serialized matrix
    /// instructions.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert!(fill.remarks().notes().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the number of threads of a tile block; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().threads(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn threads(&self) -> u32 {
        self.resources.threads
    }

    /// Returns the number of registers of one thread; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().registers(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn registers(&self) -> u32 {
        self.resources.registers
    }

    /// Returns the local memory of one thread in bytes: spilled registers and the stack; 0 on the
    /// cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().local_bytes(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn local_bytes(&self) -> u32 {
        self.resources.local_bytes
    }

    /// Returns the dynamic shared memory of a tile block in bytes; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().shared_bytes(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn shared_bytes(&self) -> u32 {
        self.resources.shared_bytes
    }

    /// Returns the number of tile blocks that a multiprocessor executes at the same time; 0 on the
    /// cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().blocks_per_multiprocessor(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn blocks_per_multiprocessor(&self) -> u32 {
        self.resources.blocks
    }
}

impl fmt::Display for Remarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { threads, registers, local_bytes, shared_bytes, blocks } = self.resources;
        if threads == 0 {
            return writeln!(f, "{}: interpreted", self.kernel);
        }
        writeln!(
            f,
            "{}: threads: {threads}, registers: {registers}, local memory: {local_bytes} B, shared memory: \
             {shared_bytes} B, blocks per multiprocessor: {blocks}",
            self.kernel
        )?;
        if let Some(code) = &self.code {
            write!(f, "{code}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  assembler: {note}"))?;
        self.spills.iter().try_for_each(|spills| writeln!(f, "{}", Indented(spills)))
    }
}

/// A report of several lines below the first line of another one.
struct Indented<'a>(&'a Spills);

impl fmt::Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  local memory, by {}:", self.0.assembler)?;
        self.0.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Writes the remarks of code that is not loaded to standard error, if `CUTLET_REMARKS` is set.
/// `open`: no assembler has confirmed that the registers suffice for the planned occupancy.
pub(crate) fn emit_code_remarks(code: &ptx::Compiled, open: bool) {
    if wanted() {
        let ptx::Compiled { entry, threads, shared_bytes, min_blocks, remarks, .. } = code;
        report::requested(format_args!(
            "{entry}: threads: {threads}, shared memory: {shared_bytes} B, not loaded\n{remarks}"
        ));
        if open {
            report::requested(format_args!(
                "  registers for {min_blocks} blocks per multiprocessor: estimated, no assembler was run\n"
            ));
        }
    }
}

/// Returns true if `CUTLET_REMARKS` is set. It is read once.
#[inline]
pub(crate) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CUTLET_REMARKS").is_some_and(|value| !value.is_empty() && value != "0"))
}
