//! Tiles from host values: constants and ranges.

use crate::dtype::DType;
use crate::element::{ByteSized, Element, Number};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Rounding, Sign, Type, Value};
use crate::ops::control::loop_range::{Count, StepRange};
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_shape::TileShape;
use crate::sealed::Sealed;
use crate::tile::{Handle, Place, Scalar, Source, Tile, Trace, ValueHandle, caller_location, record};
use crate::util::collect::CollectVec as _;

/// Extents in the type of the IR.
pub(crate) fn extents<const R: usize>(shape: [usize; R]) -> Vec<i64> {
    shape.iter().map(|&e| i64::try_from(e).unwrap_or(i64::MAX)).collect_vec()
}

/// A tile with one value in every element, a host value or a scalar.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn halves() -> Tile<f32, 2> {
///     ct::full([64, 64], 0.5)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// ct::assert!(halves().eq(0.5));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn full<T: Element, const R: usize>(shape: impl TileShape<R>, value: impl Operand<Tile<T, R>>) -> Tile<T, R> {
    filled("full", shape.extents(), value.source())
}

#[track_caller]
fn filled<T: Element, const R: usize>(name: &str, shape: [usize; R], source: Source) -> Tile<T, R> {
    let (place, shape) = (caller_location(), extents(shape));
    Tile::from_raw(record(|t| {
        t.at(place);
        if !t.legal_shape(place, name, &shape) {
            return t.poison(Type::tile(T::DTYPE, vec![1; R]));
        }
        let ty = Type::tile(T::DTYPE, shape.as_slice());
        if !t.admits(place, Effect::Pure, R) {
            return t.poison(ty);
        }
        let value = match source {
            Source::Literal(bits) => t.splat(T::DTYPE, bits, &shape),
            Source::Extent(n) => t.splat_extent(place, n, &shape),
            Source::Value(raw) => {
                let fits = t.shape(raw).iter().zip(&shape).all(|(&from, &to)| from == 1 || from == to);
                let Some(value) = t.check_usable(raw, place) else { return t.poison(ty) };
                if !fits {
                    let message =
                        format!("`{name}`: a tile of shape {:?} cannot be stretched to {shape:?}", t.shape(raw));
                    return t.fail(place, ty, message, &["only extents of 1 are stretched"]);
                }
                t.stretch(value, &shape)
            }
        };
        t.raw(value)
    }))
}

/// A tile of zeros (`false` for bool).
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::zeros::<f32, 2>([2, 4]).eq(0.0));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn zeros<T: Element, const R: usize>(shape: impl TileShape<R>) -> Tile<T, R> {
    filled("zeros", shape.extents(), Source::Literal(T::from_f64(0.0).to_bits()))
}

/// A tile of ones (`true` for bool).
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::ones::<i32, 1>([4]).sum(0).eq(4));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn ones<T: Element, const R: usize>(shape: impl TileShape<R>) -> Tile<T, R> {
    filled("ones", shape.extents(), Source::Literal(T::from_f64(1.0).to_bits()))
}

/// A host value as a [`Scalar`].
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!((ct::scalar(3) + ct::bid(0)).eq(3));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn scalar<T: ByteSized>(value: T) -> Scalar<T> {
    let place = caller_location();
    Scalar::from_raw(record(|t| {
        t.at(place);
        let value = t.splat(T::DTYPE, value.to_bits(), &[]);
        t.raw(value)
    }))
}

/// Conversion by [`scalar`], with an inferred type: `[i, 0.into()]`.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn first_rows(a: Array<f32, 2>) -> Tile<f32, 2> {
///     a.load([ct::bid(0), 0.into()], [16, 16]) // the same as (ct::bid(0), 0)
/// }
/// ```
impl<T: ByteSized> From<T> for Scalar<T> {
    #[track_caller]
    fn from(value: T) -> Scalar<T> {
        scalar(value)
    }
}

