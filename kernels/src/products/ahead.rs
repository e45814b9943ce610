//! Prefetch of the operands of a later kernel to the L2 cache: at the end of a kernel, and while few tile blocks run, memory
//! is idle otherwise.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::Element;
use cutlet::packed::{Narrow, PackedDeviceArray};
use cutlet::prelude::*;

/// Bytes of a line, which one element of a tile prefetches.
const LINE: usize = 128;

/// Beginnings of up to two arrays that a later kernel reads. The arrays need not be those of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Addresses and lines.
    regions: [(u64, i32); 2],
}

impl Ahead {
    fn and(self, address: u64, bytes: usize) -> Ahead {
        let [first, second] = self.regions;
        let region = (address, i32::try_from(bytes / LINE).unwrap_or(i32::MAX / 2));
        Ahead { regions: if first.1 == 0 { [region, second] } else { [first, region] } }
    }

    /// Adds the first bytes of an array.
    #[must_use]
    pub fn array<T: Element, const R: usize>(self, array: &DeviceArray<T, R>, most: usize) -> Ahead {
        self.and(array.address(), (array.len() * size_of::<T>()).min(most))
    }

    /// Adds the first bytes of a packed array.
    #[must_use]
    pub fn packed<F: Narrow, const R: usize>(self, array: &PackedDeviceArray<F, R>, most: usize) -> Ahead {
        self.and(array.address(), (array.len() * F::BITS as usize / 8).min(most))
    }

    /// Returns the argument of a launch; none without lines.
    pub(crate) fn arg(self) -> Option<[(u64, i32); 2]> {
        (self.regions[0].1 > 0).then_some(self.regions)
    }
}

/// Addresses and lines in a kernel.
pub(crate) type Regions = [(Scalar<u64>, Scalar<i32>); 2];

/// Returns the address of the line of each index; 0 behind the last one.
fn lines<const R: usize>(index: Tile<i32, R>, [(first, lines), (second, more)]: Regions) -> Tile<u64, R> {
    let is_first = index.lt(lines);
    let offset = ct::select::<Tile<i32, R>>(is_first, index, index - lines).cast::<u64>() * LINE as u64;
    let address = offset + ct::select::<Tile<u64, R>>(is_first, first, second);
    ct::select::<Tile<u64, R>>(index.lt(lines + more), address, 0u64)
}

/// Returns the tile `x`. Each element prefetches the line of its index, once `x` is there.
#[allow(unsafe_code, reason = "instructions of PTX")]
pub(crate) fn prefetch<const R: usize>(x: Tile<f32, R>, index: Tile<i32, R>, regions: Regions) -> Tile<f32, R> {
    let text = "{ .reg .pred there, used; setp.leu.f32 there, $2, 0f7F800000; setp.ne.and.u64 used, $1, 0, there; \
                @used prefetch.global.L2 [$1]; mov.b32 $0, $2; }";
    // SAFETY: the result is the operand. A prefetch changes no memory, and lines are those of allocated arrays.
    unsafe { ct::ptx_elementwise(text, (lines(index, regions), x), |(_, x)| x) }
}

/// Returns zeros. Each element prefetches the line of its index.
#[allow(unsafe_code, reason = "instructions of PTX")]
pub(crate) fn prefetched_zeros<const R: usize>(index: Tile<i32, R>, regions: Regions) -> Tile<i32, R> {
    let text = "{ .reg .pred used; setp.ne.u64 used, $1, 0; @used prefetch.global.L2 [$1]; mov.b32 $0, 0; }";
    // SAFETY: as above.
    unsafe { ct::ptx_elementwise(text, (lines(index, regions),), |(_,)| index - index) }
}
