//! Packed arrays on a device: elements of 1 to 8 bits, as 32-bit words.
//!
//! Each row (the elements along the last axis) is padded with zeros to whole groups of [`GROUP`]
//! elements. Rows of every width then begin at addresses for 16-byte accesses.

use std::fmt;
use std::marker::PhantomData;

use super::array::DeviceArray;
use super::pack_host;
use super::strided::Strided;
use super::view::{DeviceView, DeviceViewMut};
use crate::error::{Error, Result};
use crate::ir::MAX_TILE_ELEMENTS;
use crate::kernel::{Constant, IntoKernelArg, LaunchArg};
use crate::ops::{PackedArray, PackedArrayMut, PackedFacts};
use crate::runtime::args::array_arg::{ArraySpec, ArraySpecMut};
use crate::runtime::device::device::Device;
use crate::types::packed_formats::{Narrow, pack_row, row_bytes, unpack_row};

/// The number of elements of a group of words. Each bit of the element type occupies 16 bytes of
/// it.
const GROUP: usize = 128;

/// Returns the number of words of a row.
fn row_words<F: Narrow>(row: usize) -> usize {
    row.div_ceil(GROUP).max(1) * GROUP / 32 * F::BITS as usize
}

/// Returns the shape of the words.
pub(super) fn shape_of_words<F: Narrow, const R: usize>(mut shape: [usize; R]) -> [usize; R] {
    const { assert!(R >= 1, "a packed array has at least one axis") };
    shape[R - 1] = row_words::<F>(shape[R - 1]);
    shape
}

/// An array of rank `R` of elements of 1 to 8 bits ([`Narrow`]), packed along its last axis in the
/// memory of one device.
///
/// Made by [`Device::packed`] and related functions. In a kernel, `&PackedDeviceArray` is a
/// [`PackedArray`] and `&mut PackedDeviceArray` a [`PackedArrayMut`]. In a row, the bits of element
/// `k` begin at bit `k * F::BITS`, the lowest bit first. Rows are padded to multiples of 128
/// elements.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::packed::{Narrow, u4};
///
/// fn kernel(x: ct::packed::PackedArray<u4, 2>, y: ArrayMut<f16, 2>, z: ct::packed::PackedArrayMut<u4, 2>) {
///     let x = x.load((0, 0), [2, 8]).cast::<f16>();
///     y.store((0, 0), x);
///     z.store((0, 0), (x + 10.0).cast_narrow::<u4>());
/// }
///
/// let device = ct::Device::cpu();
/// let x = device.packed(&(0..10).map(u4::from_code).collect::<Vec<_>>(), [2, 5])?;
/// let (mut y, mut z) = (device.zeros([2, 5])?, device.packed_zeros([2, 5])?);
/// ct::launch(kernel, 1, (&x, &mut y, &mut z))?;
/// assert_eq!(y.to_vec()?[3..7], [3.0, 4.0, 5.0, 6.0].map(f16::from_f32));
/// assert_eq!(z.to_vec()?[3..7], [13, 14, 15, 15].map(u4::from_code)); // saturates
/// # Ok::<(), ct::Error>(())
/// ```
pub struct PackedDeviceArray<F, const R: usize> {
    words: DeviceArray<u32, R>,
    shape: [usize; R],
    element: PhantomData<F>,
}

/// Returns rows of zero words that `write` has filled. Its parameters are the number of a row and
/// the bytes of its elements.
///
/// # Errors
/// [`Error::Argument`] at the caller's place if the host has not enough memory.
#[track_caller]
fn words_of<F: Narrow>(rows: usize, row: usize, mut write: impl FnMut(usize, &mut [u8])) -> Result<Vec<u32>> {
    let (width, words) = (row_bytes::<F>(row), row_words::<F>(row));
    let mut all = pack_host::zeros::<u32>(rows.saturating_mul(words))?;
    for (number, line) in all.chunks_mut(words).enumerate() {
        write(number, &mut bytemuck::cast_slice_mut(line)[..width]);
        // Bits after the last element belong to no element. In memory they are 0.
        let used = row * F::BITS as usize;
        if !used.is_multiple_of(32) {
            line[used / 32] &= (1 << (used % 32)) - 1;
        }
    }
    Ok(all)
}

