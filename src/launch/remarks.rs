//! What became of a kernel, said to people: by [`CompiledKernel::remarks`](super::CompiledKernel::remarks), and
//! on standard error where the environment has `CUTLET_REMARKS=1`.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Launch;
use super::code::traced;
use crate::backend::ptx::remarks::CodeRemarks;
use crate::error::Result;
use crate::kernel::{Kernel, LaunchArgs, WordWriter};
use crate::pass::Work;
use crate::runtime::{Backend, Device, Gpu, GpuKernel};

/// What became of a kernel: which way its tiles travel, which instructions multiply them, what a thread and
/// a tile block occupy, what the assembler had to say. Its `Display` is a report of several lines.
#[derive(Debug, Default)]
pub struct Remarks {
    kernel: String,
    code: Option<CodeRemarks>,
    resources: Resources,
    notes: Vec<String>,
    /// The work of a launch has been said.
    said: AtomicBool,
}

/// What a kernel occupies on a GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Resources {
    threads: u32,
    registers: u32,
    local_bytes: u32,
    shared_bytes: u32,
    /// Tile blocks of a multiprocessor at a time.
    blocks: u32,
}

impl Remarks {
    /// Of a kernel that the interpreter runs.
    pub(super) fn of_interpreted(kernel: &str) -> Remarks {
        Remarks { kernel: kernel.to_owned(), ..Remarks::default() }
    }

    /// Of a kernel on a GPU; says them, if that is wished.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub(super) fn of_gpu(
        name: &str,
        gpu: &Gpu,
        kernel: &GpuKernel,
        code: Option<CodeRemarks>,
        notes: Vec<String>,
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
        let remarks = Remarks { kernel: name.to_owned(), code, resources, notes, said: AtomicBool::new(false) };
        if wanted() {
            eprint!("{remarks}");
        }
        Ok(remarks)
    }

    /// What the assembler said about lost speed: spilled registers, serialised matrix instructions.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Threads of a tile block; 0 on the cpu device.
    pub fn threads(&self) -> u32 {
        self.resources.threads
    }

    /// Registers of one thread; 0 on the cpu device.
    pub fn registers(&self) -> u32 {
        self.resources.registers
    }

    /// Local memory of one thread in bytes: what was spilled, and its stack; 0 on the cpu device.
    pub fn local_bytes(&self) -> u32 {
        self.resources.local_bytes
    }

    /// Dynamic shared memory of a tile block in bytes; 0 on the cpu device.
    pub fn shared_bytes(&self) -> u32 {
        self.resources.shared_bytes
    }

    /// Tile blocks that a multiprocessor runs at a time; 0 on the cpu device.
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
             {shared_bytes} B, blocks of a multiprocessor: {blocks}",
            self.kernel
        )?;
        if let Some(code) = &self.code {
            write!(f, "{code}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  assembler: {note}"))
    }
}

/// Are remarks wished for by the environment? Asked once.
#[inline]
pub(super) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CUTLET_REMARKS").is_some_and(|value| !value.is_empty() && value != "0"))
}

impl Launch<'_> {
    /// What a launch of this kernel over the grid would do at least: bytes of memory, operations.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
    ///     let tile = x.load([ct::bid(0)], [16]);
    ///     y.store([ct::bid(0)], tile + tile);
    /// }
    ///
    /// let x = ct::ArraySpec::<f32, 1>::new([64]);
    /// let work = ct::Launch::new(4).work(double, (x, x.mutable()))?;
    /// assert_eq!((work.read_bytes, work.written_bytes, work.elementwise), (256.0, 256.0, 64.0));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Kernel`] with everything that is wrong in the kernel, [`crate::Error::Argument`] for a
    /// grid beyond the limits.
    ///
    /// # Panics
    /// When the kernel panics while it is traced.
    #[track_caller]
    pub fn work<K, A>(&self, kernel: K, args: A) -> Result<Work>
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        let generator = self.backend.unwrap_or(Backend::Ptx);
        let Some(grid) = self.grid.checked(generator)? else { return Ok(Work::default()) };
        self.work_over(grid, &kernel, &args)
    }

    #[track_caller]
    fn work_over<K, A>(&self, grid: [u32; 3], kernel: &K, args: &A) -> Result<Work>
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        let module = traced(kernel, args)?;
        let mut words = WordWriter::default();
        args.pack(&mut |word| words.push(word));
        Ok(Work::of(&module, &module.entries[0], grid, words.words()))
    }

    /// Says, once for each compiled kernel, what this launch does and how fast that could be.
    #[cold]
    #[track_caller]
    pub(super) fn say_work<K, A>(&self, device: Device, grid: [u32; 3], kernel: &K, args: &A, remarks: &Remarks)
    where
        A: LaunchArgs,
        K: Kernel<A::Traced>,
    {
        if remarks.said.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(work) = self.work_over(grid, kernel, args) else { return };
        let [x, y, z] = grid;
        let mut line = format!("{}: a launch over {x} x {y} x {z} blocks", remarks.kernel);
        if work.is_guess {
            line += ", guessed where control depends on data,";
        }
        line += &format!(" reads {} and writes {}", megabytes(work.read_bytes), megabytes(work.written_bytes));
        for (dtype, flops) in &work.products {
            line += &format!(", {:.3} GFLOP of {dtype} products", flops / 1e9);
        }
        if work.elementwise > 0.0 {
            line += &format!(", {:.3} GFLOP elementwise", work.elementwise / 1e9);
        }
        if let Some(time) = device.least_time(&work) {
            line += &format!(": {:.1} us at best", time.as_secs_f64() * 1e6);
        }
        eprintln!("{line}");
    }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.3} MB", bytes / 1e6)
}
