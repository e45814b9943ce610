//! Algebra of layouts in mode form: products and quotients, permutation, replication, reduction
//! (CuTe layout algebra).

use crate::util::collect::CollectVec as _;
use std::ops::Mul;

use super::modes::{Modes, SpatialMode, local, saturating_product, spatial};
use super::modes_reshape::are_distinct_axes;

/// Makes a layout `local(…) * spatial(…)` of this shape for a number of threads. The threads fill
/// the axes from the last one on, and each thread has the remaining elements. If there are fewer
/// elements than threads, the other threads have replicas.
///
/// Returns `None` if neither of the two numbers is a multiple of the other one, or one is not
/// positive.
///
/// ```
/// use cutlet::layout::{auto_local_spatial, local, spatial};
///
/// assert_eq!(auto_local_spatial(32, &[8, 16]).unwrap(), local([4, 1]) * spatial([2, 16]));
/// assert_eq!(auto_local_spatial(32, &[2, 4]).unwrap(), spatial([2, 4]).replicate(4));
/// assert!(auto_local_spatial(32, &[3, 5]).is_none());
/// ```
pub fn auto_local_spatial(num_threads: i64, shape: &[i64]) -> Option<Modes> {
    let size = shape.iter().try_fold(1i64, |size, &extent| size.checked_mul(extent).filter(|_| extent > 0))?;
    if num_threads <= 0 || (size % num_threads != 0 && num_threads % size != 0) {
        return None;
    }
    let (mut registers, mut threads, mut rest) = (shape.to_vec(), vec![1; shape.len()], num_threads);
    for axis in (0..shape.len()).rev() {
        threads[axis] = gcd(rest, shape[axis]);
        registers[axis] /= threads[axis];
        rest /= threads[axis];
    }
    Some((local(registers) * spatial(threads)).replicate(rest))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Modes {
    /// Replicates the layout `count` times. The thread numbers of the replicas vary slowest.
    ///
    /// # Panics
    /// If the count is not positive.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    /// assert_eq!(spatial([4]).replicate(2).places(&[3]), [(3, 0), (7, 0)]);
    /// ```
    #[must_use]
    pub fn replicate(mut self, count: i64) -> Modes {
        assert!(count > 0, "{count} replicas");
        self.spatial.insert(0, SpatialMode::Replicas(count));
        self
    }

    /// Returns the product, as `self * inner`. `None` if the ranks differ or an extent of the
    /// product does not fit i64.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert!(spatial([4]).product(&local([2])) == Some(spatial([4]) * local([2])));
    /// assert!(spatial([4]).product(&local([2, 2])).is_none());
    /// assert!(spatial([1 << 40]).product(&local([1 << 40])).is_none());
    /// ```
    pub fn product(&self, inner: &Modes) -> Option<Modes> {
        if self.shape.len() != inner.shape.len() {
            return None;
        }
        let extents = self.shape.iter().zip(&inner.shape).map(|(a, b)| a.checked_mul(*b));
        Some(self.multiply(inner, extents.collect::<Option<_>>()?))
    }

    /// Returns the layout `outer` with `outer * inner` equal to this one, `None` if there is none.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let fragment = local([2, 1]) * spatial([8, 4]) * local([1, 2]);
    /// let tile = spatial([2, 1]) * local([1, 4]) * fragment.clone();
    /// assert_eq!(tile.divide(&fragment).unwrap(), spatial([2, 1]) * local([1, 4]));
    /// assert!(tile.divide(&spatial([8, 4])).is_none());
    /// ```
    pub fn divide(&self, inner: &Modes) -> Option<Modes> {
        let rank = self.shape.len();
        if inner.shape.len() != rank || self.shape.iter().zip(&inner.shape).any(|(own, inner)| own % inner != 0) {
            return None;
        }
        let shape: Vec<i64> = self.shape.iter().zip(&inner.shape).map(|(own, inner)| own / inner).collect_vec();
        // Each axis is divided into an outer and an inner one, so that no mode belongs to both
        // factors.
        let halves: Vec<i64> = shape.iter().zip(&inner.shape).flat_map(|(&outer, &inner)| [outer, inner]).collect_vec();
        let split = self.reshape(&halves)?;
        let is_outer = |&mode: &usize| split.mode_axis[mode] % 2 == 0;
        let outer: Vec<usize> = (0..split.mode_shape.len()).filter(is_outer).collect_vec();
        let number = |mode: usize| outer.iter().position(|&other| other == mode);
        let slow = split.outer_thread_modes(inner.num_threads())?.into_iter().map(|mode| match mode {
            SpatialMode::Mode(mode) => number(mode).map(SpatialMode::Mode),
            replicas => Some(replicas),
        });
        let quotient = Modes {
            shape,
            mode_shape: outer.iter().map(|&mode| split.mode_shape[mode]).collect_vec(),
            mode_axis: outer.iter().map(|&mode| split.mode_axis[mode] / 2).collect_vec(),
            spatial: slow.collect::<Option<_>>()?,
            local: split.local.iter().filter_map(|&mode| number(mode)).collect_vec(),
        };
        let counts =
            saturating_product([quotient.num_threads(), quotient.num_registers()]) == quotient.total_registers();
        (counts && quotient.product(inner)? == *self).then_some(quotient)
    }

    /// Returns the number of registers of all threads, elements times replicas, at most i64::MAX.
    fn total_registers(&self) -> i64 {
        let replicas = self.spatial.iter().map(|mode| if let SpatialMode::Replicas(count) = mode { *count } else { 1 });
        saturating_product(self.shape.iter().copied().chain(replicas))
    }

    /// Returns the factors of the thread number above the lowest `count` threads.
    fn outer_thread_modes(&self, count: i64) -> Option<Vec<SpatialMode>> {
        let (mut slow, mut rest) = (self.spatial.clone(), count);
        while rest > 1 {
            let mode = slow.pop()?;
            let extent = self.spatial_extent(mode);
            match mode {
                _ if rest % extent == 0 => rest /= extent,
                SpatialMode::Replicas(_) if extent % rest == 0 => {
                    slow.push(SpatialMode::Replicas(extent / rest));
                    rest = 1;
                }
                _ => return None,
            }
        }
        Some(slow)
    }

    /// Returns the product of layouts of equal rank, which has this shape.
    fn multiply(&self, inner: &Modes, shape: Vec<i64>) -> Modes {
        let (mut mode_shape, mut mode_axis) = (Vec::new(), Vec::new());
        let (mut outer_number, mut inner_number) = (Vec::new(), Vec::new());
        for axis in 0..self.shape.len() {
            for (modes, numbers) in [(self, &mut outer_number), (inner, &mut inner_number)] {
                for mode in (0..modes.mode_shape.len()).filter(|&mode| modes.mode_axis[mode] == axis) {
                    numbers.push(mode_shape.len());
                    mode_shape.push(modes.mode_shape[mode]);
                    mode_axis.push(axis);
                }
            }
        }
        let renumber = |modes: &Modes, numbers: &[usize]| {
            let spatial = modes.spatial.iter().map(|mode| match mode {
                SpatialMode::Mode(number) => SpatialMode::Mode(numbers[*number]),
                replicas => *replicas,
            });
            (spatial.collect_vec(), modes.local.iter().map(|&number| numbers[number]).collect_vec())
        };
        let (outer_spatial, outer_local) = renumber(self, &outer_number);
        let (inner_spatial, inner_local) = renumber(inner, &inner_number);
        Modes {
            shape,
            mode_shape,
            mode_axis,
            spatial: [outer_spatial, inner_spatial].concat(),
            local: [outer_local, inner_local].concat(),
        }
    }

    /// Returns the layout of the outer product of two tiles. The axes of `inner` follow those of
    /// this layout, and threads and registers of `inner` vary fastest.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let layout = spatial([4]).concat(&local([2]));
    /// assert_eq!(layout, spatial([4, 1]) * local([1, 2]));
    /// ```
    #[must_use]
    pub fn concat(&self, inner: &Modes) -> Modes {
        let (rank, count) = (self.shape.len(), self.mode_shape.len());
        let moved = inner.spatial.iter().map(|mode| match mode {
            SpatialMode::Mode(number) => SpatialMode::Mode(number + count),
            replicas => *replicas,
        });
        Modes {
            shape: [&self.shape[..], &inner.shape].concat(),
            mode_shape: [&self.mode_shape[..], &inner.mode_shape].concat(),
            mode_axis: self
                .mode_axis
                .iter()
                .copied()
                .chain(inner.mode_axis.iter().map(|axis| axis + rank))
                .collect_vec(),
            spatial: self.spatial.iter().copied().chain(moved).collect_vec(),
            local: self.local.iter().copied().chain(inner.local.iter().map(|number| number + count)).collect_vec(),
        }
    }

    /// Returns the layout of the permuted tile whose dimension `i` is dimension `permutation[i]` of
    /// this one, `None` if that is no permutation.
    ///
    /// ```
    /// use cutlet::layout::{column_spatial, spatial};
    /// assert_eq!(spatial([2, 3]).permute(&[1, 0]).unwrap(), column_spatial([3, 2]));
    /// ```
    pub fn permute(&self, permutation: &[usize]) -> Option<Modes> {
        let rank = self.shape.len();
        if permutation.len() != rank || !(0..rank).all(|axis| permutation.contains(&axis)) {
            return None;
        }
        let order: Vec<usize> = permutation
            .iter()
            .flat_map(|&axis| (0..self.mode_axis.len()).filter(move |&mode| self.mode_axis[mode] == axis))
            .collect_vec();
        let renumbered = |number: usize| order.iter().position(|&old| old == number).unwrap_or(number);
        let spatial = self.spatial.iter().map(|mode| match mode {
            SpatialMode::Mode(number) => SpatialMode::Mode(renumbered(*number)),
            replicas => *replicas,
        });
        Some(Modes {
            shape: permutation.iter().map(|&axis| self.shape[axis]).collect_vec(),
            mode_shape: order.iter().map(|&mode| self.mode_shape[mode]).collect_vec(),
            mode_axis: order
                .iter()
                .map(|&mode| permutation.iter().position(|&axis| axis == self.mode_axis[mode]).unwrap_or(0))
                .collect_vec(),
            spatial: spatial.collect_vec(),
            local: self.local.iter().map(|&number| renumbered(number)).collect_vec(),
        })
    }

    /// Returns the layout of the result of a reduction along axes, whose extents become 1. Threads
    /// along them have replicas, registers along them are removed.
    ///
    /// `None` if an axis does not exist or is repeated. [`reduce_away`](Modes::reduce_away) removes
    /// the axes.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let rows = (spatial([8, 4]) * local([1, 2])).reduce(&[1]).unwrap();
    /// assert_eq!(rows.shape(), [8, 1]);
    /// assert_eq!(rows.places(&[2, 0]), [(8, 0), (9, 0), (10, 0), (11, 0)]);
    /// ```
    pub fn reduce(&self, axes: &[usize]) -> Option<Modes> {
        if !are_distinct_axes(axes, self.shape.len()) {
            return None;
        }
        let gone = |number: usize| axes.contains(&self.mode_axis[number]);
        let spatial = self.spatial.iter().map(|mode| match *mode {
            SpatialMode::Mode(number) if gone(number) => SpatialMode::Replicas(self.mode_shape[number]),
            kept => kept,
        });
        let one = |(number, &extent): (usize, &i64)| if gone(number) { 1 } else { extent };
        let kept = |(axis, &extent): (usize, &i64)| if axes.contains(&axis) { 1 } else { extent };
        let reduced = Modes {
            shape: self.shape.iter().enumerate().map(kept).collect_vec(),
            mode_shape: self.mode_shape.iter().enumerate().map(one).collect_vec(),
            mode_axis: self.mode_axis.clone(),
            spatial: spatial.collect_vec(),
            local: self.local.iter().copied().filter(|&number| !gone(number)).collect_vec(),
        };
        Some(reduced.canonical())
    }

    /// Returns the layout of [`reduce`](Modes::reduce) without the reduced axes.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    ///
    /// let row = spatial([3, 4]).reduce_away(&[0]).unwrap();
    /// assert_eq!(row.to_string(), "\
    /// shape [4], mode shape [4], spatial modes [-3, 0], local modes []
    ///  [0, 4, 8]: 0   [1, 5, 9]: 0  [2, 6, 10]: 0  [3, 7, 11]: 0
    /// ");
    /// ```
    pub fn reduce_away(&self, axes: &[usize]) -> Option<Modes> {
        self.reduce(axes)?.squeeze(axes)
    }
}

impl Mul for Modes {
    type Output = Modes;

    /// Returns the product.
    ///
    /// # Panics
    /// If the ranks differ or an extent does not fit i64. [`Modes::product`] returns `None` in
    /// these cases.
    fn mul(self, inner: Modes) -> Modes {
        match self.product(&inner) {
            Some(product) => product,
            None if self.shape.len() == inner.shape.len() => {
                panic!("the product of layouts of shapes {:?} and {:?} does not fit i64", self.shape, inner.shape)
            }
            None => panic!("layouts of shapes {:?} and {:?} differ in rank", self.shape, inner.shape),
        }
    }
}
