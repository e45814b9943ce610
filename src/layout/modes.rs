//! Layouts as products of atoms, the form that people write and read.

use std::fmt;
use std::ops::Mul;

use super::distributed::{LANE_BITS, Layout, axis_bits};

/// A layout in mode form: every dimension of the shape is factored into modes; some modes count threads
/// (spatial), the others count the slots of a thread (local).
///
/// Extents need not be powers of two. `a * b` puts a whole tile `b` in the place of every element of
/// `a`; threads and slots of `b` vary fastest.
///
/// ```
/// use cutlet::layout::{local, spatial};
///
/// let layout = spatial([2, 2]) * local([1, 2]);
/// assert_eq!(layout.shape(), [2, 4]);
/// assert_eq!(layout.coordinates(3, 1), [1, 3]);
/// assert_eq!(layout.to_string(), "\
/// shape [2, 4], 4 threads, 2 slots
/// 0: 0  0: 1  1: 0  1: 1
/// 2: 0  2: 1  3: 0  3: 1
/// ");
/// ```
#[derive(Clone, Debug)]
pub struct Modes {
    shape: Vec<i64>,
    /// Extents of the modes: those of dimension 0 from slow to fast, then those of dimension 1, …
    mode_shape: Vec<i64>,
    /// Dimension of each mode.
    mode_axis: Vec<usize>,
    /// What the thread number counts, from slow to fast.
    spatial: Vec<SpatialMode>,
    /// Modes that the slot number counts, from slow to fast.
    local: Vec<usize>,
}

/// One factor of the thread number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpatialMode {
    /// Counts this mode of the shape.
    Mode(usize),
    /// Counts replicas: so many groups of threads hold the same elements.
    Replicas(i64),
}

/// All elements in one thread, slots in row-major order.
pub fn local(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = 0..shape.len();
    Modes::atom(shape, Vec::new(), order.collect())
}

/// One element a thread, threads in row-major order.
pub fn spatial(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = 0..shape.len();
    Modes::atom(shape, order.collect(), Vec::new())
}

/// All elements in one thread, slots in column-major order.
pub fn column_local(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = (0..shape.len()).rev();
    Modes::atom(shape, Vec::new(), order.collect())
}

/// One element a thread, threads in column-major order.
pub fn column_spatial(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = (0..shape.len()).rev();
    Modes::atom(shape, order.collect(), Vec::new())
}

impl Modes {
    fn atom(shape: Vec<i64>, spatial: Vec<usize>, local: Vec<usize>) -> Modes {
        let spatial = spatial.into_iter().map(SpatialMode::Mode).collect();
        Modes { mode_axis: (0..shape.len()).collect(), mode_shape: shape.clone(), shape, spatial, local }
    }

    /// A layout from its parts: `mode_shape[d]` factors dimension `d` from slow to fast, `spatial` and
    /// `local` name modes by their number over all dimensions, from slow to fast.
    ///
    /// `None` unless every mode of an extent above 1 is used exactly once and all extents are positive.
    ///
    /// ```
    /// use cutlet::layout::{Modes, SpatialMode::*};
    ///
    /// // Rows over 8 threads, two replicas of that; columns in slots.
    /// let layout = Modes::new(&[&[8], &[4]], vec![Replicas(2), Mode(0)], vec![1]).unwrap();
    /// assert_eq!((layout.num_threads(), layout.num_slots()), (16, 4));
    /// ```
    pub fn new(mode_shape: &[&[i64]], spatial: Vec<SpatialMode>, local: Vec<usize>) -> Option<Modes> {
        let modes = Modes {
            shape: mode_shape.iter().map(|modes| modes.iter().product()).collect(),
            mode_axis: mode_shape.iter().enumerate().flat_map(|(axis, modes)| vec![axis; modes.len()]).collect(),
            mode_shape: mode_shape.concat(),
            spatial,
            local,
        };
        let mut uses = vec![0; modes.mode_shape.len()];
        for mode in modes.spatial_numbers().chain(modes.local.iter().copied()) {
            *uses.get_mut(mode)? += 1;
        }
        let replicas_fit = modes.spatial.iter().all(|mode| !matches!(mode, SpatialMode::Replicas(n) if *n <= 0));
        let fits = |(&extent, &uses): (&i64, &i32)| extent > 0 && (uses == 1 || (uses == 0 && extent == 1));
        (replicas_fit && modes.mode_shape.iter().zip(&uses).all(fits)).then_some(modes)
    }

