//! Copies and fills of memory, and the record of the elements that they write.
//!
//! This file handles bytes only, in the order of the streams that use the memory.

use std::sync::atomic::Ordering;

use super::allocation::{Kind, Memory, WriteRecord, cpu_pointer};
use crate::error::{Error, Result};
use crate::runtime::array::pack_host;
#[cfg(feature = "cudarc")]
use crate::runtime::array::stream_order::Queue;
use crate::runtime::array::stream_order::{Access, Order};
use crate::runtime::device::deadline::Deadline;
use crate::runtime::device::gpu::{Gpu, GpuStream, StreamHandle};
use crate::runtime::device::peer;
use crate::runtime::graph::recorder;
use crate::runtime::graph::recorder::{Node, Work};

/// The number of repetitions of a pattern that are written one by one before they are copied.
const FILL_REPETITIONS: usize = 8192;

impl Memory {
    /// Copies bytes at an address to the host, after all work that writes the memory.
    ///
    /// # Safety
    /// The bytes belong to this allocation, and no other code writes them.
    #[track_caller]
    pub(in crate::runtime::array) unsafe fn read_at(&self, address: u64, to: &mut [u8]) -> Result<()> {
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
    #[track_caller]
    pub(in crate::runtime::array) unsafe fn write_at(&self, address: u64, from: &[u8], access: Access) -> Result<()> {
        match &self.kind {
            Kind::Absent => Ok(()),
            Kind::Cpu => {
                // SAFETY: guaranteed by the caller.
                unsafe { cpu_pointer(address).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
            Kind::Gpu { gpu, order } => {
                let stream = own_stream(gpu, order);
                order.before_use(&stream, access)?;
                gpu.make_current()?;
                settled(&stream)?;
                // SAFETY: guaranteed by the caller; the host bytes remain borrowed until the copy
                // is complete, which matters for page-locked memory.
                unsafe { gpu.driver.copy_to_device(address, from.as_ptr().cast(), from.len(), stream.raw) }?;
                stream.synchronize()
            }
        }
    }

    /// Releases an allocation of a GPU to the caller, which frees it by the same function. The
    /// stream is then ordered after every use so far.
    ///
    /// # Errors
    /// [`Error::Driver`] if the context is lost.
    #[cfg(feature = "cudarc")]
    pub(crate) fn release_to_caller(mut self, stream: &StreamHandle) -> Result<u64> {
        if self.zone > 0 {
            let plain = Memory::alloc(self.device(), self.bytes, 0)?;
            // SAFETY: the new memory has no other use.
            unsafe { plain.copy_from(0, &self, 0, self.bytes, Access::Write) }?;
            return plain.release_to_caller(stream);
        }
        if let Kind::Gpu { order, .. } = &mut self.kind {
            stream.wait_for(order.last()?)?;
        }
        // No bytes are left to free.
        self.bytes = 0;
        Ok(self.address)
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
    unsafe fn fill_shared(&self, pattern: &[u8]) -> Result<()> {
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
        // SAFETY: in bounds as checked, and borrowed uniquely.
        unsafe { self.write_at(self.address + offset as u64, from, access) }
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
        // SAFETY: in bounds as checked; the borrow of the array excludes writes.
        unsafe { self.read_at(self.address + offset as u64, to) }
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
    pub(in crate::runtime::array) fn expose(&self) {
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
    fn note_write(&self, offset: usize, bytes: usize, access: Access) -> Result<()> {
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
    fn note_copy(
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
