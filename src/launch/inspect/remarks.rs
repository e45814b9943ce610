//! Compilation remarks of a kernel: by [`CompiledKernel::remarks`](crate::launch::CompiledKernel::remarks), and
//! on standard error where the environment has `CUTLET_REMARKS=1`.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backend::ptx::{self, remarks::CodeRemarks};
use crate::error::Result;
use crate::runtime::{Gpu, GpuKernel};

/// Compilation remarks: data paths, instructions, register and memory use of a kernel, and notes of
/// the assembler. `Display` writes a report of several lines.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
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
    stages: Stages,
    /// The work of a launch has been said.
    said: AtomicBool,
}

/// Resources of a kernel on a GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Resources {
    threads: u32,
    registers: u32,
    local_bytes: u32,
    shared_bytes: u32,
    /// Tile blocks of a multiprocessor at a time.
    blocks: u32,
}

/// How long each stage of compiling took, in order.
#[derive(Debug, Default)]
pub(crate) struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    /// A first stage, which began at this time and is over.
    pub fn begun(stage: &'static str, start: Instant) -> Stages {
        Stages(vec![(stage, start.elapsed())])
    }

    /// Does the work of a stage.
    pub fn time<X>(&mut self, stage: &'static str, work: impl FnOnce() -> X) -> X {
        let start = Instant::now();
        let result = work();
        self.0.push((stage, start.elapsed()));
        result
    }
}

impl Remarks {
    /// Of a kernel that the interpreter runs.
    pub(crate) fn of_interpreted(kernel: &str, stages: Stages) -> Remarks {
        Remarks { kernel: kernel.to_owned(), stages, ..Remarks::default() }
    }

    /// These stages came before.
    pub(crate) fn precede(&mut self, stages: Stages) {
        self.stages.0.splice(0..0, stages.0);
    }

    /// How long each stage of compiling took, in order: running the kernel's function on traced values (`trace`), the
    /// passes, the generation of code (on the cpu device: the program of the interpreter), and what assembler and driver
    /// took to make it loadable, or to find it on the disk. What is compiled later, for launches that this code is not
    /// for, is not among them.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn fill(y: ct::ArrayMut<i32, 1>) {
    ///     y.store([ct::bid(0)], ct::full::<i32, 1>([8], 7));
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

    /// Of a kernel on a GPU; says them, if that is wished.
    ///
    /// # Errors
    /// When the driver does not answer.
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
        let remarks = Remarks { kernel: name.to_owned(), code, resources, notes, stages, said: AtomicBool::new(false) };
        if wanted() {
            eprint!("{remarks}");
        }
        Ok(remarks)
    }

    /// The name of the kernel.
    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// What the code generator says about its code.
    pub(crate) fn code(&self) -> Option<&CodeRemarks> {
        self.code.as_ref()
    }

    /// Is this the first time that the work of a launch is to be said?
    pub(super) fn is_first_launch(&self) -> bool {
        !self.said.swap(true, Ordering::Relaxed)
    }

    /// What the assembler said about lost speed: spilled registers, serialised matrix instructions.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert!(fill.remarks().notes().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Threads of a tile block; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().threads(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn threads(&self) -> u32 {
        self.resources.threads
    }

    /// Registers of one thread; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().registers(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn registers(&self) -> u32 {
        self.resources.registers
    }

    /// Local memory of one thread in bytes: what was spilled, and its stack; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().local_bytes(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn local_bytes(&self) -> u32 {
        self.resources.local_bytes
    }

    /// Dynamic shared memory of a tile block in bytes; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let fill = ct::compile(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(fill.remarks().shared_bytes(), 0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn shared_bytes(&self) -> u32 {
        self.resources.shared_bytes
    }

    /// Tile blocks that a multiprocessor runs at a time; 0 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
        self.notes.iter().try_for_each(|note| writeln!(f, "  assembler: {note}"))
    }
}

/// Writes the remarks of code that is not loaded to standard error, if `CUTLET_REMARKS` is set.
/// `open`: no assembler has confirmed that the registers suffice for the planned occupancy.
pub(crate) fn say_code(code: &ptx::Compiled, open: bool) {
    if wanted() {
        let ptx::Compiled { entry, threads, shared_bytes, min_blocks, remarks, .. } = code;
        eprint!("{entry}: threads: {threads}, shared memory: {shared_bytes} B, not loaded\n{remarks}");
        if open {
            eprintln!("  registers for {min_blocks} blocks per multiprocessor: estimated, no assembler was run");
        }
    }
}

/// Returns true if `CUTLET_REMARKS` is set. It is read once.
#[inline]
pub(crate) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CUTLET_REMARKS").is_some_and(|value| !value.is_empty() && value != "0"))
}
