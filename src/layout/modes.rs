//! Layouts in mode form: the notation of users (CuTe modes).

use crate::util::collect::CollectVec as _;
/// Layout in mode form. Each dimension of the shape is factored into modes. The thread number
/// counts the *spatial* modes, the register index of a thread the *local* ones.
///
/// Extents need not be powers of two. `a * b` replaces each element of `a` by a tile `b`; threads
/// and registers of `b` vary fastest. Two layouts are equal if the same threads have the same
/// elements in the same registers, independently of the factorization.
///
/// ```
/// use cutlet::layout::{local, spatial};
///
/// let layout = spatial([2, 2]) * local([1, 2]);
/// assert_eq!(layout.shape(), [2, 4]);
/// assert_eq!(layout.coordinates(3, 1), [1, 3]);
/// assert_eq!(layout.to_string(), "\
/// shape [2, 4], mode shape [2, 2, 2], spatial modes [0, 1], local modes [2]
/// 0: 0  0: 1  1: 0  1: 1
/// 2: 0  2: 1  3: 0  3: 1
/// ");
/// assert_eq!(spatial([2]) * spatial([4]), spatial([8]));
/// ```
#[derive(Clone, Debug)]
pub struct Modes {
    pub(super) shape: Vec<i64>,
    /// Extents of the modes: those of dimension 0 from slow to fast, then those of dimension 1, …
    pub(super) mode_shape: Vec<i64>,
    /// Dimension of each mode.
    pub(super) mode_axis: Vec<usize>,
    /// Factors of the thread number, from slow to fast.
    pub(super) spatial: Vec<SpatialMode>,
    /// Modes of the register index, from slow to fast.
    pub(super) local: Vec<usize>,
}

/// Factor of the thread number.
///
/// ```
/// use cutlet::layout::{SpatialMode::*, spatial};
///
/// let row = spatial([3, 4]).reduce_away(&[0]).unwrap();
/// assert_eq!(row.spatial_modes(), [Replicas(3), Mode(0)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpatialMode {
    /// Mode of the shape.
    Mode(usize),
    /// Replicas: the number of groups of threads with the same elements.
    Replicas(i64),
}

/// Makes a layout with all elements in one thread, registers in row-major order.
///
/// # Panics
/// If an extent is not positive.
///
/// ```
/// let layout = cutlet::layout::local([2, 3]);
/// assert_eq!(layout.coordinates(0, 4), [1, 1]);
/// ```
pub fn local(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = 0..shape.len();
    Modes::atom(shape, Vec::new(), order.collect_vec())
}

/// Makes a layout with one element per thread, threads in row-major order.
///
/// # Panics
/// If an extent is not positive.
///
/// ```
/// let layout = cutlet::layout::spatial([2, 3]);
/// assert_eq!(layout.coordinates(4, 0), [1, 1]);
/// ```
pub fn spatial(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = 0..shape.len();
    Modes::atom(shape, order.collect_vec(), Vec::new())
}

/// Makes a layout with all elements in one thread, registers in column-major order.
///
/// # Panics
/// If an extent is not positive.
///
/// ```
/// let layout = cutlet::layout::column_local([2, 3]);
/// assert_eq!(layout.coordinates(0, 4), [0, 2]);
/// ```
pub fn column_local(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = (0..shape.len()).rev();
    Modes::atom(shape, Vec::new(), order.collect_vec())
}

/// Makes a layout with one element per thread, threads in column-major order.
///
/// # Panics
/// If an extent is not positive.
///
/// ```
/// let layout = cutlet::layout::column_spatial([2, 3]);
/// assert_eq!(layout.coordinates(4, 0), [0, 2]);
/// ```
pub fn column_spatial(shape: impl Into<Vec<i64>>) -> Modes {
    let shape = shape.into();
    let order = (0..shape.len()).rev();
    Modes::atom(shape, order.collect_vec(), Vec::new())
}

impl Modes {
    fn atom(shape: Vec<i64>, spatial: Vec<usize>, local: Vec<usize>) -> Modes {
        assert!(shape.iter().all(|&extent| extent > 0), "extents {shape:?} are not positive");
        let spatial = spatial.into_iter().map(SpatialMode::Mode).collect_vec();
        Modes { mode_axis: (0..shape.len()).collect_vec(), mode_shape: shape.clone(), shape, spatial, local }
    }