/// A range of host numbers as the numbers of a tile: `0..n`, or [`range`](crate::range) with a step
/// or backwards.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn last<R: ct::ops::TileRange>(numbers: R) -> Tile<R::Elem, 1> {
///     ct::arange(numbers).reduce_max(0)
/// }
/// ct::assert!(last(0..8u8).eq(7) & last(ct::range(0, 8).step(2)).eq(6));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of host numbers",
    note = "write `ct::arange(0..n)`, with a step `ct::arange(ct::range(0, n).step(2))`; `ct::arange_from(n, start, step)` \
            counts in any element type",
    note = "ends that are known only when the kernel runs are added: `start + ct::arange(0..n)`; \
            see docs/common_errors.md"
)]
pub trait TileRange: Sealed {
    /// The element type: that of the numbers, and i32 for usize.
    type Elem: Number;
    /// Returns the first number, the number after the last one, and the step; `None` if they are
    /// unknown during tracing.
    #[doc(hidden)]
    fn numbers(&self) -> Option<[i128; 3]>;
}

macro_rules! tile_ranges {
    ($($host:ty => $elem:ty;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl TileRange for std::ops::Range<$host> {
            type Elem = $elem;
            fn numbers(&self) -> Option<[i128; 3]> {
                Some([self.start as i128, self.end as i128, 1])
            }
        }
    )+};
}
tile_ranges! { i8 => i8; i16 => i16; i32 => i32; i64 => i64; u8 => u8; u16 => u16; u32 => u32; u64 => u64; usize => i32; }

#[diagnostic::do_not_recommend]
impl<C: Count> TileRange for StepRange<C> {
    type Elem = C;
    fn numbers(&self) -> Option<[i128; 3]> {
        self.host_numbers()
    }
}

/// A tile of the numbers of a range.
///
/// The element type is that of the range, and i32 for ends of usize. [`arange_from`] makes floats.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn columns(tile: usize) -> Tile<i32, 1> {
///     ct::bid(0) * tile + ct::arange(0..tile)
/// }
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// ct::assert!((columns(128) % 128).eq(ct::indices([128], 0)));
/// ct::assert!(ct::arange(ct::range(1, 9).step(2)).eq(ct::astile([1, 3, 5, 7])));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
#[doc(alias = "iota")]
pub fn arange<R: TileRange>(range: R) -> Tile<R::Elem, 1> {
    let place = caller_location();
    let poison = |message: String, way_out: &str| {
        Tile::from_raw(record(|t| t.fail(place, Type::tile(R::Elem::DTYPE, [1]), message, &[way_out])))
    };
    let Some([start, end, step]) = range.numbers() else {
        let message = "`arange` of a range whose ends are known only when the kernel runs".to_string();
        return poison(message, "write `start + ct::arange(0..n)` with a host number `n`");
    };
    let count = if step > 0 { end - start + step - 1 } else { start - end - step - 1 } / step.abs().max(1);
    match usize::try_from(count) {
        Ok(count @ 1..) => {
            let of = |number: i128| R::Elem::from_bits(number as u64);
            let fits = |number: i128| of(number).to_f64() == number as f64;
            if !fits(start) || !fits(end - step.signum()) {
                let message = format!("`arange`: not all numbers from {start} to {end} fit {}", R::Elem::NAME);
                return poison(message, "count in a wider type: `0..n` of i64");
            }
            sequence(place, "arange", count, of(start), of(step))
        }
        _ => poison(format!("`arange` of the empty range {start}..{end}"), "a tile has at least one element"),
    }
}

/// A tile of the `n` numbers `start`, `start + step`, `start + 2 * step`, …, in any element type of
/// numbers.
///
/// Integers wrap. Floats are computed as `start + i * step` in their own type; f16 and bf16 are
/// computed in f32 and rounded once.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::arange_from(3, 0.5f32, 0.25).eq(ct::astile([0.5, 0.75, 1.0])));
/// ct::assert!(ct::arange_from(3, 7, -2).eq(ct::astile([7, 5, 3])));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn arange_from<T: Number>(n: usize, start: T, step: T) -> Tile<T, 1> {
    sequence(caller_location(), "arange_from", n, start, step)
}

