//! Axes of tiles and arrays as arguments: counted from 0, or from the end.

use crate::sealed::Sealed;

/// One axis of a tile or an array: counted from 0, or from the end (`-1` is the last one).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn mean<const R: usize>(x: Tile<f32, R>, axis: impl ct::ops::Axis) -> Tile<f32, R> {
///     let axis = axis.axis(R);
///     x.sum(axis) / x.shape()[axis] as f32
/// }
/// let x = ct::astile([[1.0, 2.0], [3.0, 5.0]]);
/// ct::assert!(mean(x, 1).eq(mean(x, -1)) & mean(x, -1).eq(ct::astile([[1.5], [4.0]])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an axis",
    note = "an axis is a number of the host (usize, i32 or isize): 0 is the first one, -1 the last one"
)]
pub trait Axis: Sealed + Copy {
    /// Returns the number of the axis among `rank` axes, counted from 0. If there is no such axis,
    /// the result is at least `rank`.
    fn axis(self, rank: usize) -> usize;
}

impl Axis for usize {
    fn axis(self, _rank: usize) -> usize {
        self
    }
}
impl Axis for isize {
    fn axis(self, rank: usize) -> usize {
        let from_end = self.checked_add_unsigned(rank).filter(|&axis| self < 0 && axis >= 0);
        // The bits of an axis that is too small are a large number, which `shown` decodes.
        from_end.unwrap_or(self) as usize
    }
}
impl Axis for i32 {
    fn axis(self, rank: usize) -> usize {
        (self as isize).axis(rank)
    }
}

/// Returns the number of an axis that does not exist, as the user wrote it.
pub(crate) fn shown(axis: usize) -> isize {
    axis as isize
}

/// The fix for an axis that does not exist.
pub(crate) const AXES_COUNT: &str = "axes are counted from 0; -1 is the last one";
