//! A search for the configuration that is fastest: tile extents, hints, whatever a launch takes.

use std::fmt;

use crate::cache::disk::{ContentKey, DiskCache};
use crate::error::{Error, Result};
use crate::runtime::{Bench, Device, Times};

type Keep<C> = Box<dyn Fn(&C) -> bool>;
/// The configuration to be tried next, with its number.
type Next<'a, C> = dyn FnMut(&Trials<C>) -> Option<(u64, C)> + 'a;
type Restore<S> = Box<dyn Fn(&mut S) -> Result<()>>;

/// A search among configurations `C` for work on a state `S`, which is what the work changes: arrays, mostly.
///
/// Each configuration is run as a [`Bench`] says. One that fails, because its tiles are illegal, too large for the
/// device or anything else, is kept apart with its error, and the search goes on.
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
    name: Option<String>,
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
        Tuner { bench: Bench::new(), keep: Vec::new(), restore: None, name: None }
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

    /// Done before each configuration is tried and when the search is over, and not measured: brings back what the work
    /// changes. Between the runs of one configuration it is not done.
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

    /// Keeps the winner on the disk, beside compiled kernels: another search of this name for the same device and the
    /// same configurations takes it from there, and tries nothing. The name says what else the answer depends on, such
    /// as the kernel and the extents of its arrays.
    ///
    /// ```
    /// use cutlet as ct;
    /// let tuner = || ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).remember("an example, n = 5");
    /// let first = tuner().run(ct::Device::cpu(), &mut 0, [1, 2], |x, n| Ok(*x += n))?;
    /// let second = tuner().run(ct::Device::cpu(), &mut 0, [1, 2], |x, n| Ok(*x += n))?;
    /// assert_eq!(first.best(), second.best()); // of the second one nothing was tried, if the cache is on
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn remember(self, name: impl Into<String>) -> Tuner<S, C> {
        Tuner { name: Some(name.into()), ..self }
    }
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Tries all configurations.
    ///
    /// `work` queues the work on the default stream of the device.
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no configuration, the error of the first one where all fail, and what
    /// restoring answers.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut seen = Vec::new();
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// tuner.run(ct::Device::cpu(), &mut seen, [64usize, 128], |seen, &tile| Ok(seen.push(tile)))?;
    /// assert_eq!(seen, [64, 128]);
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
        let mut all: Vec<C> = configurations.into_iter().filter(|c| self.keep.iter().all(|keep| keep(c))).collect();
        let kept = self.name.as_ref().and_then(|name| Some((DiskCache::from_env()?, key(name, device, &all))));
        let winner = kept.as_ref().and_then(|(disk, key)| place(&disk.get(key)?)).filter(|&at| at < all.len());
        if let Some(winner) = winner {
            return Ok(Tuned {
                remembered: Some(all.swap_remove(winner)),
                successes: Vec::new(),
                failures: Vec::new(),
            });
        }
        let mut numbers = 0u64..;
        let mut rest = all.into_iter();
        let tried = self.try_all(device, state, &mut |_: &Trials<C>| Some((numbers.next()?, rest.next()?)), &work)?;
        if let Some((disk, key)) = kept
            && let Some(((number, _), _)) = tried.fastest()
        {
            disk.put(&key, &number.to_le_bytes());
        }
        tried.finish()
    }

    /// Tries the configurations that `next` names, one after another, until it names none: a search of one's own. It sees
    /// what has been measured so far, in the order in which it was tried.
    ///
    /// # Errors
    /// As [`Tuner::run`].
    ///
    /// ```
    /// use cutlet as ct;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// // Twice as large each time, up to 512.
    /// let next = |tried: &[(usize, ct::Times)]| match tried.last() {
    ///     None => Some(64),
    ///     Some((tile, _)) => (*tile < 512).then_some(2 * tile),
    /// };
    /// let tuned = tuner.search(ct::Device::cpu(), &mut (), next, |(), _tile| Ok(()))?;
    /// assert_eq!(tuned.successes().len(), 4);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn search(
        &self,
        device: Device,
        state: &mut S,
        mut next: impl FnMut(&[(C, Times)]) -> Option<C>,
        work: impl Fn(&mut S, &C) -> Result<()>,
    ) -> Result<Tuned<C>>
    where
        C: Clone,
    {
        let mut next = |tried: &Trials<C>| {
            let plain: Vec<(C, Times)> = tried.successes.iter().map(|((_, c), t)| (c.clone(), t.clone())).collect();
            let wanted = std::iter::from_fn(|| next(&plain)).find(|c| self.keep.iter().all(|keep| keep(c)))?;
            Some((0, wanted))
        };
        self.try_all(device, state, &mut next, &work)?.finish()
    }

    fn try_all(
        &self,
        device: Device,
        state: &mut S,
        next: &mut Next<'_, C>,
        work: &dyn Fn(&mut S, &C) -> Result<()>,
    ) -> Result<Trials<C>> {
        let stream = device.default_stream();
        let restore = |state: &mut S| self.restore.as_ref().map_or(Ok(()), |restore| restore(state));
        let mut trials = Trials { successes: Vec::new(), failures: Vec::new() };
        while let Some((number, configuration)) = next(&trials) {
            restore(state)?;
            match self.bench.run(&stream, || work(state, &configuration)) {
                Ok(times) => trials.successes.push(((number, configuration), times)),
                Err(error) => trials.failures.push((configuration, error)),
            }
        }
        restore(state)?;
        Ok(trials)
    }
}