/// Returns [`words_of`] values in row-major order.
#[track_caller]
fn packed_words_of<F: Narrow>(values: &[F], row: usize) -> Result<Vec<u32>> {
    words_of::<F>(values.len() / row.max(1), row, |number, line| pack_row(&values[number * row..][..row], line))
}

#[track_caller]
pub(super) fn check_shape<F: Narrow, const R: usize>(shape: [usize; R]) -> Result<()> {
    const { assert!(R >= 1, "a packed array has at least one axis") };
    let largest = i32::MAX as usize - MAX_TILE_ELEMENTS as usize;
    match shape[R - 1] > largest {
        true => {
            let message =
                format!("a packed array of shape {shape:?} of {}: rows have at most {largest} elements", F::NAME);
            Err(Error::argument(message))
        }
        false => Ok(()),
    }
}

#[track_caller]
fn check_count<const R: usize>(what: &str, given: usize, wanted: Option<usize>, shape: [usize; R]) -> Result<()> {
    match wanted == Some(given) {
        true => Ok(()),
        false => Err(Error::argument(format!("{given} {what} for a packed array of shape {shape:?}"))),
    }
}

/// Returns the number of rows.
fn rows<const R: usize>(shape: [usize; R]) -> Option<usize> {
    shape[..R - 1].iter().try_fold(1usize, |count, &extent| count.checked_mul(extent))
}

impl Device {
    /// Makes a packed array with these elements, in row-major order.
    ///
    /// ```
    /// use cutlet::packed::{Narrow, f6e3m2};
    /// use cutlet::Device;
    /// let values = [0.25, -1.0, 28.0].map(f6e3m2::from_value);
    /// let a = Device::cpu().packed(&values, [3])?;
    /// assert_eq!(a.to_vec()?, values);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if the shape has another number of elements, [`Error::Driver`] if the
    /// device has not enough memory or earlier work on it failed.
    #[track_caller]
    pub fn packed<F: Narrow, const R: usize>(&self, host: &[F], shape: [usize; R]) -> Result<PackedDeviceArray<F, R>> {
        check_shape::<F, R>(shape)?;
        let row = shape[R - 1];
        check_count("values", host.len(), rows(shape).and_then(|rows| rows.checked_mul(row)), shape)?;
        self.packed_words(&packed_words_of(host, row)?, shape)
    }

    /// Makes a packed array whose bits are all 0: for integers and floats the number 0.
    ///
    /// # Errors
    /// As [`Device::packed`].
    ///
    /// ```
    /// let a = cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 1>([5])?;
    /// assert_eq!(a.to_bytes()?, [0; 3]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn packed_zeros<F: Narrow, const R: usize>(&self, shape: [usize; R]) -> Result<PackedDeviceArray<F, R>> {
        check_shape::<F, R>(shape)?;
        let words = self.zeros(shape_of_words::<F, R>(shape))?;
        Ok(PackedDeviceArray { words, shape, element: PhantomData })
    }

    /// Makes a packed array from bytes that another program packed: row after row, each from a
    /// whole byte on, the first element in the low bits.
    ///
    /// ```
    /// use cutlet::packed::{PackedDeviceArray, u4};
    /// use cutlet::Device;
    /// let a: PackedDeviceArray<u4, 2> = Device::cpu().packed_from_bytes(&[0x21, 0x03, 0x54, 0x06], [2, 3])?;
    /// assert_eq!(a.to_vec()?.iter().map(|x| x.get()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    /// assert_eq!(a.to_bytes()?, [0x21, 0x03, 0x54, 0x06]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Device::packed`].
    #[track_caller]
    pub fn packed_from_bytes<F: Narrow, const R: usize>(
        &self,
        bytes: &[u8],
        shape: [usize; R],
    ) -> Result<PackedDeviceArray<F, R>> {
        check_shape::<F, R>(shape)?;
        let row = shape[R - 1];
        check_count("bytes", bytes.len(), rows(shape).and_then(|rows| rows.checked_mul(row_bytes::<F>(row))), shape)?;
        let width = row_bytes::<F>(row);
        let copy = |number: usize, line: &mut [u8]| line.copy_from_slice(&bytes[number * width..][..width]);
        self.packed_words(&words_of::<F>(bytes.len() / width.max(1), row, copy)?, shape)
    }

    #[track_caller]
    fn packed_words<F: Narrow, const R: usize>(
        &self,
        words: &[u32],
        shape: [usize; R],
    ) -> Result<PackedDeviceArray<F, R>> {
        if words.is_empty() {
            return self.packed_zeros(shape);
        }
        let words = self.array(words, shape_of_words::<F, R>(shape))?;
        Ok(PackedDeviceArray { words, shape, element: PhantomData })
    }
}

