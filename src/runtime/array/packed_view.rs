//! Packed arrays over words of an array, for example of another library.

use std::fmt;
use std::marker::PhantomData;

use super::packed::{PackedDeviceArray, check_shape, row, shape_of_words};
use super::view::{DeviceView, DeviceViewMut};
use crate::error::{Error, Result};
use crate::kernel::{Constant, IntoKernelArg, LaunchArg};
use crate::ops::{PackedArray, PackedArrayMut, PackedFacts};
use crate::types::packed_formats::Narrow;

/// A packed array of rank `R` over the words of an array: in a kernel, [`PackedArray`].
///
/// It reads weights of another library in an array of u32, for example a tensor of candle. The
/// layout of the words is that of a [`PackedDeviceArray`](crate::packed::PackedDeviceArray). In a
/// row, the bits of element `k` begin at bit `k * F::BITS`, the lowest bit first. Rows are padded
/// to multiples of 128 elements.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::packed::u4;
///
/// fn kernel(x: ct::packed::PackedArray<u4, 2>, y: ArrayMut<f32, 2>) {
///     y.store((0, 0), x.load((0, 0), [2, 8]).cast::<f32>());
/// }
///
/// let device = ct::Device::cpu();
/// let shape = [2, 5];
/// let mut words = vec![0u32; ct::packed::PackedView::<u4, 2>::words(shape).iter().product()];
/// (words[0], words[16]) = (0x54321, 0x98765);
/// let words = device.array(&words, ct::packed::PackedView::<u4, 2>::words(shape))?;
/// let mut y = device.zeros(shape)?;
/// ct::launch(kernel, 1, (ct::packed::PackedView::<u4, 2>::new(words.view(), shape)?, &mut y))?;
/// assert_eq!(y.to_vec()?, [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct PackedView<'a, F, const R: usize> {
    words: DeviceView<'a, u32, R>,
    shape: [usize; R],
    element: PhantomData<F>,
}

impl<F, const R: usize> Clone for PackedView<'_, F, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, const R: usize> Copy for PackedView<'_, F, R> {}

/// Refuses words that are not those of a packed array with this shape in elements.
#[track_caller]
fn check_words<F: Narrow, const R: usize>(words: [usize; R], strides: [usize; R], shape: [usize; R]) -> Result<()> {
    check_shape::<F, R>(shape)?;
    let wanted = shape_of_words::<F, R>(shape);
    if words == wanted && (strides[R - 1] == 1 || words.contains(&0)) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "words of shape {words:?} and strides {strides:?} for a packed array of shape {shape:?} of {}, which has {wanted:?} words, \
         those of a row one after another",
        F::NAME
    )))
}

impl<F: Narrow, const R: usize> PackedDeviceArray<F, R> {
    /// Returns a view of the array.
    ///
    /// ```
    /// let x = cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 2>([2, 300])?;
    /// assert_eq!(x.view().shape(), [2, 300]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn view(&self) -> PackedView<'_, F, R> {
        PackedView { words: self.as_words().view(), shape: self.shape(), element: PhantomData }
    }

    /// Returns a mutable view of the array.
    ///
    /// ```
    /// let mut x = cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 2>([2, 300])?;
    /// assert_eq!(x.view_mut().shape(), [2, 300]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn view_mut(&mut self) -> PackedViewMut<'_, F, R> {
        let shape = self.shape();
        PackedViewMut { words: self.as_words_mut().view_mut(), shape, element: PhantomData }
    }
}

impl<'a, F: Narrow, const R: usize> PackedView<'a, F, R> {
    /// Makes a packed array of words, with this shape in elements.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let shape = ct::packed::PackedView::<ct::packed::u4, 2>::words([2, 8]);
    /// let words = ct::Device::cpu().zeros::<u32, 2>(shape)?;
    /// assert!(ct::packed::PackedView::<ct::packed::u4, 2>::new(words.view(), [2, 8]).is_ok());
    /// assert!(ct::packed::PackedView::<ct::packed::u4, 2>::new(words.view(), [3, 8]).is_err());
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for words of another shape than that of [`PackedView::words`], for gaps
    /// in a row, and for rows of more elements than an i32 can count.
    #[track_caller]
    pub fn new(words: DeviceView<'a, u32, R>, shape: [usize; R]) -> Result<PackedView<'a, F, R>> {
        check_words::<F, R>(words.shape(), words.strides(), shape)?;
        Ok(PackedView { words, shape, element: PhantomData })
    }

    /// Returns the shape in words of a packed array with this shape in elements: the last extent is
    /// the number of words of a row.
    ///
    /// ```
    /// assert_eq!(cutlet::packed::PackedView::<cutlet::packed::i4, 2>::words([10, 200]), [10, 32]);
    /// ```
    #[must_use]
    pub fn words(shape: [usize; R]) -> [usize; R] {
        shape_of_words::<F, R>(shape)
    }

    /// Returns the extents in elements.
    ///
    /// ```
    /// let words = cutlet::Device::cpu().zeros([3, 16])?;
    /// assert_eq!(cutlet::packed::PackedView::<cutlet::packed::u4, 2>::new(words.view(), [3, 99])?.shape(), [3, 99]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }
}

impl<F: Narrow, const R: usize> fmt::Debug for PackedView<'_, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedView<{}>({:?} on {})", F::NAME, self.shape, self.words.device())
    }
}

