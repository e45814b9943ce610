//! Arrays of complex numbers on a device: arrays of their parts, and their arguments of launches.

use std::fmt;

use super::array::DeviceArray;
use super::pack_host;
use super::view::{DeviceView, DeviceViewMut};
use crate::element::Float;
use crate::error::{Error, Result};
use crate::kernel::{IntoKernelArg, LaunchArg};
use crate::ops::{ComplexArray, ComplexArrayMut};
use crate::runtime::device::device::Device;
use crate::tile::{Array, ArrayMut};
use crate::types::complex::Complex;

/// An array of rank `R` of complex numbers with parts of type `T` in the memory of one device.
///
/// Made by [`Device::complex`] and [`Device::complex_zeros`]. In a kernel, `&ComplexDeviceArray` is
/// a [`ComplexArray`] and `&mut ComplexDeviceArray` a [`ComplexArrayMut`]. In memory it is an array
/// of `T` with twice the extent along the last axis ([`ComplexDeviceArray::reals`]).
/// [`Interleaved`] passes views of that array, and other arrays of pairs.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn phase(x: ct::math::ComplexArray<f64, 1>, y: ArrayMut<f64, 1>) {
///     y.store(0, x.load(0, [2]).arg());
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.complex(&[ct::math::c128::new(0.0, 1.0), ct::math::c128::new(-1.0, 0.0)], [2])?, device.zeros([2])?);
/// ct::launch(phase, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [std::f64::consts::FRAC_PI_2, std::f64::consts::PI]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct ComplexDeviceArray<T, const R: usize> {
    reals: DeviceArray<T, R>,
}

/// An array of pairs of numbers that is passed to a kernel as an array of complex numbers. An
/// argument that would be an [`Array`] of `T` (or an [`ArrayMut`]) is a [`ComplexArray`] (or a
/// [`ComplexArrayMut`]), with half the extent along the last axis.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn turned(x: ct::math::ComplexArray<f32, 2>, y: ct::math::ComplexArrayMut<f32, 2>) {
///     y.store((0, 0), x.load((0, 0), [2, 1]).mul_i());
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0, 2.0, 9.0, 9.0, 3.0, 4.0, 9.0, 9.0], [2, 4])?;
/// let mut y = device.zeros::<f32, 2>([2, 2])?;
/// let columns = x.slice(1, ..2)?; // the first number of each row
/// ct::launch(turned, 1, (ct::math::Interleaved(columns), ct::math::Interleaved(&mut y)))?;
/// assert_eq!(y.to_vec()?, [-2.0, 1.0, -4.0, 3.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<A>(pub A);

#[diagnostic::do_not_recommend]
impl<T: Float, A: IntoKernelArg<Array<T, R>>, const R: usize> IntoKernelArg<ComplexArray<T, R>> for Interleaved<A> {
    type Arg = A::Arg;

    #[inline]
    fn into_arg(self) -> A::Arg {
        self.0.into_arg()
    }

    fn from_traced(traced: <A::Arg as LaunchArg>::Traced) -> ComplexArray<T, R> {
        A::from_traced(traced).complex()
    }
}

#[diagnostic::do_not_recommend]
impl<T: Float, A: IntoKernelArg<ArrayMut<T, R>>, const R: usize> IntoKernelArg<ComplexArrayMut<T, R>>
    for Interleaved<A>
{
    type Arg = A::Arg;

    #[inline]
    fn into_arg(self) -> A::Arg {
        self.0.into_arg()
    }

    fn from_traced(traced: <A::Arg as LaunchArg>::Traced) -> ComplexArrayMut<T, R> {
        A::from_traced(traced).complex()
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: Float, const R: usize> IntoKernelArg<ComplexArray<T, R>> for &'a ComplexDeviceArray<T, R> {
    type Arg = DeviceView<'a, T, R>;

    #[inline]
    fn into_arg(self) -> Self::Arg {
        self.reals.view()
    }

    fn from_traced(traced: Array<T, R>) -> ComplexArray<T, R> {
        traced.complex()
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: Float, const R: usize> IntoKernelArg<ComplexArrayMut<T, R>> for &'a mut ComplexDeviceArray<T, R> {
    type Arg = DeviceViewMut<'a, T, R>;

    #[inline]
    fn into_arg(self) -> Self::Arg {
        self.reals.view_mut()
    }

    fn from_traced(traced: ArrayMut<T, R>) -> ComplexArrayMut<T, R> {
        traced.complex()
    }
}

/// Returns the parts of numbers, in memory order.
#[track_caller]
fn parts<T: Float>(numbers: &[Complex<T>]) -> Result<Vec<T>> {
    let mut parts = pack_host::reserved(2 * numbers.len())?;
    parts.extend(numbers.iter().flat_map(|z| [z.re, z.im]));
    Ok(parts)
}

#[track_caller]
fn shape_of_parts<const R: usize>(mut shape: [usize; R]) -> Result<[usize; R]> {
    const { assert!(R >= 1, "an array of complex numbers has at least one axis") };
    match shape[R - 1].checked_mul(2) {
        Some(extent) => {
            shape[R - 1] = extent;
            Ok(shape)
        }
        None => {
            Err(Error::argument(format!("an array of complex numbers of shape {shape:?} does not fit into memory")))
        }
    }
}

#[track_caller]
fn check_count<const R: usize>(given: usize, shape: [usize; R]) -> Result<()> {
    match shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent)) == Some(given) {
        true => Ok(()),
        false => Err(Error::argument(format!("{given} complex numbers for an array of shape {shape:?}"))),
    }
}

