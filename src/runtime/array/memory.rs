//! Memory of arrays: one allocation, freed in the order of the work that uses it.
//!
//! **Ordering.** A GPU allocation records the streams that use it ([`super::stream_order`]). A use
//! on another stream first makes that stream wait for the conflicting ones, through an event that
//! is recorded at that time. A use on the same stream needs no wait. Shared and unique borrows of
//! arrays prevent a conflicting use before the first one is queued.
//!
//! **Release.** Memory is freed in stream order after all uses, so an array may be dropped while a
//! launch is in progress. The driver refuses this inside of its callbacks and while a stream is
//! captured. The memory is then freed before the next allocation
//! ([`crate::runtime::device::deferred_release`]).
//!
//! This file handles bytes only. Element types and shapes belong to the arrays.

use std::alloc::Layout;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pack_host;
use super::stream_order::{Access, Order, Queue};
use crate::error::{Error, Result};
use crate::runtime::device::deadline::Deadline;
use crate::runtime::device::device::Device;
use crate::runtime::device::gpu::{Gpu, GpuStream, Owner, StreamHandle};
use crate::runtime::device::known_memory;
use crate::runtime::device::peer;
use crate::runtime::graph::recorder;
use crate::runtime::graph::recorder::{Node, Used, Work};

/// The alignment of every allocation, in bytes.
pub const ALIGNMENT: usize = 256;

/// The unit of allocation sizes, in bytes: atomics on 16 bits may access the words that contain
/// them.
const WORD: usize = 4;

/// The number of repetitions of a pattern that are written one by one before they are copied.
const FILL_REPETITIONS: usize = 8192;

/// An allocation on one device.
pub struct Memory {
    address: u64,
    bytes: usize,
    kind: Kind,
    foreign: Option<Foreign>,
    /// True if there has been a unique view of a part of it: [`Memory::split`].
    split: AtomicBool,
    /// Bytes of the allocation before `address`, and behind the last byte: red zones, or 0.
    zone: usize,
    /// Record of the written elements, if the array was allocated under the check.
    pub(super) record: Option<WriteRecord>,
}

/// The owner of memory that another library has allocated.
struct Foreign {
    /// The stream of the other library's work on the memory; none on the cpu device.
    stream: Option<StreamHandle>,
    /// The object that keeps the memory alive. Owners of cudarc are returned.
    #[cfg_attr(not(feature = "cudarc"), allow(dead_code))]
    owner: Owner,
}

// The owner is only dropped or returned: no call reads a state that a panic has left.
impl UnwindSafe for Foreign {}
impl RefUnwindSafe for Foreign {}

enum Kind {
    /// The memory of an array that is only described.
    Absent,
    Cpu,
    Gpu {
        gpu: &'static Gpu,
        order: Order<GpuStream>,
    },
}

// SAFETY: only launches and copies access the bytes, and the borrow rules of the arrays serialize
// conflicting ones. The handles of the driver may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The use of the memory of an array argument by a launch. Only arguments make it, and they hold
/// the borrow that it describes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MemoryUse<'a> {
    /// The allocation.
    pub(crate) memory: &'a Memory,
    /// True if the kernel may write the memory. The argument then borrows its elements uniquely.
    pub(crate) writes: bool,
    /// True if the argument is one of several parts that may be written at the same time.
    pub(crate) part: bool,
    /// True if the argument has no elements. (Its allocation may have some.)
    pub(crate) empty: bool,
}

impl<'a> MemoryUse<'a> {
    /// Returns the allocation.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Returns true if the kernel may write the memory.
    pub fn writes(&self) -> bool {
        self.writes
    }
}

/// Record of the written elements of an allocation.
pub(crate) struct WriteRecord {
    /// One byte for each element: not 0 after its first write.
    pub bytes: Arc<Memory>,
    /// Bytes of an element.
    pub unit: u64,
    /// True if all bytes of the record are 1.
    pub(super) complete: AtomicBool,
    /// True if the program knows the address, by which other code can write the elements.
    pub(super) exposed: AtomicBool,
}

