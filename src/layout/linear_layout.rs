//! Linear layout: the distribution of a tile over registers, lanes and warps (Triton
//! `LinearLayout`).

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use super::f2_matrix;

/// Number of bits of the lane number. A warp has 32 lanes.
pub(super) const LANE_BITS: usize = 5;

/// Maximum number of warps of a layout, so that thread numbers fit u32.
pub(super) const MAX_WARPS: usize = 1 << 26;

/// Linear map over F2 from (register, lane, warp) to the elements of a tile.
///
/// Each bit of the register, lane and warp number has a basis. The flat row-major
/// index of an element is the exclusive or of the bases of the set bits. A basis of 0 is
/// replication. Each extent of the shape is a power of two, and the tile has less than 2^32
/// elements. Two layouts are equal if their [canonical](Layout::canonical) forms are.
///
/// ```
/// use cutlet::layout::Layout;
///
/// // 4 consecutive elements a thread, 4 warps; a tile of 16 x 64.
/// let layout = Layout::blocked(&[16, 64], &[1, 0], 4, 4);
/// assert_eq!((layout.num_registers(), layout.num_warps()), (8, 4));
/// assert_eq!(layout.coordinates(layout.element(1, 16, 0)), [1, 1]);
/// assert_eq!(layout.vector_len(1), 4);
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    // Shared by clones: layouts are cloned for each use of a value.
    shape: Arc<[i64]>,
    register: Arc<[u32]>,
    lane: Arc<[u32]>,
    warp: Arc<[u32]>,
}

impl Layout {
    /// Makes the layout of a tile of this shape with these bases of the register, lane and warp
    /// bits.
    ///
    /// # Panics
    /// If an extent is not a power of two, the tile has 2^32 elements or more, or a basis is no
    /// element index. If the number of lane bases is not 5, or there are more than 31 register or
    /// 26 warp bases.
    ///
    /// ```
    /// use cutlet::layout::Layout;
    ///
    /// // Two elements a thread; 16 lanes hold the tile, the other 16 hold it once more.
    /// let layout = Layout::new([32], vec![1], vec![2, 4, 8, 16, 0], vec![]);
    /// assert_eq!((layout.element(1, 3, 0), layout.element(1, 19, 0)), (7, 7));
    /// ```
    pub fn new(shape: impl Into<Vec<i64>>, register: Vec<u32>, lane: Vec<u32>, warp: Vec<u32>) -> Layout {
        let shape = shape.into();
        assert!(shape.iter().all(|n| *n > 0 && n.count_ones() == 1), "extents {shape:?} are not powers of two");
        assert_eq!(lane.len(), LANE_BITS, "a warp has 32 lanes");
        assert!(register.len() < 32, "{} bits of registers", register.len());
        assert!(1 << warp.len().min(32) <= MAX_WARPS, "{} bits of warps", warp.len());
        let count = checked_num_elements(&shape);
        assert!(
            [&register, &lane, &warp].into_iter().flatten().all(|&basis| i64::from(basis) < count),
            "a basis is outside of the tile {shape:?}: {register:?} {lane:?} {warp:?}"
        );
        Layout { shape: shape.into(), register: register.into(), lane: lane.into(), warp: warp.into() }
    }

