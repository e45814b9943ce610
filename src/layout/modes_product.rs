//! Products and quotients of linear layouts.

use super::f2_matrix;
use super::linear_layout::{LANE_BITS, Layout, MAX_WARPS, axis_bits, elements};

impl Layout {
    /// Replaces each element of this layout by an `inner` tile. Extents are multiplied, and the
    /// bits of `inner` are the lower ones.
    ///
    /// `None` if the ranks differ or both use lanes (a warp has only 32; [`Modes`](super::Modes)
    /// has partial warps), or the product exceeds the number of elements, registers or warps of a
    /// [`Layout`].
    ///
    /// ```
    /// use cutlet::layout::{Layout, local, spatial};
    ///
    /// let fragment = (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    /// let tile = Layout::replicated(&[2, 4], 1).compose(&fragment).unwrap();
    /// assert_eq!((tile.shape(), tile.num_registers()), (&[32, 32][..], 32));
    /// ```
    pub fn compose(&self, inner: &Layout) -> Option<Layout> {
        let rank = self.shape().len();
        if rank != inner.shape().len() || (is_used(self.lane_images()) && is_used(inner.lane_images())) {
            return None;
        }
        // Extents are less than 2^32, so a saturated one is rejected as well.
        let shape: Vec<i64> = self.shape().iter().zip(inner.shape()).map(|(a, b)| a.saturating_mul(*b)).collect();
        elements(&shape)?;
        let registers = self.register_images().len() + inner.register_images().len();
        if registers > 31 || self.num_warps().saturating_mul(inner.num_warps()) > MAX_WARPS {
            return None;
        }
        let place = |part: &[i64], axis_offset: &dyn Fn(usize) -> u32| -> Vec<u32> {
            let mut images = vec![0; part.iter().product::<i64>().ilog2() as usize];
            for axis in 0..rank {
                let start = axis_bits(&shape, axis).start + axis_offset(axis);
                for (i, old) in axis_bits(part, axis).enumerate() {
                    images[old as usize] = 1 << (start + i as u32);
                }
            }
            images
        };
        let outer_images = place(self.shape(), &|axis| inner.shape()[axis].ilog2());
        let inner_images = place(inner.shape(), &|_| 0);
        let join = |low: &[u32], high: &[u32]| -> Vec<u32> {
            let low = low.iter().map(|&image| f2_matrix::apply(&inner_images, image));
            low.chain(high.iter().map(|&image| f2_matrix::apply(&outer_images, image))).collect()
        };
        let lane =
            if is_used(self.lane_images()) { join(&[], self.lane_images()) } else { join(inner.lane_images(), &[]) };
        let register = join(inner.register_images(), self.register_images());
        Some(Layout::new(shape, register, lane, join(inner.warp_images(), self.warp_images())))
    }

    /// Returns the layout `outer` with `outer.compose(inner)` equal to this one, `None` if there is
    /// none.
    ///
    /// ```
    /// use cutlet::layout::{Layout, local, spatial};
    ///
    /// let fragment = (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    /// let outer = Layout::replicated(&[2, 4], 1);
    /// assert_eq!(outer.compose(&fragment).unwrap().divide(&fragment), Some(outer));
    /// ```
    pub fn divide(&self, inner: &Layout) -> Option<Layout> {
        if self.shape().len() != inner.shape().len() || self.shape().iter().zip(inner.shape()).any(|(a, b)| a % b != 0)
        {
            return None;
        }
        let shape: Vec<i64> = self.shape().iter().zip(inner.shape()).map(|(a, b)| a / b).collect();
        let mut images = vec![0; self.num_elements().ilog2() as usize];
        for axis in 0..shape.len() {
            let kept = axis_bits(self.shape(), axis).skip(inner.shape()[axis].ilog2() as usize);
            for (old, new) in kept.zip(axis_bits(&shape, axis)) {
                images[old as usize] = 1 << new;
            }
        }
        let rest = |own: &[u32], inner: &[u32]| -> Option<Vec<u32>> {
            Some(own.get(inner.len()..)?.iter().map(|&image| f2_matrix::apply(&images, image)).collect())
        };
        let (register, warp) =
            (rest(self.register_images(), inner.register_images())?, rest(self.warp_images(), inner.warp_images())?);
        let lane = if is_used(inner.lane_images()) { vec![0; LANE_BITS] } else { rest(self.lane_images(), &[])? };
        let outer = Layout::new(shape, register, lane, warp);
        outer.compose(inner).filter(|product| product.is_same(self)).map(|_| outer)
    }

    /// Returns the layout of the outer product of two tiles. The axes of `inner` follow those of
    /// this layout, and its bits are the lower ones.
    ///
    /// `None` if both use lanes.
    ///
    /// ```
    /// use cutlet::layout::Layout;
    ///
    /// let batches = Layout::replicated(&[2], 1).concat(&Layout::blocked(&[32], &[0], 1, 1)).unwrap();
    /// assert_eq!(batches.coordinates(batches.element(1, 5, 0)), [1, 5]);
    /// ```
    pub fn concat(&self, inner: &Layout) -> Option<Layout> {
        let outer_shape = [self.shape(), &vec![1; inner.shape().len()]].concat();
        let inner_shape = [&vec![1; self.shape().len()], inner.shape()].concat();
        self.reshape(&outer_shape).compose(&inner.reshape(&inner_shape))
    }
}

fn is_used(images: &[u32]) -> bool {
    images.iter().any(|&image| image != 0)
}