impl<F, const R: usize> PackedDeviceArray<F, R> {
    /// Returns the array of words.
    pub(crate) fn as_words(&self) -> &DeviceArray<u32, R> {
        &self.words
    }

    pub(crate) fn as_words_mut(&mut self) -> &mut DeviceArray<u32, R> {
        &mut self.words
    }
}

impl<F: Narrow, const R: usize> PackedDeviceArray<F, R> {
    /// Returns the device of the array.
    ///
    /// ```
    /// let a = cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 1>([5])?;
    /// assert_eq!(a.device(), cutlet::Device::cpu());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        self.words.device()
    }

    /// Returns the extents in elements.
    ///
    /// ```
    /// assert_eq!(cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 2>([2, 5])?.shape(), [2, 5]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// Returns the address of the first word on the device. [`PackedDeviceArray`] describes the
    /// rows.
    ///
    /// ```
    /// let x = cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 1>([300])?;
    /// assert_eq!(x.address() % 16, 0);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn address(&self) -> u64 {
        self.words.address()
    }

    /// Returns the number of elements.
    ///
    /// ```
    /// assert_eq!(cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 2>([2, 5])?.len(), 10);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the array has no elements.
    ///
    /// ```
    /// assert!(cutlet::Device::cpu().packed_zeros::<cutlet::packed::u4, 2>([2, 0])?.is_empty());
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements in row-major order, after the work that writes them.
    ///
    /// # Errors
    /// [`Error::Driver`] if this work failed, [`Error::Argument`] if the host has not enough
    /// memory.
    ///
    /// ```
    /// use cutlet::packed::{Narrow, i3};
    /// use cutlet::Device;
    /// let values = [-4.0, 0.0, 3.0].map(i3::from_value);
    /// assert_eq!(Device::cpu().packed(&values, [3])?.to_vec()?, values);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec(&self) -> Result<Vec<F>> {
        let row = self.shape[R - 1];
        let all = self.words.to_vec()?;
        let mut values = pack_host::reserved(self.len())?;
        for line in all.chunks(row_words::<F>(row)) {
            values.extend(unpack_row::<F>(bytemuck::cast_slice(line), row));
        }
        Ok(values)
    }

    /// Returns the packed elements: row after row, each from a whole byte on.
    ///
    /// # Errors
    /// As [`PackedDeviceArray::to_vec`].
    ///
    /// ```
    /// use cutlet::packed::{Narrow, u4};
    /// use cutlet::Device;
    /// let a = Device::cpu().packed(&[1, 2, 3].map(u4::from_code), [3])?;
    /// assert_eq!(a.to_bytes()?, [0x21, 0x03]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let row = self.shape[R - 1];
        let (width, words) = (row_bytes::<F>(row), row_words::<F>(row));
        let all = self.words.to_vec()?;
        let mut bytes = pack_host::reserved(all.len() / words * width)?;
        all.chunks(words).for_each(|line| bytes.extend_from_slice(&bytemuck::cast_slice(line)[..width]));
        Ok(bytes)
    }

    /// Overwrites all elements with host values in row-major order.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of values, [`Error::Driver`] if earlier work failed.
    ///
    /// ```
    /// use cutlet::packed::{Narrow, u4};
    /// use cutlet::Device;
    /// let mut a = Device::cpu().packed_zeros::<u4, 1>([3])?;
    /// a.copy_from(&[1, 2, 3].map(u4::from_code))?;
    /// assert_eq!(a.to_bytes()?, [0x21, 0x03]);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn copy_from(&mut self, host: &[F]) -> Result<()> {
        check_count("values", host.len(), Some(self.len()), self.shape)?;
        match host.is_empty() {
            true => Ok(()),
            false => self.words.copy_from(&packed_words_of(host, self.shape[R - 1])?),
        }
    }
}

