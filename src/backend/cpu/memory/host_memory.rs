//! Host memory of a launch. Only this file accesses it.
//!
//! Other files treat addresses as numbers. [`Memory::span`] checks a range against the regions of
//! the launch. A [`Span`] then reads and writes words at indices that it checks again. All accesses
//! are relaxed atomics as wide as an element. So a kernel with data races is wrong, but causes no
//! undefined behaviour of this program. On common hosts these atomics cost as much as plain
//! accesses.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::backend::cpu::interp::value::Word;

/// Maximum number of bytes between an address outside of the regions and the region that an error
/// names, if other arrays are permitted, too.
const MAX_DISTANCE: u64 = 1 << 8;

/// Contiguous region of host memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    base: *mut u8,
    bytes: usize,
    writable: bool,
    /// Record of the written elements, and the bytes of an element.
    written: Option<(*mut u8, u64)>,
}

/// Permitted addresses outside of the regions, which a kernel computes from numbers.
#[derive(Clone, Copy, Debug, Default)]
enum Computed {
    #[default]
    None,
    /// Bytes for which the function of address and size returns true.
    Known(fn(u64, u64) -> bool),
    Any,
}

/// Memory that a kernel may access.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    computed: Computed,
}

// SAFETY: regions are only accessed through atomics, and the caller of `Memory::add` guarantees
// that they stay valid.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates memory without regions.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds `bytes` bytes from `base` on. A store to a region that is not `writable` is an error.
    ///
    /// # Safety
    /// While a program runs with this memory, the bytes stay allocated and initialised. No other
    /// code accesses them except by atomics; reads are permitted if the region is not `writable`.
    pub unsafe fn add(&mut self, base: *mut u8, bytes: usize, writable: bool) {
        self.regions.push(Region { base, bytes, writable, written: None });
    }

    /// Adds memory like [`Memory::add`], with a record of its written elements: a byte for each
    /// element of `unit` bytes, which is not 0 after the first write.
    ///
    /// # Safety
    /// That of [`Memory::add`], also for the record, which is writable.
    pub unsafe fn add_recorded(&mut self, (base, bytes): (*mut u8, usize), writable: bool, record: *mut u8, unit: u64) {
        self.regions.push(Region { base, bytes, writable, written: Some((record, unit)) });
    }

    /// Returns the record of the element at an address, its number and the number of elements, if
    /// the region has a record.
    pub(crate) fn written_at(&self, address: u64) -> Option<(Span<'_>, u64, u64)> {
        self.regions.iter().find_map(|region| {
            let ((record, unit), offset) = (region.written?, address.wrapping_sub(region.base as u64));
            let (number, of) = (offset / unit, region.bytes as u64 / unit);
            let span = || Span { start: record.wrapping_add(number as usize), bytes: 1, memory: PhantomData };
            (number < of).then(|| (span(), number, of))
        })
    }

    /// Returns true if a region has a record of its written elements.
    pub(crate) fn has_records(&self) -> bool {
        self.regions.iter().any(|region| region.written.is_some())
    }

    /// Permits accesses to any memory of this process through addresses that the kernel computes
    /// from numbers (`int_to_ptr`) or selects, or that a loop carries. Addresses computed from its
    /// pointer parameters alone must still be in the added memory.
    ///
    /// # Safety
    /// All memory that a program accesses by such addresses, while it runs with this memory, is
    /// allocated and initialised. It is writable if the program writes to it. No other code
    /// accesses it except by atomics.
    pub unsafe fn allow_any(&mut self) {
        self.computed = Computed::Any;
    }

    /// Permits the accesses of [`Memory::allow_any`] to bytes for which `is_known` returns true for
    /// address and size.
    ///
    /// # Safety
    /// That of [`Memory::allow_any`].
    pub unsafe fn allow_known(&mut self, is_known: fn(u64, u64) -> bool) {
        self.computed = Computed::Known(is_known);
    }

    /// Returns the bytes at an address that the kernel computed, if this is permitted. The page at
    /// 0 is excluded.
    pub(crate) fn find_any(&self, address: u64, bytes: u64) -> Option<Span<'_>> {
        const NOBODYS: u64 = 1 << 12;
        let is_permitted = match self.computed {
            Computed::None => false,
            Computed::Known(is_known) => is_known(address, bytes),
            Computed::Any => true,
        };
        if !is_permitted || address < NOBODYS || address.checked_add(bytes).is_none() {
            return None;
        }
        let start = std::ptr::with_exposed_provenance_mut(usize::try_from(address).ok()?);
        Some(Span { start, bytes: usize::try_from(bytes).ok()?, memory: PhantomData })
    }

    /// Returns the bytes at `address`, if one region contains all of them.
    pub(crate) fn find(&self, address: u64, bytes: u64, write: bool) -> Option<Span<'_>> {
        let holds = |region: &&Region| {
            let offset = address.wrapping_sub(region.base as u64);
            offset <= region.bytes as u64 && bytes <= region.bytes as u64 - offset && (region.writable || !write)
        };
        let region = self.regions.iter().find(holds)?;
        let offset = (address - region.base as u64) as usize;
        // `wrapping_add` keeps the provenance of the region and stays inside of it.
        Some(Span { start: region.base.wrapping_add(offset), bytes: bytes as usize, memory: PhantomData })
    }

    #[cfg(any(test, feature = "_suite"))]
    fn writable(&self) -> impl Iterator<Item = Span<'_>> {
        let span = |region: &Region| Span { start: region.base, bytes: region.bytes, memory: PhantomData };
        self.regions.iter().filter(|region| region.writable).map(span)
    }

    /// Returns the contents of all writable regions.
    #[cfg(any(test, feature = "_suite"))]
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        self.writable().map(|span| (0..span.bytes).map(|i| span.load(i)).collect()).collect()
    }

    /// Restores the contents of all writable regions.
    #[cfg(any(test, feature = "_suite"))]
    pub(crate) fn restore(&self, contents: &[Vec<u8>]) {
        for (span, bytes) in self.writable().zip(contents) {
            bytes.iter().enumerate().for_each(|(i, &byte)| span.store(i, byte));
        }
    }

    /// Copies the bytes at an address to `to`.
    ///
    /// # Errors
    /// No region contains all of the bytes.
    #[cfg(any(test, feature = "_suite"))]
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), String> {
        let bytes = to.len() as u64;
        let span = self.find(address, bytes, false).ok_or_else(|| self.explain(address, bytes, false))?;
        to.iter_mut().enumerate().for_each(|(i, byte)| *byte = span.load(i));
        Ok(())
    }

    /// Returns the index of the element at a place in its array, and the number of elements. A
    /// place is twice an address, plus 1 for a high half.
    pub(crate) fn position(&self, place: u64, bytes: usize) -> (u64, u64) {
        let halves = 2 * bytes.max(1) as u64;
        let halves = if bytes == 0 { 1 } else { halves };
        let regions = self.regions.iter();
        let mut own = regions.filter(|region| (place / 2).wrapping_sub(region.base as u64) < region.bytes as u64);
        own.next()
            .map_or((0, 0), |region| ((place - 2 * region.base as u64) / halves, 2 * region.bytes as u64 / halves))
    }

    /// Returns the reason for which [`Memory::find`] found no bytes.
    pub(crate) fn explain(&self, address: u64, bytes: u64, write: bool) -> String {
        if write && self.find(address, bytes, false).is_some() {
            return format!("writes {bytes} bytes of an array that was passed for reading only");
        }
        if !matches!(self.computed, Computed::None) && address == 0 {
            return format!("{} through a null pointer", if write { "writes" } else { "reads" });
        }
        let verb = if write { "out of bounds: writes" } else { "out of bounds: reads" };
        let distance = |r: &Region| {
            let (start, end) = (r.base as u64, r.base as u64 + r.bytes as u64);
            if address < start { start - address } else { address.saturating_sub(end) }
        };
        match self.regions.iter().min_by_key(|region| distance(region)) {
            near if matches!(self.computed, Computed::Known(_)) && near.is_none_or(|r| distance(r) > MAX_DISTANCE) => {
                format!(
                    "{verb} {bytes} bytes at {address:#x}, which is in no array of the cpu device; memory of another \
                     library is one by `Stream::foreign_array`"
                )
            }
            None => format!("{verb} {bytes} bytes at {address:#x}, but no array was passed to the kernel"),
            Some(region) => format!(
                "{verb} {bytes} bytes at byte {} of an array of {} bytes",
                address as i128 - region.base as i128,
                region.bytes
            ),
        }
    }
}

