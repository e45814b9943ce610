//! Axis bits: the bits of a layout that count along one axis, and those of the thread index.

use crate::layout::Layout;

/// The bits of the flat row-major index that belong to one axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisBits {
    shift: u32,
    mask: u32,
}

impl AxisBits {
    /// Of `axis` of a tile of this shape (extents are powers of two).
    pub fn of(shape: &[i64], axis: usize) -> AxisBits {
        let inner: i64 = shape[axis + 1..].iter().product();
        AxisBits { shift: inner.trailing_zeros(), mask: (shape[axis] - 1) as u32 }
    }

    /// The coordinate along the axis of a flat index.
    pub fn coordinate(self, flat: u32) -> u32 {
        (flat >> self.shift) & self.mask
    }
}

/// Images of the thread-number bits: lanes, then warps.
pub fn thread_images(layout: &Layout) -> Vec<u32> {
    layout.lane_images().iter().chain(layout.warp_images()).copied().collect()
}

/// The thread-number bits along which the layout holds replicas.
pub fn replica_bits(layout: &Layout) -> u32 {
    let images = thread_images(layout);
    images.iter().enumerate().filter(|(_, image)| **image == 0).map(|(bit, _)| 1 << bit).sum()
}