    /// Extents of the tile.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Threads that the layout is for.
    pub fn num_threads(&self) -> i64 {
        self.spatial.iter().map(|&mode| self.spatial_extent(mode)).product()
    }

    /// Elements that one thread holds.
    pub fn num_slots(&self) -> i64 {
        self.local.iter().map(|&mode| self.mode_shape[mode]).product()
    }

    /// Coordinates of the element in a slot of a thread.
    pub fn coordinates(&self, thread: i64, slot: i64) -> Vec<i64> {
        let mut digits = vec![0; self.mode_shape.len()];
        let mut rest = thread;
        for &mode in self.spatial.iter().rev() {
            let extent = self.spatial_extent(mode);
            if let SpatialMode::Mode(number) = mode {
                digits[number] = rest % extent;
            }
            rest /= extent;
        }
        rest = slot;
        for &number in self.local.iter().rev() {
            digits[number] = rest % self.mode_shape[number];
            rest /= self.mode_shape[number];
        }
        let mut coordinates = vec![0; self.shape.len()];
        for ((digit, extent), &axis) in digits.iter().zip(&self.mode_shape).zip(&self.mode_axis) {
            coordinates[axis] = coordinates[axis] * extent + digit;
        }
        coordinates
    }

    /// The same layout with `count` replicas of the threads: thread numbers of the replicas vary slowest.
    pub fn replicate(mut self, count: i64) -> Modes {
        self.spatial.insert(0, SpatialMode::Replicas(count));
        self
    }

    /// The product, as `self * inner`, or `None` if the ranks differ.
    pub fn product(&self, inner: &Modes) -> Option<Modes> {
        (self.shape.len() == inner.shape.len()).then(|| self.multiplied(inner))
    }

