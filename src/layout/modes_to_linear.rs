//! Lowering of layouts from the mode form to the linear form.

use super::linear_layout::{LANE_BITS, Layout, MAX_WARPS, axis_bits, elements};
use super::modes::{Modes, SpatialMode};
use crate::util::collect::CollectVec as _;

impl Modes {
    /// Lowers the layout to a [`Layout`] for `num_warps` warps. Thread `t` is lane `t % 32` of warp
    /// `t / 32`. If there are fewer threads than in the tile block, they are replicated.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    ///
    /// let layout = spatial([8, 4]).to_layout(1).unwrap();
    /// assert_eq!(layout.lane_bases(), [1, 2, 4, 8, 16]);
    /// assert!(spatial([3]).to_layout(1).is_none());
    /// ```
    ///
    /// `None` if an extent is no power of two, or there are more threads than the warps have.
    /// `None` also for 2^32 elements or more, and for 2^27 warps or more.
    pub fn to_layout(&self, num_warps: usize) -> Option<Layout> {
        let spatial_extents = self.spatial.iter().map(|&mode| self.spatial_extent(mode));
        if !num_warps.is_power_of_two()
            || num_warps > MAX_WARPS
            || elements(&self.shape).is_none()
            || self.mode_shape.iter().copied().chain(spatial_extents).any(|extent| extent.count_ones() != 1)
            || self.num_threads() > 32 * num_warps as i64
        {
            return None;
        }
        let mut threads: Vec<u32> = Vec::new();
        for mode in self.spatial.iter().rev() {
            match mode {
                SpatialMode::Mode(number) => threads.extend(self.mode_bases(*number)),
                SpatialMode::Replicas(count) => threads.extend(vec![0; count.ilog2() as usize]),
            }
        }
        threads.resize(LANE_BITS + num_warps.ilog2() as usize, 0);
        let warp = threads.split_off(LANE_BITS);
        let register = self.local.iter().rev().flat_map(|&number| self.mode_bases(number)).collect_vec();
        Some(Layout::new(self.shape.clone(), register, threads, warp))
    }

    /// Returns the bases of the bits of a mode in the flat index, from low to high.
    fn mode_bases(&self, number: usize) -> Vec<u32> {
        let axis = self.mode_axis[number];
        let faster = (number + 1..self.mode_shape.len()).filter(|&mode| self.mode_axis[mode] == axis);
        let start = axis_bits(&self.shape, axis).start + faster.map(|mode| self.mode_shape[mode].ilog2()).sum::<u32>();
        (start..start + self.mode_shape[number].ilog2()).map(|bit| 1 << bit).collect_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{column_local, column_spatial, local, spatial};

    #[test]
    fn lowering_keeps_places() {
        let all = [
            local([2, 4]) * column_spatial([4, 8]) * column_local([2, 2]),
            spatial([2, 2]) * spatial([8, 4]) * local([1, 2]),
            (spatial([8, 1]) * local([2, 4])).replicate(2),
        ];
        for modes in all {
            let layout = modes.to_layout(4).unwrap();
            for thread in 0..128 {
                for register in 0..modes.num_registers() {
                    let element = layout.element(register as usize, thread as usize % 32, thread as usize / 32);
                    assert_eq!(layout.coordinates(element), modes.coordinates(thread % modes.num_threads(), register));
                }
            }
        }
        assert!(spatial([3]).to_layout(1).is_none());
        assert!(spatial([64]).to_layout(1).is_none());
    }

    #[test]
    fn axes_move_and_vanish() {
        let modes = local([2, 4]) * column_spatial([4, 8]) * column_local([2, 1]);
        let (turned, rows) = (modes.permute(&[1, 0]).unwrap(), modes.reduce(&[1]).unwrap());
        assert_eq!(turned.shape(), [32, 16]);
        assert_eq!((rows.shape(), rows.num_threads(), rows.num_registers()), (&[16, 1][..], 32, 4));
        let layout = modes.to_layout(1).unwrap();
        assert_eq!(turned.to_layout(1).unwrap(), layout.permute(&[1, 0]));
        assert_eq!(rows.to_layout(1).unwrap(), layout.reduce(1));
        assert_eq!(modes.reshape(&[2, 256]).unwrap().to_layout(1).unwrap(), layout.reshape(&[2, 256]));
        assert!(modes.permute(&[0, 0]).is_none());
        assert_eq!(spatial([4]).concat(&local([2])).to_layout(1).unwrap().coordinates(7), [3, 1]);
    }
}