    /// Makes a coalesced layout. Each thread has `vector` elements along the fastest axis
    /// `order[0]`. Then lanes fill the axes in order, then warps, and registers have the remaining
    /// elements.
    ///
    /// If the tile has fewer elements than threads, the other lanes and warps have replicas. The
    /// vector is limited to the fastest axis.
    ///
    /// # Panics
    /// If `order` is not a permutation of the axes, an extent, `vector` or `num_warps` is no power
    /// of two, or the tile has 2^32 elements or more.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[8, 256], &[1, 0], 4, 2);
    /// assert_eq!(layout.element(3, 1, 0), 7); // 4 elements a thread
    /// assert_eq!(layout.element(0, 0, 1), 128); // the second warp
    /// assert_eq!(layout.element(4, 0, 0), 256); // registers go on with the next row
    /// ```
    pub fn blocked(shape: &[i64], order: &[usize], vector: usize, num_warps: usize) -> Layout {
        assert!(vector.is_power_of_two() && num_warps.is_power_of_two(), "vector {vector}, {num_warps} warps");
        assert!(is_permutation(order, shape.len()), "{order:?} is no order of {} axes", shape.len());
        checked_num_elements(shape);
        let mut bits: Vec<u32> =
            order.iter().flat_map(|&axis| axis_bits(shape, axis)).map(|bit| 1 << bit).collect_vec();
        let fastest = order.first().map_or(1, |&axis| shape[axis] as usize);
        let mut take = |count: usize| -> Vec<u32> { bits.drain(..count.min(bits.len())).collect_vec() };
        let mut register = take(vector.min(fastest).ilog2() as usize);
        let mut lane = take(LANE_BITS);
        let mut warp = take(num_warps.ilog2() as usize);
        register.extend(take(usize::MAX));
        lane.resize(LANE_BITS, 0);
        warp.resize(num_warps.ilog2() as usize, 0);
        Layout::new(shape, register, lane, warp)
    }

    /// Makes the layout in which each thread has the whole tile: register `r` is element `r`.
    ///
    /// # Panics
    /// As [`Layout::new`].
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::replicated(&[2, 4], 1);
    /// assert_eq!((layout.element(5, 0, 0), layout.element(5, 31, 0)), (5, 5));
    /// ```
    pub fn replicated(shape: &[i64], num_warps: usize) -> Layout {
        let bits = checked_num_elements(shape).ilog2();
        let warp = vec![0; num_warps.ilog2() as usize];
        Layout::new(shape, (0..bits).map(|bit| 1 << bit).collect_vec(), vec![0; LANE_BITS], warp)
    }