/// What has been tried, with the numbers of the configurations.
struct Trials<C> {
    successes: Vec<((u64, C), Times)>,
    failures: Vec<(C, Error)>,
}

impl<C> Trials<C> {
    fn fastest(&self) -> Option<&((u64, C), Times)> {
        self.successes.iter().min_by_key(|(_, times)| times.median())
    }

    #[track_caller]
    fn finish(mut self) -> Result<Tuned<C>> {
        // Of equally fast ones the first stays in front.
        self.successes.sort_by_key(|(_, times)| times.median());
        let successes: Vec<(C, Times)> = self.successes.into_iter().map(|((_, c), times)| (c, times)).collect();
        if successes.is_empty() {
            let first = self.failures.into_iter().next().map(|(_, error)| error);
            return Err(first.unwrap_or_else(|| Error::argument("there is no configuration to try")));
        }
        Ok(Tuned { remembered: None, successes, failures: self.failures })
    }
}

/// What a search found.
#[derive(Debug)]
pub struct Tuned<C> {
    /// The winner of an earlier search.
    remembered: Option<C>,
    /// The fastest first; not empty where none is remembered.
    successes: Vec<(C, Times)>,
    failures: Vec<(C, Error)>,
}

impl<C> Tuned<C> {
    /// The configuration with the least median.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.best(), &64);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn best(&self) -> &C {
        self.remembered.as_ref().unwrap_or_else(|| &self.successes[0].0)
    }

    /// All that ran, with their times, the fastest first. None, if the winner was remembered.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [64usize, 128], |(), _| Ok(()))?;
    /// assert!(tuned.successes()[0].1.median() <= tuned.successes()[1].1.median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn successes(&self) -> &[(C, Times)] {
        &self.successes
    }

    /// All that failed, and why.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn odd(x: ArrayMut<f32, 1>, tile: usize) {
    ///     x.store(0, ct::zeros([tile]));
    /// }
    ///
    /// let mut x = ct::Device::cpu().zeros([128])?;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut x, [64usize, 1000], |x, &tile| ct::launch(odd, 1, (x, ct::Constant(tile))))?;
    /// assert_eq!(tuned.failures()[0].0, 1000); // no sum of three powers of two
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn failures(&self) -> &[(C, Error)] {
        &self.failures
    }

    /// Was the winner that of an earlier search?
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(!tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.is_remembered());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn is_remembered(&self) -> bool {
        self.remembered.is_some()
    }
}

/// One line for each configuration: its times, or its error.
impl<C: fmt::Debug> fmt::Display for Tuned<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(best) = &self.remembered {
            writeln!(f, "{best:?}: as found earlier")?;
        }
        self.successes.iter().try_for_each(|(c, times)| writeln!(f, "{c:?}: {times}"))?;
        self.failures.iter().try_for_each(|(c, error)| writeln!(f, "{c:?}: {error}"))
    }
}

/// Everything that a remembered answer is good for.
fn key<C: fmt::Debug>(name: &str, device: Device, all: &[C]) -> ContentKey {
    let device = format!("{:?} {:?} {}", device.backend(), device.target(), device.name());
    let texts: Vec<String> = all.iter().map(|c| format!("{c:?}")).collect();
    let version = concat!("tune 1 ", env!("CARGO_PKG_VERSION"));
    let mut parts = vec![version.as_bytes(), name.as_bytes(), device.as_bytes()];
    parts.extend(texts.iter().map(|text| text.as_bytes()));
    ContentKey::of(&parts)
}

/// The number of the winner among the configurations.
fn place(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}