impl<F: Narrow, const R: usize> fmt::Debug for PackedDeviceArray<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedDeviceArray<{}>({:?} on {})", F::NAME, self.shape, self.device())
    }
}

/// The description of a packed array without memory: an argument of [`inspect`](crate::inspect())
/// and [`export`](crate::export).
#[derive(Clone, Copy, Debug)]
pub struct PackedSpec<F, const R: usize> {
    shape: [usize; R],
    element: PhantomData<F>,
}

/// A [`PackedSpec`] of an array that the kernel may write.
#[derive(Clone, Copy, Debug)]
pub struct PackedSpecMut<F, const R: usize>(PackedSpec<F, R>);

impl<F: Narrow, const R: usize> PackedSpec<F, R> {
    /// Makes the description of an array of this shape.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn unpack(x: ct::packed::PackedArray<ct::packed::u4, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [128]).cast::<f32>());
    /// }
    ///
    /// let y = ct::ArraySpec::new([1024]).mutable();
    /// assert!(ct::inspect(unpack, (ct::packed::PackedSpec::new([1024]), y)).ir()?.contains("store_view_tko"));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn new(shape: [usize; R]) -> PackedSpec<F, R> {
        PackedSpec { shape, element: PhantomData }
    }

    /// Returns the description of an array that the kernel may write.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn pack(x: Array<f32, 1>, y: ct::packed::PackedArrayMut<ct::packed::u4, 1>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [128]).cast_narrow::<ct::packed::u4>());
    /// }
    ///
    /// let y = ct::packed::PackedSpec::new([1024]).mutable();
    /// assert!(ct::inspect(pack, (ct::ArraySpec::new([1024]), y)).ir()?.contains("store_view_tko"));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn mutable(self) -> PackedSpecMut<F, R> {
        PackedSpecMut(self)
    }

    fn words(&self) -> ArraySpec<u32, R> {
        ArraySpec::new(shape_of_words::<F, R>(self.shape))
    }
}

/// Returns the number of elements of a row, and the facts that code depends on, for a layout of the
/// words.
pub(super) fn row<const R: usize>(shape: [usize; R], words: &Strided<R>) -> (i32, Constant<PackedFacts>) {
    let offsets = (0..R).map(|d| words.shape[d].saturating_sub(1).saturating_mul(words.strides[d]));
    let last = offsets.fold(0, usize::saturating_add);
    let most = words.strides.iter().copied().fold(last, usize::max);
    let facts = PackedFacts {
        whole: shape[R - 1].is_multiple_of(GROUP),
        bytes64: most.saturating_mul(4).saturating_add(3) > i32::MAX as usize,
    };
    (shape[R - 1] as i32, Constant(facts))
}