#[diagnostic::do_not_recommend]
impl<'a, F: Narrow, const R: usize> IntoKernelArg<PackedArray<F, R>> for PackedView<'a, F, R> {
    type Arg = (DeviceView<'a, u32, R>, i32, Constant<PackedFacts>);

    #[inline]
    fn into_arg(self) -> Self::Arg {
        let (extent, facts) = row(self.shape, &self.words.layout());
        (self.words, extent, facts)
    }

    fn from_traced((words, extent, facts): <Self::Arg as LaunchArg>::Traced) -> PackedArray<F, R> {
        PackedArray::new(words, extent, facts)
    }
}

/// A mutable packed array of rank `R` over the words of an array: in a kernel, [`PackedArrayMut`].
///
/// The layout of the words is that of [`PackedView`].
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::packed::{PackedViewMut, u4};
///
/// fn kernel(x: ct::packed::PackedArrayMut<u4, 1>) {
///     x.store(0, ct::arange(0..8).cast::<f32>().cast_narrow::<u4>());
/// }
///
/// let mut words = ct::Device::cpu().zeros([16])?;
/// ct::launch(kernel, 1, (PackedViewMut::<u4, 1>::new(words.view_mut(), [8])?,))?;
/// assert_eq!(words.to_vec()?[0], 0x7654_3210u32);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct PackedViewMut<'a, F, const R: usize> {
    words: DeviceViewMut<'a, u32, R>,
    shape: [usize; R],
    element: PhantomData<F>,
}

impl<'a, F: Narrow, const R: usize> PackedViewMut<'a, F, R> {
    /// Makes a packed array of words, with this shape in elements.
    ///
    /// # Errors
    /// As [`PackedView::new`].
    ///
    /// ```
    /// let mut words = cutlet::Device::cpu().zeros([3, 16])?;
    /// assert!(cutlet::packed::PackedViewMut::<cutlet::packed::u4, 2>::new(words.view_mut(), [3, 99]).is_ok());
    /// assert!(cutlet::packed::PackedViewMut::<cutlet::packed::u4, 2>::new(words.view_mut(), [3, 999]).is_err());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn new(words: DeviceViewMut<'a, u32, R>, shape: [usize; R]) -> Result<PackedViewMut<'a, F, R>> {
        check_words::<F, R>(words.shape(), words.strides(), shape)?;
        Ok(PackedViewMut { words, shape, element: PhantomData })
    }

    /// Returns the extents in elements.
    ///
    /// ```
    /// let mut words = cutlet::Device::cpu().zeros([3, 16])?;
    /// assert_eq!(cutlet::packed::PackedViewMut::<cutlet::packed::u4, 2>::new(words.view_mut(), [3, 99])?.shape(), [3, 99]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[must_use]
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }
}

impl<F: Narrow, const R: usize> fmt::Debug for PackedViewMut<'_, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedViewMut<{}>({:?} on {})", F::NAME, self.shape, self.words.device())
    }
}

#[diagnostic::do_not_recommend]
impl<'a, F: Narrow, const R: usize> IntoKernelArg<PackedArrayMut<F, R>> for PackedViewMut<'a, F, R> {
    type Arg = (DeviceViewMut<'a, u32, R>, i32, Constant<PackedFacts>);

    #[inline]
    fn into_arg(self) -> Self::Arg {
        let (extent, facts) = row(self.shape, &self.words.layout());
        (self.words, extent, facts)
    }

    fn from_traced((words, extent, facts): <Self::Arg as LaunchArg>::Traced) -> PackedArrayMut<F, R> {
        PackedArrayMut::new(words, extent, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;
    use crate::types::packed_formats::{i4, u3};

    #[test]
    fn words_of_another_shape_are_refused() -> Result<()> {
        let device = Device::cpu();
        let words = device.zeros([4, 32])?;
        assert_eq!(PackedView::<i4, 2>::new(words.view(), [4, 129])?.shape(), [4, 129]);
        for shape in [[4, 128], [3, 200], [4, 257]] {
            let error = PackedView::<i4, 2>::new(words.view(), shape).unwrap_err().to_string();
            assert!(error.contains("[4, 32]") && error.contains("packed_view.rs"), "{error}");
        }
        assert!(PackedView::<u3, 2>::new(words.view(), [4, 256]).is_err());
        let square = device.zeros([16, 16])?;
        assert!(PackedView::<i4, 2>::new(square.transpose()?, [16, 100]).is_err());
        assert!(PackedView::<i4, 1>::new(device.zeros([0])?.view(), [1 << 31]).is_err());
        assert!(PackedView::<i4, 2>::new(device.zeros([0, 16])?.view(), [0, 5]).is_ok());
        Ok(())
    }
}