impl Memory {
    /// Allocates memory on a device, between zones of `zone` bytes. The content is unspecified on a
    /// GPU and zero on the cpu device.
    #[track_caller]
    pub(crate) fn alloc(device: Device, bytes: usize, zone: usize) -> Result<Memory> {
        if bytes == 0 {
            // Never dereferenced: an array without elements has no index in bounds.
            let kind = match device.as_gpu() {
                None => Kind::Cpu,
                Some(gpu) => Kind::Gpu { gpu, order: Order::new(Arc::clone(gpu.default_stream())) },
            };
            return Ok(Memory {
                address: ALIGNMENT as u64,
                bytes,
                kind,
                foreign: None,
                split: AtomicBool::new(false),
                zone: 0,
                record: None,
            });
        }
        let all = bytes.saturating_add(2 * zone);
        let (start, kind) = match device.as_gpu() {
            None => {
                // SAFETY: the layout is not empty.
                let allocated = cpu_layout(all).map(|layout| unsafe { std::alloc::alloc_zeroed(layout) });
                let Some(address) = allocated.filter(|address| !address.is_null()) else {
                    return Err(Error::argument(format!(
                        "an array of {bytes} bytes does not fit into the memory of the cpu device"
                    )));
                };
                (address.expose_provenance() as u64, Kind::Cpu)
            }
            Some(gpu) => {
                let stream = gpu.default_stream();
                let address = gpu_alloc(gpu, stream, all)?;
                (address, Kind::Gpu { gpu, order: Order::new(Arc::clone(stream)) })
            }
        };
        let address = start + zone as u64;
        if matches!(kind, Kind::Cpu) {
            known_memory::add(address, bytes, false);
        }
        Ok(Memory { address, bytes, kind, foreign: None, split: AtomicBool::new(false), zone, record: None })
    }

    /// Returns the addresses of the zones before and behind the bytes.
    pub(super) fn zones(&self) -> impl Iterator<Item = u64> + use<> {
        let starts = [self.address - self.zone as u64, self.address + self.bytes as u64];
        starts.into_iter().filter(|_| self.zone > 0).collect::<Vec<_>>().into_iter()
    }

