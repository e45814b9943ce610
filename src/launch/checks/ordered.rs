//! Check of races in kernels whose tile blocks order themselves by locks and flags: the host
//! follows the log of a launch by vector clocks ([`RaceDetector`]).
//!
//! Large arrays are sampled: a hash of the address selects the logged elements. So a report is a
//! race, and a race of elements outside of the sample is missed.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::ShadowMemory;
use crate::backend::cpu::{BlockClock, RaceDetector};
use crate::backend::{ParamWord, cpu};
use crate::error::{Diagnostic, Error, Location, Result};
use crate::ir::recording::{AccessClass, Event, LOG_CAPACITY, LOG_HEADER, Logged, Recording, SITE_BITS};
use crate::ir::{Loc, Module};
use crate::kernel::AnyArgs;
use crate::runtime::{Device, DeviceArray};

/// Number of elements that a log has at most, approximately.
const SAMPLED: u64 = 1 << 14;

/// Bytes of an element for the size of the sample, on average.
const MEAN_BYTES: u64 = 4;

/// Check of a compiled kernel.
pub(crate) struct LogCheck {
    logged: Logged,
    /// Recorded ops, by number.
    sites: Vec<Site>,
}

struct Site {
    loc: Loc,
    location: Option<Location>,
    class: AccessClass,
    bytes: u64,
}

/// Log of one launch.
pub(crate) struct Log {
    words: DeviceArray<i64, 1>,
}

impl Log {
    pub fn shadow(&self) -> ShadowMemory<'_> {
        ShadowMemory { memory: &self.words.memory, word: self.words.memory.address() }
    }
}

/// Tile block during the analysis.
struct Block {
    clock: BlockClock,
    /// Number of changes of the clock: accesses and times of other blocks.
    changes: u64,
    /// By place: the number of changes at the last release.
    released: FxHashMap<u64, u64>,
    /// By place: the version at the last acquire.
    acquired: FxHashMap<u64, u64>,
}

impl LogCheck {
    pub fn new(module: &Module, recording: &Recording, logged: &Logged) -> LogCheck {
        let sites = recording.sites.iter().map(|site| Site {
            loc: site.loc,
            location: module.location(site.loc).cloned(),
            class: site.class,
            bytes: site.bytes,
        });
        LogCheck { logged: logged.clone(), sites: sites.collect_vec() }
    }

    /// Allocates the log of a launch with these parameter words.
    ///
    /// # Errors
    /// Errors of the allocation.
    #[track_caller]
    pub fn begin(&self, device: Device, words: &[ParamWord], args: &dyn AnyArgs) -> Result<Log> {
        let mut bytes = 0;
        args.memory(&mut |used| {
            let (start, len) = (used.memory().address(), used.memory().len() as u64);
            let is_logged = |&param: &usize| words[param].wrapping_sub(start) < len;
            if self.logged.addresses || self.logged.params.iter().any(is_logged) {
                bytes += len;
            }
        });
        let sampled = (bytes / MEAN_BYTES).div_ceil(SAMPLED).max(1).next_power_of_two() - 1;
        let mut words = device.zeros([(LOG_HEADER + 2 * LOG_CAPACITY) as usize])?;
        words.slice_mut(0, 1..2)?.copy_from(&[sampled as i64])?;
        Ok(Log { words })
    }

    /// Waits for the launch and returns its first race as an error.
    ///
    /// # Errors
    /// [`Error::Execution`] for a race; errors of the launch.
    #[track_caller]
    pub fn analyse(&self, log: &Log, grid: [u32; 3], args: &dyn AnyArgs) -> Result<()> {
        let words = |first: u64, count: u64| -> Result<Vec<i64>> {
            let mut bytes = vec![0; 8 * count as usize];
            log.words.memory.read(8 * first as usize, &mut bytes)?;
            let word = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            Ok(bytes.chunks_exact(8).map(word).collect_vec())
        };
        let count = (words(0, 1)?[0] as u64).min(LOG_CAPACITY);
        let events = words(LOG_HEADER, 2 * count)?;
        let detector = RaceDetector::new(true);
        let (mut blocks, mut versions) = (FxHashMap::default(), FxHashMap::<u64, u64>::default());
        for event in events.chunks_exact(2) {
            let ((kind, place), key) = (Event::of(event[0]), event[1]);
            let number = (key >> SITE_BITS) - 1;
            let Some(site) = self.sites.get((key & ((1 << SITE_BITS) - 1)) as usize).filter(|_| number >= 0) else {
                continue;
            };
            let block = blocks.entry(number).or_insert_with(|| Block::new(number as u64, grid));
            match kind {
                Event::Access => {
                    let access = block.clock.access(site.loc, site.class.atomic, site.class.writes);
                    block.changes += 1;
                    if let Err((_, other)) = detector.record([place].into_iter(), access, &block.clock) {
                        return Err(self.explain(site, (place, access.block), other, args));
                    }
                }
                Event::Release if block.released.get(&place) != Some(&block.changes) => {
                    let version = versions.entry(place).or_insert(0);
                    let is_current = block.acquired.get(&place) == Some(version);
                    *version += u64::from(detector.release([place].into_iter(), &mut block.clock));
                    if is_current {
                        block.acquired.insert(place, *version);
                    }
                    block.released.insert(place, block.changes);
                }
                Event::Acquire => {
                    let version = versions.get(&place).copied().unwrap_or(0);
                    if block.acquired.insert(place, version) != Some(version) {
                        block.changes += u64::from(detector.acquire([place].into_iter(), &mut block.clock));
                    }
                }
                Event::Release => {}
            }
        }
        Ok(())
    }

    /// Returns the error of a race at an address.
    fn explain(
        &self,
        site: &Site,
        (place, block): (u64, [u32; 3]),
        other: cpu::RaceAccess,
        args: &dyn AnyArgs,
    ) -> Error {
        let mut element = format!("the {} bytes at address {place:#x}", site.bytes);
        args.memory(&mut |used| {
            let (offset, len) = (place.wrapping_sub(used.memory().address()), used.memory().len() as u64);
            if offset < len {
                element = format!("element {} of an array of {}", offset / site.bytes, len / site.bytes);
            }
        });
        let name = |[x, y, z]: [u32; 3]| format!("tile block ({x}, {y}, {z})");
        let at = self.sites.iter().find(|site| site.loc == other.loc).and_then(|site| site.location.as_ref());
        let at = at.map_or_else(|| "?".to_owned(), |location| location.to_string());
        let message = cpu::race_message(site.class.writes, &element, &name(other.block), (other.writes, &at));
        let error = Diagnostic::new(message, site.location.clone());
        Error::Execution(error.note(format!("in {}", name(block))))
    }
}

impl Block {
    fn new(number: u64, [width, height, depth]: [u32; 3]) -> Block {
        let (x, y) = (u64::from(width), u64::from(height));
        let at = [number % x, number / x % y, number / x / y].map(|at| at as u32);
        Block {
            clock: BlockClock::new(at, [width, height, depth]),
            changes: 0,
            released: FxHashMap::default(),
            acquired: FxHashMap::default(),
        }
    }
}