fn sequence<T: Number>(place: Place, name: &str, n: usize, start: T, step: T) -> Tile<T, 1> {
    let shape = extents([n]);
    Tile::from_raw(record(|t| {
        t.at(place);
        if !t.legal_shape(place, name, &shape) {
            return t.poison(Type::tile(T::DTYPE, [1]));
        }
        if !t.admits(place, Effect::Pure, 1) {
            return t.poison(Type::tile(T::DTYPE, shape));
        }
        let bits = T::DTYPE.bits();
        if T::DTYPE.is_int() && bits < 32 && shape[0] > 1 << bits {
            let message = format!("`{name}`: {n} different numbers do not fit {} ({bits} bits)", T::NAME);
            return t.fail(place, Type::tile(T::DTYPE, shape), message, &["take a wider type and `.cast` it"]);
        }
        match T::DTYPE.is_float() {
            true => float_range(t, T::DTYPE, start.to_f64(), step.to_f64(), &shape),
            false => int_range(t, start, step, &shape),
        }
    }))
}

fn int_range<T: Element>(t: &mut Trace, start: T, step: T, shape: &[i64]) -> ValueHandle {
    let wrap = || vec![Attr::Overflow(Overflow::None)];
    let mut value = t.put(Opcode::Iota, &[], vec![], T::DTYPE, shape);
    if step.to_bits() != 1 {
        let step = t.splat(T::DTYPE, step.to_bits(), shape);
        value = t.put(Opcode::MulI, &[value, step], wrap(), T::DTYPE, shape);
    }
    if start.to_bits() != 0 {
        let start = t.splat(T::DTYPE, start.to_bits(), shape);
        value = t.put(Opcode::AddI, &[value, start], wrap(), T::DTYPE, shape);
    }
    t.raw(value)
}

fn float_range(t: &mut Trace, dtype: DType, start: f64, step: f64, shape: &[i64]) -> ValueHandle {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let nearest = || Attr::Rounding(Rounding::NearestEven);
    let literal = |t: &mut Trace, x: f64| -> Value {
        let bits = crate::types::float_codec::encode(wide, x, Rounding::NearestEven);
        t.splat(wide, bits, shape)
    };
    let index = t.put(Opcode::Iota, &[], vec![], DType::I32, shape);
    let mut value = t.put(Opcode::IToF, &[index], vec![Attr::Sign(Sign::Unsigned), nearest()], wide, shape);
    if step != 1.0 {
        let step = literal(t, step);
        value = t.put(Opcode::MulF, &[value, step], vec![nearest()], wide, shape);
    }
    if start != 0.0 {
        let start = literal(t, start);
        value = t.put(Opcode::AddF, &[value, start], vec![nearest()], wide, shape);
    }
    if wide != dtype {
        value = t.put(Opcode::FToF, &[value], vec![nearest()], dtype, shape);
    }
    t.raw(value)
}

/// The index of each element along an axis.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn lower_triangle(y: ArrayMut<i32, 2>) {
///     let (row, column) = (ct::indices([4, 4], 0), ct::indices([4, 4], 1));
///     y.store((0, 0), row.ge(column).select(1, 0));
/// }
///
/// let mut y = ct::Device::cpu().zeros([4, 4])?;
/// ct::launch(lower_triangle, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn indices<const R: usize>(shape: impl TileShape<R>, axis: impl Axis) -> Tile<i32, R> {
    let (axis, shape) = (axis.axis(R), shape.extents());
    let (place, extents) = (caller_location(), extents(shape));
    Tile::from_raw(record(|t| {
        t.at(place);
        if !t.legal_shape(place, "indices", &extents) {
            return t.poison(Type::tile(DType::I32, vec![1; R]));
        }
        if axis >= R {
            let message = format!("`indices` along axis {} of a tile of shape {shape:?}", shown(axis));
            return t.fail(place, Type::tile(DType::I32, extents), message, &[AXES_COUNT]);
        }
        if !t.admits(place, Effect::Pure, R) {
            return t.poison(Type::tile(DType::I32, extents));
        }
        let value = t.count_along(&extents, axis);
        t.raw(value)
    }))
}

impl Trace {
    /// The index of each element along an axis of a tile of this shape.
    pub(crate) fn count_along(&mut self, shape: &[i64], axis: usize) -> Value {
        let line = self.put(Opcode::Iota, &[], vec![], DType::I32, &[shape[axis]]);
        let one: Vec<i64> = (0..shape.len()).map(|d| if d == axis { shape[d] } else { 1 }).collect_vec();
        let line = if shape.len() == 1 { line } else { self.put(Opcode::Reshape, &[line], vec![], DType::I32, &one) };
        self.stretch(line, shape)
    }
}
