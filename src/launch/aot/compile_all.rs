//! Compilation of many kernels before their launch, on all cores.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::cache::disk::ContentHash;
use crate::error::{Error, Result};
use crate::ir::PrintOptions;
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, refuse_nested};
use crate::launch::options::{CompileRequest, Launch};
use crate::launch::parallel::share;
use crate::launch::run::make;
use crate::launch::specialize::{Prepared, prepare};
use crate::runtime::{Device, limited};

/// Kernels to compile before their launch; see [`compile_all`].
///
/// ```
/// # use cutlet::doctest::*;
/// fn fill(x: ArrayMut<f32, 1>, tile: usize) {
///     x.store(ct::bid(0), ct::ones([tile]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
/// let kernels = ct::aot::Kernels::on(ct::Device::cpu())
///     .add(fill, (x, ct::Constant(64)))
///     .add(fill, (x, ct::Constant(128)))
///     .add(fill, (x, ct::Constant(64)));
/// assert_eq!(kernels.len(), 2); // the last one is the first one
/// # Ok::<(), ct::Error>(())
/// ```
pub struct Kernels {
    device: Device,
    jobs: Vec<Job>,
    failed: Vec<(String, Error)>,
    /// Number of kernels that were compiled before.
    found: usize,
    /// Descriptions of all kernels, if requested.
    described: Option<Vec<Described>>,
}

/// Properties of a kernel before its launch.
pub(crate) struct Described {
    pub slot: crate::launch::specialize::Specialized,
    /// Hash of the trace, the forms of the arguments, and the hints.
    pub hash: String,
    /// Lower bound of the time of the launch, on a GPU.
    pub least: Option<Duration>,
    pub blocks: u64,
}

/// Compilation of one kernel.
struct Job {
    name: String,
    /// Claimed by the thread that compiles it.
    prepared: Mutex<Option<Prepared>>,
    slot: crate::launch::specialize::Specialized,
}

impl Kernels {
    /// Returns an empty list for a device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert!(ct::aot::Kernels::on(ct::Device::cpu()).is_empty());
    /// ```
    #[must_use]
    pub fn on(device: Device) -> Kernels {
        Kernels { device, jobs: Vec::new(), failed: Vec::new(), found: 0, described: None }
    }

    /// Enables descriptions of all kernels.
    pub(crate) fn with_descriptions(self) -> Kernels {
        Kernels { described: Some(Vec::new()), ..self }
    }

    /// Returns the descriptions.
    ///
    /// # Errors
    /// The error of the most recently added invalid kernel.
    pub(crate) fn described(mut self) -> Result<(Kernels, Vec<Described>)> {
        let described = self.described.take().unwrap_or_default();
        match self.failed.pop() {
            Some((_, error)) => Err(error),
            None => Ok((self, described)),
        }
    }

    /// Appends the kernels of another list, each kernel once.
    pub(crate) fn append(&mut self, other: Kernels) {
        self.found += other.found;
        self.failed.extend(other.failed);
        for job in other.jobs {
            if !self.jobs.iter().any(|known| Arc::ptr_eq(&known.slot, &job.slot)) {
                self.jobs.push(job);
            }
        }
    }

