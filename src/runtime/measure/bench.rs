//! How long work takes on a device: repeated and summarised.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::runtime::device::device::Device;
use crate::runtime::device::spin_kernel::wait;
use crate::runtime::device::stream::Stream;

/// A measurement: runs before it, runs that count, and how often the work is done in each.
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([100_000], 1.0f32)?, device.zeros([100_000])?);
/// let times = ct::Bench::new().warm_up(2).runs(5).run(&device.default_stream(), || {
///     ct::launch(double, 98, (&x, &mut y))
/// })?;
/// assert!(times.min() <= times.median() && times.median() <= times.max());
/// println!("{times}"); // 123.4 us (118.0 to 140.2 us in 5 runs)
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    warm_up: usize,
    runs: usize,
    repeats: usize,
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new()
    }
}

impl Bench {
    /// Three runs that do not count, and twenty that do, of one piece of work each.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert_eq!(times.all().len(), 20);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Bench {
        Bench { warm_up: 3, runs: 20, repeats: 1 }
    }

    /// So many runs before those that count: they compile, fill caches, and wake the device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut runs = 0;
    /// ct::Bench::new().warm_up(2).runs(1).run(&ct::Device::cpu().default_stream(), || Ok(runs += 1))?;
    /// assert_eq!(runs, 3);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn warm_up(self, runs: usize) -> Bench {
        Bench { warm_up: runs, ..self }
    }

    /// So many runs count.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(5).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert_eq!(times.all().len(), 5);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn runs(self, runs: usize) -> Bench {
        Bench { runs, ..self }
    }

    /// The work is done so often in each run, and the time divided by that: for work of few microseconds, which is not
    /// much more than the resolution of a GPU's clock and the time between two launches.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut runs = 0;
    /// ct::Bench::new().warm_up(0).runs(2).repeats(10).run(&ct::Device::cpu().default_stream(), || Ok(runs += 1))?;
    /// assert_eq!(runs, 20);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn repeats(self, repeats: usize) -> Bench {
        Bench { repeats, ..self }
    }

    /// Measures what `work` queues on this stream, by events in front of it and behind it. On a GPU all of it is queued
    /// behind a kernel that waits, so that the time of the host is not measured.
    ///
    /// # Errors
    /// [`Error::Argument`] for a measurement without runs or work; [`Error::Driver`] and [`Error::Execution`] when it
    /// failed, and what `work` answers.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let mut x = ct::Device::cpu().full([4], 1.0f32)?;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || {
    ///     ct::launch(|x: ArrayMut<f32, 1>| x.store(0, x.load(0, [4]) * 0.5), 1, (&mut x,))
    /// })?;
    /// println!("{times}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn run(self, stream: &Stream, mut work: impl FnMut() -> Result<()>) -> Result<Times> {
        let mut host = self.prepare(stream, &mut work)?;
        Ok(Times::of(self.batch(stream, self.runs, &mut host, &mut work)?))
    }

    /// [`Bench::run`] with several sets of arrays in turn, so that no run finds its own in the caches, where the one
    /// before left them. [`Bench::cold_sets`] says how many that takes.
    ///
    /// # Errors
    /// As [`Bench::run`]; [`Error::Argument`] where there is no set.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let device = ct::Device::cpu();
    /// let count = ct::Bench::cold_sets(device, 4000);
    /// let mut sets = (0..count).map(|_| device.full([1000], 1.0f32)).collect::<ct::Result<Vec<_>>>()?;
    /// let times = ct::Bench::new().runs(3).run_sets(&device.default_stream(), &mut sets, |x| {
    ///     ct::launch(|x: ArrayMut<f32, 1>| x.store(0, x.load(0, [1024]) * 0.5), 1, (x,))
    /// })?;
    /// println!("{times}");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn run_sets<S>(
        self,
        stream: &Stream,
        sets: &mut [S],
        mut work: impl FnMut(&mut S) -> Result<()>,
    ) -> Result<Times> {
        let count = sets.len();
        if count == 0 {
            return Err(Error::argument("a measurement has at least one set of arrays"));
        }
        let mut next = 0;
        self.run(stream, || {
            next += 1;
            work(&mut sets[(next - 1) % count])
        })
    }

    /// How many sets of arrays of so many bytes together do not stay in the caches of a device when they are used in
    /// turn: those of half a gigabyte, 16 at most; 1 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert_eq!(ct::Bench::cold_sets(ct::Device::cpu(), 1 << 20), 1);
    /// ```
    #[must_use]
    pub fn cold_sets(device: Device, bytes: usize) -> usize {
        match device.as_gpu() {
            None => 1,
            Some(_) => TOUCHED_BYTES.div_ceil(bytes.max(1)).clamp(1, MOST_SETS),
        }
    }

    /// Does the runs that do not count; what the host took for the last of them.
    #[track_caller]
    pub(super) fn prepare(self, stream: &Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        if self.runs == 0 || self.repeats == 0 {
            return Err(Error::argument("a measurement has at least one run, and work in it"));
        }
        let mut host = Duration::ZERO;
        for _ in 0..self.warm_up {
            self.batch(stream, 1, &mut host, work)?;
        }
        stream.synchronize()?;
        Ok(host)
    }

    /// Times of so many runs, in order. `host`: what the host takes to queue one.
    pub(super) fn batch(
        self,
        stream: &Stream,
        runs: usize,
        host: &mut Duration,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Duration>> {
        let divisor = u32::try_from(self.repeats).unwrap_or(u32::MAX);
        let mut all = Vec::with_capacity(runs);
        while all.len() < runs {
            let count = (runs - all.len()).min(MOST_QUEUED);
            if let Some(stream) = stream.as_gpu() {
                wait(stream, (*host * 3 / 2 * count as u32 + LEAST_WAIT).min(LONGEST_WAIT))?;
            }
            let begin = Instant::now();
            let mut run = || {
                let start = stream.record()?;
                (0..self.repeats).try_for_each(|_| work())?;
                Ok((start, stream.record()?))
            };
            let events = (0..count).map(|_| run()).collect::<Result<Vec<_>>>()?;
            *host = begin.elapsed() / count as u32;
            for (start, end) in events {
                all.push(end.since(&start)? / divisor);
            }
        }
        Ok(all)
    }

    pub(crate) fn num_runs(self) -> usize {
        self.runs
    }

    pub(crate) fn num_repeats(self) -> usize {
        self.repeats
    }
}

