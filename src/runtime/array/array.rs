//! Owned arrays on a device: creation, upload and download.
//!
//! [`super::memory`] provides bytes and ordering, [`super::strided`] the addressing.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::memory::Memory;
use super::pack_host;
use super::red_zones;
use super::stream_order::Access;
use super::strided::Strided;
use super::transfer::{check_packed, download};
use super::view::{DeviceView, DeviceViewMut, array_methods, copy_methods, example};
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::device::device::Device;
use crate::runtime::graph::recorder;
use crate::sealed::Sealed;

/// An array of rank `R` with elements of type `T` in the memory of one device.
///
/// A [`Device`] makes row-major arrays. Arrays over memory of another library have any strides
/// ([`crate::foreign`]). As an argument of a launch, `&DeviceArray` is an `Array` in the kernel
/// (loads only), and `&mut DeviceArray` an `ArrayMut`.
///
/// Work on an array is asynchronous on a GPU. Downloads wait for the work. An array may be dropped
/// while work on it is in progress.
///
/// Views ([`DeviceArray::view`], [`DeviceArray::slice`], [`DeviceArray::permute`], …) share its
/// memory without a copy and are accepted in place of the array.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let a = device.array(&[1, 2, 3, 4, 5, 6], [2, 3])?;
/// assert_eq!(a.shape(), [2, 3]);
/// assert_eq!(a.transpose()?.to_vec()?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), cutlet::Error>(())
/// ```
pub struct DeviceArray<T, const R: usize> {
    pub(crate) memory: Memory,
    pub(crate) layout: Strided<R>,
    element: PhantomData<T>,
}

impl<'a, T: Element, const R: usize> From<&'a DeviceArray<T, R>> for DeviceView<'a, T, R> {
    fn from(array: &'a DeviceArray<T, R>) -> Self {
        array.view()
    }
}

impl<'a, T: Element, const R: usize> From<&'a mut DeviceArray<T, R>> for DeviceViewMut<'a, T, R> {
    fn from(array: &'a mut DeviceArray<T, R>) -> Self {
        array.view_mut()
    }
}

impl Device {
    /// Makes an array with these elements, in row-major order.
    ///
    /// ```
    /// let host = vec![1.0f32, 2.0, 3.0, 4.0];
    /// let a = cutlet::Device::cpu().array(&host, [2, 2])?;
    /// assert_eq!(a.to_vec()?, host);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if the shape has another number of elements, [`Error::Driver`] if the
    /// device has not enough memory or earlier work on it failed.
    #[track_caller]
    pub fn array<T: Element, const R: usize>(&self, host: &[T], shape: [usize; R]) -> Result<DeviceArray<T, R>> {
        let mut array = self.unspecified(shape)?;
        array.copy_from(host)?;
        Ok(array)
    }

