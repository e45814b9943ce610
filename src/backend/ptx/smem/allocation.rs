//! Allocation of shared memory, and the barriers that reuse requires.
//!
//! Buffers are allocated one after another, and from the start again when the budget is exhausted.
//! Buffers can therefore overlap. [`SharedMemory`] records the byte ranges read and written since
//! the last barrier. An access that conflicts with an earlier one of another thread requires a
//! barrier before it. The back edge of a loop counts as an access to all bytes.
//!
//! A TMA store reads its buffer asynchronously. A write to that buffer requires a barrier, and that
//! barrier requires a wait ([`SharedMemory::take_tma_store_wait`]) of the thread that issued the
//! stores. The wait precedes the barrier.

use super::super::hardware::{SWIZZLE_ATOM_BYTES, SWIZZLE_ROW_BYTES};
use crate::dtype::DType;

/// Alignment of every buffer: one row of 128 bytes, so that swizzles start at bank 0.
const ALIGN: u32 = SWIZZLE_ROW_BYTES;
/// Alignment of a buffer of at least eight such rows. They form a whole swizzle pattern of matrix
/// instructions and of TMA, and these patterns depend on the address.
const PATTERN: u32 = SWIZZLE_ATOM_BYTES;

/// Returns the bytes of `count` adjacent elements.
pub fn run_bytes(dtype: DType, count: usize) -> u32 {
    dtype.bytes_of(count).expect("a few elements") as u32
}

/// Returns the type of elements in shared memory: 4-bit elements have a byte each.
pub fn shared_type(dtype: DType) -> DType {
    if dtype.storage_bits() < 8 { DType::I8 } else { dtype }
}

/// A range of bytes of the CTA's shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Offset of the first byte.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl Buffer {
    /// Returns the offset after the last byte.
    pub fn end(self) -> u32 {
        self.offset.saturating_add(self.bytes)
    }

    /// Returns true if the buffers have bytes in common.
    pub fn overlaps(self, other: Buffer) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// Returns true if the buffer has bytes in common with any of these.
    pub fn overlaps_any<'a>(self, others: impl IntoIterator<Item = &'a Buffer>) -> bool {
        others.into_iter().any(|&other| self.overlaps(other))
    }

    /// Returns true if all bytes of the other buffer are in this one.
    pub fn contains(self, other: Buffer) -> bool {
        self.offset <= other.offset && other.end() <= self.end()
    }

    /// Returns both halves of a buffer.
    pub fn halves(self) -> [Buffer; 2] {
        let bytes = self.bytes / 2;
        [Buffer { bytes, ..self }, Buffer { offset: self.offset + bytes, bytes }]
    }
}

/// Allocator of shared memory with hazard analysis.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    budget: u32,
    /// Reserved buffers are below this offset.
    start: u32,
    next: u32,
    high: u32,
    reads: Vec<Buffer>,
    writes: Vec<Buffer>,
    /// Buffers of iterations that no later buffer overlaps.
    iteration_buffers: Vec<Buffer>,
    /// Buffers that TMA stores may still be reading.
    bulk: Vec<Buffer>,
    /// The next barrier has to follow a wait for the TMA stores.
    wait_for_bulk: bool,
    /// Buffers that must not be overlapped for now, and whether one was.
    pinned: Vec<Buffer>,
    pinned_is_overlapped: bool,
}

impl SharedMemory {
    /// Makes an allocator of at most `budget` bytes.
    pub fn new(budget: u32) -> SharedMemory {
        SharedMemory { budget, ..SharedMemory::default() }
    }

    /// Returns the same memory with at most `budget` bytes.
    pub fn limited(&self, budget: u32) -> SharedMemory {
        SharedMemory { budget: budget.min(self.budget), ..self.clone() }
    }

    /// Returns the offset below which buffers are reserved.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns the maximum bytes of one buffer.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// Returns the bytes that the kernel needs.
    pub fn used(&self) -> u32 {
        self.high
    }