    /// Adds a kernel for arguments of this form: those of a launch, or an
    /// [`ArraySpec`](crate::ArraySpec) for an array that does not exist yet. The kernel is traced
    /// by this call; [`compile_all`] returns its errors.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().zeros::<f32, 1>([100])?;
    /// let kernels = ct::aot::Kernels::on(ct::Device::cpu()).add(|x: Array<f32, 1>| ct::println!("{}", x.extent(0)), (&x,));
    /// assert_eq!(kernels.len(), 1);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn add<K, A, P>(self, kernel: K, args: A) -> Kernels
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        self.add_with(&Launch::new(1), kernel, args)
    }

    /// [`Kernels::add`] with the back end and the hints of a launch.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
    /// let launch = ct::Launch::new(1).hints(ct::Hints::new().num_warps(8));
    /// let kernels =
    ///     ct::aot::Kernels::on(ct::Device::cpu()).add_with(&launch, |x: ArrayMut<f32, 1>| x.store(0, ct::zeros([64])), (x,));
    /// assert_eq!(kernels.len(), 1);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn add_with<K, A, P>(self, launch: &Launch<'_>, kernel: K, args: A) -> Kernels
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        self.with_call(launch, &Bound::new(&kernel, &Arguments::new(args)).call())
    }

    #[track_caller]
    fn with_call(mut self, launch: &Launch<'_>, call: &Call<'_>) -> Kernels {
        let name = call.name();
        match self.prepared(launch, call) {
            Err(error) => self.failed.push((name, error)),
            Ok(prepared) if prepared.is_done() => self.found += 1,
            Ok(prepared) => {
                let slot = prepared.slot().clone();
                if !self.jobs.iter().any(|job| Arc::ptr_eq(&job.slot, &slot)) {
                    self.jobs.push(Job { name, prepared: Mutex::new(Some(prepared)), slot });
                }
            }
        }
        self
    }

    #[track_caller]
    fn prepared(&mut self, launch: &Launch<'_>, call: &Call<'_>) -> Result<Prepared> {
        refuse_nested(|| call.name())?;
        let device = launch.device_without_launch(self.device, call.args())?;
        let prepared = prepare(call, device, launch.request(device)?)?;
        if let Some(described) = &mut self.described {
            described.push(describe(launch, call, device, prepared.slot().clone())?);
        }
        Ok(prepared)
    }

    /// Returns the number of kernels to compile: each form once, without those that were compiled
    /// before.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<i32, 1>| x.store(ct::bid(0), ct::ones([256]));
    /// let kernels = ct::aot::Kernels::on(ct::Device::cpu());
    /// assert!(kernels.is_empty());
    /// let kernels = kernels.add(fill, (ct::ArraySpec::new([1 << 20]).mutable(),));
    /// assert_eq!(kernels.len(), 1);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns true if there is nothing to compile.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<i32, 1>| x.store(ct::bid(0), ct::ones([512]));
    /// let kernels = ct::aot::Kernels::on(ct::Device::cpu());
    /// assert!(kernels.is_empty());
    /// let kernels = kernels.add(fill, (ct::ArraySpec::new([1 << 20]).mutable(),));
    /// assert_eq!(kernels.len(), 1);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.jobs.iter().map(|job| &job.name)).finish()
    }
}

/// Returns the properties of a kernel; traces it again.
#[track_caller]
fn describe(
    launch: &Launch<'_>,
    call: &Call<'_>,
    device: Device,
    slot: crate::launch::specialize::Specialized,
) -> Result<Described> {
    let module = call.trace(&call.name())?;
    let mut forms = Vec::new();
    call.args().forms(&mut forms);
    // The other fields are in the key of the search.
    let CompileRequest { hints, backend, programmatic_launch, checks: _, recorded: _, exact: _ } =
        launch.request(device)?;
    let start = if programmatic_launch { " dependent" } else { "" };
    let text = format!("{}{forms:?}{hints:?}{start}", module.to_text(PrintOptions::default()));
    let hash = ContentHash::new(&[text.as_bytes()]).hex();
    let grid = launch.grid.checked(backend)?.unwrap_or([0; 3]);
    let blocks = grid.iter().map(|&n| u64::from(n)).product();
    let least = match device.as_gpu() {
        None => None,
        Some(_) => {
            // The work depends on the values of the arguments.
            make(call.args(), device)?;
            device.least_time(&launch.work_over(grid, call)?)
        }
    };
    Ok(Described { slot, hash, least, blocks })
}

/// Kernel that [`compile_all`] has finished.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Number of finished kernels, including this one.
    pub done: usize,
    /// Total number of kernels.
    pub total: usize,
    /// Name of the kernel.
    pub kernel: &'a str,
    /// Time of its compilation.
    pub time: Duration,
    /// Error of its compilation.
    pub error: Option<&'a Error>,
}

/// Summary of [`compile_all`].
#[derive(Debug, Default)]
#[must_use]
#[non_exhaustive]
pub struct CompileSummary {
    /// Number of kernels compiled.
    pub compiled: usize,
    /// Number of kernels that were compiled before.
    pub found: usize,
    /// Kernels that cannot be compiled: names and errors.
    pub failed: Vec<(String, Error)>,
}

