//! Work of a launch: a lower bound for programs, and a report with the remarks of its kernel.

use super::remarks::Remarks;
use super::text::traced;
use crate::error::Result;
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, WordBuffer};
use crate::launch::options::Launch;
use crate::pass::Work;
use crate::runtime::{Backend, Device};
use crate::util::report;

impl Launch<'_> {
    /// Returns a lower bound of the work of a launch of this kernel over the grid: bytes of memory,
    /// operations.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
    ///     let tile = x.load(ct::bid(0), [16]);
    ///     y.store(ct::bid(0), tile + tile);
    /// }
    ///
    /// let x = ct::ArraySpec::<f32, 1>::new([64]);
    /// let work = ct::Launch::new(4).work(double, (x, x.mutable()))?;
    /// assert_eq!((work.read_bytes, work.written_bytes, work.elementwise), (256.0, 256.0, 64.0));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Kernel`] with all errors of the kernel, [`crate::Error::Argument`] for a
    /// grid beyond the limits.
    ///
    /// # Panics
    /// If the kernel panics during tracing.
    #[track_caller]
    pub fn work<K, A, P>(&self, kernel: K, args: A) -> Result<Work>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let generator = self.backend.unwrap_or(Backend::Ptx);
        let Some(grid) = self.grid.checked(generator)? else { return Ok(Work::default()) };
        self.work_over(grid, &Bound::new(&kernel, &Arguments::new(args)).call())
    }

    #[track_caller]
    pub(crate) fn work_over(&self, grid: [u32; 3], call: &Call<'_>) -> Result<Work> {
        let (module, _) = traced(call)?;
        let mut words = WordBuffer::default();
        call.args().pack(&mut |word| words.push(word));
        Ok(Work::new(&module, &module.entries[0], grid, words.words()))
    }

    /// Writes the work of this launch and its least time to standard error, once for each compiled
    /// kernel.
    #[cold]
    #[track_caller]
    pub(crate) fn emit_work_remark(&self, device: Device, grid: [u32; 3], call: &Call<'_>, remarks: &Remarks) {
        if !remarks.is_first_launch() {
            return;
        }
        let Ok(work) = self.work_over(grid, call) else { return };
        let [x, y, z] = grid;
        let mut line = format!("{}: a launch over {x} x {y} x {z} blocks", remarks.kernel());
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
        report::requested(format_args!("{line}\n"));
    }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.3} MB", bytes / 1e6)
}