    /// Copies bytes at an address to the host, after all work that writes the memory.
    ///
    /// # Safety
    /// The bytes belong to this allocation, and no other code writes them.
    pub(super) unsafe fn read_at(&self, address: u64, to: &mut [u8]) -> Result<()> {
        match &self.kind {
            Kind::Absent => Ok(()),
            Kind::Cpu => {
                // SAFETY: guaranteed by the caller.
                unsafe { to.as_mut_ptr().copy_from_nonoverlapping(cpu_pointer(address), to.len()) };
                Ok(())
            }
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, Access::Read)?;
                gpu.make_current()?;
                settled(&stream)?;
                // SAFETY: guaranteed by the caller; the host bytes remain borrowed until the copy
                // is complete.
                unsafe { gpu.driver.copy_to_host(to.as_mut_ptr().cast(), address, to.len(), stream.raw) }?;
                stream.synchronize()
            }
        }
    }

    /// Copies bytes from the host to an address.
    ///
    /// # Safety
    /// The bytes belong to this allocation, and no other code uses them.
    pub(super) unsafe fn write_at(&self, address: u64, from: &[u8]) -> Result<()> {
        match &self.kind {
            Kind::Absent => Ok(()),
            Kind::Cpu => {
                // SAFETY: guaranteed by the caller.
                unsafe { cpu_pointer(address).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, Access::Write)?;
                gpu.make_current()?;
                settled(&stream)?;
                // SAFETY: as in `read_at`.
                unsafe { gpu.driver.copy_to_device(address, from.as_ptr().cast(), from.len(), stream.raw) }?;
                stream.synchronize()
            }
        }
    }

    /// Returns memory of another library, whose work on it is queued on a stream (on the cpu
    /// device, complete). At the drop, that stream is ordered after all uses of the memory, and
    /// then the owner is dropped.
    ///
    /// # Safety
    /// The bytes are on the device of the stream and initialized. During the life of the owner they
    /// remain so, and no other code uses them. Exceptions are work that precedes this call on the
    /// stream, and work after the drop of this memory.
    pub(crate) unsafe fn foreign(stream: Option<&StreamHandle>, address: u64, bytes: usize, owner: Owner) -> Memory {
        let kind = match stream {
            None => {
                known_memory::add(address, bytes, true);
                Kind::Cpu
            }
            Some(stream) => Kind::Gpu { gpu: stream.gpu, order: Order::new(Arc::clone(stream)) },
        };
        Memory {
            address,
            bytes,
            kind,
            foreign: Some(Foreign { stream: stream.cloned(), owner }),
            split: AtomicBool::new(false),
            zone: 0,
            record: None,
        }
    }

    /// Returns the owner of foreign memory, after its stream is ordered after every use of the
    /// memory.
    ///
    /// # Errors
    /// The memory itself, if it is not foreign; [`Error::Driver`] if the context is lost.
    #[cfg(feature = "cudarc")]
    pub(crate) fn into_owner(mut self) -> Result<Result<Owner, Memory>> {
        let Some(foreign) = self.foreign.take() else { return Ok(Err(self)) };
        if let Kind::Cpu = self.kind {
            known_memory::remove(self.address, self.bytes, true);
        }
        // No bytes are left to free.
        self.bytes = 0;
        settle(&mut self.kind, &foreign)?;
        Ok(Ok(foreign.owner))
    }

    /// Releases an allocation of a GPU to the caller, which frees it in the same way. The stream is
    /// then ordered after every use so far.
    ///
    /// # Errors
    /// [`Error::Driver`] if the context is lost.
    #[cfg(feature = "cudarc")]
    pub(crate) fn give(mut self, stream: &StreamHandle) -> Result<u64> {
        if self.zone > 0 {
            let plain = Memory::alloc(self.device(), self.bytes, 0)?;
            // SAFETY: the new memory has no other use.
            unsafe { plain.copy_from(0, &self, 0, self.bytes, Access::Write) }?;
            return plain.give(stream);
        }
        if let Kind::Gpu { order, .. } = &mut self.kind {
            stream.wait_for(order.last()?)?;
        }
        // No bytes are left to free.
        self.bytes = 0;
        Ok(self.address)
    }

    /// Returns the memory of arrays that are only described: no bytes and no address.
    pub(crate) fn absent() -> &'static Memory {
        static ABSENT: Memory = Memory {
            address: 0,
            bytes: 0,
            kind: Kind::Absent,
            foreign: None,
            split: AtomicBool::new(false),
            zone: 0,
            record: None,
        };
        &ABSENT
    }

    /// Returns true for [`Memory::absent`].
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.kind, Kind::Absent)
    }

    /// Returns the address of memory of the cpu device.
    pub(crate) fn host_pointer(&self) -> Option<*mut u8> {
        matches!(self.kind, Kind::Cpu).then(|| cpu_pointer(self.address))
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> Device {
        match &self.kind {
            Kind::Absent | Kind::Cpu => Device::cpu(),
            Kind::Gpu { gpu, .. } => Device::from_gpu(gpu),
        }
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns this allocation as a use by the work of a graph.
    pub(crate) fn used(&self, writes: bool) -> Used {
        Used { address: self.address, bytes: self.bytes, writes }
    }

    /// Makes a stream of the same device wait for the work of other streams on this memory.
    #[inline]
    pub(crate) fn before_use(&self, stream: &StreamHandle, access: Access) -> Result<()> {
        match &self.kind {
            Kind::Gpu { order, .. } => order.before_use(stream, access),
            Kind::Absent | Kind::Cpu => Ok(()),
        }
    }

    /// Permits concurrent uses of disjoint parts, before the views of these are made.
    pub(crate) fn split(&self) {
        self.split.store(true, Ordering::Relaxed);
        if let Some(record) = &self.record {
            record.bytes.split();
        }
        if let Kind::Gpu { order, .. } = &self.kind {
            order.split();
        }
    }

    /// Returns true after [`Memory::split`].
    pub(crate) fn was_split(&self) -> bool {
        self.split.load(Ordering::Relaxed)
    }

    /// Sets all bytes to zero.
    pub(crate) fn clear(&mut self) -> Result<()> {
        self.fill(&[0])
    }

    /// Repeats a pattern from the first byte on. The number of bytes is a multiple of the
    /// pattern's.
    ///
    /// On a GPU, a fill of the driver repeats patterns of 1, 2 and 4 bytes. For other patterns, the
    /// host sends the first bytes, and copies on the device double them.
    #[track_caller]
    pub(crate) fn fill(&mut self, pattern: &[u8]) -> Result<()> {
        self.note_write(0, self.bytes, Access::Write)?;
        // SAFETY: `self` is borrowed uniquely.
        unsafe { self.fill_shared(pattern) }
    }

    /// Performs [`Memory::fill`].
    ///
    /// # Safety
    /// No other code uses the bytes, except launches and copies that are queued before.
    #[track_caller]
    pub(super) unsafe fn fill_shared(&self, pattern: &[u8]) -> Result<()> {
        assert!(self.bytes.is_multiple_of(pattern.len()), "{} bytes of a pattern of {}", self.bytes, pattern.len());
        if self.bytes == 0 {
            return Ok(());
        }
        match &self.kind {
            Kind::Absent => Ok(()),
            Kind::Cpu => {
                // SAFETY: the allocation has this many initialized bytes, which no other
                // code uses.
                let all = unsafe { std::slice::from_raw_parts_mut(cpu_pointer(self.address), self.bytes) };
                repeat(pattern, all);
                Ok(())
            }
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, Access::Write)?;
                gpu.make_current()?;
                let (to, bytes, driver) = (self.address, self.bytes, gpu.driver);
                // SAFETY: the range is the allocation, which is aligned to more than 4 bytes.
                unsafe {
                    match *pattern {
                        [byte] => driver.fill_bytes(to, byte, bytes, stream.raw),
                        [a, b] => driver.fill_halves(to, u16::from_ne_bytes([a, b]), bytes / 2, stream.raw),
                        [a, b, c, d] => driver.fill_words(to, u32::from_ne_bytes([a, b, c, d]), bytes / 4, stream.raw),
                        _ => self.fill_by_copies(pattern),
                    }
                }
            }
        }
    }

    /// Performs [`Memory::fill`] on a GPU for any pattern.
    #[track_caller]
    fn fill_by_copies(&self, pattern: &[u8]) -> Result<()> {
        let mut chunk = vec![0; self.bytes.min(pattern.len() * FILL_REPETITIONS)];
        repeat(pattern, &mut chunk);
        // SAFETY: no other code uses the bytes.
        unsafe { self.write(0, &chunk, Access::Write) }?;
        let Kind::Gpu { gpu, order } = &self.kind else { return Ok(()) };
        let stream = own_stream(gpu, order);
        let mut done = chunk.len();
        while done < self.bytes {
            let count = done.min(self.bytes - done);
            // SAFETY: both ranges are in the allocation, and the source ends at the begin of the
            // destination.
            unsafe { gpu.driver.copy_on_device(self.address + done as u64, self.address, count, stream.raw) }?;
            done += count;
        }
        Ok(())
    }

    /// Copies bytes from the host to `offset`. The host bytes may be changed after the return.
    ///
    /// # Safety
    /// The caller has the only borrow of these bytes, and that of all bytes for `Access::Write`.
    #[track_caller]
    pub(crate) unsafe fn write(&self, offset: usize, from: &[u8], access: Access) -> Result<()> {
        assert!(offset + from.len() <= self.bytes, "write of {} bytes at {offset} of {}", from.len(), self.bytes);
        if from.is_empty() {
            return Ok(());
        }
        let way_out = "copy before, or into the state between two replays";
        recorder::refuse_use(|| self.used(true), "a copy from the host", way_out)?;
        self.note_write(offset, from.len(), access)?;
        match &self.kind {
            Kind::Absent => {}
            // SAFETY: in bounds as checked, and borrowed uniquely.
            Kind::Cpu => unsafe {
                cpu_pointer(self.address).add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len());
            },
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, access)?;
                gpu.make_current()?;
                settled(&stream)?;
                let to = self.address + offset as u64;
                // SAFETY: in bounds as checked. The host bytes remain borrowed until the copy is
                // complete, which matters for page-locked memory.
                unsafe { gpu.driver.copy_to_device(to, from.as_ptr().cast(), from.len(), stream.raw) }?;
                stream.synchronize()?;
            }
        }
        Ok(())
    }

    /// Copies bytes at `offset` to the host, after all work that writes them.
    #[track_caller]
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        assert!(offset + to.len() <= self.bytes, "read of {} bytes at {offset} of {}", to.len(), self.bytes);
        if to.is_empty() {
            return Ok(());
        }
        let way_out = "copy after a replay (what is recorded has not run yet)";
        recorder::refuse_use(|| self.used(false), "a copy to the host", way_out)?;
        match &self.kind {
            Kind::Absent => {}
            // SAFETY: in bounds as checked; the borrow of the array excludes writes.
            Kind::Cpu => unsafe {
                to.as_mut_ptr().copy_from_nonoverlapping(cpu_pointer(self.address).add(offset), to.len());
            },
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, Access::Read)?;
                gpu.make_current()?;
                settled(&stream)?;
                // SAFETY: in bounds as checked; the host bytes remain borrowed until the copy is
                // complete.
                unsafe {
                    let from = self.address + offset as u64;
                    gpu.driver.copy_to_host(to.as_mut_ptr().cast(), from, to.len(), stream.raw)?;
                }
                stream.synchronize()?;
            }
        }
        Ok(())
    }

    /// Copies bytes from other memory, of the same or another device, or from another part of this
    /// memory.
    ///
    /// # Safety
    /// That of [`Memory::write`].
    #[track_caller]
    pub(crate) unsafe fn copy_from(
        &self,
        offset: usize,
        from: &Memory,
        from_offset: usize,
        bytes: usize,
        access: Access,
    ) -> Result<()> {
        assert!(offset + bytes <= self.bytes && from_offset + bytes <= from.bytes, "copy out of bounds");
        if bytes == 0 {
            return Ok(());
        }
        if recorder::is_on() {
            let uses = vec![self.used(true), from.used(false)];
            if let Some(claimed) = recorder::claim(&uses, || "a copy between arrays".to_owned()) {
                if self.device() != from.device() {
                    return Err(Error::argument(format!(
                        "a copy from {} to {} is no work of a graph: copy before, or between two replays",
                        from.device(),
                        self.device()
                    )));
                }
                self.mark_written()?;
                let work = Work::Copy { to: offset, from: from_offset, bytes };
                recorder::note(claimed, Node { device: self.device(), work, uses });
                return Ok(());
            }
        }
        match (&self.kind, &from.kind) {
            // Without the host if one GPU can access the memory of the other.
            (Kind::Gpu { gpu, order }, Kind::Gpu { gpu: from_gpu, order: from_order })
                if std::ptr::eq(*gpu, *from_gpu) || peer::can_access(gpu, from_gpu)? =>
            {
                let is_one_gpu = std::ptr::eq(*gpu, *from_gpu);
                if !is_one_gpu {
                    peer::enable(gpu, from_gpu)?;
                }
                let stream = own_stream(gpu, order);
                order.before_use(&stream, access)?;
                from_order.before_use(&stream, Access::Read)?;
                gpu.make_current()?;
                let (to, from) = (self.address + offset as u64, from.address + from_offset as u64);
                // SAFETY: in bounds as checked, and disjoint; each allocation is in the primary
                // context of its GPU.
                unsafe {
                    match is_one_gpu {
                        true => gpu.driver.copy_on_device(to, from, bytes, stream.raw),
                        false => gpu.driver.copy_between(to, gpu.context, from, from_gpu.context, bytes, stream.raw),
                    }
                }
            }
            _ => {
                let mut host = pack_host::zeros::<u8>(bytes.min(pack_host::CHUNK_BYTES))?;
                for first in (0..bytes).step_by(pack_host::CHUNK_BYTES) {
                    let part = &mut host[..(bytes - first).min(pack_host::CHUNK_BYTES)];
                    from.read(from_offset + first, part)?;
                    // SAFETY: guaranteed by the caller.
                    unsafe { self.write(offset + first, part, access) }?;
                }
                Ok(())
            }
        }?;
        // After the copy through the host, which records a write.
        if self.record.is_some() && !self.note_copy(offset, from, from_offset, bytes, access)? {
            self.note_write(offset, bytes, access)?;
        }
        Ok(())
    }
}

