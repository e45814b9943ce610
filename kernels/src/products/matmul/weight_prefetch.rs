//! Prefetch of weights to the L2 cache before a kernel waits for the preceding one of the stream.
//!
//! The tile blocks of an [`overlapped`](fn@crate::overlapped) product wait while the last tile
//! blocks of the preceding kernel run, and memory is partly idle. Each of them prefetches the first
//! weights of its tile, a run of bytes for each column.

use cutlet as ct;
use cutlet::DeviceView;
use cutlet::element::Element;
use cutlet::prelude::*;

/// Bytes that a tile block prefetches: memory transfers 64 KiB for each multiprocessor of an H100
/// in 2.6 us.
const BYTES: usize = 64 << 10;

/// Elements of the tile of prefetches at least: those of four warps.
const THREADS: usize = 128;

/// Alignment of addresses and sizes of a bulk prefetch (PTX ISA, `cp.async.bulk.prefetch`).
const ALIGN: usize = 16;

/// Weights whose terms are contiguous for each column.
#[derive(Clone, Copy, Debug)]
pub struct WeightPrefetch {
    /// Address of the first weight.
    address: u64,
    /// Bytes from a column to the next one.
    pitch: u64,
}

impl WeightPrefetch {
    /// Returns the weights of a right operand of (terms, columns). None: another order, or runs
    /// that are not aligned.
    pub fn of<T: Element>(right: &DeviceView<T, 2>) -> Option<WeightPrefetch> {
        let ([terms, _], [step, pitch]) = (right.shape(), right.strides());
        let (address, pitch) = (right.address(), (pitch * size_of::<T>()) as u64);
        let is_aligned = |number: u64| number.is_multiple_of(ALIGN as u64);
        let fits = step == 1 && is_aligned(address) && is_aligned(pitch) && terms * size_of::<T>() >= THREADS * ALIGN;
        fits.then_some(WeightPrefetch { address, pitch })
    }

    /// Returns the argument of a launch: address and pitch.
    pub fn arg(self) -> (u64, u64) {
        (self.address, self.pitch)
    }
}

/// Address and pitch of weights in the kernel.
pub type Weights = (Scalar<u64>, Scalar<u64>);

/// Returns the bytes of a column that a tile block prefetches, where its tiles have these bytes of
/// a column.
pub fn bytes_of_column(columns: usize, of_tiles: usize) -> usize {
    let unit = ALIGN * THREADS.div_ceil(columns);
    (BYTES / columns).min(of_tiles) / unit * unit
}

/// Prefetches a run of `bytes` from each column of a tile. Returns a row of zeros, which the kernel
/// adds to its sums, so that the prefetches are part of its results.
///
/// `tile`: index and columns of the tile. `terms`: first byte of the run in its column, and bytes
/// of a column.
#[allow(unsafe_code, reason = "instructions of PTX")]
pub fn prefetch(
    (address, pitch): Weights,
    (tile, n): (Scalar<i32>, usize),
    columns: Scalar<i32>,
    [first, end]: [Scalar<i32>; 2],
    bytes: usize,
) -> Tile<i32, 2> {
    let pieces = THREADS.div_ceil(n);
    let each = bytes / pieces;
    let column = (ct::arange(0..n) + tile * n as i32).min(columns - 1).unsqueeze(1);
    let piece = (ct::arange(0..pieces) * each as i32 + first.min(end - bytes as i32)).unsqueeze(0);
    let at = column.cast::<u64>() * pitch + piece.cast::<u64>() + address;
    let text = format!("{{ cp.async.bulk.prefetch.L2.global [$1], {each}; mov.b32 $0, 0; }}");
    // SAFETY: a prefetch changes no memory, and its bytes are those of the weights.
    let zeros: Tile<i32, 2> = unsafe { ct::ptx_elementwise(&text, (at,), |_| ct::zeros([n, pieces])) };
    zeros.sum(1).reshape([1, n])
}
