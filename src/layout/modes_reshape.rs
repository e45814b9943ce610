//! Reshaping of layouts in mode form: insertion, removal, merging and splitting of axes.

use crate::util::collect::CollectVec as _;
use std::ops::{Bound, RangeBounds};

use super::modes::{Modes, SpatialMode};

impl Modes {
    /// Removes axes of extent 1. `None` if an extent is not 1, or an axis does not exist or is
    /// repeated.
    ///
    /// ```
    /// use cutlet::layout::{local, spatial};
    /// assert_eq!((spatial([1, 8]) * local([1, 2])).squeeze(&[0]).unwrap(), spatial([8]) * local([2]));
    /// ```
    pub fn squeeze(&self, axes: &[usize]) -> Option<Modes> {
        if !are_distinct_axes(axes, self.shape.len()) || axes.iter().any(|&axis| self.shape[axis] != 1) {
            return None;
        }
        let kept = (0..self.shape.len()).filter(|axis| !axes.contains(axis));
        self.reshape(&kept.map(|axis| self.shape[axis]).collect_vec())
    }

    /// Inserts axes of extent 1 at these positions of the new shape. `None` if a position does not
    /// exist or is repeated.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    /// assert_eq!(spatial([8]).unsqueeze(&[0, 2]).unwrap(), spatial([1, 8, 1]));
    /// ```
    pub fn unsqueeze(&self, axes: &[usize]) -> Option<Modes> {
        let rank = self.shape.len() + axes.len();
        if !are_distinct_axes(axes, rank) {
            return None;
        }
        let mut own = self.shape.iter();
        let shape = (0..rank).map(|axis| if axes.contains(&axis) { Some(1) } else { own.next().copied() });
        self.reshape(&shape.collect::<Option<Vec<_>>>()?)
    }

    /// Merges a range of axes. `None` if the range is empty or exceeds the shape, or the merged
    /// extent does not fit i64.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    /// assert_eq!(spatial([2, 3, 4]).flatten(1..).unwrap(), spatial([2, 12]));
    /// assert_eq!(spatial([2, 3, 4]).flatten(..).unwrap(), spatial([24]));
    /// ```
    pub fn flatten(&self, axes: impl RangeBounds<usize>) -> Option<Modes> {
        let start = match axes.start_bound() {
            Bound::Included(&axis) => axis,
            Bound::Excluded(&axis) => axis.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match axes.end_bound() {
            Bound::Included(&axis) => axis.checked_add(1)?,
            Bound::Excluded(&axis) => axis,
            Bound::Unbounded => self.shape.len(),
        };
        let axes = self.shape.get(start..end).filter(|axes| !axes.is_empty())?;
        let merged = axes.iter().try_fold(1i64, |merged, &extent| merged.checked_mul(extent))?;
        self.reshape(&[&self.shape[..start], &[merged], &self.shape[end..]].concat())
    }

    /// Reshapes the layout. The elements keep their row-major order and positions.
    ///
    /// `None` if the number of elements differs or does not fit i64, or a mode would be split by a
    /// number that does not divide it.
    ///
    /// ```
    /// use cutlet::layout::spatial;
    /// assert_eq!(spatial([4, 6]).reshape(&[8, 3]).unwrap(), spatial([8, 3]));
    ///
    /// let columns = cutlet::layout::column_spatial([4, 6]);
    /// assert!(columns.reshape(&[2, 12]).is_some()); // the modes of rows are two and two
    /// assert!(columns.reshape(&[3, 8]).is_none()); // 4 rows in groups of 3
    /// ```
    pub fn reshape(&self, shape: &[i64]) -> Option<Modes> {
        let size = shape.iter().try_fold(1i64, |size, &extent| size.checked_mul(extent).filter(|_| extent > 0))?;
        let own = self.shape.iter().try_fold(1i64, |size, &extent| size.checked_mul(extent))?;
        if size != own {
            return None;
        }
        let flat = Modes { shape: vec![size], mode_axis: vec![0; self.mode_shape.len()], ..self.clone() }.canonical();
        let mut result =
            Modes { shape: shape.to_vec(), mode_shape: vec![], mode_axis: vec![], spatial: vec![], local: vec![] };
        // New modes of each mode of `flat`, from slow to fast.
        let mut pieces: Vec<Vec<usize>> = Vec::new();
        let mut axes = shape.iter().copied().enumerate();
        let (mut axis, mut remaining) = (0, 1);
        for &extent in &flat.mode_shape {
            let (mut rest, first) = (extent, result.mode_shape.len());
            while rest > 1 {
                while remaining == 1 {
                    (axis, remaining) = axes.next()?;
                }
                let factor = if rest % remaining == 0 { remaining } else { rest };
                if remaining % factor != 0 {
                    return None;
                }
                result.mode_shape.push(factor);
                result.mode_axis.push(axis);
                (rest, remaining) = (rest / factor, remaining / factor);
            }
            pieces.push((first..result.mode_shape.len()).collect_vec());
        }
        for &mode in &flat.spatial {
            match mode {
                SpatialMode::Mode(number) => {
                    result.spatial.extend(pieces[number].iter().copied().map(SpatialMode::Mode));
                }
                replicas => result.spatial.push(replicas),
            }
        }
        result.local = flat.local.iter().flat_map(|&number| pieces[number].iter().copied()).collect_vec();
        Some(result)
    }
}

/// Returns true if these are different axes of a shape of this rank.
pub(super) fn are_distinct_axes(axes: &[usize], rank: usize) -> bool {
    axes.iter().enumerate().all(|(i, axis)| *axis < rank && !axes[..i].contains(axis))
}
