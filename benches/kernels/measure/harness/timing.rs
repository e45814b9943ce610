//! Time of one launch on a device.

use std::time::Duration;

use anyhow::Result;
use cutlet::{Backend, Bench, Device};

use super::Options;

/// Argument sets that launches use in rotation, so that no launch finds its inputs in the cache
/// because the one before read them.
#[derive(Debug)]
pub struct Rotation<S> {
    device: Device,
    sets: Vec<S>,
}

impl<S> Rotation<S> {
    /// Makes sets that together exceed a GPU's cache several times; one set on the cpu device.
    /// `bytes` is the size of one set.
    pub fn new(device: Device, bytes: usize, mut make: impl FnMut() -> cutlet::Result<S>) -> Result<Rotation<S>> {
        let sets = (0..Bench::cold_sets(device, bytes)).map(|_| make()).collect::<cutlet::Result<_>>()?;
        Ok(Rotation { device, sets })
    }

    /// A set that every timing has launched with.
    pub fn first(&mut self) -> &mut S {
        &mut self.sets[0]
    }

    /// All sets.
    pub fn all(&mut self) -> &mut [S] {
        &mut self.sets
    }

    /// The median time of a launch on the device's default stream, after a warm-up.
    pub fn time(&mut self, options: &Options, launch: impl Fn(&mut S) -> cutlet::Result<()>) -> Result<Duration> {
        let (warm_up, default) = match self.device.backend() {
            Backend::Cpu => (0, 3),
            Backend::Ptx | Backend::TileIr => (3 + self.sets.len(), 100),
        };
        let bench = Bench::new().warm_up(warm_up).runs(options.iterations.unwrap_or(default));
        Ok(bench.run_sets(&self.device.default_stream(), &mut self.sets, launch)?.median())
    }
}
