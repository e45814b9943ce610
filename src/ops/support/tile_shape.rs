//! Shapes of tiles as arguments.

use crate::sealed::Sealed;

/// The shape of a tile with `R` axes: an array of host numbers, or one number for one axis.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn double<const R: usize>(x: Array<f32, R>, y: ArrayMut<f32, R>, tile: impl ct::ops::TileShape<R> + Copy) {
///     y.store([0; R], x.load([0; R], tile) * 2.0);
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([4], 1.5f32)?, ct::Device::cpu().zeros([4])?);
/// ct::launch(|x, y| double(x, y, 4), 1, (&x, &mut y))?; // the same as [4]
/// assert_eq!(y.to_vec()?, [3.0; 4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the shape of a tile",
    label = "not numbers of the host",
    note = "a shape is an array of host numbers (usize), one for each axis: `[64, 32]`; of one axis also `64`",
    note = "numbers that are known only when the kernel runs are no shape: take `tile: usize` as a parameter and pass \
            `ct::Constant(64)` at the launch; \
            see docs/common_errors.md"
)]
pub trait TileShape<const R: usize>: Sealed {
    #[doc(hidden)]
    fn extents(self) -> [usize; R];
}

impl<const R: usize> TileShape<R> for [usize; R] {
    fn extents(self) -> [usize; R] {
        self
    }
}
impl TileShape<1> for usize {
    fn extents(self) -> [usize; 1] {
        [self]
    }
}