impl CompileSummary {
    /// Returns the first failure as an error.
    ///
    /// # Errors
    /// The error of the first kernel that failed.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<i32, 1>| x.store(ct::bid(0), ct::ones([128]));
    /// let kernels = ct::aot::Kernels::on(ct::Device::cpu());
    /// let kernels = kernels.add(fill, (ct::ArraySpec::new([1 << 20]).mutable(),));
    /// ct::compile_all(kernels, |_| ()).ok()?;
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn ok(self) -> Result<()> {
        self.failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Compiles kernels on all cores, before their first launches. `progress` is called on this thread
/// for each kernel. The kernels are cached as by a launch: the 1024 most recently used ones.
///
/// ```
/// use cutlet as ct;
///
/// fn scale(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, tile: usize) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 2.0);
/// }
///
/// let device = ct::Device::cpu();
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let kernels = [64, 128, 256].iter().fold(ct::aot::Kernels::on(device), |kernels, &tile| {
///     kernels.add(scale, (x, x.mutable(), ct::Constant(tile)))
/// });
/// let ahead = ct::compile_all(kernels, |step| println!("{} of {}: {} in {:?}", step.done, step.total, step.kernel, step.time));
/// assert_eq!((ahead.compiled, ahead.failed.len()), (3, 0));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Panics
/// If `progress` panics.
pub fn compile_all(kernels: Kernels, progress: impl FnMut(Progress<'_>)) -> CompileSummary {
    compile_each(kernels, None, progress)
}

/// [`compile_all`] with a time limit for each kernel.
pub(crate) fn compile_each(
    kernels: Kernels,
    limit: Option<Duration>,
    mut progress: impl FnMut(Progress<'_>),
) -> CompileSummary {
    let Kernels { jobs, failed, found, .. } = kernels;
    let mut ahead = CompileSummary { compiled: 0, found, failed };
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let jobs = &jobs;
        share(scope, jobs.len(), move |at| {
            let (job, start) = (&jobs[at], Instant::now());
            let prepared = job.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
            let compile = || prepared.map_or(Ok(()), |prepared| prepared.compile(&job.name));
            let result = match limit {
                Some(limit) => limited(limit, &format!("compiling `{}`", job.name), compile),
                None => compile(),
            };
            // The receiver is dropped if `progress` has panicked.
            tell.send((job.name.as_str(), start.elapsed(), result)).is_ok()
        });
        for (done, (kernel, time, result)) in (1..).zip(told) {
            progress(Progress { done, total: jobs.len(), kernel, time, error: result.as_ref().err() });
            match result {
                Ok(()) => ahead.compiled += 1,
                Err(error) => ahead.failed.push((kernel.to_owned(), error)),
            }
        }
    });
    ahead
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate as ct;
    use crate::tile::{Array, ArrayMut};

    fn fill(x: ArrayMut<i32, 1>, tile: usize, value: i32) {
        x.store(ct::bid(0), ct::full::<i32, 1>([tile], value));
    }

    fn wrong(x: ArrayMut<i32, 1>) {
        x.store(0, ct::zeros::<i32, 1>([15]));
    }

    #[test]
    fn precompiled_kernels_are_launched() -> Result<()> {
        let device = Device::cpu();
        let traced = Arc::new(AtomicUsize::new(0));
        let counts = {
            let traced = traced.clone();
            move |x: Array<i32, 1>, y: ArrayMut<i32, 1>| {
                traced.fetch_add(1, Ordering::SeqCst);
                y.store(ct::bid(0), x.load(ct::bid(0), [32]) + 7);
            }
        };
        let x = ct::ArraySpec::<i32, 1>::new([64]);
        let mut kernels = Kernels::on(device).add(wrong, (x.mutable(),)).add(&counts, (x, x.mutable()));
        for tile in [16, 32, 64, 16, 32] {
            kernels = kernels.add(fill, (x.mutable(), ct::Constant(tile), ct::Constant(5)));
        }
        assert_eq!((kernels.len(), kernels.is_empty()), (4, false));
        let mut steps = Vec::new();
        let ahead = compile_all(kernels, |step| {
            assert!(step.error.is_none() && step.total == 4);
            steps.push((step.done, step.kernel.to_owned()));
        });
        assert_eq!((ahead.compiled, ahead.found, ahead.failed.len()), (4, 0, 1));
        assert_eq!(steps.iter().map(|(done, _)| *done).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(ahead.failed[0].0 == "wrong" && ahead.failed[0].1.to_string().contains("compile_all.rs"));
        assert!(ahead.ok().is_err());

        // Arrays of that form use the compiled kernel.
        let mut y = device.zeros::<i32, 1>([64])?;
        let again = Kernels::on(device).add(fill, (&mut y, ct::Constant(16), ct::Constant(5)));
        assert!(again.is_empty());
        assert_eq!(compile_all(again, |_| ()).found, 1);
        ct::launch(fill, 4, (&mut y, ct::Constant(16), ct::Constant(5)))?;
        assert_eq!(y.to_vec()?, [5; 64]);
        assert_eq!(traced.load(Ordering::SeqCst), 1);
        Ok(())
    }

    #[test]
    fn arrays_of_another_device_are_errors() -> Result<()> {
        let Ok(gpu) = Device::gpu(0) else { return Ok(()) };
        let mut x = Device::cpu().zeros::<i32, 1>([64])?;
        let ahead = compile_all(Kernels::on(gpu).add(wrong, (&mut x,)), |_| ());
        assert!(ahead.failed[0].1.to_string().contains("are on the cpu device"), "{ahead:?}");
        Ok(())
    }
}
