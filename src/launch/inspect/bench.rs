//! Measurement of kernels: times, and their fraction of the roofline.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, refuse_nested};
use crate::launch::grid::IntoGrid;
use crate::launch::options::Launch;
use crate::launch::run::run;
use crate::launch::specialize::specialize;
use crate::pass::Work;
use crate::runtime::{Bench, Times};

/// Measures a kernel: twenty launches on the same arrays, after three warm-up launches.
///
/// On a GPU the times are those of events, queued after a kernel that waits; on the cpu device
/// those of the clock. [`Launch::bench`] has options, and supports arrays that are in no cache.
///
/// ```
/// use cutlet as ct;
///
/// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
/// }
///
/// let device = ct::Device::first()?;
/// let (x, mut y) = (device.full([100_000], 1.0f32)?, device.zeros([100_000])?);
/// let measured = ct::bench(double, 98, (&x, &mut y))?;
/// println!("{measured}"); // double: 123.4 us (118.0 to 140.2 us in 20 runs), 6.5 GB/s
/// assert!(measured.bytes_per_second() > 0.0);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// As [`crate::launch`].
///
/// # Panics
/// As [`crate::launch`].
#[track_caller]
pub fn bench<K, A, P>(kernel: K, grid: impl IntoGrid, args: A) -> Result<Measurement>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Launch::new(grid).bench(Bench::new(), kernel, [args])
}

impl Launch<'_> {
    /// Measures launches of a kernel by a [`Bench`], with several sets of arguments in rotation.
    /// With [`Bench::cold_sets`] sets, no launch finds its arrays in a cache.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn double(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
    /// }
    ///
    /// let (device, n) = (ct::Device::first()?, 100_000);
    /// let make = |_| Ok((device.full([n], 1.0f32)?, device.zeros([n])?));
    /// let mut sets = (0..ct::Bench::cold_sets(device, 8 * n)).map(make).collect::<ct::Result<Vec<_>>>()?;
    /// let arguments = sets.iter_mut().map(|(x, y)| (&*x, y));
    /// let measured = ct::Launch::new(n.div_ceil(1024)).bench(ct::Bench::new().runs(5), double, arguments)?;
    /// assert_eq!(measured.work().bytes(), 8.0 * n as f64);
    /// assert_eq!(measured.times().all().len(), 5);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Launch::launch`]; [`Error::Argument`] also without arguments, executions or tile
    /// blocks.
    ///
    /// # Panics
    /// As [`Launch::launch`].
    #[track_caller]
    pub fn bench<K, A, P>(&self, how: Bench, kernel: K, sets: impl IntoIterator<Item = A>) -> Result<Measurement>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let sets: Vec<Arguments<A, P>> = sets.into_iter().map(Arguments::new).collect_vec();
        let bound: Vec<_> = sets.iter().map(|args| Bound::new(&kernel, args)).collect_vec();
        let calls: Vec<Call<'_>> = bound.iter().map(Bound::call).collect_vec();
        self.measured(how, &calls)
    }

    #[track_caller]
    fn measured(&self, how: Bench, calls: &[Call<'_>]) -> Result<Measurement> {
        let Some(first) = calls.first() else {
            return Err(Error::argument("a measurement has at least one set of arguments"));
        };
        refuse_nested(|| first.name())?;
        let device = self.device(first.args())?;
        let request = self.request(device)?;
        let Some(grid) = self.grid.checked(request.backend)? else {
            return Err(Error::argument("a grid without tile blocks takes no time that could be measured"));
        };
        let checks = self.checks_for(&request)?;
        let own = device.default_stream();
        let stream = self.stream.unwrap_or(&own);
        let mut ready = Vec::with_capacity(calls.len());
        for call in calls {
            if self.device(call.args())? != device {
                return Err(Error::argument("the arguments of a measurement are on several devices"));
            }
            ready.push((specialize(call, device, request, Some(stream))?, call.args()));
        }
        let times = how.run_sets(stream, &mut ready, |(slot, args)| {
            run(slot, Some(stream), grid, request.programmatic_launch, checks, *args)
        })?;
        let work = self.work_over(grid, first)?;
        let least = device.least_time(&work);
        Ok(Measurement { kernel: first.name(), times, work, least })
    }
}

/// Times and rates of a launch, measured by [`bench()`] and [`Launch::bench`]. Rates are those of
/// the median.
///
/// ```
/// # use cutlet::doctest::*;
/// let mut x = ct::Device::cpu().full([4096], 1.0f32)?;
/// let measured = ct::bench(|x: ArrayMut<f32, 1>| x.store(0, x.load(0, [4096]) * 0.5), 1, (&mut x,))?;
/// println!("{measured}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Measurement {
    kernel: String,
    times: Times,
    work: Work,
    least: Option<Duration>,
}

impl Measurement {
    /// Returns the times of the launches.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let measured = ct::bench(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), 1, (&mut x,))?;
    /// assert!(measured.times().min() <= measured.times().median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the work of a launch: a lower bound of its memory traffic and operations.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let measured = ct::bench(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), 1, (&mut x,))?;
    /// assert_eq!(measured.work().written_bytes, 16.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Returns the memory throughput in bytes per second. Each array is counted once for reading
    /// and once for writing.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let measured = ct::bench(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), 1, (&mut x,))?;
    /// assert!(measured.bytes_per_second() > 0.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn bytes_per_second(&self) -> f64 {
        self.work.bytes() / self.times.median().as_secs_f64()
    }

    /// Returns the floating-point (or integer) operations of matrix products per second. For a
    /// kernel without matrix products: elementwise operations per second.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let measured = ct::bench(|x: ArrayMut<f32, 1>| x.store(0, x.load(0, [4]) * 2.0), 1, (&mut x,))?;
    /// assert!(measured.flops_per_second() > 0.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn flops_per_second(&self) -> f64 {
        self.flops() / self.times.median().as_secs_f64()
    }

    /// Returns the least time of the device for this work
    /// ([`Device::least_time`](crate::Device::least_time)), divided by the measured time; `None` on
    /// the cpu device.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// let measured = ct::bench(|x: ArrayMut<i32, 1>| x.store(0, ct::ones([4])), 1, (&mut x,))?;
    /// assert_eq!(measured.fraction_of_roofline(), None);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn fraction_of_roofline(&self) -> Option<f64> {
        self.least.map(|least| least.as_secs_f64() / self.times.median().as_secs_f64())
    }

    fn flops(&self) -> f64 {
        let products = self.work.product_flops();
        if products > 0.0 { products } else { self.work.elementwise }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guess = if self.work.is_guess { "about " } else { "" };
        let rate = self.bytes_per_second() / 1e9;
        let digits = if rate < 1.0 { 3 } else { 1 };
        write!(f, "{}: {}, {guess}{rate:.digits$} GB/s", self.kernel, self.times)?;
        if self.work.product_flops() > 0.0 {
            write!(f, ", {guess}{:.3} TFLOP/s", self.flops_per_second() / 1e12)?;
        }
        match self.fraction_of_roofline() {
            Some(fraction) => write!(f, ", {guess}{fraction:.2} of the roofline"),
            None => Ok(()),
        }
    }
}
