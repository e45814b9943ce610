//! Tiles of elements of 1 to 8 bits.

use std::marker::PhantomData;

use super::bits::Bits;
use super::word_packing::Coded;
use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Sign, Type, Value};
use crate::ops::elementwise::convert::Kind;
use crate::tile::{Handle, Place, Tile, Trace, ValueHandle, caller_location, record};
use crate::types::packed_formats::{Narrow, NarrowFormat};

/// A tile of elements of 1 to 8 bits ([`Narrow`]), from a packed array or from
/// [`Tile::cast_narrow`]. It has no arithmetic; [`cast`](NarrowTile::cast) converts it.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let x: ct::packed::NarrowTile<ct::packed::i4, 1> = ct::astile([-100, -3, 7, 100]).cast_narrow::<ct::packed::i4>();
/// ct::assert!(x.cast::<i32>().eq(ct::astile([-8, -3, 7, 7])));
/// # });
/// ```
#[derive(Debug)]
pub struct NarrowTile<F, const R: usize> {
    bits: Bits,
    element: PhantomData<F>,
}

impl<F, const R: usize> Clone for NarrowTile<F, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F, const R: usize> Copy for NarrowTile<F, R> {}

impl<F, const R: usize> NarrowTile<F, R> {
    pub(super) fn of(bits: Bits) -> Self {
        NarrowTile { bits, element: PhantomData }
    }

    pub(super) fn bits(self) -> Bits {
        self.bits
    }
}

impl Trace {
    /// Records an elementwise function of codes.
    fn made_of_bits(
        &mut self,
        place: Place,
        bits: Bits,
        out: DType,
        body: impl FnOnce(&mut Trace, &[i64]) -> Option<Value>,
    ) -> ValueHandle {
        let (shape, admitted) = self.begin_of_bits(place, bits);
        let value = if admitted { body(self, &shape) } else { None };
        self.value_or_poison(value, out, shape)
    }

    /// Records an elementwise function of a tile that results in codes.
    fn bits_made_of(
        &mut self,
        place: Place,
        tile: ValueHandle,
        body: impl FnOnce(&mut Trace, Value, &[i64]) -> Value,
    ) -> Bits {
        let (shape, value) = self.begin_with_tile(place, tile);
        let codes = value.map(|value| body(self, value, &shape));
        Bits::Codes(self.value_or_poison(codes, DType::I32, shape))
    }

    fn begin_of_bits(&mut self, place: Place, bits: Bits) -> (Vec<i64>, bool) {
        self.at(place);
        let shape = self.shape_of_bits(bits);
        let admitted = self.admits(place, Effect::Pure, shape.len());
        (shape, admitted)
    }

    fn begin_with_tile(&mut self, place: Place, tile: ValueHandle) -> (Vec<i64>, Option<Value>) {
        self.at(place);
        let shape = self.shape(tile);
        let value = self.check_usable(tile, place).filter(|_| self.admits(place, Effect::Pure, shape.len()));
        (shape, value)
    }

    fn value_or_poison(&mut self, value: Option<Value>, dtype: DType, shape: Vec<i64>) -> ValueHandle {
        match value {
            Some(value) => self.raw(value),
            None => self.poison(Type::tile(dtype, shape)),
        }
    }
}

impl<F: Narrow, const R: usize> NarrowTile<F, R> {
    /// The extents in elements, known during tracing.
    ///
    /// # Panics
    /// Outside of a kernel.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// assert_eq!(ct::zeros::<i32, 2>([2, 8]).cast_narrow::<ct::packed::i4>().shape(), [2, 8]);
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shape(self) -> [usize; R] {
        let shape = record(|t| t.shape_of_bits(self.bits));
        std::array::from_fn(|d| shape[d] as usize)
    }

