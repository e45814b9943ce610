//! The search: what it tries, what it leaves out, what it compares, and what it keeps.

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;

use super::ahead::{Describe, compiled, hash_of};
use super::key::{TuneKey, text_of};
use super::prune::{Qualities, reasons};
use super::record::{Record, Records, Trial};
use super::tuned::{Chosen, Origin, Outcome, TuneStep, Tuned};
use super::turns::in_turns;
use crate::cache::disk::{ContentKey, DiskCache};
use crate::error::{Error, Result};
use crate::launch::ahead::Kernels;
use crate::runtime::{Bench, Device, Times};

type Keep<C> = Box<dyn Fn(&C) -> bool>;
type Restore<S> = Box<dyn Fn(&mut S) -> Result<()>>;
type Check<S> = (Box<dyn Fn(&S) -> Result<Vec<f64>>>, f64);
type Tell<C> = Box<dyn Fn(&TuneStep<'_, C>)>;
/// The work of a configuration.
type Work<'a, S, C> = &'a dyn Fn(&mut S, &C) -> Result<()>;

/// Of two that are closer to each other, the first configuration wins, if it is one of them.
const TIE: f64 = 0.01;

/// A search among configurations `C` for work on a state `S`, which is what the work changes: arrays, mostly.
///
/// Each configuration is run once; one that fails, because its tiles are illegal, too large for the
/// device or anything else, is kept apart with its error, and the search goes on. Then they are measured in turn, as a [`Bench`]
/// says, and the two fastest once more. The first configuration is the default: where that says as much, it wins.
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
    bench: Bench,
    keep: Vec<Keep<C>>,
    restore: Option<Restore<S>>,
    name: String,
    /// Is the user's cache asked?
    cached: bool,
    record: Option<PathBuf>,
    records: Option<Records>,
    afresh: bool,
    kernels: Option<Describe<S, C>>,
    most: Option<usize>,
    check: Option<Check<S>>,
    tell: Option<Tell<C>>,
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
    /// A search with the measurement of [`Bench::new`], among all configurations, of which nothing is kept.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
            name: String::new(),
            cached: false,
            record: None,
            records: None,
            afresh: false,
            kernels: None,
            most: None,
            check: None,
            tell: None,
        }
    }

    /// How each configuration is measured.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(7));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [1usize], |(), _| Ok(()))?;
    /// assert_eq!(tuned.successes()[0].1.all().len(), 7);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn bench(self, bench: Bench) -> Tuner<S, C> {
        Tuner { bench, ..self }
    }

    /// Only configurations of which this is true are tried.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).prune(|&tile: &usize| tile > 1);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.best(), &2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn prune(mut self, keep: impl Fn(&C) -> bool + 'static) -> Tuner<S, C> {
        self.keep.push(Box::new(keep));
        self
    }

    /// Done before each part of a configuration's runs and when the search is over, and not measured: brings back what the
    /// work changes. Between the runs of one part it is not done.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// The name of the search, which says what the answer depends on besides the kernels and the device: such as the extents of
    /// arrays.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).name("one or two");
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Tuner<S, C> {
        Tuner { name: name.into(), ..self }
    }

    /// Keeps the winner on the disk, beside compiled kernels: another search of this name for the same device, driver,
    /// kernels ([`Tuner::kernels`]) and configurations takes it from there, and tries nothing. The name says what else the
    /// answer depends on, such as the kernel and the extents of its arrays.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).remember("one or two");
    /// let first = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// let again = tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// assert!(!again.is_remembered() || again.best() == first.best()); // not, where nothing is kept on the disk
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn remember(self, name: impl Into<String>) -> Tuner<S, C> {
        Tuner { name: name.into(), cached: true, ..self }
    }

    /// Keeps what was measured in this file, [`Records`] as text, to be committed beside the source. A search that finds its
    /// record there, of the same name, device, driver, version of this crate, kernels and configurations, tries nothing.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Asks these records, as [`Tuner::record`], and writes none: those that are in the program (`include_str!`).
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let records = ct::tune::Records::default(); // or of `include_str!`
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).records(records);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.notes()[0], "there is no record of `` for cpu (cpu)");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn records(self, records: Records) -> Tuner<S, C> {
        Tuner { records: Some(records), ..self }
    }

    /// Measures also where an earlier search has the answer, and replaces it.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let path = std::env::temp_dir().join(format!("cutlet-afresh-{}.tune", std::process::id()));
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).record(&path).afresh();
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// assert!(!tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.is_remembered());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn afresh(self) -> Tuner<S, C> {
        Tuner { afresh: true, ..self }
    }

    /// Names the kernels of a configuration, so that they are compiled ahead on all cores, records are good for these kernels
    /// alone, and configurations are left out without a run: those whose threads keep registers in memory, and those whose
    /// products do without tensor cores or whose tiles without the copy engine, where others do better. Launches with their grids
    /// ([`Kernels::add_with`]) have their times estimated, too. The first configuration is always run.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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

    /// Runs, besides the first configuration, so many at most: those that are estimated to be the fastest
    /// ([`Tuner::kernels`]; by the work, the rates of the device, and how full the last round of tile blocks is).
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).most(12);
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.successes().len(), 2); // without kernels nothing is estimated
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn most(self, count: usize) -> Tuner<S, C> {
        Tuner { most: Some(count), ..self }
    }

    /// Compares the result of every configuration with that of the first one that runs: the numbers that `result` reads after
    /// one run differ by at most `tolerance`, times the number where that is above 1. Another result is a failure.
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

    /// Is told what becomes of each configuration.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().runs(1)).progress(|step| println!("{step}"));
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?; // 1 of 2: 1: runs …
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn progress(self, tell: impl Fn(&TuneStep<'_, C>) + 'static) -> Tuner<S, C> {
        Tuner { tell: Some(Box::new(tell)), ..self }
    }

    fn tell(&self, done: usize, total: usize, configuration: &C, outcome: Outcome<'_>) {
        if let Some(tell) = &self.tell {
            tell(&TuneStep { done, total, configuration, outcome });
        }
    }

    fn restored(&self, state: &mut S) -> Result<()> {
        self.restore.as_ref().map_or(Ok(()), |restore| restore(state))
    }
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// [`Tuner::progress`] with a line on standard error for each step, if that is a terminal.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).show();
    /// tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn show(self) -> Tuner<S, C> {
        let shown = std::io::stderr().is_terminal();
        self.progress(move |step| {
            if shown {
                eprintln!("{step}");
            }
        })
    }

    /// Finds the fastest configuration: in a record, in the user's cache, or by trying all.
    ///
    /// `work` queues the work on the default stream of the device.
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no configuration, and for a record that cannot be read; the error of the first one where all fail, and what
    /// restoring answers; [`Error::Io`] where the record cannot be written.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut seen = Vec::new();
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// tuner.run(ct::Device::cpu(), &mut seen, [64usize, 128], |seen, &tile| Ok(seen.push(tile)))?;
    /// assert_eq!(seen[..2], [64, 128]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn run(
        &self,
        device: Device,
        state: &mut S,
        configurations: impl IntoIterator<Item = C>,
        work: impl Fn(&mut S, &C) -> Result<()>,
    ) -> Result<Tuned<C>> {
        let mut all = self.kept(configurations)?;
        let key = self.key(device, state, &all)?;
        let (known, notes) = if self.afresh { (None, Vec::new()) } else { self.known(key.as_ref(), &all)? };
        if let Some((at, origin)) = known {
            return Ok(Tuned::known(all.swap_remove(at), origin, notes));
        }
        let texts: Vec<String> = all.iter().map(text_of).collect();
        let tuned = self.tried(device, state, all, notes, &work)?;
        if let Some(key) = key {
            self.keep(key, &texts, &tuned)?;
        }
        Ok(tuned)
    }

    /// A configuration without a measurement: `explicit`, if there is one; else the winner of a record that is good here, else that
    /// of the user's cache; else the one that is estimated to be the fastest, where [`Tuner::most`] wishes for estimates;
    /// else the first one.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let tuner = ct::Tuner::new().name("scale").record("none.tune");
    /// let chosen = tuner.choose(ct::Device::cpu(), &mut (), [64usize, 128], None)?;
    /// assert_eq!((chosen.configuration, chosen.origin), (64, ct::tune::Origin::Default));
    /// assert_eq!(chosen.notes, ["there is no record of `scale` for cpu (cpu)"]);
    /// assert_eq!(tuner.choose(ct::Device::cpu(), &mut (), [64, 128], Some(32))?.origin, ct::tune::Origin::Explicit);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no configuration, and for a record that cannot be read.
    #[track_caller]
    pub fn choose(
        &self,
        device: Device,
        state: &mut S,
        configurations: impl IntoIterator<Item = C>,
        explicit: Option<C>,
    ) -> Result<Chosen<C>> {
        if let Some(configuration) = explicit {
            return Ok(Chosen { configuration, origin: Origin::Explicit, notes: Vec::new() });
        }
        let mut all = self.kept(configurations)?;
        let key = self.key(device, state, &all)?;
        let (known, notes) = self.known(key.as_ref(), &all)?;
        let (at, origin) = known.unwrap_or_else(|| match self.estimated(device, state, &all) {
            Some(at) => (at, Origin::Estimate),
            None => (0, Origin::Default),
        });
        Ok(Chosen { configuration: all.swap_remove(at), origin, notes })
    }

    /// Tries the configurations that `next` names, one after another, until it names none: a search of one's own. It sees
    /// what has been measured so far, in the order in which it was tried. Nothing of it is kept.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let mut rest = [4, 5].into_iter();
    /// let tuned = tuner.search(ct::Device::cpu(), &mut (), |_| rest.next(), |(), _| Ok(()))?;
    /// assert_eq!(tuned.successes().len(), 2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tuner::run`].
    #[track_caller]
    pub fn search(
        &self,
        device: Device,
        state: &mut S,
        next: impl FnMut(&[(C, Times)]) -> Option<C>,
        work: impl Fn(&mut S, &C) -> Result<()>,
    ) -> Result<Tuned<C>> {
        let stream = device.default_stream();
        let mut tuned = self.searched(next, |configuration| {
            self.restored(state)?;
            self.bench.run(&stream, || work(state, configuration))
        });
        self.restored(state)?;
        if tuned.successes.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        tuned.successes.sort_by_key(|(_, times)| times.median());
        Ok(tuned)
    }

    /// [`Tuner::search`] on what a record has instead of a device: how good a search is can be tried anywhere.
    ///
    /// ```
    /// # let text = "# tuning records of cutlet, format 1\n\n[record]\nname \"n\"\ndevice \"NVIDIA H200\"\nbackend \"ptx\"\n\
    /// # target \"sm_90a\"\ndriver \"\"\nversion \"1\"\nkernel \"\"\nspace \"\"\nwinner \"64\"\ntrial \"64\" 10 20\ntrial \"32\" 30\n";
    /// let records = cutlet::tune::Records::parse("scale.tune", text)?; // of an H200
    /// let mut rest = [32, 64, 128].into_iter();
    /// let tuned = cutlet::Tuner::<(), i32>::new().replay(&records.all()[0], |_| rest.next())?;
    /// assert_eq!((tuned.best(), tuned.successes().len(), tuned.failures()[0].0), (&64, 2, 128));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of the first configuration, where the record has times of none.
    #[track_caller]
    pub fn replay(&self, record: &Record, next: impl FnMut(&[(C, Times)]) -> Option<C>) -> Result<Tuned<C>> {
        let mut tuned = self.searched(next, |configuration| {
            let text = text_of(configuration);
            match record.trial(&text) {
                Some(Trial::Times(times)) => Ok(Times::of(times.clone())),
                Some(Trial::Failed(why) | Trial::LeftOut(why)) => Err(Error::argument(why)),
                None => Err(Error::argument(format!("the record has no `{text}`"))),
            }
        });
        if tuned.successes.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        tuned.successes.sort_by_key(|(_, times)| times.median());
        Ok(tuned)
    }

    /// What `next` names, measured one after another.
    fn searched(
        &self,
        mut next: impl FnMut(&[(C, Times)]) -> Option<C>,
        mut measure: impl FnMut(&C) -> Result<Times>,
    ) -> Tuned<C> {
        let mut tuned = Tuned::nothing();
        while let Some(configuration) =
            std::iter::from_fn(|| next(&tuned.successes)).find(|c| self.keep.iter().all(|keep| keep(c)))
        {
            let done = tuned.successes.len() + tuned.failures.len() + 1;
            match measure(&configuration) {
                Ok(times) => {
                    self.tell(done, done, &configuration, Outcome::Measured(&times));
                    tuned.successes.push((configuration, times));
                }
                Err(error) => {
                    self.tell(done, done, &configuration, Outcome::Failed(&error));
                    tuned.failures.push((configuration, error));
                }
            }
        }
        tuned
    }

    #[track_caller]
    fn kept(&self, configurations: impl IntoIterator<Item = C>) -> Result<Vec<C>> {
        let all: Vec<C> = configurations.into_iter().filter(|c| self.keep.iter().all(|keep| keep(c))).collect();
        if all.is_empty() { Err(Error::argument("there is no configuration to try")) } else { Ok(all) }
    }

    /// What an answer is good for; `None` where none is kept.
    fn key(&self, device: Device, state: &mut S, all: &[C]) -> Result<Option<TuneKey>> {
        if !self.cached && self.record.is_none() && self.records.is_none() {
            return Ok(None);
        }
        // Kernels that cannot be traced are told of when they are to run.
        let kernel = self.kernels.as_ref().map(|describe| hash_of(device, state, &all[0], describe));
        let kernel = kernel.and_then(Result::ok).unwrap_or_default();
        TuneKey::of(device, &self.name, &kernel, all).map(Some)
    }

    /// The number of the configuration that an earlier search found; why none did.
    fn known(&self, key: Option<&TuneKey>, all: &[C]) -> Result<(Option<(usize, Origin)>, Vec<String>)> {
        let Some(key) = key else { return Ok((None, Vec::new())) };
        let mut notes = Vec::new();
        let file = self.record.as_ref().map(Records::read).transpose()?;
        for records in self.records.iter().chain(&file) {
            match records.find(key) {
                Ok(record) => match all.iter().position(|c| text_of(c) == record.winner) {
                    Some(at) => return Ok((Some((at, Origin::Record)), notes)),
                    None => notes.push(format!("the winner `{}` of the record is no configuration", record.winner)),
                },
                Err(why) => notes.push(why),
            }
        }
        let cached = self.cached.then(DiskCache::from_env).flatten().and_then(|disk| disk.get(&content_key(key)));
        let at = cached.and_then(|bytes| place(&bytes)).filter(|&at| at < all.len());
        Ok((at.map(|at| (at, Origin::Cache)), notes))
    }

    /// Puts what was found where it is kept.
    fn keep(&self, key: TuneKey, texts: &[String], tuned: &Tuned<C>) -> Result<()> {
        let winner = text_of(tuned.best());
        if let Some(disk) = self.cached.then(DiskCache::from_env).flatten()
            && let Some(at) = texts.iter().position(|text| *text == winner)
        {
            disk.put(&content_key(&key), &(at as u64).to_le_bytes());
        }
        let Some(path) = &self.record else { return Ok(()) };
        let times = tuned.successes.iter().map(|(c, times)| (text_of(c), Trial::Times(times.all().to_vec())));
        let failed = tuned.failures.iter().map(|(c, error)| (text_of(c), Trial::Failed(error.to_string())));
        let left_out = tuned.left_out.iter().map(|(c, why)| (text_of(c), Trial::LeftOut(why.clone())));
        let trials = times.chain(failed).chain(left_out).collect();
        let mut records = Records::read(path)?;
        records.put(Record { key, winner, trials });
        records.write(path)
    }

    /// The configuration that is estimated to be the fastest, if that is wished for and known.
    fn estimated(&self, device: Device, state: &mut S, all: &[C]) -> Option<usize> {
        let describe = self.most.and(self.kernels.as_ref())?;
        let all: Vec<Option<Qualities>> = compiled(device, state, all, describe).into_iter().map(Result::ok).collect();
        let known: Vec<Qualities> = all.iter().map(|q| q.unwrap_or_default()).collect();
        let reasons = reasons(&known, None);
        let estimate = |at: &usize| known[*at].estimate;
        (0..known.len()).filter(|&at| reasons[at].is_none() && estimate(&at).is_some()).min_by_key(estimate)
    }

    /// Tries all configurations.
    #[track_caller]
    fn tried(
        &self,
        device: Device,
        state: &mut S,
        all: Vec<C>,
        notes: Vec<String>,
        work: Work<'_, S, C>,
    ) -> Result<Tuned<C>> {
        let total = all.len();
        let mut tuned = Tuned { notes, ..Tuned::nothing() };
        let mut reasons = self.reasons(device, state, &all);
        let mut reference = None;
        let mut running: Vec<(usize, C)> = Vec::new();
        for (number, configuration) in all.into_iter().enumerate() {
            if let Some(why) = reasons[number].take() {
                self.tell(number + 1, total, &configuration, Outcome::LeftOut(&why));
                tuned.left_out.push((configuration, why));
                continue;
            }
            self.restored(state)?;
            match self.once(device, state, &configuration, &mut reference, work) {
                Ok(()) => {
                    self.tell(number + 1, total, &configuration, Outcome::Runs);
                    running.push((number, configuration));
                }
                Err(error) => {
                    self.tell(number + 1, total, &configuration, Outcome::Failed(&error));
                    tuned.failures.push((configuration, error));
                }
            }
        }
        let measured = self.measured(device, state, running, work, &mut tuned.failures);
        self.restored(state)?;
        let (all, winner) = measured?;
        if all.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        tuned.winner = winner;
        for (done, (number, configuration, times)) in all.into_iter().enumerate() {
            debug_assert!(number < total);
            self.tell(done + 1, total, &configuration, Outcome::Measured(&times));
            tuned.successes.push((configuration, times));
        }
        Ok(tuned)
    }

    /// Why each configuration is not run.
    fn reasons(&self, device: Device, state: &mut S, all: &[C]) -> Vec<Option<String>> {
        let Some(describe) = &self.kernels else { return vec![None; all.len()] };
        let known: Vec<Qualities> =
            compiled(device, state, all, describe).into_iter().map(Result::unwrap_or_default).collect();
        reasons(&known, self.most)
    }

    /// Runs a configuration once, and compares its result with that of the first one.
    #[track_caller]
    fn once(
        &self,
        device: Device,
        state: &mut S,
        configuration: &C,
        reference: &mut Option<(String, Vec<f64>)>,
        work: Work<'_, S, C>,
    ) -> Result<()> {
        work(state, configuration)?;
        device.synchronize()?;
        let Some((result, tolerance)) = &self.check else { return Ok(()) };
        let numbers = result(state)?;
        match reference {
            None => {
                *reference = Some((text_of(configuration), numbers));
                Ok(())
            }
            Some((first, expected)) => same(&numbers, expected, *tolerance, first),
        }
    }

    /// Measures configurations in turn, and the two fastest once more: the fastest first, and the number of the winner among
    /// them.
    fn measured(
        &self,
        device: Device,
        state: &mut S,
        running: Vec<(usize, C)>,
        work: Work<'_, S, C>,
        failures: &mut Vec<(C, Error)>,
    ) -> Result<(Vec<(usize, C, Times)>, usize)> {
        let stream = device.default_stream();
        let restore = |state: &mut S| self.restored(state);
        let measure = |state: &mut S, all: &[&C]| {
            let ways: Vec<_> = all.iter().map(|&c| move |state: &mut S| work(state, c)).collect();
            let ways: Vec<&dyn Fn(&mut S) -> Result<()>> = ways.iter().map(|way| way as _).collect();
            in_turns(self.bench, &stream, state, &ways, &restore)
        };
        let times = measure(state, &running.iter().map(|(_, c)| c).collect::<Vec<_>>())?;
        let mut all = Vec::new();
        for ((number, configuration), times) in running.into_iter().zip(times) {
            match times {
                Ok(times) => all.push((number, configuration, times)),
                Err(error) => failures.push((configuration, error)),
            }
        }
        // Of equally fast ones the first stays in front.
        all.sort_by_key(|(_, _, times)| times.median());
        let [(first, a, _), (second, b, _), ..] = &all[..] else { return Ok((all, 0)) };
        let again = measure(state, &[a, b])?;
        let winner = match &again[..] {
            [Ok(of_first), Ok(of_second)] => {
                let [x, y] = [of_first, of_second].map(|times| times.median().as_secs_f64());
                usize::from(second_wins((*first == 0, x), (*second == 0, y)))
            }
            _ => 0,
        };
        Ok((all, winner))
    }
}