/// Words in memory.
pub(crate) trait Cell: Word {
    /// # Safety
    /// `place` is aligned for `Self` and points to live memory that is only accessed atomically.
    unsafe fn load(place: *mut Self) -> Self;
    /// # Safety
    /// The conditions of [`Cell::load`].
    unsafe fn store(self, place: *mut Self);
    /// Replaces a word by a function of it atomically, and returns the old word.
    ///
    /// # Safety
    /// The conditions of [`Cell::load`].
    unsafe fn update(place: *mut Self, f: impl Fn(u64) -> u64) -> Self;
}

macro_rules! cell {
    ($word:ty, $atomic:ty) => {
        impl Cell for $word {
            #[inline(always)]
            unsafe fn load(place: *mut $word) -> $word {
                // SAFETY: the caller guarantees the conditions of `from_ptr`.
                unsafe { <$atomic>::from_ptr(place) }.load(Relaxed)
            }
            #[inline(always)]
            unsafe fn store(self, place: *mut $word) {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(place) }.store(self, Relaxed)
            }
            unsafe fn update(place: *mut $word, f: impl Fn(u64) -> u64) -> $word {
                // SAFETY: as above.
                let cell = unsafe { <$atomic>::from_ptr(place) };
                let (Ok(old) | Err(old)) = cell.fetch_update(Relaxed, Relaxed, |w| Some(f(w as u64) as $word));
                old
            }
        }
    };
}
cell!(u8, AtomicU8);
cell!(u16, AtomicU16);
cell!(u32, AtomicU32);
cell!(u64, AtomicU64);

