//! Memory of arrays: one allocation, freed in the order of the work that uses it.
//!
//! **Ordering.** A GPU allocation records the streams that use it
//! ([`crate::runtime::array::stream_order`]). A use on another stream first makes that stream wait
//! for the conflicting ones, through an event that is recorded at that time. A use on the same
//! stream needs no wait. Shared and unique borrows of arrays prevent a conflicting use before the
//! first one is queued.
//!
//! **Release.** Memory is freed in stream order after all uses, so an array may be dropped while a
//! launch is in progress. The driver refuses this inside of its callbacks and while a stream is
//! captured. The memory is then freed before the next allocation
//! ([`crate::runtime::device::deferred_release`]).
//!
//! This file handles bytes only. Element types and shapes belong to the arrays.

use crate::util::collect::CollectVec as _;
use std::alloc::Layout;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::runtime::array::stream_order::{Access, Order, Queue};
use crate::runtime::device::device::Device;
use crate::runtime::device::gpu::{Gpu, GpuStream, Owner, StreamHandle};
use crate::runtime::device::known_memory;
use crate::runtime::graph::recorder::Used;

/// The alignment of every allocation, in bytes.
pub const ALIGNMENT: usize = 256;

/// The unit of allocation sizes, in bytes: atomics on 16 bits may access the words that contain
/// them.
const WORD: usize = 4;

/// An allocation on one device.
pub struct Memory {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) kind: Kind,
    foreign: Option<Foreign>,
    /// True if there has been a unique view of a part of it: [`Memory::split`].
    split: AtomicBool,
    /// Bytes of the allocation before `address`, and after the last byte: red zones, or 0.
    pub(super) zone: usize,
    /// Record of the written elements, if the array was allocated under the check.
    pub(in crate::runtime::array) record: Option<WriteRecord>,
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

/// Device of an allocation.
pub(super) enum Kind {
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
    pub(in crate::runtime::array) complete: AtomicBool,
    /// True if the program knows the address, by which other code can write the elements.
    pub(in crate::runtime::array) exposed: AtomicBool,
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

    /// Returns the addresses of the zones before and after the bytes.
    pub(in crate::runtime::array) fn zones(&self) -> impl Iterator<Item = u64> + use<> {
        let starts = [self.address - self.zone as u64, self.address + self.bytes as u64];
        starts.into_iter().filter(|_| self.zone > 0).collect_vec().into_iter()
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

/// Returns the pointer of an address of the cpu device.
pub(super) fn cpu_pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
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
