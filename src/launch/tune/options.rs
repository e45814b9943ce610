//! Options of an autotuning search.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::precompile::Describe;
use super::progress_line::Line;
use super::record::Records;
use super::result::{Outcome, TuneStep};
use super::workspaces::{Copies, Sets};
use crate::error::Result;
use crate::launch::aot::compile_all::Kernels;
use crate::runtime::{Bench, Scratch};

type Keep<C> = Box<dyn Fn(&C) -> bool>;
type Restore<S> = Box<dyn Fn(&mut S) -> Result<()>>;
type Check<S> = (Box<dyn Fn(&S) -> Result<Vec<f64>>>, f64);
type Tell<C> = Box<dyn Fn(&TuneStep<'_, C>)>;

/// Autotuning search over configurations `C` of a function that changes a state `S`, which is
/// mostly arrays.
///
/// 1. Each configuration is executed once. If it fails, because its tiles are illegal, too large
///    for the device or for another reason, its error is recorded and the search continues.
/// 2. The configurations are measured alternately, see [`Bench`].
/// 3. Those that are close to the fastest are measured again, for a longer time.
///
/// The first configuration is the default: it is selected if its median is within 1 % of the least
/// one.
///
/// ```
/// use cutlet as ct;
///
/// fn scale(x: ct::ArrayMut<f32, 1>, tile: usize) {
///     x.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 2.0);
/// }
///
/// let device = ct::Device::cpu();
/// let mut x = device.full([10_000], 1.0f32)?;
/// let tuned = ct::Tuner::new()
///     .bench(ct::Bench::new().warm_up(1).runs(3))
///     .prune(|&tile| tile <= 4096)
///     .restore(|x: &mut ct::DeviceArray<f32, 1>| x.copy_from(&[1.0; 10_000]))
///     .run(device, &mut x, [64usize, 1000, 1024, 1 << 20], |x, &tile| {
///         ct::launch(scale, 10_000usize.div_ceil(tile), (x, ct::Constant(tile)))
///     })?;
/// assert!([64, 1024].contains(tuned.best()));
/// assert_eq!((tuned.successes().len(), tuned.failures()[0].0), (2, 1000));
/// println!("{tuned}");
/// # Ok::<(), ct::Error>(())
/// ```
pub struct Tuner<S, C> {
    pub(super) bench: Bench,
    pub(super) keep: Vec<Keep<C>>,
    pub(super) restore: Option<Restore<S>>,
    pub(super) copies: Option<Copies<S>>,
    pub(super) limit: Option<Duration>,
    pub(super) name: String,
    /// The user's cache on the disk is read and written.
    pub(super) cached: bool,
    pub(super) record: Option<PathBuf>,
    pub(super) records: Option<Records>,
    pub(super) afresh: bool,
    pub(super) kernels: Option<Describe<S, C>>,
    pub(super) most: Option<usize>,
    pub(super) check: Option<Check<S>>,
    pub(super) tell: Option<Tell<C>>,
    /// Progress line of the terminal.
    pub(super) line: Option<Line>,
}

impl<S, C> Default for Tuner<S, C> {
    fn default() -> Self {
        Tuner::new()
    }
}

impl<S, C> fmt::Debug for Tuner<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuner").field("bench", &self.bench).field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S, C> Tuner<S, C> {
    /// Returns a search over all configurations, with the measurement of [`Bench::new`] and without
    /// a cache.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [1usize, 2], |(), _| Ok(()))?;
    /// assert_eq!(tuned.successes().len(), 2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Tuner<S, C> {
        Tuner {
            bench: Bench::new(),
            keep: Vec::new(),
            restore: None,
            copies: None,
            limit: None,
            name: String::new(),
            cached: false,
            record: None,
            records: None,
            afresh: false,
            kernels: None,
            most: None,
            check: None,
            tell: None,
            line: None,
        }
    }

    /// Sets the method of measurement of each configuration.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(7));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [1usize], |(), _| Ok(()))?;
    /// assert_eq!(tuned.successes()[0].1.all().len(), 7);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn bench(self, bench: Bench) -> Tuner<S, C> {
        Tuner { bench, ..self }
    }

    /// Restricts the search to configurations for which `keep` returns true.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).prune(|&tile: &usize| tile > 1);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.best(), &2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn prune(mut self, keep: impl Fn(&C) -> bool + 'static) -> Tuner<S, C> {
        self.keep.push(Box::new(keep));
        self
    }

    /// Sets a function that restores the state that the work changes.
    ///
    /// It is called before each part of the measurement of a configuration and at the end of the
    /// search, and is not measured. It is not called between the executions of one part.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).restore(|x: &mut i32| Ok(*x = 0));
    /// let mut x = 5;
    /// tuner.run(ct::Device::cpu(), &mut x, [1, 2], |x, n| Ok(*x += n))?;
    /// assert!(x <= 2); // each configuration began with 0
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn restore(self, restore: impl Fn(&mut S) -> Result<()> + 'static) -> Tuner<S, C> {
        Tuner { restore: Some(Box::new(restore)), ..self }
    }

    /// Sets a time limit for each configuration.
    ///
    /// The limit applies to the compilation and first execution together, and to each part of the
    /// measurement. A configuration that exceeds it is a failure.
    ///
    /// The search continues when the work in progress has ended:
    /// * GPU: a kernel cannot be stopped. If it does not end within ten times the limit, the search
    ///   ends with [`Error::TimedOut`](crate::Error::TimedOut), and this process can no longer use
    ///   that GPU. A search with [`Tuner::record`] records the configuration in that file, and
    ///   skips it the next time.
    /// * Compilers: the limit is `CUTLET_COMPILE_SECONDS`.
    /// * cpu device: the interpreter stops. Other work of the host must end by itself.
    ///
    /// On a thread of a rayon pool, work that waits for rayon (`join`, `scope`, a parallel
    /// iterator) can execute other tasks. The limit must not end these tasks. There the limit does
    /// not stop launches and waits inside the work: the interpreter and copies to the host end by
    /// themselves, and the configuration fails afterwards. The search itself waits for a GPU no
    /// longer than the limit there, too.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use std::time::Duration;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().runs(3)).limit(Duration::from_millis(200));
    /// let pause = |(): &mut (), &millis: &u64| Ok(std::thread::sleep(Duration::from_millis(millis)));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [250, 1], pause)?;
    /// assert_eq!(tuned.failures()[0].1.to_string(), "this configuration is not done after 200ms");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn limit(self, limit: Duration) -> Tuner<S, C> {
        Tuner { limit: Some(limit), ..self }
    }

    /// Sets the name of the search. It identifies the inputs of the result other than the kernels
    /// and the device, for example the extents of arrays.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).name("one or two");
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Tuner<S, C> {
        Tuner { name: name.into(), ..self }
    }

    /// Caches the best configuration under this name on the disk, in the cache of compiled kernels.
    ///
    /// A later search with the same name, device, driver, kernels ([`Tuner::kernels`]) and
    /// configurations reads the result and measures nothing. The name identifies all other inputs
    /// of the result, such as the kernel and the extents of its arrays.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).cache_as("one or two");
    /// let first = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// let again = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// assert!(!again.is_cached() || again.best() == first.best()); // not, where nothing is kept on the disk
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn cache_as(self, name: impl Into<String>) -> Tuner<S, C> {
        Tuner { name: name.into(), cached: true, ..self }
    }

    /// Stores the measurements in this file, as the text of [`Records`], which can be committed
    /// with the source.
    ///
    /// A search measures nothing if the file has a record of the same name, device, driver, version
    /// of this crate, kernels and configurations.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let path = std::env::temp_dir().join(format!("cutlet-record-{}.tune", std::process::id()));
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).record(&path);
    /// let first = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// let again = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// assert!(again.origin() == ct::tune::Origin::Record && again.best() == first.best());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn record(self, path: impl Into<PathBuf>) -> Tuner<S, C> {
        Tuner { record: Some(path.into()), ..self }
    }

    /// Reads these records, as [`Tuner::record`] does, and writes none. Suits records that are
    /// compiled in (`include_str!`).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let records = ct::tune::Records::default(); // or of `include_str!`
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).records(records);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.notes()[0], "there is no record of `` for cpu (cpu)");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn records(self, records: Records) -> Tuner<S, C> {
        Tuner { records: Some(records), ..self }
    }

    /// Ignores results of earlier searches, measures again, and replaces these results.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let path = std::env::temp_dir().join(format!("cutlet-afresh-{}.tune", std::process::id()));
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).record(&path).ignore_cache();
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// assert!(!tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.is_cached());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn ignore_cache(self) -> Tuner<S, C> {
        Tuner { afresh: true, ..self }
    }

    /// Sets a function that lists the kernels of a configuration.
    ///
    /// * The kernels are compiled before the search, on all cores.
    /// * Records are valid for these kernels only.
    /// * Configurations are rejected without an execution for these reasons: their threads spill
    ///   registers to memory; not all of their matrix products use tensor cores; their tiles use no
    ///   TMA. Each reason applies only if another configuration is better in this
    ///   respect.
    /// * For launches with grids ([`Kernels::add_with`]), the times are estimated, too.
    ///
    /// The first configuration is always executed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn double(x: ArrayMut<f32, 1>, tile: usize) {
    ///     x.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 2.0);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let mut x = device.full([4096], 0.0f32)?;
    /// let launch = |tile: usize| ct::Launch::new(4096 / tile);
    /// let tuned = ct::Tuner::new()
    ///     .bench(ct::Bench::new().runs(3))
    ///     .kernels(move |x: &mut ct::DeviceArray<f32, 1>, &tile: &usize, kernels| {
    ///         kernels.add_with(&launch(tile), double, (x, ct::Constant(tile)))
    ///     })
    ///     .run(device, &mut x, [256, 512], |x, &tile| launch(tile).launch(double, (x, ct::Constant(tile))))?;
    /// assert!(tuned.left_out().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn kernels(self, kernels: impl Fn(&mut S, &C, Kernels) -> Kernels + 'static) -> Tuner<S, C> {
        Tuner { kernels: Some(Box::new(kernels)), ..self }
    }

    /// Sets the maximum number of trials after the first configuration.
    ///
    /// The configurations with the least estimated time are tried ([`Tuner::kernels`]). The
    /// estimate uses the work, the rates of the device, and the utilization of the last wave of
    /// tile blocks.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).max_trials(12);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.successes().len(), 2); // without kernels nothing is estimated
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn max_trials(self, count: usize) -> Tuner<S, C> {
        Tuner { most: Some(count), ..self }
    }

    /// Compares the result of every configuration with that of the first one that succeeds.
    ///
    /// `result` reads numbers after one execution. They may differ by `tolerance`, multiplied by
    /// the number if that is above 1. A configuration with a larger difference is a failure.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let tuner = ct::Tuner::new()
    ///     .bench(ct::Bench::new().runs(1))
    ///     .restore(|x: &mut f64| Ok(*x = 0.0))
    ///     .check(|x| Ok(vec![*x]), 1e-6);
    /// let tuned = tuner.run(ct::Device::cpu(), &mut 0.0, [1, 2], |x, &n| Ok(*x = if n == 1 { 5.0 } else { 6.0 }))?;
    /// assert_eq!(tuned.successes().len(), 1);
    /// assert!(tuned.failures()[0].1.to_string().contains("number 0 of the result is 6, that of `1` is 5"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn check(self, result: impl Fn(&S) -> Result<Vec<f64>> + 'static, tolerance: f64) -> Tuner<S, C> {
        Tuner { check: Some((Box::new(result), tolerance)), ..self }
    }

    /// Sets a function that is called with the result of each configuration.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().runs(1)).on_progress(|step| println!("{step}"));
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?; // 1 of 2: 1: runs …
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn on_progress(self, tell: impl Fn(&TuneStep<'_, C>) + 'static) -> Tuner<S, C> {
        Tuner { tell: Some(Box::new(tell)), ..self }
    }

    /// Restores the state that the work has changed.
    pub(super) fn restored(&self, sets: &mut Sets<'_, S>) -> Result<()> {
        sets.restore(self.copies.as_ref(), |state| self.restore.as_ref().map_or(Ok(()), |restore| restore(state)))
    }

    /// Restores the state of the caller. If the work used copies, that state is unchanged.
    pub(super) fn left_restored(&self, sets: &mut Sets<'_, S>) -> Result<()> {
        if sets.has_copies() { Ok(()) } else { self.restored(sets) }
    }
}