impl Memory {
    /// Returns the record of the written elements, if there is one.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if earlier work on the device failed.
    pub(crate) fn write_record(&self) -> Result<Option<&WriteRecord>> {
        if self.record.as_ref().is_some_and(|record| record.exposed.load(Ordering::Relaxed)) {
            self.mark_written()?;
        }
        Ok(self.record.as_ref())
    }

    /// Notes that other code may write the elements from now on.
    pub(super) fn expose(&self) {
        if let Some(record) = &self.record {
            record.exposed.store(true, Ordering::Relaxed);
        }
    }

    /// Records a write of all elements.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) if earlier work on the device failed.
    pub(crate) fn mark_written(&self) -> Result<()> {
        match &self.record {
            Some(record) if !record.complete.swap(true, Ordering::Relaxed) => {
                // SAFETY: launches and copies alone use the record, in the order of their streams.
                unsafe { record.bytes.fill_shared(&[1]) }
            }
            _ => Ok(()),
        }
    }

    /// Records a write of bytes by the host.
    pub(super) fn note_write(&self, offset: usize, bytes: usize, access: Access) -> Result<()> {
        let Some(record) = self.record.as_ref().filter(|record| !record.complete.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        if bytes == self.len() {
            return self.mark_written();
        }
        let unit = record.unit as usize;
        let (first, end) = (offset / unit, (offset + bytes).div_ceil(unit));
        // SAFETY: the bytes of the record belong to elements that the caller may write.
        unsafe { record.bytes.write(first, &vec![1; end - first], access) }
    }

    /// Copies the part of the record of the source of a copy; returns false if it has none of this
    /// form.
    pub(super) fn note_copy(
        &self,
        offset: usize,
        from: &Memory,
        from_offset: usize,
        bytes: usize,
        access: Access,
    ) -> Result<bool> {
        let (Some(record), Some(other)) = (&self.record, from.write_record()?) else { return Ok(false) };
        let unit = record.unit as usize;
        let is_whole = [offset, from_offset, bytes].iter().all(|bytes| bytes.is_multiple_of(unit));
        if record.unit != other.unit || !is_whole || other.complete.load(Ordering::Relaxed) {
            return Ok(false);
        }
        record.complete.store(false, Ordering::Relaxed);
        let (to, from, count) = (offset / unit, from_offset / unit, bytes / unit);
        // SAFETY: as in `note_write`.
        unsafe { record.bytes.copy_from(to, &other.bytes, from, count, access) }?;
        Ok(true)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let (foreign, address) = (self.foreign.take(), self.address - self.zone as u64);
        match std::mem::replace(&mut self.kind, Kind::Absent) {
            Kind::Absent => {}
            // The owner of foreign memory frees it.
            Kind::Cpu => {
                known_memory::remove(self.address, self.bytes, foreign.is_some());
                if let Some(layout) = cpu_layout(self.bytes + 2 * self.zone).filter(|_| foreign.is_none()) {
                    // SAFETY: allocated with this layout, and no borrow is left.
                    unsafe { std::alloc::dealloc(cpu_pointer(address), layout) }
                }
            }
            Kind::Gpu { gpu, mut order } => match foreign {
                None => gpu.leftovers.release(move || gpu_free(gpu, &mut order, address)),
                Some(foreign) => {
                    let mut kind = Kind::Gpu { gpu, order };
                    // The owner is dropped with the closure, after its success.
                    gpu.leftovers.release(move || settle(&mut kind, &foreign));
                }
            },
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:#x}, {} bytes, {:?})", self.address, self.bytes, self.device())
    }
}

/// Orders the stream of foreign memory after every use of the memory.
fn settle(kind: &mut Kind, foreign: &Foreign) -> Result<()> {
    match (kind, &foreign.stream) {
        (Kind::Gpu { order, .. }, Some(stream)) => stream.wait_for(order.last()?),
        _ => Ok(()),
    }
}

fn cpu_pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Fills bytes with a pattern, from the first byte on.
fn repeat(pattern: &[u8], all: &mut [u8]) {
    if let [byte] = *pattern {
        all.fill(byte);
        return;
    }
    let mut done = pattern.len().min(all.len());
    all[..done].copy_from_slice(&pattern[..done]);
    while done < all.len() {
        // Not from all bytes so far: the source remains in the cache of the processor.
        let count = done.min(pattern.len() * FILL_REPETITIONS).min(all.len() - done);
        all.copy_within(..count, done);
        done += count;
    }
}

fn cpu_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_next_multiple_of(WORD)?, ALIGNMENT).ok()
}