    /// Returns the extents of the tile.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::replicated(&[2, 4], 1).shape(), [2, 4]);
    /// ```
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the bases of the register bits.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[128], &[0], 4, 1).register_bases(), [1, 2]);
    /// ```
    pub fn register_bases(&self) -> &[u32] {
        &self.register
    }

    /// Returns the bases of the five lane bits.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[128], &[0], 4, 1).lane_bases(), [4, 8, 16, 32, 64]);
    /// ```
    pub fn lane_bases(&self) -> &[u32] {
        &self.lane
    }

    /// Returns the bases of the warp bits.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[512], &[0], 4, 4).warp_bases(), [128, 256]);
    /// ```
    pub fn warp_bases(&self) -> &[u32] {
        &self.warp
    }

    /// Returns the number of elements of one thread, replicas included.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4).num_registers(), 8);
    /// ```
    pub fn num_registers(&self) -> usize {
        1 << self.register.len()
    }

    /// Returns the number of warps.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4).num_warps(), 4);
    /// ```
    pub fn num_warps(&self) -> usize {
        1 << self.warp.len()
    }

    /// Returns the number of elements of the tile.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4).num_elements(), 1024);
    /// ```
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// Returns the flat row-major index of the element in a register of a lane of a warp.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4);
    /// assert_eq!(layout.element(1, 16, 0), 65); // row 1, column 1
    /// ```
    pub fn element(&self, register: usize, lane: usize, warp: usize) -> u32 {
        f2_matrix::apply(&self.register, register as u32)
            ^ f2_matrix::apply(&self.lane, lane as u32)
            ^ f2_matrix::apply(&self.warp, warp as u32)
    }

    /// Returns the coordinates of a flat index.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::replicated(&[16, 64], 1).coordinates(65), [1, 1]);
    /// ```
    pub fn coordinates(&self, flat: u32) -> Vec<i64> {
        let mut rest = i64::from(flat);
        let mut coordinates: Vec<i64> = self
            .shape
            .iter()
            .rev()
            .map(|&extent| {
                let coordinate = rest % extent;
                rest /= extent;
                coordinate
            })
            .collect_vec();
        coordinates.reverse();
        coordinates
    }

    /// Returns the layout of the tile reshaped to `shape`. No element moves.
    ///
    /// # Panics
    /// If the number of elements differs.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4);
    /// assert_eq!(layout.reshape(&[1024]).element(1, 16, 0), 65);
    /// ```
    #[must_use]
    pub fn reshape(&self, shape: &[i64]) -> Layout {
        assert_eq!(
            elements(shape),
            Some(self.num_elements() as i64),
            "{:?} cannot be reshaped to {shape:?}",
            self.shape
        );
        Layout { shape: shape.into(), ..self.clone() }
    }

    /// Returns the layout of the permuted tile whose dimension `i` is dimension `permutation[i]` of
    /// this one.
    ///
    /// # Panics
    /// If it is no permutation of the axes.
    ///
    /// ```
    /// use cutlet::layout::Layout;
    /// assert_eq!(Layout::blocked(&[16, 64], &[1, 0], 4, 4).permute(&[1, 0]), Layout::blocked(&[64, 16], &[0, 1], 4, 4));
    /// ```
    #[must_use]
    pub fn permute(&self, permutation: &[usize]) -> Layout {
        assert!(is_permutation(permutation, self.shape.len()), "{permutation:?} for {:?}", self.shape);
        let shape: Vec<i64> = permutation.iter().map(|&axis| self.shape[axis]).collect_vec();
        // New bit number of each old bit, by the axes of the result.
        let mut moved = vec![0; self.num_elements().ilog2() as usize];
        for (axis, &source) in permutation.iter().enumerate() {
            for (new, old) in axis_bits(&shape, axis).zip(axis_bits(&self.shape, source)) {
                moved[old as usize] = 1 << new;
            }
        }
        self.map_bases(shape, |basis| f2_matrix::apply(&moved, basis))
    }

    /// Removes an axis of extent 1.
    ///
    /// # Panics
    /// If its extent is not 1.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::replicated(&[1, 8], 1).squeeze(0).shape(), [8]);
    /// ```
    #[must_use]
    pub fn squeeze(&self, axis: usize) -> Layout {
        assert_eq!(self.shape[axis], 1, "axis {axis} of {:?} is not of extent 1", self.shape);
        let mut shape = self.shape.to_vec();
        shape.remove(axis);
        self.reshape(&shape)
    }

    /// Inserts an axis of extent 1 before `axis`.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::replicated(&[8], 1).unsqueeze(1).shape(), [8, 1]);
    /// ```
    #[must_use]
    pub fn unsqueeze(&self, axis: usize) -> Layout {
        let mut shape = self.shape.to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// Returns the layout of the result of a reduction along `axis`, whose extent becomes 1. Lanes
    /// and warps along the axis have replicas, register bits along it are removed.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let rows = (spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap().reduce(1);
    /// assert_eq!((rows.shape(), rows.num_registers(), rows.replication()), (&[8, 1][..], 1, 4));
    /// ```
    #[must_use]
    pub fn reduce(&self, axis: usize) -> Layout {
        let mut shape = self.shape.to_vec();
        shape[axis] = 1;
        self.project(&shape)
    }

    /// Returns the layout of a source of shape `source` whose broadcast to the shape of this layout
    /// is this layout, so that no data moves. Register bits of basis 0 are removed.
    ///
    /// # Panics
    /// If an extent of `source` is neither 1 nor that of this layout.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[8, 32], &[1, 0], 1, 1);
    /// let column = layout.project(&[8, 1]); // what a column must be so that stretching it moves nothing
    /// assert_eq!((column.num_registers(), column.replication()), (8, 32));
    /// ```
    #[must_use]
    pub fn project(&self, source: &[i64]) -> Layout {
        let bases = self.projection(source);
        self.map_bases(source.to_vec(), |basis| f2_matrix::apply(&bases, basis)).canonical()
    }

    /// Returns, for each register of this layout, the register of `self.project(source)` that is
    /// broadcast to it.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[2, 128], &[1, 0], 2, 1);
    /// assert_eq!(layout.projected_registers(&[2, 1]), [0, 0, 0, 0, 1, 1, 1, 1]); // 4 of each row
    /// ```
    pub fn projected_registers(&self, source: &[i64]) -> Vec<usize> {
        let bases = self.projection(source);
        let kept: Vec<usize> =
            (0..self.register.len()).filter(|&bit| f2_matrix::apply(&bases, self.register[bit]) != 0).collect_vec();
        (0..self.num_registers())
            .map(|register| kept.iter().enumerate().map(|(new, old)| (register >> old & 1) << new).sum())
            .collect_vec()
    }

    /// Returns the basis in the flat index of `source` of each bit of the flat index of this
    /// layout.
    fn projection(&self, source: &[i64]) -> Vec<u32> {
        assert_eq!(source.len(), self.shape.len(), "{source:?} is no source of {:?}", self.shape);
        let mut bases = vec![0; self.num_elements().ilog2() as usize];
        for axis in 0..source.len() {
            assert!(source[axis] == 1 || source[axis] == self.shape[axis], "{source:?} to {:?}", self.shape);
            for (new, old) in axis_bits(source, axis).zip(axis_bits(&self.shape, axis)) {
                bases[old as usize] = 1 << new;
            }
        }
        bases
    }

    /// Returns the layout without register bits of basis 0.
    ///
    /// ```
    /// let twice = cutlet::layout::Layout::new([32], vec![0], vec![1, 2, 4, 8, 16], vec![]);
    /// assert_eq!((twice.num_registers(), twice.canonical().num_registers()), (2, 1));
    /// ```
    #[must_use]
    pub fn canonical(&self) -> Layout {
        Layout { register: self.register.iter().copied().filter(|&basis| basis != 0).collect(), ..self.clone() }
    }

    /// Returns the register of [`Layout::canonical`] that corresponds to `register` of this layout.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::new([64], vec![0, 32], vec![1, 2, 4, 8, 16], vec![]);
    /// assert_eq!((0..4).map(|register| layout.canonical_register(register)).collect::<Vec<_>>(), [0, 0, 1, 1]);
    /// ```
    pub fn canonical_register(&self, register: usize) -> usize {
        let kept = (0..self.register.len()).filter(|&bit| self.register[bit] != 0);
        kept.enumerate().map(|(new, old)| (register >> old & 1) << new).sum()
    }

    /// Returns true if no element is replicated.
    ///
    /// ```
    /// use cutlet::layout::Layout;
    /// assert!(Layout::blocked(&[32], &[0], 1, 1).is_injective() && !Layout::blocked(&[16], &[0], 1, 1).is_injective());
    /// ```
    pub fn is_injective(&self) -> bool {
        f2_matrix::rank(&self.bases()) == self.hardware_bits()
    }

    /// Returns true if each element is in some register.
    ///
    /// ```
    /// assert!(!cutlet::layout::Layout::new([4], vec![1], vec![0; 5], vec![]).covers()); // elements 2 and 3 are nowhere
    /// ```
    pub fn covers(&self) -> bool {
        1 << f2_matrix::rank(&self.bases()) == self.num_elements()
    }

    /// Returns the number of replicas of each element that the layout contains.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[8], &[0], 1, 1).replication(), 4);
    /// ```
    pub fn replication(&self) -> usize {
        1 << (self.hardware_bits() - f2_matrix::rank(&self.bases()))
    }

    /// Returns the number of consecutive registers that contain consecutive elements along `axis`,
    /// aligned to that number.
    ///
    /// ```
    /// let layout = cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4);
    /// assert_eq!((layout.vector_len(1), layout.vector_len(0)), (4, 1));
    /// ```
    pub fn vector_len(&self, axis: usize) -> usize {
        let bits: Vec<u32> = axis_bits(&self.shape, axis).map(|bit| 1 << bit).collect_vec();
        let run = self.register.iter().zip(&bits).take_while(|(basis, bit)| basis == bit).count();
        let bases = self.bases();
        // In a swizzled layout, other hardware bits may flip low element bits, so that the elements
        // are not aligned.
        let is_aligned = |count: usize| {
            let mask = bits[..count].iter().sum::<u32>();
            bases.iter().enumerate().all(|(i, basis)| i < count || basis & mask == 0)
        };
        1 << (0..=run).rev().find(|&count| is_aligned(count)).unwrap_or(0)
    }

    /// Returns the number of low register bits that are the elements 1, 2, 4, … along the last
    /// axis.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[16, 64], &[1, 0], 4, 4).contiguous_bits(), 2);
    /// ```
    pub fn contiguous_bits(&self) -> u32 {
        match self.shape.len() {
            0 => 0,
            rank => self.vector_len(rank - 1).ilog2(),
        }
    }

    /// Returns the bases of all hardware bits: registers, lanes, warps.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Layout::blocked(&[64], &[0], 1, 2).bases(), [1, 2, 4, 8, 16, 32]);
    /// ```
    pub fn bases(&self) -> Vec<u32> {
        [&self.register[..], &self.lane, &self.warp].concat()
    }

    /// Returns true if the layouts are equal bit for bit, including register bits of basis 0.
    ///
    /// ```
    /// let layout = |register| cutlet::layout::Layout::new([32], register, vec![1, 2, 4, 8, 16], vec![]);
    /// assert!(layout(vec![]) == layout(vec![0]) && !layout(vec![]).is_same(&layout(vec![0])));
    /// ```
    pub fn is_same(&self, other: &Layout) -> bool {
        self.shape == other.shape
            && self.register == other.register
            && self.lane == other.lane
            && self.warp == other.warp
    }

    fn hardware_bits(&self) -> usize {
        self.register.len() + self.lane.len() + self.warp.len()
    }

    fn map_bases(&self, shape: Vec<i64>, map: impl Fn(u32) -> u32) -> Layout {
        let all = |bases: &[u32]| bases.iter().map(|&basis| map(basis)).collect();
        Layout { shape: shape.into(), register: all(&self.register), lane: all(&self.lane), warp: all(&self.warp) }
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        self.canonical().is_same(&other.canonical())
    }
}

impl Eq for Layout {}

impl std::hash::Hash for Layout {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let Layout { shape, register, lane, warp } = self.canonical();
        (shape, register, lane, warp).hash(state);
    }
}

/// Returns the number of elements of a tile. `None` if an extent is not positive or the number is
/// 2^32 or more.
pub(super) fn elements(shape: &[i64]) -> Option<i64> {
    let positive = shape.iter().all(|&extent| extent > 0);
    let count = shape.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| positive && count < 1 << 32)
}

/// Returns the number of [`elements`]. Panics if there are 2^32 or more.
fn checked_num_elements(shape: &[i64]) -> i64 {
    elements(shape).unwrap_or_else(|| panic!("a tile of shape {shape:?} has 2^32 elements or more"))
}

/// Returns the bits of the flat row-major index that belong to an axis, from low to high.
pub(super) fn axis_bits(shape: &[i64], axis: usize) -> std::ops::Range<u32> {
    let start = shape[axis + 1..].iter().product::<i64>().ilog2();
    start..start + shape[axis].ilog2()
}

fn is_permutation(order: &[usize], rank: usize) -> bool {
    order.len() == rank && (0..rank).all(|axis| order.contains(&axis))
}

#[cfg(test)]
mod tests;