macro_rules! packed_argument {
    ($([$($generics:tt)*] $ty:ty => $array:ident, $words:ty, |$this:ident| $give:expr, $shape:expr;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generics)* F: Narrow, const R: usize> IntoKernelArg<$array<F, R>> for $ty {
            type Arg = ($words, i32, Constant<PackedFacts>);

            #[inline]
            fn into_arg(self) -> Self::Arg {
                let $this = self;
                let (shape, words) = ($shape, $give);
                let (extent, facts) = row(shape, &words.layout());
                (words, extent, facts)
            }

            fn from_traced((words, extent, facts): <Self::Arg as LaunchArg>::Traced) -> $array<F, R> {
                $array::new(words, extent, facts)
            }
        }
    )+};
}
packed_argument! {
    ['a,] &'a PackedDeviceArray<F, R> => PackedArray, DeviceView<'a, u32, R>, |this| this.words.view(), this.shape;
    ['a,] &'a mut PackedDeviceArray<F, R> => PackedArrayMut, DeviceViewMut<'a, u32, R>, |this| this.words.view_mut(), this.shape;
    [] PackedSpec<F, R> => PackedArray, ArraySpec<u32, R>, |this| this.words(), this.shape;
    [] PackedSpecMut<F, R> => PackedArrayMut, ArraySpecMut<u32, R>, |this| this.0.words().mutable(), this.0.shape;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::packed_formats::{f6e3m2, i1, u3, u7};

    fn there_and_back<F: Narrow>(shape: [usize; 2]) -> Result<()> {
        let values: Vec<F> = (0..shape[0] * shape[1]).map(|i| F::from_code((i * 7 + 3) as u8)).collect();
        let mut a = Device::cpu().packed(&values, shape)?;
        assert_eq!(a.to_vec()?, values);
        let again = Device::cpu().packed_from_bytes::<F, 2>(&a.to_bytes()?, shape)?;
        assert_eq!(again.words.to_vec()?, a.words.to_vec()?);
        assert_eq!(a.words.shape()[1] % (4 * F::BITS as usize), 0);
        let other: Vec<F> = values.iter().rev().copied().collect();
        a.copy_from(&other)?;
        assert_eq!(a.to_vec()?, other);
        Ok(())
    }

    /// Words of less than 32 bits have offsets up to four times those of whole words: 2^31 bytes
    /// are 2^29 words.
    #[test]
    fn byte_offsets_get_64_bits_where_they_need_them() -> Result<()> {
        use crate::dtype::DType;
        use crate::ir::Opcode;
        use crate::kernel::{Arguments, trace_kernel};
        // The index types of the words in a kernel that loads tiles with rows of `columns`
        // elements.
        fn bits<F: Narrow>(shape: [usize; 2], columns: usize) -> Result<Vec<DType>> {
            let kernel = move |x: PackedArray<F, 2>| {
                let _ = x.load((1, 2), [4, columns]).cast::<f32>();
            };
            let module = trace_kernel("kernel", &kernel, &Arguments::new((PackedSpec::<F, 2>::new(shape),)))?;
            let mut bits = Vec::new();
            module.walk(module.entries[0].body, &mut |id| {
                let op = module.op(id);
                if op.code == Opcode::MakeTensorView {
                    bits.push(module.dtype(op.operands[1]));
                }
            });
            Ok(bits)
        }
        let (short, long) = (vec![DType::I32; 2], vec![DType::I32, DType::I64]);
        assert_eq!(bits::<u8>([(1 << 15) + 1, 1 << 16], 4)?, long);
        assert_eq!(bits::<u8>([1 << 15, 1 << 16], 4)?, short);
        assert_eq!(bits::<f6e3m2>([1 << 16, 1 << 16], 8)?, long);
        assert_eq!(bits::<f6e3m2>([1 << 16, 1 << 16], 32)?, short);
        Ok(())
    }

    #[test]
    fn round_trips_of_odd_rows() -> Result<()> {
        for shape in [[3, 5], [1, 128], [2, 129], [4, 1], [0, 9], [3, 0]] {
            there_and_back::<u3>(shape)?;
            there_and_back::<u7>(shape)?;
            there_and_back::<i1>(shape)?;
            there_and_back::<f6e3m2>(shape)?;
            there_and_back::<u8>(shape)?;
        }
        Ok(())
    }

    #[test]
    fn bits_after_a_row_are_zero() -> Result<()> {
        let a = Device::cpu().packed_from_bytes::<u3, 2>(&[0xff; 4], [2, 5])?;
        assert_eq!(a.words.to_vec()?.iter().map(|word| word.count_ones()).sum::<u32>(), 2 * 15);
        assert_eq!(a.to_vec()?, [u3::MAX; 10]);
        Ok(())
    }

    #[test]
    fn wrong_numbers_are_errors() {
        let error = Device::cpu().packed(&[u3::MAX; 5], [2, 3]).unwrap_err().to_string();
        assert!(error.contains("5 values") && error.contains("packed.rs"), "{error}");
        assert!(Device::cpu().packed_from_bytes::<u3, 2>(&[0; 5], [2, 5]).is_err());
        assert!(Device::cpu().packed_zeros::<u3, 1>([1 << 31]).is_err());
    }
}