    /// The product of layouts of equal rank.
    fn multiplied(&self, inner: &Modes) -> Modes {
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
            (spatial.collect::<Vec<_>>(), modes.local.iter().map(|&number| numbers[number]).collect::<Vec<_>>())
        };
        let (outer_spatial, outer_local) = renumber(self, &outer_number);
        let (inner_spatial, inner_local) = renumber(inner, &inner_number);
        Modes {
            shape: self.shape.iter().zip(&inner.shape).map(|(a, b)| a * b).collect(),
            mode_shape,
            mode_axis,
            spatial: [outer_spatial, inner_spatial].concat(),
            local: [outer_local, inner_local].concat(),
        }
    }

    /// The layout of the outer product of two tiles: the axes of `inner` follow those of this layout;
    /// threads and slots of `inner` vary fastest.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let layout = spatial([4]).concat(&local([2]));
    /// assert_eq!(layout, spatial([4, 1]) * local([1, 2]));
    /// ```
    pub fn concat(&self, inner: &Modes) -> Modes {
        self.with_axes(0, inner.shape.len()).multiplied(&inner.with_axes(self.shape.len(), 0))
    }

    /// With so many axes of extent 1 before and after the own ones.
    fn with_axes(&self, before: usize, after: usize) -> Modes {
        let rank = self.shape.len();
        let padded: Vec<i64> = [vec![1; before], self.shape.clone(), vec![1; after]].concat();
        let axes = (0..before).chain(self.mode_axis.iter().map(|axis| axis + before));
        let spatial = self.spatial.iter().map(|mode| match mode {
            SpatialMode::Mode(number) => SpatialMode::Mode(number + before),
            replicas => *replicas,
        });
        Modes {
            shape: padded,
            mode_shape: [vec![1; before], self.mode_shape.clone(), vec![1; after]].concat(),
            mode_axis: axes.chain(before + rank..before + rank + after).collect(),
            spatial: spatial.collect(),
            local: self.local.iter().map(|number| number + before).collect(),
        }
    }

    /// The layout of the permuted tile whose dimension `i` is dimension `permutation[i]` of this one, or `None`
    /// if that is no permutation.
    pub fn permute(&self, permutation: &[usize]) -> Option<Modes> {
        let rank = self.shape.len();
        if permutation.len() != rank || !(0..rank).all(|axis| permutation.contains(&axis)) {
            return None;
        }
        let order: Vec<usize> = permutation
            .iter()
            .flat_map(|&axis| (0..self.mode_axis.len()).filter(move |&mode| self.mode_axis[mode] == axis))
            .collect();
        let renumbered = |number: usize| order.iter().position(|&old| old == number).unwrap_or(number);
        let spatial = self.spatial.iter().map(|mode| match mode {
            SpatialMode::Mode(number) => SpatialMode::Mode(renumbered(*number)),
            replicas => *replicas,
        });
        Some(Modes {
            shape: permutation.iter().map(|&axis| self.shape[axis]).collect(),
            mode_shape: order.iter().map(|&mode| self.mode_shape[mode]).collect(),
            mode_axis: order
                .iter()
                .map(|&mode| permutation.iter().position(|&axis| axis == self.mode_axis[mode]).unwrap_or(0))
                .collect(),
            spatial: spatial.collect(),
            local: self.local.iter().map(|&number| renumbered(number)).collect(),
        })
    }

    /// The layout of the result of a reduction along `axis`, whose extent becomes 1: threads that differed
    /// along it hold replicas, and slots that did are gone.
    pub fn reduce(&self, axis: usize) -> Modes {
        let gone = |number: usize| self.mode_axis[number] == axis;
        let spatial = self.spatial.iter().map(|mode| match *mode {
            SpatialMode::Mode(number) if gone(number) => SpatialMode::Replicas(self.mode_shape[number]),
            kept => kept,
        });
        let one = |(number, &extent): (usize, &i64)| if gone(number) { 1 } else { extent };
        let mut shape = self.shape.clone();
        shape[axis] = 1;
        Modes {
            shape,
            mode_shape: self.mode_shape.iter().enumerate().map(one).collect(),
            mode_axis: self.mode_axis.clone(),
            spatial: spatial.collect(),
            local: self.local.iter().copied().filter(|&number| !gone(number)).collect(),
        }
    }

    /// As a [`Layout`] for `num_warps` warps: thread `t` is lane `t % 32` of warp `t / 32`. Fewer threads
    /// than the tile block has are replicated.
    ///
    /// `None` if an extent is no power of two or there are more threads than the warps have.
    pub fn to_layout(&self, num_warps: usize) -> Option<Layout> {
        let spatial_extents = self.spatial.iter().map(|&mode| self.spatial_extent(mode));
        if !num_warps.is_power_of_two()
            || self.mode_shape.iter().copied().chain(spatial_extents).any(|extent| extent.count_ones() != 1)
            || self.num_threads() > 32 * num_warps as i64
        {
            return None;
        }
        let mut threads: Vec<u32> = Vec::new();
        for mode in self.spatial.iter().rev() {
            match mode {
                SpatialMode::Mode(number) => threads.extend(self.mode_images(*number)),
                SpatialMode::Replicas(count) => threads.extend(vec![0; count.ilog2() as usize]),
            }
        }
        threads.resize(LANE_BITS + num_warps.ilog2() as usize, 0);
        let warp = threads.split_off(LANE_BITS);
        let register = self.local.iter().rev().flat_map(|&number| self.mode_images(number)).collect();
        Some(Layout::new(self.shape.clone(), register, threads, warp))
    }

    /// Flat-index images of the bits of a mode, from low to high.
    fn mode_images(&self, number: usize) -> Vec<u32> {
        let axis = self.mode_axis[number];
        let faster = (number + 1..self.mode_shape.len()).filter(|&mode| self.mode_axis[mode] == axis);
        let start = axis_bits(&self.shape, axis).start + faster.map(|mode| self.mode_shape[mode].ilog2()).sum::<u32>();
        (start..start + self.mode_shape[number].ilog2()).map(|bit| 1 << bit).collect()
    }

    fn spatial_extent(&self, mode: SpatialMode) -> i64 {
        match mode {
            SpatialMode::Mode(number) => self.mode_shape[number],
            SpatialMode::Replicas(count) => count,
        }
    }

    fn spatial_numbers(&self) -> impl Iterator<Item = usize> {
        self.spatial.iter().filter_map(|mode| match mode {
            SpatialMode::Mode(number) => Some(*number),
            SpatialMode::Replicas(_) => None,
        })
    }
}