    /// Allocates a buffer of this length at a multiple of at least `align` bytes; `None` if it
    /// exceeds the budget.
    pub fn allocate(&mut self, bytes: u32, align: u32) -> Option<Buffer> {
        let bytes = bytes.next_multiple_of(ALIGN);
        let align = align.max(if bytes >= PATTERN { PATTERN } else { ALIGN });
        let offsets = [self.next, self.start].map(|offset| offset.next_multiple_of(align));
        let offset = offsets.into_iter().find(|offset| offset + bytes <= self.budget)?;
        let buffer = Buffer { offset, bytes };
        self.next = offset + bytes;
        self.high = self.high.max(self.next);
        self.iteration_buffers.retain(|trip| !trip.overlaps(buffer));
        self.pinned_is_overlapped |= self.pinned.iter().any(|pinned| pinned.overlaps(buffer));
        Some(buffer)
    }

    /// Marks a buffer whose contents are read later. Allocations before [`SharedMemory::unpin_all`]
    /// should not overlap it.
    pub fn pin(&mut self, buffer: Buffer) {
        self.pinned.push(buffer);
    }

    /// Ends all [`SharedMemory::pin`]s; returns false if another buffer overlaps a pinned one.
    pub fn unpin_all(&mut self) -> bool {
        self.pinned.clear();
        !std::mem::take(&mut self.pinned_is_overlapped)
    }

    /// Prepares consecutive offsets for the next buffers, of `bytes` bytes in all. If there is
    /// space, none of them overlaps another one.
    pub fn start_contiguous(&mut self, bytes: u32) {
        if self.next.next_multiple_of(PATTERN) + bytes > self.budget {
            self.next = self.start;
        }
    }

    /// Allocates a buffer that is written next and unused after it has been read. A buffer of an
    /// earlier iteration is reused if it has not been accessed since the last barrier. Consecutive
    /// iterations alternate between two buffers.
    pub fn allocate_for_iteration(&mut self, bytes: u32) -> Option<Buffer> {
        let bytes = bytes.next_multiple_of(PATTERN);
        let is_free = |trip: &&Buffer| {
            let mut touched = self.reads.iter().chain(&self.writes).chain(&self.bulk);
            trip.bytes >= bytes && touched.all(|other| !other.overlaps(**trip))
        };
        if let Some(trip) = self.iteration_buffers.iter().find(is_free) {
            return Some(Buffer { bytes, ..*trip });
        }
        let buffer = self.allocate(bytes, 1)?;
        self.iteration_buffers.push(buffer);
        Some(buffer)
    }

    /// Records reads that have ended for the accessing threads: a barrier orders later writes of
    /// other threads after them.
    pub fn reads_ended(&mut self, buffers: &[Buffer]) {
        self.reads.extend_from_slice(buffers);
    }

    /// Returns all bytes that are not reserved.
    pub fn unreserved(&self) -> Buffer {
        Buffer { offset: self.start, bytes: self.budget.saturating_sub(self.start) }
    }

    /// Returns the bytes from the last reservation to the end of the used memory.
    pub fn reusable(&self) -> u32 {
        self.high.saturating_sub(self.start)
    }

    /// Returns the bytes that can be reserved.
    pub fn free(&self) -> u32 {
        self.budget.saturating_sub(self.start.next_multiple_of(PATTERN))
    }

    /// Returns the share number `index` of `count` of the unreserved memory.
    pub fn share(&self, index: u32, count: u32) -> SharedMemory {
        let start = self.start.next_multiple_of(PATTERN);
        let each = (self.budget.saturating_sub(start) / count) / PATTERN * PATTERN;
        let start = start + index * each;
        SharedMemory { start, next: start, budget: start + each, ..self.clone() }
    }

    /// Reserves a buffer that no later one overlaps until its release.
    pub fn reserve(&mut self, bytes: u32, align: u32) -> Option<Buffer> {
        let offset = self.start.next_multiple_of(align);
        let end = offset + bytes.next_multiple_of(ALIGN);
        if end > self.budget {
            return None;
        }
        self.start = end;
        self.next = self.next.max(end);
        self.high = self.high.max(end);
        let buffer = Buffer { offset, bytes: end - offset };
        self.iteration_buffers.retain(|trip| !trip.overlaps(buffer));
        Some(buffer)
    }

