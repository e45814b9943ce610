//! Red zones, poison, and records of written elements: arrays that are allocated while the check
//! `memory` or `unwritten` is on.
//!
//! * Such an allocation has a zone of [`ZONE`] bytes before and after it, filled with a pattern. A
//!   launch compares the zones of its arrays afterwards ([`Memory::take_damage`]).
//! * The elements of `Device::unspecified` have the same pattern.
//!
//! The pattern repeats the 16 bits `0x7FFF`, which is a NaN in every signed format of floats with 8
//! to 64 bits. As integers, the elements are large: an index made of them is outside of its array.
//!
//! A record has a byte for each element of `Device::unspecified`, which is not 0 after the first
//! write ([`WriteRecord`]). Copies and fills of the host set it, and kernels with the check. A
//! kernel without the check sets it for all elements of the arrays that it may write.

use crate::util::collect::CollectVec as _;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::memory::{Memory, WriteRecord};
use super::stream_order::Access;
use crate::backend::cpu::Checks;
use crate::error::Result;
use crate::util::task::Scoped;

/// Bytes of a zone: a multiple of the alignment of allocations.
pub(crate) const ZONE: usize = 4096;

/// Bytes of the pattern at even and at odd addresses.
const PATTERN: [u8; 2] = [0xFF, 0x7F];

/// True after the first allocation with zones.
static ANY: AtomicBool = AtomicBool::new(false);

/// True after the first allocation with a record of its written elements.
static ANY_RECORD: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SELECTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if an array of this process has zones.
#[inline]
pub(crate) fn are_in_use() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Returns the checks of the environment.
fn from_env() -> Checks {
    static FROM_ENV: OnceLock<Checks> = OnceLock::new();
    // A launch reports names that are no checks.
    *FROM_ENV.get_or_init(|| std::env::var("CUTLET_CHECK").unwrap_or_default().parse().unwrap_or_default())
}

/// Returns true if an array of this process has a record of its written elements.
#[inline]
pub(crate) fn write_records_are_in_use() -> bool {
    ANY_RECORD.load(Ordering::Relaxed)
}

/// Returns the bytes of the zones of a new allocation: 0 without the check.
pub(super) fn of_new() -> usize {
    if !SELECTED.get() && !from_env().memory {
        return 0;
    }
    ANY.store(true, Ordering::Relaxed);
    ZONE
}

/// Runs a function whose arrays have red zones, poison and a record of their written elements, as
/// with `CUTLET_CHECK=memory,unwritten` ([`Checks::memory`], [`Checks::unwritten`]). The arrays
/// keep them.
///
/// ```
/// use cutlet as ct;
///
/// let poisoned = ct::with_memory_checks(|| ct::Device::cpu().unspecified::<f32, 1>([4]))?;
/// assert!(poisoned.to_vec()?.iter().all(|x| x.is_nan()));
/// # Ok::<(), ct::Error>(())
/// ```
pub fn with_memory_checks<X>(body: impl FnOnce() -> X) -> X {
    let _scoped = Scoped::set(&SELECTED, true);
    body()
}

/// Bytes of a zone that do not have the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Offset of the first one from the begin of the allocation, which may be negative.
    pub first: i64,
    /// Number of changed bytes in both zones.
    pub count: usize,
}

impl Damage {
    /// Returns the description of the changes at an allocation of `bytes` bytes.
    pub fn text(&self, array: &str, bytes: usize) -> String {
        let Damage { first, count } = *self;
        let (distance, side) = match first {
            before if before < 0 => (-before, "before its first byte"),
            behind => (behind - bytes as i64, "behind its last byte"),
        };
        format!(
            "{count} bytes outside of {array}, an allocation of {bytes} bytes: the first one at offset {first}, \
             {distance} bytes {side}"
        )
    }
}

/// Returns the pattern of bytes from an address on.
fn pattern_at(address: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| PATTERN[(address as usize + i) & 1]).collect_vec()
}

impl Memory {
    /// Fills the zones of a new allocation with the pattern, and its bytes if `poison` is true.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if earlier work on the device failed.
    pub(super) fn guard(&mut self, poison: bool) -> Result<()> {
        for start in self.zones() {
            // SAFETY: a zone of this allocation.
            unsafe { self.write_at(start, &pattern_at(start, ZONE), Access::Write) }?;
        }
        if !poison || self.zones().next().is_none() {
            return Ok(());
        }
        if self.len().is_multiple_of(PATTERN.len()) {
            return self.fill(&PATTERN);
        }
        // SAFETY: the bytes of this allocation, which is borrowed uniquely.
        unsafe { self.write_at(self.address(), &pattern_at(self.address(), self.len()), Access::Write) }
    }

    /// Returns the changes of the zones, and restores the pattern; `None` if there are none. Waits
    /// for the work that uses the memory.
    ///
    /// # Errors
    /// Errors of that work.
    pub(crate) fn take_damage(&self) -> Result<Option<Damage>> {
        let mut damage: Option<Damage> = None;
        for start in self.zones() {
            let (mut found, pattern) = (vec![0; ZONE], pattern_at(start, ZONE));
            // SAFETY: a zone of this allocation.
            unsafe { self.read_at(start, &mut found) }?;
            let changed = || (0..ZONE).filter(|&i| found[i] != pattern[i]);
            if let Some(first) = changed().next() {
                let first = (start + first as u64).wrapping_sub(self.address()) as i64;
                let all = damage.get_or_insert(Damage { first, count: 0 });
                all.count += changed().count();
                // SAFETY: a zone of this allocation, which no kernel may use.
                unsafe { self.write_at(start, &pattern, Access::Write) }?;
            }
        }
        Ok(damage)
    }

    /// Writes bytes at an offset, as a kernel may that violates an assumption.
    ///
    /// # Safety
    /// The bytes are in the zones.
    #[cfg(test)]
    pub(crate) unsafe fn damage(&self, offset: i64, bytes: &[u8]) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.write_at(self.address().wrapping_add_signed(offset), bytes, Access::Write) }
    }
}

impl Memory {
    /// Adds a record, in which no element is written, to a new allocation of elements of `unit`
    /// bytes, if the check is selected.
    ///
    /// # Errors
    /// Errors of the allocation.
    #[track_caller]
    pub(super) fn record_writes(&mut self, unit: usize) -> Result<()> {
        let is_selected = SELECTED.get() || from_env().unwritten;
        if !is_selected || unit == 0 || self.is_empty() {
            return Ok(());
        }
        ANY_RECORD.store(true, Ordering::Relaxed);
        let mut bytes = Memory::alloc(self.device(), self.len().div_ceil(unit), 0)?;
        bytes.clear()?;
        let (complete, exposed) = (AtomicBool::new(false), AtomicBool::new(false));
        self.record = Some(WriteRecord { bytes: Arc::new(bytes), unit: unit as u64, complete, exposed });
        Ok(())
    }
}