    /// Converts the values to elements of tiles. The result is exact if `U` has the value;
    /// otherwise it is that of [`Tile::cast`] from f32 or i32.
    ///
    /// In a conversion to f16, bf16 or f32, an integer costs a mask and a sum. A float of up to 7
    /// bits costs two shifts, a mask and a product. Numbers of f7e5m1 that exceed f16 become
    /// infinite.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::packed::{Narrow, i5};
    ///
    /// fn kernel(x: ct::packed::PackedArray<i5, 1>, scale: Scalar<f32>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [32]).cast::<f32>() * scale);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.packed(&[-16, -1, 15].map(i5::saturating), [3])?;
    /// let mut y = device.zeros([3])?;
    /// ct::launch(kernel, 1, (&x, 0.5f32, &mut y))?;
    /// assert_eq!(y.to_vec()?, [-8.0, -0.5, 7.5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast<U: Element>(self) -> Tile<U, R> {
        let (place, coded, target) = (caller_location(), Coded::of::<F>(), Kind::of::<U>());
        Tile::from_raw(record(|t| {
            t.made_of_bits(place, self.bits, U::DTYPE, |t, shape| t.unpacked(place, self.bits, coded, target, shape))
        }))
    }

    /// Converts to the nearest values of another narrow type, as [`Tile::cast_narrow`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::astile([-8, -1, 3, 7]).cast_narrow::<ct::packed::i4>();
    /// ct::assert!(x.cast_narrow::<ct::packed::u2>().cast::<i32>().eq(ct::astile([0, 0, 3, 3])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_narrow<G: Narrow>(self) -> NarrowTile<G, R> {
        match F::FORMAT {
            NarrowFormat::Int(_) | NarrowFormat::UInt(_) => self.cast::<i32>().cast_narrow::<G>(),
            NarrowFormat::Float { .. } | NarrowFormat::Element(_) => self.cast::<f32>().cast_narrow::<G>(),
        }
    }

    /// The codes: the bits of each element in the low bits of a byte.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-1, 5]).cast_narrow::<ct::packed::i4>().codes().eq(ct::astile([15u8, 5])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn codes(self) -> Tile<u8, R> {
        let place = caller_location();
        Tile::from_raw(record(|t| {
            t.made_of_bits(place, self.bits, DType::I8, |t, shape| {
                let codes = t.low_bits(place, self.bits, F::BITS)?;
                Some(t.put(Opcode::TruncI, &[codes], vec![Attr::Overflow(Overflow::None)], DType::I8, shape))
            })
        }))
    }

    /// Creates a tile from codes. The higher bits of each byte are ignored.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::packed::{NarrowTile, f4e2m1};
    ///
    /// // All numbers of a type.
    /// fn table(y: ArrayMut<f32, 1>) {
    ///     let codes = ct::arange_from(16, 0u8, 1);
    ///     y.store(0, NarrowTile::<f4e2m1, 1>::from_codes(codes).cast::<f32>());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([16])?;
    /// ct::launch(table, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn from_codes(codes: Tile<u8, R>) -> NarrowTile<F, R> {
        let place = caller_location();
        NarrowTile::of(record(|t| {
            t.bits_made_of(place, codes.raw(), |t, bytes, shape| {
                let codes = t.put(Opcode::ExtI, &[bytes], vec![Attr::Sign(Sign::Unsigned)], DType::I32, shape);
                let mask = t.splat(DType::I32, (1 << F::BITS) - 1, shape);
                t.put(Opcode::AndI, &[codes, mask], vec![], DType::I32, shape)
            })
        }))
    }
}

impl<T: Element, const R: usize> Tile<T, R> {
    /// Converts to the nearest values of a type of 1 to 8 bits, with ties to even.
    ///
    /// * Floats convert to integers toward zero; [`round_ties_even`](Tile::round_ties_even) rounds
    ///   them first.
    /// * Values outside of the range saturate, including integers.
    /// * NaN becomes 0 as an integer, and the largest number in a float type without NaN.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::packed::{f6e2m3, i4};
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>, z: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, x.cast_narrow::<f6e2m3>().cast::<f32>());
    ///     z.store(0, x.cast_narrow::<i4>().cast::<i32>());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0.3f32, -1.9, 100.0, f32::NAN], [4])?;
    /// let (mut y, mut z) = (device.zeros([4])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y, &mut z))?;
    /// assert_eq!(y.to_vec()?, [0.25, -1.875, 7.5, 7.5]);
    /// assert_eq!(z.to_vec()?, [0, -1, 7, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_narrow<F: Narrow>(self) -> NarrowTile<F, R> {
        let (place, source, coded) = (caller_location(), Kind::of::<T>(), Coded::of::<F>());
        NarrowTile::of(record(|t| {
            t.bits_made_of(place, self.raw(), |t, value, shape| t.codes_of(value, source, coded, shape))
        }))
    }
}