fn gpu_alloc(gpu: &'static Gpu, stream: &GpuStream, bytes: usize) -> Result<u64> {
    let bytes = bytes.next_multiple_of(WORD);
    gpu.make_current()?;
    gpu.leftovers.retry();
    let mut address = 0;
    let mut alloc = || {
        // SAFETY: the pointer is valid; pool and stream are of this context.
        unsafe {
            match gpu.pool {
                Some(pool) => gpu.driver.alloc_from_pool(&mut address, bytes, pool, stream.raw),
                None => gpu.driver.alloc(&mut address, bytes),
            }
        }
    };
    if alloc().is_err() {
        // Memory that other streams have freed may only wait for their work.
        // SAFETY: the context is current.
        unsafe {
            gpu.synchronize_context()?;
            if let Some(pool) = gpu.pool {
                gpu.driver.pool_trim(pool, 0)?;
            }
        }
        alloc()?;
    }
    Ok(address)
}

/// Waits before a copy if waits have a time limit: in the call of the copy, the driver would wait
/// without one.
fn settled(stream: &StreamHandle) -> Result<()> {
    if Deadline::current().is_some() { stream.synchronize() } else { Ok(()) }
}

/// Returns a stream of the GPU of the memory: that of the last write, unless a kernel of another
/// GPU wrote last.
fn own_stream(gpu: &'static Gpu, order: &Order<GpuStream>) -> StreamHandle {
    let writer = order.writer();
    if std::ptr::eq(writer.gpu, gpu) { StreamHandle::from_stream(writer) } else { gpu.default_stream().clone() }
}

fn gpu_free(gpu: &'static Gpu, order: &mut Order<GpuStream>, address: u64) -> Result<()> {
    let mut stream = order.last()?;
    if !std::ptr::eq(stream.gpu, gpu) {
        gpu.default_stream().wait_for(stream)?;
        stream = gpu.default_stream();
    }
    gpu.make_current()?;
    // SAFETY: the address is from the matching allocation call and is freed once. The stream is
    // ordered after every use.
    unsafe {
        match gpu.pool {
            Some(_) => gpu.driver.free_async(address, stream.raw),
            None => gpu.driver.free(address),
        }
    }
}
