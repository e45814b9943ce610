//! GPU time, measured by the clock of the device, in [criterion](https://docs.rs/criterion): its warm-up, its statistics, and its
//! comparison with the last run, for kernels of cutlet.
//!
//! criterion's own clock is that of the host, for which a launch is over when it is queued.
//! [`DeviceTime`] is a `Measurement` in its place, from an event before the iterations to one after
//! them. [`device_time`] is for `iter_custom`, and queues the iterations after a kernel that waits.
//! Kernels of few microseconds are then measured without the time between two launches.
//!
//! ```
//! use criterion::Criterion;
//! use cutlet as ct;
//! use cutlet::prelude::*;
//! use cutlet_criterion::{DeviceTime, device_time};
//!
//! fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
//!     y.store(ct::bid(0), x.load(ct::bid(0), [256]) * 2.0);
//! }
//!
//! let device = ct::Device::cpu(); // or `ct::Device::first()?`
//! let stream = device.default_stream();
//! let (x, mut y) = (device.full([1000], 1.5f32)?, device.zeros([1000])?);
//! let mut criterion = Criterion::default().with_measurement(DeviceTime::new(&stream)).sample_size(10).without_plots();
//! # criterion = criterion.warm_up_time(std::time::Duration::from_millis(5)).measurement_time(std::time::Duration::from_millis(50));
//! criterion.bench_function("double", |b| b.iter(|| ct::launch(double, 4, (&x, &mut y)).unwrap()));
//! criterion.bench_function("double, queued at once", |b| {
//!     b.iter_custom(|count| device_time(&stream, count, || ct::launch(double, 4, (&x, &mut y))).unwrap())
//! });
//! # Ok::<(), ct::Error>(())
//! ```

use std::time::Duration;

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use cutlet as ct;

/// The time between two points of a stream, by the clock of its device; on the cpu device by that
/// of the host.
///
/// criterion takes no errors: where the device fails, it panics with the error.
#[derive(Debug)]
pub struct DeviceTime {
    stream: ct::Stream,
    formatter: Formatter,
}

impl DeviceTime {
    /// That of a stream on which all work is queued.
    #[must_use]
    pub fn new(stream: &ct::Stream) -> DeviceTime {
        DeviceTime { stream: stream.clone(), formatter: Formatter }
    }

    fn now(&self) -> ct::Event {
        self.stream.record().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Measurement for DeviceTime {
    type Intermediate = ct::Event;
    type Value = Duration;

    fn start(&self) -> ct::Event {
        self.now()
    }

    fn end(&self, start: ct::Event) -> Duration {
        self.now().since(&start).unwrap_or_else(|error| panic!("{error}"))
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &self.formatter
    }
}

/// As criterion writes the time of the host.
#[derive(Debug)]
struct Formatter;

impl ValueFormatter for Formatter {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }

    fn scale_throughputs(&self, typical: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_throughputs(typical, throughput, values)
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}

/// Returns the time of this many iterations on the device, for `iter_custom`. All of it is queued
/// on this stream, after a kernel that waits.
///
/// # Errors
/// Those of the work, and [`ct::Error::Driver`] where the device fails.
pub fn device_time(stream: &ct::Stream, count: u64, work: impl FnMut() -> ct::Result<()>) -> ct::Result<Duration> {
    let runs = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(ct::Bench::new().warm_up(1).runs(runs).run(stream, work)?.all().iter().sum())
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