/// Checked bytes of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'m> {
    start: *mut u8,
    bytes: usize,
    memory: PhantomData<&'m Memory>,
}

impl<'m> Span<'m> {
    /// Returns the span of a list of words that kernels share.
    pub fn of_shared(words: &'m [AtomicU64]) -> Span<'m> {
        Span { start: words.as_ptr() as *mut u8, bytes: size_of_val(words), memory: PhantomData }
    }

    /// Returns true if words of this many bytes are aligned in the span.
    pub fn is_aligned(self, bytes: usize) -> bool {
        (self.start as usize).is_multiple_of(bytes)
    }

    pub fn address(self) -> u64 {
        self.start as u64
    }

    /// Returns the part from `offset` on, if it has `bytes` bytes.
    pub fn part(self, offset: u64, bytes: u64) -> Option<Span<'m>> {
        (offset <= self.bytes as u64 && bytes <= self.bytes as u64 - offset).then(|| Span {
            start: self.start.wrapping_add(offset as usize),
            bytes: bytes as usize,
            memory: PhantomData,
        })
    }

    /// Returns the address of word `index`.
    ///
    /// # Panics
    /// If it is outside of the span or not aligned. Callers check both, so this is a defect of this
    /// back end.
    #[inline(always)]
    fn place<C: Cell>(self, index: usize) -> *mut C {
        let place = self.start.wrapping_add(index * size_of::<C>());
        assert!((index + 1) * size_of::<C>() <= self.bytes && (place as usize).is_multiple_of(size_of::<C>()));
        place.cast()
    }

    #[inline(always)]
    pub fn load<C: Cell>(self, index: usize) -> C {
        // SAFETY: `place` is aligned and inside of a live region, and regions are accessed
        // atomically.
        unsafe { C::load(self.place(index)) }
    }

    #[inline(always)]
    pub fn store<C: Cell>(self, index: usize, word: C) {
        // SAFETY: as in `load`.
        unsafe { word.store(self.place(index)) }
    }

    pub fn update<C: Cell>(self, index: usize, f: impl Fn(u64) -> u64) -> C {
        // SAFETY: as in `load`.
        unsafe { C::update(self.place(index), f) }
    }
}
