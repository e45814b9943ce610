//! Products and quotients of linear layouts.

use super::f2_matrix;
use super::linear_layout::{LANE_BITS, Layout, MAX_WARPS, axis_bits, elements};
use crate::util::collect::CollectVec as _;

impl Layout {
    /// Replaces each element of this layout by an `inner` tile. Extents are multiplied, and the
    /// bits of `inner` are the lower ones.
    ///
    /// `None` if the ranks differ or both use lanes (a warp has only 32; [`Modes`](super::Modes)
    /// has partial warps). `None` also if the product exceeds the number of elements, registers or
    /// warps of a [`Layout`].
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
        if rank != inner.shape().len() || (is_used(self.lane_bases()) && is_used(inner.lane_bases())) {
            return None;
        }
        // Extents are less than 2^32, so a saturated one is rejected as well.
        let shape: Vec<i64> = self.shape().iter().zip(inner.shape()).map(|(a, b)| a.saturating_mul(*b)).collect_vec();
        elements(&shape)?;
        let registers = self.register_bases().len() + inner.register_bases().len();
        if registers > 31 || self.num_warps().saturating_mul(inner.num_warps()) > MAX_WARPS {
            return None;
        }
        let place = |part: &[i64], axis_offset: &dyn Fn(usize) -> u32| -> Vec<u32> {
            let mut bases = vec![0; part.iter().product::<i64>().ilog2() as usize];
            for axis in 0..rank {
                let start = axis_bits(&shape, axis).start + axis_offset(axis);
                for (i, old) in axis_bits(part, axis).enumerate() {
                    bases[old as usize] = 1 << (start + i as u32);
                }
            }
            bases
        };
        let outer_bases = place(self.shape(), &|axis| inner.shape()[axis].ilog2());
        let inner_bases = place(inner.shape(), &|_| 0);
        let join = |low: &[u32], high: &[u32]| -> Vec<u32> {
            let low = low.iter().map(|&basis| f2_matrix::apply(&inner_bases, basis));
            low.chain(high.iter().map(|&basis| f2_matrix::apply(&outer_bases, basis))).collect_vec()
        };
        let lane =
            if is_used(self.lane_bases()) { join(&[], self.lane_bases()) } else { join(inner.lane_bases(), &[]) };
        let register = join(inner.register_bases(), self.register_bases());
        Some(Layout::new(shape, register, lane, join(inner.warp_bases(), self.warp_bases())))
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
        let shape: Vec<i64> = self.shape().iter().zip(inner.shape()).map(|(a, b)| a / b).collect_vec();
        let mut bases = vec![0; self.num_elements().ilog2() as usize];
        for axis in 0..shape.len() {
            let kept = axis_bits(self.shape(), axis).skip(inner.shape()[axis].ilog2() as usize);
            for (old, new) in kept.zip(axis_bits(&shape, axis)) {
                bases[old as usize] = 1 << new;
            }
        }
        let rest = |own: &[u32], inner: &[u32]| -> Option<Vec<u32>> {
            Some(own.get(inner.len()..)?.iter().map(|&basis| f2_matrix::apply(&bases, basis)).collect_vec())
        };
        let (register, warp) =
            (rest(self.register_bases(), inner.register_bases())?, rest(self.warp_bases(), inner.warp_bases())?);
        let lane = if is_used(inner.lane_bases()) { vec![0; LANE_BITS] } else { rest(self.lane_bases(), &[])? };
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

fn is_used(bases: &[u32]) -> bool {
    bases.iter().any(|&basis| basis != 0)
}