    /// Makes an array of zeros (false for bool; 2^-127 for `f8e8m0fnu`, which has no 0).
    ///
    /// # Errors
    /// As [`Device::array`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert_eq!(ct::Device::cpu().zeros::<i32, 2>([2, 2])?.to_vec()?, [0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros<T: Element, const R: usize>(&self, shape: [usize; R]) -> Result<DeviceArray<T, R>> {
        let mut array = self.unspecified::<T, R>(shape)?;
        array.memory.clear()?;
        Ok(array)
    }

    /// Makes an array whose elements are all `value`, without a copy of it on the host.
    ///
    /// # Errors
    /// As [`Device::array`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert_eq!(ct::Device::cpu().full([3], 1.5f32)?.to_vec()?, [1.5; 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn full<T: Element, const R: usize>(&self, shape: [usize; R], value: T) -> Result<DeviceArray<T, R>> {
        let mut array = self.unspecified(shape)?;
        array.memory.fill(&pack_host::pattern(&value))?;
        Ok(array)
    }

    /// Makes an array from a function of the index, which is called in row-major order. The host
    /// holds at most 16 MiB of the elements at a time.
    ///
    /// ```
    /// let a = cutlet::Device::cpu().from_fn([2, 3], |[i, j]| (10 * i + j) as i32)?;
    /// assert_eq!(a.to_vec()?, [0, 1, 2, 10, 11, 12]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::array`].
    #[track_caller]
    pub fn from_fn<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        mut value: impl FnMut([usize; R]) -> T,
    ) -> Result<DeviceArray<T, R>> {
        let array = self.unspecified(shape)?;
        let mut value_at = |mut i| {
            let mut index = [0; R];
            for d in (0..R).rev() {
                (index[d], i) = (i % shape[d], i / shape[d]);
            }
            value(index)
        };
        // A multiple of two, the number of elements that may share a byte.
        let most = pack_host::CHUNK_BYTES / size_of::<T>();
        let mut values = pack_host::reserved(most.min(array.len()))?;
        for first in (0..array.len()).step_by(most) {
            values.clear();
            values.extend((first..array.len().min(first + most)).map(&mut value_at));
            let bytes = pack_host::to_bytes(&values)?;
            // SAFETY: the array has no other borrow.
            unsafe { array.memory.write(pack_host::byte_offset::<T>(first), &bytes, Access::Write) }?;
        }
        Ok(array)
    }

    /// Makes an array whose elements are unspecified: for kernels that write all of them, without
    /// the time of [`Device::zeros`]. Elements of the cpu device are zero.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut a = ct::Device::cpu().unspecified::<f32, 1>([2])?;
    /// a.copy_from(&[1.0, 2.0])?;
    /// assert_eq!(a.to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::array`].
    #[track_caller]
    pub fn unspecified<T: Element, const R: usize>(&self, shape: [usize; R]) -> Result<DeviceArray<T, R>> {
        recorder::refuse("making an array", "make it before, and let the graph hold it as a part of its state")?;
        let room = |layout: Strided<R>| {
            let bytes = T::DTYPE.bytes_of(layout.len()).filter(|&bytes| isize::try_from(bytes).is_ok())?;
            Some((layout, bytes))
        };
        let Some((layout, bytes)) = Strided::contiguous(shape).and_then(room) else {
            let message = format!("an array of shape {shape:?} of {} is larger than any memory", T::NAME);
            return Err(Error::argument(message));
        };
        check_packed::<T, R>(&layout)?;
        let memory = match Memory::alloc(*self, bytes, red_zones::of_new()) {
            Err(Error::Driver { code, .. }) if code == "CUDA_ERROR_OUT_OF_MEMORY" => None,
            Err(Error::Argument(_)) => None,
            other => Some(other?),
        };
        let Some(mut memory) = memory else {
            return Err(Error::argument(format!(
                "an array of shape {shape:?} of {}, {bytes} bytes, does not fit into the free memory of {self}: split it, \
                 or free others first (arrays are freed when they are dropped)",
                T::NAME
            )));
        };
        // Not every byte is a bool.
        memory.guard(T::DTYPE != DType::I1)?;
        memory.record_writes(T::DTYPE.storage_bits() as usize / 8)?;
        Ok(DeviceArray::from_memory(memory, layout))
    }
}

impl<T: Element, const R: usize> DeviceArray<T, R> {
    /// Returns false: an array is the whole of its memory.
    pub(crate) fn is_part(&self) -> bool {
        false
    }

    /// Makes an array of this memory, whose bytes are those of the layout.
    pub(crate) fn from_memory(memory: Memory, layout: Strided<R>) -> DeviceArray<T, R> {
        DeviceArray { memory, layout, element: PhantomData }
    }