    /// Ends the latest reservation.
    pub fn release(&mut self, buffer: Buffer) {
        // Reservations nest. The start of a later one may have been aligned.
        debug_assert!(self.start >= buffer.offset + buffer.bytes, "the latest reservation");
        self.start = buffer.offset;
        self.next = buffer.offset;
    }

    /// Records a write; returns true if a barrier is required before it.
    pub fn record_write(&mut self, buffer: Buffer) -> bool {
        if self.bulk.iter().any(|b| b.overlaps(buffer)) {
            self.bulk.clear();
            self.wait_for_bulk = true;
        }
        let touched = self.reads.iter().chain(&self.writes).any(|b| b.overlaps(buffer));
        let hazard = touched || self.wait_for_bulk;
        if hazard {
            self.clear_hazards();
        }
        self.writes.push(buffer);
        hazard
    }

    /// Records a read; returns true if a barrier is required before it.
    pub fn record_read(&mut self, buffer: Buffer) -> bool {
        let hazard = self.writes.iter().any(|b| b.overlaps(buffer));
        if hazard {
            self.clear_hazards();
        }
        self.reads.push(buffer);
        hazard
    }

    /// Records a TMA store of this buffer, issued after a barrier.
    pub fn record_tma_store_read(&mut self, buffer: Buffer) {
        self.bulk.push(buffer);
    }

    /// Records the wait of the thread that issues TMA stores. The other threads are ordered after
    /// it by the next barrier.
    pub fn record_bulk_wait(&mut self) {
        self.reads.append(&mut self.bulk);
    }

    /// Returns true if TMA stores may be reading.
    pub fn is_bulk_reading(&self) -> bool {
        !self.bulk.is_empty()
    }

    /// Returns the buffers that TMA stores may be reading.
    pub fn bulk(&self) -> Vec<Buffer> {
        self.bulk.clone()
    }

    /// Adds buffers that TMA stores may still be reading, because a branch may have skipped the
    /// wait for them.
    pub fn still_reading(&mut self, bulk: &[Buffer]) {
        self.bulk.extend(bulk);
    }

    /// Returns true if the next barrier has to follow a wait for TMA stores.
    pub fn take_tma_store_wait(&mut self) -> bool {
        std::mem::take(&mut self.wait_for_bulk)
    }

    /// Records a barrier: all earlier accesses of all threads are complete.
    pub fn clear_hazards(&mut self) {
        self.reads.clear();
        self.writes.clear();
    }

    /// Restores the accesses of `before` for the other branch, and returns the accesses of this
    /// one.
    pub fn enter_branch(&mut self, before: &SharedMemory) -> SharedMemory {
        let taken = self.clone();
        self.reads.clone_from(&before.reads);
        self.writes.clone_from(&before.writes);
        self.bulk.clone_from(&before.bulk);
        taken
    }

    /// Merges the accesses of two branches at their join: either may have been executed.
    pub fn join(&mut self, other: &SharedMemory) {
        self.reads.extend_from_slice(&other.reads);
        self.writes.extend_from_slice(&other.writes);
        self.bulk.extend_from_slice(&other.bulk);
    }