/// Modes of extent 1 and groups of one replica make no difference.
impl PartialEq for Modes {
    fn eq(&self, other: &Modes) -> bool {
        let extents = |modes: &Modes| -> Vec<(usize, i64)> {
            let all = modes.mode_axis.iter().copied().zip(modes.mode_shape.iter().copied());
            all.filter(|(_, extent)| *extent != 1).collect()
        };
        // Numbers of modes among those of extents above 1.
        let number = |modes: &Modes, mode: usize| modes.mode_shape[..mode].iter().filter(|n| **n != 1).count();
        let spatial = |modes: &Modes| -> Vec<SpatialMode> {
            let longer = modes.spatial.iter().filter(|mode| modes.spatial_extent(**mode) != 1);
            let renumber = |mode: &SpatialMode| match *mode {
                SpatialMode::Mode(mode) => SpatialMode::Mode(number(modes, mode)),
                replicas => replicas,
            };
            longer.map(renumber).collect()
        };
        let local = |modes: &Modes| -> Vec<usize> {
            let longer = modes.local.iter().filter(|&&mode| modes.mode_shape[mode] != 1);
            longer.map(|&mode| number(modes, mode)).collect()
        };
        self.shape == other.shape
            && extents(self) == extents(other)
            && spatial(self) == spatial(other)
            && local(self) == local(other)
    }
}

impl Eq for Modes {}

impl Mul for Modes {
    type Output = Modes;

    /// # Panics
    /// If the ranks differ; [`Modes::product`] answers `None` then.
    fn mul(self, inner: Modes) -> Modes {
        match self.product(&inner) {
            Some(product) => product,
            None => panic!("layouts of shapes {:?} and {:?} differ in rank", self.shape, inner.shape),
        }
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, slots) = (self.num_threads(), self.num_slots());
        writeln!(f, "shape {:?}, {threads} threads, {slots} slots", self.shape)?;
        let places = (0..threads).flat_map(|thread| (0..slots).map(move |slot| (thread, slot)));
        let cells = places.map(|(thread, slot)| (self.coordinates(thread, slot), thread, slot));
        super::print::grid(f, &self.shape, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_nests_tiles() {
        let (outer, inner) = (spatial([3, 2]) * column_local([1, 5]), column_spatial([2, 4]) * local([2, 1]));
        let product = outer.product(&inner).unwrap();
        assert_eq!(product.shape(), [12, 40]);
        for thread in 0..product.num_threads() {
            for slot in 0..product.num_slots() {
                let (threads, slots) = (inner.num_threads(), inner.num_slots());
                let far = outer.coordinates(thread / threads, slot / slots);
                let near = inner.coordinates(thread % threads, slot % slots);
                let want = [far[0] * 4 + near[0], far[1] * 4 + near[1]];
                assert_eq!(product.coordinates(thread, slot), want);
            }
        }
        assert!(outer.product(&local([2])).is_none());
    }

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
                for slot in 0..modes.num_slots() {
                    let element = layout.element(slot as usize, thread as usize % 32, thread as usize / 32);
                    assert_eq!(layout.coordinates(element), modes.coordinates(thread % modes.num_threads(), slot));
                }
            }
        }
        assert!(spatial([3]).to_layout(1).is_none());
        assert!(spatial([64]).to_layout(1).is_none());
    }

    #[test]
    fn axes_move_and_vanish() {
        let modes = local([2, 4]) * column_spatial([4, 8]) * column_local([2, 1]);
        let (turned, rows) = (modes.permute(&[1, 0]).unwrap(), modes.reduce(1));
        assert_eq!(turned.shape(), [32, 16]);
        assert_eq!((rows.shape(), rows.num_threads(), rows.num_slots()), (&[16, 1][..], 32, 4));
        let layout = modes.to_layout(1).unwrap();
        assert_eq!(turned.to_layout(1).unwrap(), layout.permute(&[1, 0]));
        assert_eq!(rows.to_layout(1).unwrap(), layout.reduce(1));
        assert!(modes.permute(&[0, 0]).is_none());
        assert_eq!(spatial([4]).concat(&local([2])).to_layout(1).unwrap().coordinates(7), [3, 1]);
    }

    #[test]
    fn ill_formed_parts() {
        use SpatialMode::*;
        assert!(Modes::new(&[&[2, 4]], vec![Mode(0)], vec![]).is_none());
        assert!(Modes::new(&[&[2, 4]], vec![Mode(0), Mode(0)], vec![1]).is_none());
        assert!(Modes::new(&[&[2]], vec![Mode(0), Replicas(0)], vec![]).is_none());
        assert!(Modes::new(&[&[2]], vec![Mode(5)], vec![]).is_none());
        assert!(Modes::new(&[&[2, 1]], vec![Mode(0)], vec![]).is_some());
    }
}