    /// Returns a view of all elements, for reading.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
    /// assert_eq!(x.view().slice(0, 1..3)?.to_vec()?, [2, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn view(&self) -> DeviceView<'_, T, R> {
        DeviceView::new(&self.memory, self.layout)
    }

    /// Returns a view of all elements, for reading and writing.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// x.view_mut().slice(0, 1..3)?.copy_from(&[5, 6])?;
    /// assert_eq!(x.to_vec()?, [0, 5, 6, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T, R> {
        DeviceViewMut::new(&mut self.memory, self.layout)
    }

    /// Returns the part whose index along `axis` is in `range`, for reading and writing. For two
    /// parts at the same time: [`DeviceArray::split_at_mut`].
    ///
    /// # Errors
    /// As [`DeviceArray::slice`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut x = ct::Device::cpu().zeros([4])?;
    /// x.slice_mut(0, 1..3)?.copy_from(&[5, 6])?;
    /// assert_eq!(x.to_vec()?, [0, 5, 6, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn slice_mut(&mut self, axis: usize, range: impl RangeBounds<usize>) -> Result<DeviceViewMut<'_, T, R>> {
        self.view_mut().slice(axis, range)
    }

    /// Returns the part with the indices below `at` along `axis`, and the part from `at` on: see
    /// [`DeviceView::split_at`].
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis does not exist or `at` is greater than its extent.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
    /// let (low, high) = x.split_at(0, 1)?;
    /// assert_eq!((low.to_vec()?, high.to_vec()?), (vec![1], vec![2, 3, 4]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn split_at(&self, axis: usize, at: usize) -> Result<(DeviceView<'_, T, R>, DeviceView<'_, T, R>)> {
        self.view().split_at(axis, at)
    }

    /// Returns two disjoint parts, both for reading and writing: see
    /// [`DeviceViewMut::split_at_mut`].
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis does not exist or `at` is greater than its extent.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |low: ArrayMut<i32, 2>, high: ArrayMut<i32, 2>| {
    ///     low.store((0, 0), ct::full([2, 1], 1));
    ///     high.store((0, 0), ct::full([2, 2], 2));
    /// };
    /// let mut x = ct::Device::cpu().zeros([2, 3])?;
    /// let (low, high) = x.split_at_mut(1, 1)?;
    /// ct::launch(fill, 1, (low, high))?;
    /// assert_eq!(x.to_vec()?, [1, 2, 2, 1, 2, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn split_at_mut(
        &mut self,
        axis: usize,
        at: usize,
    ) -> Result<(DeviceViewMut<'_, T, R>, DeviceViewMut<'_, T, R>)> {
        self.view_mut().split_at_mut(axis, at)
    }

    /// Changes the shape and keeps the elements in row-major order.
    ///
    /// # Errors
    /// [`Error::Argument`] if the shape has another number of elements, or if the strides of
    /// foreign memory cannot express it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?.into_shape([2, 2])?;
    /// assert_eq!(x.shape(), [2, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn into_shape<const Q: usize>(self, shape: [usize; Q]) -> Result<DeviceArray<T, Q>> {
        let layout = self.layout.reshape(shape)?;
        check_packed::<T, Q>(&layout)?;
        Ok(DeviceArray { memory: self.memory, layout, element: PhantomData })
    }
}

/// Bound of accesses to arrays outside of a kernel, which no type satisfies.
#[diagnostic::on_unimplemented(
    message = "`load` and `store` are methods of `Array` and `ArrayMut`, which a kernel has: `{Self}` belongs to the host",
    label = "not in a kernel",
    note = "write a function of `Array`s and launch it: `ct::launch(kernel, grid, (&a, &mut c))`; `a.to_vec()?` copies all \
            elements to the host; \
            see docs/common_errors.md"
)]
pub trait InKernel {}

impl<T: Element, const R: usize> DeviceArray<T, R> {
    /// Reports that only kernels load tiles.
    #[doc(hidden)]
    pub fn load<I, S>(&self, _index: I, _shape: S)
    where
        Self: InKernel,
    {
        unreachable!("no type is `InKernel`")
    }

    /// Reports that only kernels store tiles.
    #[doc(hidden)]
    pub fn store<I, V>(&mut self, _index: I, _value: V)
    where
        Self: InKernel,
    {
        unreachable!("no type is `InKernel`")
    }
}