    /// Enters or leaves code with several predecessors: all bytes that are not reserved may have
    /// been accessed. With `has_tma_stores`, TMA stores of that code may be reading all bytes.
    pub fn unknown(&mut self, has_tma_stores: bool) {
        let unreserved = self.unreserved();
        self.reads = vec![unreserved];
        self.writes = vec![unreserved];
        if has_tma_stores {
            self.bulk = vec![Buffer { offset: 0, bytes: self.budget }];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_alternate_buffers() {
        let mut shared = SharedMemory::new(1 << 16);
        let mut offsets = Vec::new();
        for _ in 0..6 {
            let buffer = shared.allocate_for_iteration(5000).unwrap();
            assert!(!shared.record_write(buffer) && shared.record_read(buffer));
            offsets.push(buffer.offset);
        }
        assert_eq!(offsets, [0, 5120, 0, 5120, 0, 5120]);
        // A buffer that overlaps the buffer of an iteration invalidates it for reuse.
        let reserved = shared.reserve(5120, 1024).unwrap();
        let [first, second] = [0; 2].map(|_| {
            let buffer = shared.allocate_for_iteration(5000).unwrap();
            assert!(!buffer.overlaps(reserved));
            shared.record_write(buffer);
            buffer
        });
        assert!(!first.overlaps(second));
    }

    #[test]
    fn barriers_are_exactly_at_hazards() {
        let mut shared = SharedMemory::new(1024);
        let a = shared.allocate(256, 1).unwrap();
        let b = shared.allocate(256, 1).unwrap();
        assert!(!shared.record_write(a), "nothing touched it yet");
        assert!(shared.record_read(a), "written since the last barrier");
        assert!(!shared.record_write(b), "another range");
        assert!(shared.record_write(a), "read since the last barrier");
    }

    #[test]
    fn space_wraps_and_a_wrapped_buffer_is_guarded() {
        let mut shared = SharedMemory::new(512);
        let a = shared.allocate(512, 1).unwrap();
        shared.record_write(a);
        shared.record_read(a);
        let b = shared.allocate(100, 1).unwrap();
        assert_eq!(b.offset, 0);
        assert!(shared.record_write(b));
        assert_eq!(shared.used(), 512);
        assert!(shared.allocate(513, 1).is_none());
    }

    #[test]
    fn a_reserved_buffer_is_left_alone() {
        let mut shared = SharedMemory::new(4096);
        shared.allocate(128, 1).unwrap();
        let slab = shared.reserve(2048, 1024).unwrap();
        for _ in 0..20 {
            let buffer = shared.allocate(512, 1).unwrap();
            assert!(!buffer.overlaps(slab));
        }
        assert!(shared.allocate(2049, 1).is_none());
        shared.release(slab);
        assert!(shared.allocate(4096, 1).is_some());
    }

    #[test]
    fn bulk_stores_are_waited_for() {
        let mut shared = SharedMemory::new(4096);
        let a = shared.allocate(1024, 1024).unwrap();
        shared.record_write(a);
        shared.clear_hazards();
        shared.record_tma_store_read(a);
        let b = shared.allocate(128, 1).unwrap();
        assert!(!shared.record_write(b) && !shared.take_tma_store_wait());
        assert!(shared.is_bulk_reading());
        assert!(shared.record_write(a), "the barrier does not end a bulk store");
        assert!(shared.take_tma_store_wait() && !shared.take_tma_store_wait());
        assert!(!shared.is_bulk_reading());
        shared.unknown(false);
        shared.clear_hazards();
        assert!(!shared.record_write(b) && !shared.take_tma_store_wait(), "the loop does not store");
        shared.clear_hazards();
        shared.still_reading(&[b]);
        assert!(shared.record_write(b) && shared.take_tma_store_wait(), "the loop that would have waited was skipped");
        shared.unknown(true);
        shared.clear_hazards();
        assert!(shared.record_write(b) && shared.take_tma_store_wait(), "the loop may have stored");
    }

    #[test]
    fn aligned_buffers_start_where_they_should() {
        let mut shared = SharedMemory::new(4096);
        shared.allocate(128, 1).unwrap();
        assert_eq!(shared.reusable(), 128);
        assert_eq!(shared.allocate(2048, 1024).map(|b| b.offset), Some(1024));
        assert_eq!(shared.allocate(2048, 1024).map(|b| b.offset), Some(0));
        assert!(shared.allocate(4097, 1024).is_none());
        shared.reserve(128, 128).unwrap();
        assert_eq!(shared.allocate(200, 512).map(|b| b.offset), Some(2048));
        assert_eq!(shared.allocate(1024, 512).map(|b| b.offset), Some(3072));
        assert_eq!(shared.allocate(200, 512).map(|b| b.offset), Some(512));
    }

    #[test]
    fn a_back_edge_counts_as_a_touch() {
        let mut shared = SharedMemory::new(512);
        let a = shared.allocate(64, 1).unwrap();
        shared.unknown(false);
        assert!(shared.record_write(a));
    }
}