impl<S: Scratch, C> Tuner<S, C> {
    /// Executes the work on copies that are allocated for the search.
    ///
    /// The arrays of the program keep their contents and need not be restored. On a GPU the number
    /// of copies is large enough that the L2 cache holds none of them at its next use
    /// ([`Bench::cold_sets`]).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn add(x: ArrayMut<i32, 1>, tile: usize) {
    ///     x.store(ct::bid(0), x.load(ct::bid(0), [tile]) + 1);
    /// }
    ///
    /// let mut x = ct::Device::cpu().full([1000], 5)?;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().runs(3)).scratch();
    /// tuner.run(ct::Device::cpu(), &mut x, [64usize, 128], |x, &tile| {
    ///     ct::launch(add, 1000usize.div_ceil(tile), (x, ct::Constant(tile)))
    /// })?;
    /// assert_eq!(x.to_vec()?, [5; 1000]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn scratch(self) -> Tuner<S, C> {
        Tuner { copies: Some(Copies::new()), ..self }
    }
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Shows the progress on standard error, if that is a terminal: a status line that is
    /// overwritten, and the result of each configuration. A result is the measurement, the error,
    /// or the reason of the rejection.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).show_progress();
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn show_progress(self) -> Tuner<S, C> {
        Tuner { line: Line::of_stderr(), ..self }
    }

    /// Shows the current activity in the progress line.
    pub(super) fn doing(&self, done: usize, total: usize, what: &str) {
        if let Some(line) = &self.line {
            let name = if self.name.is_empty() { "tuning" } else { &self.name };
            line.now(&format!("{name}: {done} of {total}: {what}"));
        }
    }

    /// Clears the progress line.
    pub(super) fn done(&self) {
        if let Some(line) = &self.line {
            line.clear();
        }
    }

    pub(super) fn tell(&self, done: usize, total: usize, configuration: &C, outcome: Outcome<'_>) {
        let step = TuneStep { done, total, configuration, outcome };
        if let Some(tell) = &self.tell {
            tell(&step);
        }
        if let Some(line) = &self.line
            && !matches!(step.outcome, Outcome::Runs)
        {
            line.stay(&step.to_string());
        }
    }
}
