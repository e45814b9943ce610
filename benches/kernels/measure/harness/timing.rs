//! Time of one launch on a device.

use std::time::Duration;

use anyhow::{Result, ensure};
use cutlet::{Backend, Device};

use super::Options;

/// Argument sets that launches take in turn, so that no launch finds its inputs in the cache
/// because the one before read them.
#[derive(Debug)]
pub struct Rotation<S> {
    device: Device,
    sets: Vec<S>,
}

impl<S> Rotation<S> {
    /// As many sets as it takes to touch several times a GPU's cache; one on the cpu device.
    /// `bytes` is what one set occupies.
    pub fn new(device: Device, bytes: usize, mut make: impl FnMut() -> cutlet::Result<S>) -> Result<Rotation<S>> {
        const TOUCHED_BYTES: usize = 512 << 20;
        const MOST: usize = 64;
        let count = match device.backend() {
            Backend::Cpu => 1,
            Backend::Ptx | Backend::TileIr => TOUCHED_BYTES.div_ceil(bytes.max(1)).clamp(1, MOST),
        };
        let sets = (0..count).map(|_| make()).collect::<cutlet::Result<_>>()?;
        Ok(Rotation { device, sets })
    }

    /// A set that every timing has launched with.
    pub fn first(&mut self) -> &mut S {
        &mut self.sets[0]
    }

    /// The median time of a launch on the device's default stream, after a warm-up.
    pub fn time(&mut self, options: &Options, launch: impl Fn(&mut S) -> cutlet::Result<()>) -> Result<Duration> {
        let (warm_up, default) = match self.device.backend() {
            Backend::Cpu => (0, 3),
            Backend::Ptx | Backend::TileIr => (3 + self.sets.len(), 100),
        };
        let iterations = options.iterations.unwrap_or(default);
        ensure!(iterations > 0, "--iterations 0: nothing to time");
        let count = self.sets.len();
        for turn in 0..warm_up {
            launch(&mut self.sets[turn % count])?;
        }
        self.device.synchronize()?;
        let stream = self.device.default_stream();
        let mut marks = Vec::with_capacity(iterations);
        for turn in 0..iterations {
            let start = stream.record()?;
            launch(&mut self.sets[turn % count])?;
            marks.push((start, stream.record()?));
        }
        let times = marks.iter().map(|(start, end)| end.since(start));
        let mut times = times.collect::<cutlet::Result<Vec<_>>>()?;
        times.sort();
        Ok(times[times.len() / 2])
    }
}
