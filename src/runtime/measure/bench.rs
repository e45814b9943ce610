//! Measurement of the time of work on a device: repetition and summary.

use crate::util::collect::CollectVec as _;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::runtime::device::device::Device;
use crate::runtime::device::spin_kernel::wait;
use crate::runtime::device::stream::Stream;
use crate::util::sort;

/// The parameters of a measurement: warm-up runs, measured runs, and repetitions of the work in
/// each run.
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
    /// Returns a measurement with three warm-up runs and twenty measured runs, of one repetition
    /// each.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert_eq!(times.all().len(), 20);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Bench {
        Bench { warm_up: 3, runs: 20, repeats: 1 }
    }

    /// Sets the number of runs before the measured ones. They compile, fill caches, and raise the
    /// clocks of the device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut runs = 0;
    /// ct::Bench::new().warm_up(2).runs(1).run(&ct::Device::cpu().default_stream(), || Ok(runs += 1))?;
    /// assert_eq!(runs, 3);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn warm_up(self, runs: usize) -> Bench {
        Bench { warm_up: runs, ..self }
    }

    /// Sets the number of measured runs.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().runs(5).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert_eq!(times.all().len(), 5);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn runs(self, runs: usize) -> Bench {
        Bench { runs, ..self }
    }

    /// Sets the number of repetitions of the work in each run, by which the time is divided. For
    /// work of few microseconds, which is close to the resolution of a GPU's clock and to the time
    /// between two launches.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut runs = 0;
    /// ct::Bench::new().warm_up(0).runs(2).repeats(10).run(&ct::Device::cpu().default_stream(), || Ok(runs += 1))?;
    /// assert_eq!(runs, 20);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn repeats(self, repeats: usize) -> Bench {
        Bench { repeats, ..self }
    }

    /// Measures the work that `work` queues on this stream, by events before and after it. On a
    /// GPU, all of it is queued after a kernel that waits, so that the time of the host is not
    /// measured.
    ///
    /// # Errors
    /// [`Error::Argument`] for a measurement without runs or repetitions; [`Error::Driver`] and
    /// [`Error::Execution`] if the work failed; errors of `work`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
        Ok(Times::new(self.batch(stream, self.runs, &mut host, &mut work)?))
    }

    /// Measures as [`Bench::run`], with several sets of arrays in rotation. No run then finds its
    /// arrays in the caches, where its predecessor left them. [`Bench::cold_sets`] returns the
    /// required number of sets.
    ///
    /// # Errors
    /// As [`Bench::run`]; [`Error::Argument`] if there is no set.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Returns the number of sets of arrays, of this many bytes each, that exceed the caches of a
    /// device when used in rotation. Together they have half a gigabyte. The number is at most 16,
    /// and 1 on the cpu device.
    ///
    /// ```
    /// # use cutlet as ct;
    /// assert_eq!(ct::Bench::cold_sets(ct::Device::cpu(), 1 << 20), 1);
    /// ```
    #[must_use]
    pub fn cold_sets(device: Device, bytes: usize) -> usize {
        match device.as_gpu() {
            None => 1,
            Some(_) => TOUCHED_BYTES.div_ceil(bytes.max(1)).clamp(1, MAX_SETS),
        }
    }

    /// Executes the warm-up runs and returns the host time of the last one.
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

    /// Returns the times of this many runs, in order. `host`: the time of the host to queue one
    /// run.
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
            let count = (runs - all.len()).min(MAX_QUEUED);
            if let Some(stream) = stream.as_gpu() {
                wait(stream, (*host * 3 / 2 * count as u32 + MIN_WAIT).min(LONGEST_WAIT))?;
            }
            let begin = Instant::now();
            let mut run = || {
                let start = stream.record()?;
                (0..self.repeats).try_for_each(|_| work())?;
                Ok((start, stream.record()?))
            };
            let events = (0..count).map(|_| run()).try_collect_vec()?;
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

/// The maximum number of runs that are queued at a time.
const MAX_QUEUED: usize = 128;
/// The minimum duration of the kernel that waits, which covers the time of the host. Work that
/// waits for the device also waits for this kernel, and would make it longer each time.
const MIN_WAIT: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// The bytes of all sets of arrays: several times the second-level cache of any GPU.
const TOUCHED_BYTES: usize = 512 << 20;
const MAX_SETS: usize = 16;

/// The result of a [`Bench`]: at least one time. Its `Display` shows median, minimum and maximum.
///
/// ```
/// # use cutlet::doctest::*;
/// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
/// println!("{times}: {:?} on average", times.mean());
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    all: Vec<Duration>,
}

impl Times {
    /// Makes the result from at least one time.
    pub(crate) fn new(mut all: Vec<Duration>) -> Times {
        sort::natural(&mut all);
        Times { all }
    }

    /// Returns the median of the times: for an even number of runs, the mean of the two in the
    /// middle.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.median() <= times.max());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn median(&self) -> Duration {
        let middle = self.all.len() / 2;
        if self.all.len() % 2 == 1 { self.all[middle] } else { (self.all[middle - 1] + self.all[middle]) / 2 }
    }

    /// Returns the time of the fastest run.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.min() <= times.median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn min(&self) -> Duration {
        self.all[0]
    }

    /// Returns the time of the slowest run.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.max() >= times.mean());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn max(&self) -> Duration {
        self.all[self.all.len() - 1]
    }

    /// Returns the mean of all runs.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let times = ct::Bench::new().runs(3).run(&ct::Device::cpu().default_stream(), || Ok(()))?;
    /// assert!(times.mean() >= times.min());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn mean(&self) -> Duration {
        self.all.iter().sum::<Duration>() / u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    /// Returns the times of all runs in ascending order.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
    fn work_is_executed_the_requested_number_of_times() {
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
