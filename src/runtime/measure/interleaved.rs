//! Interleaved measurement of several implementations of the same work.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::time::Duration;

use super::bench::{Bench, Times};
use crate::error::{Error, Result};
use crate::runtime::device::stream::Stream;

/// An implementation: queues the work on a stream.
type Implementation<'a, S> = &'a dyn Fn(&mut S) -> Result<()>;

/// Maximum number of parts of the measurement of an implementation.
const PARTS: usize = 5;

impl Bench {
    /// Measures several implementations of the same work on a state, mostly arrays. Each
    /// measurement is divided into parts. The parts of the implementations alternate, in ascending
    /// and then in descending order, so that all are measured at the same clocks and temperatures.
    /// The first run of a part is not counted: the caches contain the data of another
    /// implementation.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn double(y: ct::ArrayMut<f32, 1>, tile: usize) {
    ///     y.store(ct::bid(0), y.load(ct::bid(0), [tile]) * 2.0);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let mut y = device.zeros([4096])?;
    /// let with = |tile: usize| move |y: &mut ct::DeviceArray<f32, 1>| ct::launch(double, 4096 / tile, (y, ct::Constant(tile)));
    /// let compared = ct::Bench::new().runs(5).compare(&device.default_stream(), &mut y, &[&with(256), &with(1024)])?;
    /// println!("{compared}");
    /// assert!(compared.ratio(0) == 1.0 && compared.ratio(1) > 0.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bench::run`]; [`Error::Argument`] if there is no implementation.
    #[track_caller]
    pub fn compare<S>(self, stream: &Stream, state: &mut S, ways: &[Implementation<'_, S>]) -> Result<Comparison> {
        if ways.is_empty() {
            return Err(Error::argument("a comparison has at least one way to do the work"));
        }
        let mut hosts = Vec::with_capacity(ways.len());
        for way in ways {
            hosts.push(self.prepare(stream, &mut || way(state))?);
        }
        let parts = self.num_runs().min(PARTS);
        let mut all: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
        let mut medians: Vec<Vec<Duration>> = vec![Vec::new(); ways.len()];
        for part in 0..parts {
            let runs = self.num_runs() * (part + 1) / parts - self.num_runs() * part / parts;
            for place in 0..ways.len() {
                let at = if part % 2 == 0 { place } else { ways.len() - 1 - place };
                let times = self.batch(stream, runs + 1, &mut hosts[at], &mut || ways[at](state))?;
                all[at].extend(&times[1..]);
                medians[at].push(Times::new(times[1..].to_vec()).median());
            }
        }
        let ratio = |of: &Vec<Duration>| {
            let mut ratios: Vec<f64> =
                of.iter().zip(&medians[0]).map(|(time, first)| quotient(*time, *first)).collect_vec();
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        };
        let ratios = medians.iter().map(ratio).collect_vec();
        Ok(Comparison { times: all.into_iter().map(Times::new).collect_vec(), ratios })
    }
}

/// Returns the quotient of two times; 1 if both are too short to be measured.
fn quotient(time: Duration, first: Duration) -> f64 {
    if time == first { 1.0 } else { time.as_secs_f64() / first.as_secs_f64() }
}

/// The result of [`Bench::compare`], in the order of the implementations. Its `Display` has a line
/// for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    times: Vec<Times>,
    ratios: Vec<f64>,
}

impl Comparison {
    /// Returns the times of each implementation.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let compared = ct::Bench::new().runs(3).compare(&ct::Device::cpu().default_stream(), &mut (), &[&|_| Ok(())])?;
    /// assert_eq!(compared.times()[0].all().len(), 3);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn times(&self) -> &[Times] {
        &self.times
    }

    /// Returns the ratio of the times of this implementation and the first one: the median of the
    /// ratios of all parts.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let stream = ct::Device::cpu().default_stream();
    /// let pause = |_: &mut ()| Ok(std::thread::sleep(std::time::Duration::from_millis(2)));
    /// let compared = ct::Bench::new().runs(3).compare(&stream, &mut (), &[&pause, &|_| Ok(())])?;
    /// assert!(compared.ratio(1) < 1.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there are fewer implementations.
    pub fn ratio(&self, way: usize) -> f64 {
        self.ratios[way]
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.times.iter().zip(&self.ratios).enumerate();
        lines.into_iter().try_for_each(|(way, (times, ratio))| writeln!(f, "{way}: {times}, {ratio:.3} of the first"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::runtime::Device;

    #[test]
    fn implementations_alternate() {
        let stream = Device::cpu().default_stream();
        let seen = RefCell::new(String::new());
        let way = |name: char, micros: u64| {
            let seen = &seen;
            move |_: &mut ()| {
                seen.borrow_mut().push(name);
                std::thread::sleep(Duration::from_micros(micros));
                Ok(())
            }
        };
        let (a, b) = (way('a', 4000), way('b', 1000));
        let compared = Bench::new().warm_up(1).runs(3).compare(&stream, &mut (), &[&a, &b]).unwrap();
        assert_eq!(*seen.borrow(), "abaabbbbaaaabb");
        assert_eq!(compared.times().iter().map(|times| times.all().len()).collect::<Vec<_>>(), [3, 3]);
        assert!(compared.ratio(0) == 1.0 && compared.ratio(1) < 0.9, "{compared}");
        assert!(Bench::new().compare(&stream, &mut (), &[]).is_err());
    }
}