/// Is the second of the two better? Each with its time, and whether it is the default.
fn second_wins((first_is_default, first): (bool, f64), (second_is_default, second): (bool, f64)) -> bool {
    let tie = (first - second).abs() <= TIE * first.max(second);
    if tie && (first_is_default || second_is_default) { second_is_default } else { second < first }
}

/// The error of a search in which nothing runs.
#[track_caller]
fn none_runs<C>(failures: Vec<(C, Error)>) -> Error {
    let first = failures.into_iter().next().map(|(_, error)| error);
    first.unwrap_or_else(|| Error::argument("there is no configuration to try"))
}

/// # Errors
/// The first number that differs.
#[track_caller]
fn same(numbers: &[f64], expected: &[f64], tolerance: f64, first: &str) -> Result<()> {
    if numbers.len() != expected.len() {
        let (here, there) = (numbers.len(), expected.len());
        return Err(Error::argument(format!("the result has {here} numbers, that of `{first}` has {there}")));
    }
    let close = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * y.abs().max(1.0);
    match numbers.iter().zip(expected).position(|(&x, &y)| !close(x, y)) {
        None => Ok(()),
        Some(at) => Err(Error::argument(format!(
            "number {at} of the result is {}, that of `{first}` is {}",
            numbers[at], expected[at]
        ))),
    }
}

fn content_key(key: &TuneKey) -> ContentKey {
    let parts = key.parts();
    let mut all = vec![&b"tune 2"[..]];
    all.extend(parts.iter().map(|(_, value)| value.as_bytes()));
    ContentKey::of(&all)
}

/// The number of the winner among the configurations.
fn place(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_default() {
        assert!(!second_wins((false, 1.0), (false, 1.001)));
        assert!(second_wins((false, 1.001), (false, 1.0)));
        assert!(second_wins((false, 1.0), (true, 1.009)));
        assert!(!second_wins((true, 1.009), (false, 1.0)));
        assert!(second_wins((true, 1.02), (false, 1.0)));
        assert!(!second_wins((false, 1.0), (true, 1.02)));
    }

    #[test]
    fn results_are_compared_number_by_number() {
        assert!(same(&[1.0, f64::NAN, 1000.5], &[1.0, f64::NAN, 1000.0], 1e-3, "a").is_ok());
        assert!(same(&[1.0], &[1.1], 1e-3, "a").is_err() && same(&[f64::NAN], &[0.0], 1.0, "a").is_err());
        assert!(same(&[1.0], &[], 1.0, "a").unwrap_err().to_string().contains("has 1 numbers, that of `a` has 0"));
    }
}