impl Device {
    /// Makes an array of these complex numbers, in row-major order.
    ///
    /// ```
    /// use cutlet::math::c64;
    /// use cutlet::Device;
    /// let a = Device::cpu().complex(&[c64::new(1.0, 2.0), c64::new(3.0, 4.0)], [2])?;
    /// assert_eq!(a.reals().to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if the shape has another number of elements, [`Error::Driver`] if the
    /// device has not enough memory or earlier work on it failed.
    #[track_caller]
    pub fn complex<T: Float, const R: usize>(
        &self,
        host: &[Complex<T>],
        shape: [usize; R],
    ) -> Result<ComplexDeviceArray<T, R>> {
        check_count(host.len(), shape)?;
        Ok(ComplexDeviceArray { reals: self.array(&parts(host)?, shape_of_parts(shape)?)? })
    }

    /// Makes an array of complex zeros.
    ///
    /// # Errors
    /// As [`Device::complex`].
    ///
    /// ```
    /// let a = cutlet::Device::cpu().complex_zeros::<f32, 1>([3])?;
    /// assert_eq!(a.to_vec()?, [cutlet::math::c64::new(0.0, 0.0); 3]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn complex_zeros<T: Float, const R: usize>(&self, shape: [usize; R]) -> Result<ComplexDeviceArray<T, R>> {
        Ok(ComplexDeviceArray { reals: self.zeros(shape_of_parts(shape)?)? })
    }
}

impl<T: Float, const R: usize> ComplexDeviceArray<T, R> {
    /// Returns the device of the array.
    ///
    /// ```
    /// let a = cutlet::Device::cpu().complex_zeros::<f32, 1>([3])?;
    /// assert_eq!(a.device(), cutlet::Device::cpu());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        self.reals.device()
    }

    /// Returns the extents in complex numbers.
    ///
    /// ```
    /// let a = cutlet::Device::cpu().complex_zeros::<f32, 2>([3, 4])?;
    /// assert_eq!((a.shape(), a.reals().shape()), ([3, 4], [3, 8]));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn shape(&self) -> [usize; R] {
        let mut shape = self.reals.shape();
        shape[R - 1] /= 2;
        shape
    }

    /// Returns the number of complex numbers.
    ///
    /// ```
    /// assert_eq!(cutlet::Device::cpu().complex_zeros::<f32, 2>([3, 4])?.len(), 12);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.reals.len() / 2
    }

    /// Returns true if the array has no elements.
    ///
    /// ```
    /// assert!(cutlet::Device::cpu().complex_zeros::<f32, 2>([0, 4])?.is_empty());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.reals.is_empty()
    }

    /// Returns the parts: an array with twice the extent along the last axis.
    ///
    /// ```
    /// let a = cutlet::Device::cpu().complex(&[cutlet::math::c64::new(1.0, 2.0)], [1])?;
    /// assert_eq!(a.reals().to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn reals(&self) -> &DeviceArray<T, R> {
        &self.reals
    }

    /// Returns [`ComplexDeviceArray::reals`] for writing.
    ///
    /// ```
    /// let mut a = cutlet::Device::cpu().complex_zeros::<f32, 1>([1])?;
    /// a.reals_mut().copy_from(&[1.0, 2.0])?;
    /// assert_eq!(a.to_vec()?, [cutlet::math::c64::new(1.0, 2.0)]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn reals_mut(&mut self) -> &mut DeviceArray<T, R> {
        &mut self.reals
    }

    /// Returns the numbers in row-major order, after the work that writes them.
    ///
    /// # Errors
    /// [`Error::Driver`] if this work failed, [`Error::Argument`] if the host has not enough
    /// memory.
    ///
    /// ```
    /// let numbers = [cutlet::math::c64::new(1.0, 2.0), cutlet::math::c64::new(3.0, 4.0)];
    /// assert_eq!(cutlet::Device::cpu().complex(&numbers, [2])?.to_vec()?, numbers);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<Complex<T>>> {
        let parts = self.reals.to_vec()?;
        let mut numbers = pack_host::reserved(parts.len() / 2)?;
        numbers.extend(parts.chunks_exact(2).map(|pair| Complex::new(pair[0], pair[1])));
        Ok(numbers)
    }

    /// Overwrites all numbers with host values in row-major order.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of values, [`Error::Driver`] if earlier work failed.
    ///
    /// ```
    /// let mut a = cutlet::Device::cpu().complex_zeros::<f64, 1>([1])?;
    /// a.copy_from(&[cutlet::math::c128::new(1.0, 2.0)])?;
    /// assert_eq!(a.reals().to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_from(&mut self, host: &[Complex<T>]) -> Result<()> {
        check_count(host.len(), self.shape())?;
        self.reals.copy_from(&parts(host)?)
    }
}

impl<T: Float, const R: usize> fmt::Debug for ComplexDeviceArray<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComplexDeviceArray<{}>({:?} on {})", T::NAME, self.shape(), self.device())
    }
}