    /// Makes a layout from its parts. `mode_shape[d]` factors dimension `d` from slow to fast.
    /// `spatial` and `local` list modes by their number over all dimensions, from slow to fast.
    ///
    /// `None` unless each mode of an extent above 1 is used exactly once, all extents are positive,
    /// and the numbers of elements and threads fit i64.
    ///
    /// ```
    /// use cutlet::layout::{Modes, SpatialMode::*};
    ///
    /// // Rows over 8 threads, two replicas of that; columns in registers.
    /// let layout = Modes::new(&[&[8], &[4]], vec![Replicas(2), Mode(0)], vec![1]).unwrap();
    /// assert_eq!((layout.num_threads(), layout.num_registers()), (16, 4));
    /// ```
    pub fn new(mode_shape: &[&[i64]], spatial: Vec<SpatialMode>, local: Vec<usize>) -> Option<Modes> {
        let product = |extents: &[i64]| extents.iter().try_fold(1i64, |all, &extent| all.checked_mul(extent));
        let modes = Modes {
            shape: mode_shape.iter().map(|modes| product(modes)).collect::<Option<_>>()?,
            mode_axis: mode_shape.iter().enumerate().flat_map(|(axis, modes)| vec![axis; modes.len()]).collect_vec(),
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
        product(&modes.shape)?;
        product(&modes.spatial.iter().map(|&mode| modes.spatial_extent(mode)).collect_vec())?;
        (replicas_fit && modes.mode_shape.iter().zip(&uses).all(fits)).then_some(modes)
    }

    /// Returns the extents of the tile.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).shape(), [6, 12]);
    /// ```
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the extents of the modes: those of dimension 0 from slow to fast, then those of
    /// dimension 1, and so on.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).mode_shape(), [3, 2, 4, 3]);
    /// ```
    pub fn mode_shape(&self) -> &[i64] {
        &self.mode_shape
    }

    /// Returns the factors of the thread number, from slow to fast: modes by their index in
    /// [`mode_shape`](Modes::mode_shape), and replicas.
    ///
    /// ```
    /// use cutlet::layout::{SpatialMode::*, local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).spatial_modes(), [Mode(1), Mode(3)]);
    /// ```
    pub fn spatial_modes(&self) -> &[SpatialMode] {
        &self.spatial
    }

    /// Returns the modes of the register index, from slow to fast, by their index in
    /// [`mode_shape`](Modes::mode_shape).
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).local_modes(), [0, 2]);
    /// ```
    pub fn local_modes(&self) -> &[usize] {
        &self.local
    }

    /// Returns the number of threads, at most i64::MAX.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).num_threads(), 6);
    /// ```
    pub fn num_threads(&self) -> i64 {
        saturating_product(self.spatial.iter().map(|&mode| self.spatial_extent(mode)))
    }

    /// Returns the number of elements of one thread, at most i64::MAX.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).num_registers(), 12);
    /// ```
    pub fn num_registers(&self) -> i64 {
        saturating_product(self.local.iter().map(|&mode| self.mode_shape[mode]))
    }

    /// Returns the coordinates of the element in a register of a thread.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// // Register 5 is row 1, column 1 of the outer tile; thread 4 is row 1, column 1 of the inner one.
    /// assert_eq!((local([3, 4]) * spatial([2, 3])).coordinates(4, 5), [1 * 2 + 1, 1 * 3 + 1]);
    /// ```
    pub fn coordinates(&self, thread: i64, register: i64) -> Vec<i64> {
        let mut digits = vec![0; self.mode_shape.len()];
        let mut rest = thread;
        for &mode in self.spatial.iter().rev() {
            let extent = self.spatial_extent(mode);
            if let SpatialMode::Mode(number) = mode {
                digits[number] = rest % extent;
            }
            rest /= extent;
        }
        rest = register;
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

    /// Returns all positions of an element as pairs of thread and register, by increasing thread.
    /// Empty for coordinates outside of the tile or of another rank.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    ///
    /// let row = spatial([3, 4]).reduce_away(&[0]).unwrap();
    /// assert_eq!(row.places(&[1]), [(1, 0), (5, 0), (9, 0)]);
    /// assert!(row.places(&[4]).is_empty());
    /// ```
    pub fn places(&self, coordinates: &[i64]) -> Vec<(i64, i64)> {
        let inside = |(coordinate, extent): (&i64, &i64)| (0..*extent).contains(coordinate);
        if coordinates.len() != self.shape.len() || !coordinates.iter().zip(&self.shape).all(inside) {
            return Vec::new();
        }
        let mut rest = coordinates.to_vec();
        let mut digits = vec![0; self.mode_shape.len()];
        for (number, &extent) in self.mode_shape.iter().enumerate().rev() {
            let rest = &mut rest[self.mode_axis[number]];
            digits[number] = *rest % extent;
            *rest /= extent;
        }
        let next = |number: i64, extent: i64, digit: i64| number.saturating_mul(extent).saturating_add(digit);
        let register =
            self.local.iter().fold(0, |register, &number| next(register, self.mode_shape[number], digits[number]));
        let threads = self.spatial.iter().fold(vec![0], |threads, &mode| {
            let values = match mode {
                SpatialMode::Mode(number) => digits[number]..digits[number] + 1,
                SpatialMode::Replicas(count) => 0..count,
            };
            let extent = self.spatial_extent(mode);
            threads
                .iter()
                .flat_map(|&thread| values.clone().map(move |value| next(thread, extent, value)))
                .collect_vec()
        });
        threads.into_iter().map(|thread| (thread, register)).collect_vec()
    }

    /// Returns the same layout with the minimum number of modes: none of extent 1, and adjacent
    /// modes merged.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    ///
    /// let layout = spatial([2, 1]) * spatial([4, 1]) * local([1, 2]);
    /// assert_eq!(layout.canonical().mode_shape(), [8, 2]);
    /// ```
    #[must_use]
    pub fn canonical(&self) -> Modes {
        let long = |mode: &SpatialMode| self.spatial_extent(*mode) != 1;
        let spatial: Vec<SpatialMode> = self.spatial.iter().copied().filter(long).collect_vec();
        let local: Vec<usize> = self.local.iter().copied().filter(|&mode| self.mode_shape[mode] != 1).collect_vec();
        let follows = |slow: usize, fast: usize| {
            self.mode_axis[slow] == self.mode_axis[fast]
                && (spatial.windows(2).any(|pair| pair == [SpatialMode::Mode(slow), SpatialMode::Mode(fast)])
                    || local.windows(2).any(|pair| pair == [slow, fast]))
        };
        let mut result =
            Modes { shape: self.shape.clone(), mode_shape: vec![], mode_axis: vec![], spatial: vec![], local: vec![] };
        // New number of each mode that is not merged into a slower one.
        let mut number = vec![None; self.mode_shape.len()];
        let mut last = None;
        for (mode, &extent) in self.mode_shape.iter().enumerate().filter(|(_, extent)| **extent != 1) {
            match result.mode_shape.last_mut() {
                Some(merged) if last.is_some_and(|last| follows(last, mode)) => *merged *= extent,
                _ => {
                    number[mode] = Some(result.mode_shape.len());
                    result.mode_shape.push(extent);
                    result.mode_axis.push(self.mode_axis[mode]);
                }
            }
            last = Some(mode);
        }
        for mode in spatial {
            match (mode, result.spatial.last_mut()) {
                (SpatialMode::Replicas(count), Some(SpatialMode::Replicas(merged)))
                    if merged.checked_mul(count).is_some() =>
                {
                    *merged *= count;
                }
                (SpatialMode::Replicas(_), _) => result.spatial.push(mode),
                (SpatialMode::Mode(mode), _) => result.spatial.extend(number[mode].map(SpatialMode::Mode)),
            }
        }
        result.local = local.into_iter().filter_map(|mode| number[mode]).collect_vec();
        result
    }

    pub(super) fn spatial_extent(&self, mode: SpatialMode) -> i64 {
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

/// Returns the product of extents, at most i64::MAX.
pub(super) fn saturating_product(extents: impl IntoIterator<Item = i64>) -> i64 {
    extents.into_iter().fold(1, i64::saturating_mul)
}

impl PartialEq for Modes {
    fn eq(&self, other: &Modes) -> bool {
        let (own, other) = (self.canonical(), other.canonical());
        own.shape == other.shape
            && own.mode_shape == other.mode_shape
            && own.mode_axis == other.mode_axis
            && own.spatial == other.spatial
            && own.local == other.local
    }
}

impl Eq for Modes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ill_formed_parts() {
        use SpatialMode::*;
        assert!(Modes::new(&[&[2, 4]], vec![Mode(0)], vec![]).is_none());
        assert!(Modes::new(&[&[2, 4]], vec![Mode(0), Mode(0)], vec![1]).is_none());
        assert!(Modes::new(&[&[2]], vec![Mode(0), Replicas(0)], vec![]).is_none());
        assert!(Modes::new(&[&[2]], vec![Mode(5)], vec![]).is_none());
        assert!(Modes::new(&[&[1 << 40], &[1 << 40]], vec![Mode(0), Mode(1)], vec![]).is_none());
        assert!(Modes::new(&[&[2, 1]], vec![Mode(0)], vec![]).is_some());
    }
}