array_methods! { DeviceArray[], DeviceView<'_>; self [&] self.view(), false; "" }
copy_methods! { DeviceArray[], self self.view_mut(); "" }

impl<T, const R: usize> Sealed for DeviceArray<T, R> {}

impl<T: Element, const R: usize> fmt::Debug for DeviceArray<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceArray<{}>({:?} on {})", T::NAME, self.shape(), self.device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{f4e2m1fn, f16};

    fn host(n: usize) -> Vec<f16> {
        (0..n).map(|i| f16::from_f32(i as f32)).collect()
    }

    #[test]
    fn round_trips_of_views() -> Result<()> {
        let device = Device::cpu();
        let a = device.array(&host(60), [3, 4, 5])?;
        assert_eq!(a.to_vec()?, host(60));
        let view = a.permute([2, 0, 1])?.slice(0, 1..4)?.step(2, 2)?;
        assert_eq!(view.shape(), [3, 3, 2]);
        let expected = device.from_fn([3, 3, 2], |[k, i, j]| f16::from_f32((20 * i + 10 * j + k + 1) as f32))?;
        assert_eq!(view.to_vec()?, expected.to_vec()?);
        let b = device.array(&view.to_vec()?, view.shape())?;
        assert_eq!(b.to_vec()?, expected.to_vec()?);
        assert_eq!(a.reshape([12, 5])?.slice(0, 3..4)?.to_vec()?, host(20)[15..]);
        Ok(())
    }

    #[test]
    fn uploads_into_views_leave_the_rest() -> Result<()> {
        let mut a = Device::cpu().zeros::<i32, 2>([4, 5])?;
        a.view_mut().slice(1, 2..4)?.copy_from(&[1, 2, 3, 4, 5, 6, 7, 8])?;
        a.view_mut().slice(0, 3..)?.slice(1, ..2)?.copy_from(&[9, 10])?;
        assert_eq!(a.to_vec()?, [0, 0, 1, 2, 0, 0, 0, 3, 4, 0, 0, 0, 5, 6, 0, 9, 10, 7, 8, 0]);
        let b = Device::cpu().array(&(0..20).collect::<Vec<i32>>(), [5, 4])?;
        a.copy_from_array(&b.transpose()?)?;
        assert_eq!(a.transpose()?.to_vec()?, b.to_vec()?);
        assert!(a.copy_from(&[1, 2, 3]).is_err());
        Ok(())
    }

    #[test]
    fn parts_are_written_without_the_elements_between() -> Result<()> {
        let mut a = Device::cpu().array(&(0..24).collect::<Vec<i32>>(), [2, 3, 4])?;
        let (mut low, mut high) = a.split_at_mut(2, 1)?;
        assert_eq!(low.to_vec()?, [0, 4, 8, 12, 16, 20]);
        low.copy_from(&[-1, -2, -3, -4, -5, -6])?;
        let (rows, mut last) = high.reborrow().permute([1, 2, 0])?.split_at_mut(0, 2)?;
        assert_eq!(last.to_vec()?, [9, 21, 10, 22, 11, 23]);
        last.copy_from_array(&rows.as_view().slice(0, ..1)?)?;
        assert_eq!(high.to_vec()?, [1, 2, 3, 5, 6, 7, 1, 2, 3, 13, 14, 15, 17, 18, 19, 13, 14, 15]);
        assert_eq!(
            a.to_vec()?,
            [-1, 1, 2, 3, -2, 5, 6, 7, -3, 1, 2, 3, -4, 13, 14, 15, -5, 17, 18, 19, -6, 13, 14, 15]
        );
        let error = a.split_at_mut(1, 4).unwrap_err().to_string();
        assert!(error.contains("a split of axis 1 at 4 is outside of its extent 3") && error.contains("array.rs"));
        assert!(a.split_at(3, 0).is_err());
        Ok(())
    }

    #[test]
    fn parts_are_used_by_several_threads() -> Result<()> {
        let mut a = Device::cpu().zeros::<i32, 2>([64, 6])?;
        let (mut low, mut high) = a.split_at_mut(1, 3)?;
        std::thread::scope(|scope| {
            let write = |part: &mut DeviceViewMut<i32, 2>, value| {
                (0..20).try_for_each(|i| part.copy_from(&[value + i; 192])).and_then(|()| part.to_vec())
            };
            let other = scope.spawn(move || write(&mut high, 1000));
            assert_eq!(write(&mut low, 0)?, [19; 192]);
            assert_eq!(other.join().expect("no panic")?, [1019; 192]);
            Ok::<(), Error>(())
        })?;
        assert!(a.to_vec()?.chunks(3).enumerate().all(|(i, row)| row == [19 + 1000 * (i as i32 % 2); 3]));
        Ok(())
    }

    #[test]
    fn four_bit_arrays() -> Result<()> {
        let device = Device::cpu();
        let values: Vec<f4e2m1fn> = (0..24).map(|i| f4e2m1fn::from_bits(i * 5 % 16)).collect();
        let mut a = device.array(&values, [4, 6])?;
        assert_eq!(a.memory.len(), 12);
        assert_eq!(a.to_vec()?, values);
        assert_eq!(a.slice(1, 2..4)?.to_vec()?[2..4], values[8..10]);
        assert!(a.slice(1, 1..3).is_err());
        assert!(a.step(1, 2).is_err());
        assert!(device.zeros::<f4e2m1fn, 2>([3, 3]).is_err());
        let (low, high) = a.split_at_mut(1, 2)?;
        assert_eq!(low.to_vec()?, [&values[..2], &values[6..8], &values[12..14], &values[18..20]].concat());
        assert_eq!(high.to_vec()?[4..8], values[8..12]);
        assert!(a.split_at_mut(1, 3).is_err());
        let odd = device.array(&values[..7], [7])?;
        assert_eq!(odd.to_vec()?, values[..7]);
        a.view_mut().slice(1, 2..5)?.copy_from(&[f4e2m1fn::from_bits(7); 12])?;
        let changed = a.to_vec()?;
        assert!(
            (0..24).all(|i| changed[i].to_bits() == if (2..5).contains(&(i % 6)) { 7 } else { values[i].to_bits() })
        );
        Ok(())
    }

    #[test]
    fn patterns_of_any_length_fill_arrays_of_any_length() -> Result<()> {
        let device = Device::cpu();
        for len in [1, 2, 3, 1000, 8191, 8192, 8193, 100_001] {
            assert_eq!(device.full([len], 1.5f64)?.to_vec()?, vec![1.5; len]);
            assert_eq!(device.full([len], 0x0102_0304u32)?.to_vec()?, vec![0x0102_0304; len]);
            assert_eq!(device.full([len], 0x0102u16)?.to_vec()?, vec![0x0102; len]);
            assert_eq!(device.full([len], -1i64)?.to_vec()?, vec![-1; len]);
            assert_eq!(device.full([len], true)?.to_vec()?, vec![true; len]);
            let value = f4e2m1fn::from_bits(0xb);
            assert_eq!(device.full([len], value)?.to_vec()?, vec![value; len]);
        }
        Ok(())
    }

    #[test]
    fn long_arrays_are_made_and_copied_in_parts() -> Result<()> {
        let device = Device::cpu();
        let part = pack_host::CHUNK_BYTES / 8;
        for len in [part - 1, part, 2 * part + 3] {
            let x = device.from_fn([len, 1], |[i, _]| i as u64)?;
            assert!(x.to_vec()?.into_iter().eq(0..len as u64), "{len}");
            let mut y = device.zeros::<u64, 2>([len + 1, 1])?;
            y.view_mut().slice(0, 1..)?.copy_from_array(&x.view())?;
            assert!(y.to_vec()?.into_iter().eq(std::iter::once(0).chain(0..len as u64)), "{len}");
        }
        Ok(())
    }

    #[test]
    fn empty_arrays() -> Result<()> {
        let mut a = Device::cpu().zeros::<f32, 2>([0, 5])?;
        assert!(a.to_vec()?.is_empty());
        a.copy_from(&[])?;
        assert!(a.is_empty() && a.slice(1, 2..)?.is_empty());
        assert_eq!(Device::cpu().array(&[1.5f64], [])?.to_vec()?, [1.5]);
        assert_eq!(Device::cpu().full([2, 2], true)?.to_vec()?, [true; 4]);
        Ok(())
    }

    #[test]
    fn wrong_shapes_are_errors_at_the_caller() {
        let error = Device::cpu().array(&[1, 2, 3], [2, 2]).unwrap_err();
        assert!(error.to_string().contains("array.rs"), "{error}");
        assert!(Device::cpu().zeros::<u8, 2>([usize::MAX, 2]).is_err());
        assert!(Device::cpu().zeros::<u8, 1>([1 << 60]).is_err());
    }

    #[test]
    fn numbers_of_bytes_that_do_not_fit_are_errors() -> Result<()> {
        let device = Device::cpu();
        // Each has few bytes modulo 2^64.
        assert!(device.zeros::<i32, 1>([(1 << 59) + 4]).is_err());
        assert!(device.zeros::<f64, 1>([1 << 58]).is_err());
        assert!(device.zeros::<u8, 1>([(1 << 61) + 1]).is_err());
        assert!(device.zeros::<u64, 2>([1 << 31, (1 << 30) + 1]).is_err());
        let error = device.full([(1 << 62) + 2], 1u32).expect_err("2^64 + 8 bytes").to_string();
        assert!(error.contains("array.rs") && error.contains("u32"), "{error}");
        let error = device.zeros::<u8, 1>([1 << 60]).expect_err("2^60 bytes").to_string();
        assert!(error.contains("array.rs") && error.contains("does not fit"), "{error}");
        // Arrays without elements have no place that could be far away.
        let empty = device.zeros::<f64, 2>([0, 1 << 62])?;
        assert!(empty.slice(1, 1 << 61..)?.step(1, 1 << 50)?.to_vec()?.is_empty());
        assert!(empty.reshape([1 << 62, 0])?.slice(0, 1 << 61..)?.to_vec()?.is_empty());
        Ok(())
    }
}
