//! Arrays that a launch allocates.

use std::fmt;
use std::sync::OnceLock;

use super::array::DeviceArray;
use super::memory::MemoryUse;
use crate::backend::ParamWord;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::{ArgSignature, LaunchArg, WordBuffer, arrives_as_it_is};
use crate::runtime::device::device::Device;
use crate::sealed::Sealed;
use crate::tile::{ArrayInfo, ArrayMut, Tracer};

/// An array that the launch allocates on its device and fills with one value: a result, or scratch
/// memory that all tile blocks share. In the kernel it is an `ArrayMut`.
///
/// [`launch`](crate::launch()) frees it after the kernel, in the order of the stream.
/// [`launch_with_outputs`](crate::launch_with_outputs) returns it as a [`DeviceArray`].
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // The last block to arrive adds up what all of them left.
/// fn sum(x: Array<f32, 1>, parts: ArrayMut<f32, 1>, arrived: ArrayMut<i32, 1>, y: ArrayMut<f32, 1>) {
///     let i = ct::bid(0);
///     parts.store(i, x.load(i, [8]).sum(0));
///     let before = arrived.entry(0).atomic_add(1);
///     ct::if_then(before.eq(ct::num_blocks(0) - 1), || y.store(0, parts.load(0, [16]).sum(0)));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([100], 0.5f32)?, device.zeros([1])?);
/// ct::launch(sum, 13, (&x, ct::NewArray::zeros([13]), ct::NewArray::zeros([1]), &mut y))?;
/// assert_eq!(y.to_vec()?, [50.0]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct NewArray<T, const R: usize> {
    shape: [usize; R],
    value: T,
    made: OnceLock<DeviceArray<T, R>>,
}

impl<T: Element, const R: usize> NewArray<T, R> {
    /// Describes an array of this shape, of zeros (`false` for bool).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # let device = ct::Device::cpu();
    /// let x = device.full([40], 3)?;
    /// let copy = |x: Array<i32, 1>, y: ArrayMut<i32, 1>| y.store(ct::bid(0), x.load(ct::bid(0), [16]));
    /// let (.., y) = ct::launch_with_outputs(copy, 3, (&x, ct::NewArray::zeros([40])))?;
    /// assert_eq!(y.to_vec()?, [3; 40]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn zeros(shape: [usize; R]) -> NewArray<T, R> {
        NewArray::full(shape, T::from_bits(0))
    }

    /// Describes an array of this shape, of one value.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let first = |y: ArrayMut<f32, 1>| y.store_scalar(0, 1.0);
    /// let (y,) = ct::Launch::new(1).backend(ct::Backend::Cpu).launch_with_outputs(first, (ct::NewArray::full([3], 0.5),))?;
    /// assert_eq!(y.to_vec()?, [1.0, 0.5, 0.5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn full(shape: [usize; R], value: T) -> NewArray<T, R> {
        NewArray { shape, value, made: OnceLock::new() }
    }

    /// Returns the facts for the launch: row-major, and at an aligned address.
    fn facts(&self) -> ArrayInfo {
        crate::runtime::args::array_arg::facts_of_new::<T, R>(self.shape)
    }
}

impl<T, const R: usize> fmt::Debug for NewArray<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewArray({:?})", self.shape)
    }
}

impl<T, const R: usize> Sealed for NewArray<T, R> {}

impl<T: Element, const R: usize> LaunchArg for NewArray<T, R> {
    type Traced = ArrayMut<T, R>;
    type Output = DeviceArray<T, R>;

    fn key(&self, key: &mut WordBuffer) {
        key.push(crate::runtime::args::array_arg::specialization_word(self.facts()));
    }

    fn forms(&self, out: &mut Vec<ArgSignature>) {
        out.push(crate::runtime::args::array_arg::array_form::<T, R>(true, self.facts()));
    }

    fn trace(&self, tracer: &mut Tracer) -> ArrayMut<T, R> {
        tracer.array_mut(self.facts())
    }

    fn make(&self, device: Option<Device>) -> Result<()> {
        let Some(device) = device else {
            let message = "a `NewArray` lives as long as its launch: for a launch through the driver, pass an array";
            return Err(Error::argument(message));
        };
        if self.made.get().is_none() {
            let made = match self.value.to_bits() {
                0 => device.zeros(self.shape)?,
                _ => device.full(self.shape, self.value)?,
            };
            let _ = self.made.set(made);
        }
        Ok(())
    }

    fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
        if let Some(array) = self.made.get() {
            visit(MemoryUse { memory: &array.memory, writes: true, part: false, empty: array.is_empty() });
        }
    }

    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        match self.made.get() {
            Some(array) => crate::runtime::args::array_arg::pack_array(array, params),
            // A launch allocates its arrays before this. A query about a launch does not.
            None => crate::runtime::args::array_arg::pack_new::<T, R>(self.shape, params),
        }
    }

    fn into_output(self) -> DeviceArray<T, R> {
        self.made.into_inner().expect("a launch that succeeded has made its arrays")
    }
}

arrives_as_it_is! { [T: Element, const R: usize] NewArray<T, R> => ArrayMut<T, R>; }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_known_without_the_array() {
        let fill = |y: ArrayMut<f32, 1>| y.store(crate::bid(0), crate::ones([64]));
        let work = crate::Launch::new(4).work(fill, (NewArray::zeros([256]),)).unwrap();
        assert_eq!((work.read_bytes, work.written_bytes), (0.0, 1024.0));
    }
}