/// Runs that are queued at a time.
const MOST_QUEUED: usize = 128;
/// The kernel that waits covers what the host needs. Work that waits for the device waits for it, too, and would have it
/// wait longer each time.
const LEAST_WAIT: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// What sets of arrays have together, several times the second-level cache of any GPU.
const TOUCHED_BYTES: usize = 512 << 20;
const MOST_SETS: usize = 16;

/// What a [`Bench`] measured: at least one time. Its `Display` says median, least and most.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
/// println!("{times}: {:?} on average", times.mean());
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    all: Vec<Duration>,
}

impl Times {
    /// At least one.
    pub(crate) fn of(mut all: Vec<Duration>) -> Times {
        all.sort();
        Times { all }
    }

    /// The time that half of the runs did not need: of an even number of runs the mean of the two in the middle.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.median() <= times.max());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn median(&self) -> Duration {
        let middle = self.all.len() / 2;
        if self.all.len() % 2 == 1 { self.all[middle] } else { (self.all[middle - 1] + self.all[middle]) / 2 }
    }

    /// That of the fastest run.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.min() <= times.median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn min(&self) -> Duration {
        self.all[0]
    }

    /// That of the slowest run.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.max() >= times.mean());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn max(&self) -> Duration {
        self.all[self.all.len() - 1]
    }

    /// The mean of all runs.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.mean() >= times.min());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn mean(&self) -> Duration {
        self.all.iter().sum::<Duration>() / u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// Those of all runs, the fastest first.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert_eq!(times.all().len(), 3);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn all(&self) -> &[Duration] {
        &self.all
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (least, most) = (micros(self.min()), micros(self.max()));
        write!(f, "{:.1} us ({least:.1} to {most:.1} us in {} runs)", micros(self.median()), self.all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    fn times(micros: &[u64]) -> Times {
        Times { all: micros.iter().map(|&n| Duration::from_micros(n)).collect() }
    }

    #[test]
    fn summaries() {
        let odd = times(&[1, 2, 9]);
        assert_eq!([odd.min(), odd.median(), odd.max(), odd.mean()].map(|t| t.as_micros()), [1, 2, 9, 4]);
        assert_eq!(times(&[1, 2, 4, 9]).median().as_micros(), 3);
        assert_eq!(odd.to_string(), "2.0 us (1.0 to 9.0 us in 3 runs)");
    }

    #[test]
    fn work_is_done_as_often_as_asked() {
        let stream = Device::cpu().default_stream();
        let mut count = 0;
        let work = || {
            count += 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        let times = Bench::new().warm_up(2).runs(3).repeats(4).run(&stream, work).unwrap();
        assert_eq!((count, times.all().len()), (20, 3));
        assert!(times.min() >= Duration::from_millis(1) && times.all().is_sorted());
        assert!(Bench::new().runs(0).run(&stream, || Ok(())).is_err());
        assert!(Bench::new().run(&stream, || Err(Error::argument("no"))).is_err());
    }
}
