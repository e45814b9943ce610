//! Axis bits: the bits of the element index that belong to one axis, and bases of the threads.

use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// The bits of the flat row-major index that belong to one axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisBits {
    shift: u32,
    mask: u32,
}

impl AxisBits {
    /// Returns the bits of `axis` of a tile with these extents, which are powers of two.
    pub fn of(shape: &[i64], axis: usize) -> AxisBits {
        let inner: i64 = shape[axis + 1..].iter().product();
        AxisBits { shift: inner.trailing_zeros(), mask: (shape[axis] - 1) as u32 }
    }

    /// Returns the coordinate along the axis of a flat index.
    pub fn coordinate(self, flat: u32) -> u32 {
        (flat >> self.shift) & self.mask
    }
}

/// Returns the bases of the thread index: lanes, then warps.
pub fn thread_bases(layout: &Layout) -> Vec<u32> {
    layout.lane_bases().iter().chain(layout.warp_bases()).copied().collect_vec()
}

/// Returns the mask of the bits of the thread index whose bases are zero, i.e. of replication.
pub fn replica_bits(layout: &Layout) -> u32 {
    let bases = thread_bases(layout);
    bases.iter().enumerate().filter(|(_, basis)| **basis == 0).map(|(bit, _)| 1 << bit).sum()
}
