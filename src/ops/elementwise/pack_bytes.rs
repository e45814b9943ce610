//! Elements packed into bytes and unpacked from them, and saturating casts.

use super::arithmetic::sign;
use crate::dtype::DType;
use crate::element::{Element, Int, bf16, f4e2m1fn, f16, tf32};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Sign, Type, Value};
use crate::ops::support::operand::{elementwise, methods, value};
use crate::tile::{Handle, Place, Scalar, Tile, TileLike, Trace, ValueHandle, caller_location, record};

/// Element types for packing into bytes: all whose width is not 8 bits. Bool has one bit, tf32 has
/// 32.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn bytes<T: ct::packed::Packed>(x: Array<T, 1>, y: ArrayMut<u8, 1>) {
///     y.store(0, x.load(0, [2]).pack_to_bytes());
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[0x0201u16, 0x0403], [2])?, ct::Device::cpu().zeros([4])?);
/// ct::launch(bytes::<u16>, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 2, 3, 4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is as wide as a byte",
    note = "`.bitcast::<u8>()` reads 8-bit elements as bytes, and bytes as them"
)]
pub trait Packed: Element {}

macro_rules! packed {
    ($($name:ident)+) => { $(impl Packed for $name {})+ };
}
packed!(bool i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64 tf32 f4e2m1fn);

/// Bits of an element in packed form.
fn width<T: Element>() -> i64 {
    if T::DTYPE == DType::TF32 { 32 } else { T::DTYPE.bits().into() }
}

impl Trace {
    /// Records `pack` or `unpack` along the last axis. The IR has both for one axis only; tiles are
    /// row-major.
    fn repack(
        &mut self,
        place: Place,
        name: &str,
        code: Opcode,
        tile: ValueHandle,
        dtype: DType,
        [from, to]: [i64; 2],
    ) -> ValueHandle {
        self.at(place);
        let shape = self.shape(tile);
        let mut result = shape.clone();
        let last = result.last_mut().expect("a tile has an axis");
        let bits = *last * from;
        *last = bits / to;
        if bits % to != 0 {
            let message = format!("`{name}` of a tile of shape {shape:?}: a row has {bits} bits");
            let way_out = format!("the last axis holds whole {}", if to == 8 { "bytes" } else { "elements" });
            return self.fail(place, Type::tile(dtype, shape), message, &[&way_out]);
        }
        let ty = Type::tile(dtype, result.as_slice());
        let flat = |shape: &[i64]| [shape.iter().product::<i64>()];
        // The IR packs a tile of one axis.
        if ![&result[..], &flat(&shape), &flat(&result)].iter().all(|shape| self.legal_shape(place, name, shape)) {
            return self.poison(Type::tile(dtype, vec![1; result.len()]));
        }
        let Some(value) = self.check_usable(tile, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, result.len()) {
            return self.poison(ty);
        }
        let reshaped = |t: &mut Trace, value: Value, shape: &[i64]| match t.builder.module.shape(value) == shape {
            true => value,
            false => {
                let dtype = t.builder.module.dtype(value);
                t.put(Opcode::Reshape, &[value], vec![], dtype, shape)
            }
        };
        let line = reshaped(self, value, &flat(&shape));
        let packed = self.put(code, &[line], vec![], dtype, &flat(&result));
        let value = reshaped(self, packed, &result);
        self.raw(value)
    }
}

impl<T: Packed, const R: usize> Tile<T, R> {
    /// Packs the elements into bytes, in little-endian order. The last axis is multiplied by the
    /// bytes of an element. Two 4-bit elements or eight bools share a byte, the first one in the
    /// low bits.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<u32, 1>, y: ArrayMut<u8, 1>) {
    ///     y.store(0, x.load(0, [2]).pack_to_bytes());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0x04030201u32, 7], [2])?;
    /// let mut y = device.zeros([8])?;
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, 2, 3, 4, 7, 0, 0, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn pack_to_bytes(self) -> Tile<u8, R> {
        let widths = [width::<T>(), 8];
        let raw = record(|t| t.repack(caller_location(), "pack_to_bytes", Opcode::Pack, self.raw(), DType::I8, widths));
        Tile::from_raw(raw)
    }
}

impl<const R: usize> Tile<u8, R> {
    /// Unpacks elements from bytes: the inverse of [`pack_to_bytes`](Tile::pack_to_bytes).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// /// Two 4-bit floats a byte.
    /// fn kernel(x: Array<u8, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [2]).unpack_from_bytes::<f4e2m1fn>().cast::<f32>());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[0x21u8, 0xf7], [2])?;
    /// let mut y = device.zeros([4])?;
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0.5, 1.0, 6.0, -6.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn unpack_from_bytes<U: Packed>(self) -> Tile<U, R> {
        let widths = [8, width::<U>()];
        let raw =
            record(|t| t.repack(caller_location(), "unpack_from_bytes", Opcode::Unpack, self.raw(), U::DTYPE, widths));
        Tile::from_raw(raw)
    }
}

/// The smallest and largest value of `U` as bit patterns of `T`. A bound is `None` if no value of
/// `T` exceeds it.
fn bounds<T: Int, U: Int>() -> [Option<u64>; 2] {
    let ends = |bits: u32, signed: bool| match signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    let (low, high) = ends(T::DTYPE.bits(), T::SIGNED);
    let (least, most) = ends(U::DTYPE.bits(), U::SIGNED);
    let mask = u64::MAX >> (64 - T::DTYPE.bits());
    [(least > low).then_some(least as u64 & mask), (most < high).then_some(most as u64 & mask)]
}

methods! { [Int]
    /// Converts to another integer type, saturating at the ends of its range. `cast` keeps the low
    /// bits instead; casts of floats to integers always saturate.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, y: ArrayMut<u8, 1>) {
    ///     y.store(0, x.load(0, [4]).cast_saturating::<u8>());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[-5, 5, 255, 1000], [4])?;
    /// let mut y = device.zeros([4])?;
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0, 5, 255, 255]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast_saturating<U: Int>(self) -> <Self as TileLike>::With<U> {
        elementwise(caller_location(), "cast_saturating", &[value(self)], |t, v, shape| {
            let mut x = v[0];
            for (bound, code) in bounds::<T, U>().into_iter().zip([Opcode::MaxI, Opcode::MinI]) {
                if let Some(bits) = bound {
                    let bound = t.splat(T::DTYPE, bits, shape);
                    x = t.put(code, &[x, bound], vec![Attr::Sign(sign::<T>())], T::DTYPE, shape);
                }
            }
            let (from, to) = (T::DTYPE.bits(), U::DTYPE.bits());
            let extension = if T::SIGNED { Sign::Signed } else { Sign::Unsigned };
            match from.cmp(&to) {
                std::cmp::Ordering::Equal => x,
                std::cmp::Ordering::Less => t.put(Opcode::ExtI, &[x], vec![Attr::Sign(extension)], U::DTYPE, shape),
                std::cmp::Ordering::Greater => {
                    t.put(Opcode::TruncI, &[x], vec![Attr::Overflow(Overflow::None)], U::DTYPE, shape)
                }
            }
        })
    }
}
