//! Subarrays in a kernel: slices, steps, one index of an axis, permuted and reshaped arrays.
//! Nothing is copied, and no element outside of the array is accessible.

use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, CmpPred, Opcode, Overflow, Rounding, Sign, Type, Value};
use crate::ops::control::loop_range::{Bound, Count, StepRange};
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::ops::support::tile_index::{Component, IntoIndex, Number, TileIndex};
use crate::sealed::Sealed;
use crate::tile::{
    Array, ArrayData, ArrayHandle, ArrayMut, Handle, Place, Scalar, Source, Trace, caller_location, record,
};

/// A range of elements along an axis: `a..b`, `a..`, `..b`, or `..`, of numbers or scalars, or
/// `ct::range(a, b)` for a number and a scalar.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>, part: impl ct::ops::ElementRange) {
///     y.store(0, x.slice(0, part).load(0, [4]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([4])?);
/// ct::launch(|x, y| copy(x, y, 1..3), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2, 3, 0, 0]);
/// ct::launch(|x, y| copy(x, y, ct::bid(0) + 2..), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3, 4, 0, 0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of elements",
    note = "write `a..b`, `a..` or `..b`, of integers or of a `Scalar` of integers; where the two differ in type, \
            `ct::range(a, b)`"
)]
pub trait ElementRange: Sealed {
    #[doc(hidden)]
    fn ends(self) -> [Option<Component>; 2];
}

impl<I: IntoIndex> ElementRange for std::ops::Range<I> {
    fn ends(self) -> [Option<Component>; 2] {
        [Some(self.start.component()), Some(self.end.component())]
    }
}
impl<I: IntoIndex> ElementRange for std::ops::RangeFrom<I> {
    fn ends(self) -> [Option<Component>; 2] {
        [Some(self.start.component()), None]
    }
}
impl<I: IntoIndex> ElementRange for std::ops::RangeTo<I> {
    fn ends(self) -> [Option<Component>; 2] {
        [None, Some(self.end.component())]
    }
}
impl<C: Count> ElementRange for StepRange<C> {
    fn ends(self) -> [Option<Component>; 2] {
        self.plain_ends().map(|end| {
            Some(Component::Tiles(match end {
                // Ends are clamped to the array, whose extents fit in i64.
                Bound::Host(number) => Number::host(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64),
                Bound::Value(raw) => Number::of::<C>(Source::Value(raw)),
            }))
        })
    }
}
impl ElementRange for std::ops::RangeFull {
    fn ends(self) -> [Option<Component>; 2] {
        [None, None]
    }
}

const SIGNED: Attr = Attr::Sign(Sign::Signed);
const WRAP: Attr = Attr::Overflow(Overflow::None);

/// The derivation of an array from another one.
struct Derive<'a> {
    place: Place,
    name: &'static str,
    array: ArrayHandle,
    dtype: DType,
    elem: &'a str,
}

impl Derive<'_> {
    /// Returns the properties of the array; `None` after a problem.
    fn data(&self, t: &mut Trace, axis: usize) -> Option<ArrayData> {
        t.at(self.place);
        t.array_view(self.array, self.place)?;
        if !t.admits(self.place, Effect::Read, 0) {
            return None;
        }
        let data = t.arrays[self.array.index as usize].clone();
        if axis >= data.extents.len() {
            let message = format!("`{}`: axis {} of an array with {} axes", self.name, shown(axis), data.extents.len());
            t.report(self.place, message, &[AXES_COUNT]);
            return None;
        }
        if self.dtype.storage_bits() < 8 {
            let message = format!("`{}`: two {} share a byte", self.name, self.elem);
            t.report(self.place, message, &["cut the array before the launch, where offsets are known to be even"]);
            return None;
        }
        Some(data)
    }

    fn index(&self, t: &mut Trace, component: Component) -> Option<Value> {
        let number = self.number(t, component)?;
        t.index_scalar(self.place, number)
    }

    /// Returns the number of a component that counts elements, such as an end of a range.
    fn number(&self, t: &mut Trace, component: Component) -> Option<Number> {
        match component {
            Component::Tiles(number) => Some(number),
            Component::Elements(_) | Component::Sparse(_) => {
                let message = format!("`{}`: this counts elements, also without `ct::at`", self.name);
                t.report(self.place, message, &["write the number or scalar itself"]);
                None
            }
        }
    }
}

impl Trace {
    /// Clamps a number between two others, which are not negative.
    fn clamped(&mut self, value: Value, least: Value, most: Value) -> Value {
        let mut values = [value, least, most];
        self.of_one_width(&mut values);
        let [value, least, most] = values;
        let value = self.integers(Opcode::MaxI, vec![SIGNED], value, least);
        self.integers(Opcode::MinI, vec![SIGNED], value, most)
    }

    /// Emits the address of element `position` along an axis.
    fn moved_base(&mut self, dtype: DType, data: &ArrayData, axis: usize, position: Value) -> Value {
        let (position, stride) = (self.as_width(position, DType::I64), self.as_width(data.strides[axis], DType::I64));
        let unit = data.unit_stride >> axis & 1 != 0;
        let elements = if unit { position } else { self.integers(Opcode::MulI, vec![WRAP], position, stride) };
        let ty = self.builder.module.intern(Type::ptr(dtype));
        self.emit(Opcode::Offset, &[&[data.base], &[elements]], vec![], vec![], &[ty])[0]
    }

    fn slice_array(&mut self, of: &Derive<'_>, axis: usize, ends: [Option<Component>; 2]) -> Option<ArrayHandle> {
        let mut data = of.data(self, axis)?;
        let extent = data.extents[axis];
        let index = self.builder.module.dtype(extent);
        let mut start = None;
        if let Some(component) = ends[0] {
            let number = of.index(self, component)?;
            let zero = self.integer(0, index);
            let clamped = self.clamped(number, zero, extent);
            start = Some(self.as_width(clamped, index));
        }
        let mut end = extent;
        if let Some(component) = ends[1] {
            let number = of.index(self, component)?;
            let least = match start {
                Some(start) => start,
                None => self.integer(0, index),
            };
            let clamped = self.clamped(number, least, extent);
            end = self.as_width(clamped, index);
        }
        data.extents[axis] = end;
        if let Some(start) = start {
            data.base = self.moved_base(of.dtype, &data, axis, start);
            let left = self.integers(Opcode::SubI, vec![WRAP], end, start);
            data.extents[axis] = self.nonnegative(left);
        }
        Some(self.make_array(of.dtype, data.base, data.extents, data.strides, data.unit_stride))
    }

    fn step_array(&mut self, of: &Derive<'_>, axis: usize, step: Component) -> Option<ArrayHandle> {
        let mut data = of.data(self, axis)?;
        let number = of.number(self, step)?;
        if let Some(step) = number.known().filter(|&step| step < 1) {
            let message = format!("`step`: a step of {step} along axis {axis}");
            self.report(of.place, message, &["every how many elements: at least 1"]);
            return None;
        }
        if number.known() == Some(1) {
            return Some(of.array);
        }
        let step = self.index_scalar(of.place, number)?;
        let extent = data.extents[axis];
        let index = self.builder.module.dtype(extent);
        // A step over more than all elements is clamped to all of them: strides stay within the
        // array.
        let (one, most) =
            (self.integer(1, index), self.integer(if index == DType::I64 { i64::MAX } else { i32::MAX.into() }, index));
        let clamped = self.clamped(step, one, most);
        let step = self.as_width(clamped, index);
        let up = vec![SIGNED, Attr::Rounding(Rounding::PosInf)];
        let count = self.integers(Opcode::DivI, up, extent, step);
        data.extents[axis] = self.nonnegative(count);
        let last = self.integers(Opcode::SubI, vec![WRAP], extent, one);
        let last = self.integers(Opcode::MaxI, vec![SIGNED], last, one);
        let near = self.integers(Opcode::MinI, vec![SIGNED], step, last);
        let stride = self.integers(Opcode::MulI, vec![WRAP], data.strides[axis], near);
        data.strides[axis] = stride;
        let unit = data.unit_stride & !(1 << axis);
        Some(self.make_array(of.dtype, data.base, data.extents, data.strides, unit))
    }

    fn index_array(&mut self, of: &Derive<'_>, axis: usize, at: Component) -> Option<ArrayHandle> {
        let mut data = of.data(self, axis)?;
        let at = of.index(self, at)?;
        let mut pair = [at, data.extents[axis]];
        self.of_one_width(&mut pair);
        let [at, extent] = pair;
        let less = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
        let inside = self.put(Opcode::CmpI, &[at, extent], less, DType::I1, &[]);
        let zero = self.integer(0, self.builder.module.dtype(at));
        let position = self.put(Opcode::Select, &[inside, at, zero], vec![], self.builder.module.dtype(at), &[]);
        data.base = self.moved_base(of.dtype, &data, axis, position);
        data.extents.remove(axis);
        data.strides.remove(axis);
        let (low, high) = (data.unit_stride & ((1 << axis) - 1), data.unit_stride >> (axis + 1) << axis);
        // Outside of the array the result has no elements.
        let index = self.builder.module.dtype(data.extents[0]);
        let none = self.integer(0, index);
        let first = self.put(Opcode::Select, &[inside, data.extents[0], none], vec![], index, &[]);
        data.extents[0] = self.nonnegative(first);
        Some(self.make_array(of.dtype, data.base, data.extents, data.strides, low | high))
    }

    /// Emits the row-major array of another shape, with at most the elements of the array. Extents
    /// are i64: one may be the number of all elements.
    fn reshape_array(&mut self, of: &Derive<'_>, shape: &[Component]) -> Option<ArrayHandle> {
        let data = of.data(self, 0)?;
        let wide = DType::I64;
        let (zero, one) = (self.integer(0, wide), self.integer(1, wide));
        // The number of elements, and whether they are contiguous.
        let (mut total, mut packed) = (one, None);
        for axis in (0..data.extents.len()).rev() {
            let extent = self.as_width(data.extents[axis], wide);
            if data.unit_stride >> axis & 1 == 0 || axis + 1 != data.extents.len() {
                let stride = self.as_width(data.strides[axis], wide);
                let equal = vec![Attr::CmpPred(CmpPred::Eq), SIGNED];
                let near = self.put(Opcode::CmpI, &[stride, total], equal, DType::I1, &[]);
                let less = vec![Attr::CmpPred(CmpPred::Le), SIGNED];
                let alone = self.put(Opcode::CmpI, &[extent, one], less, DType::I1, &[]);
                let fits = self.put(Opcode::OrI, &[near, alone], vec![], DType::I1, &[]);
                packed = Some(match packed {
                    Some(packed) => self.put(Opcode::AndI, &[packed, fits], vec![], DType::I1, &[]),
                    None => fits,
                });
            }
            total = self.integers(Opcode::MulI, vec![WRAP], total, extent);
        }
        let (mut extents, mut strides) = (Vec::new(), Vec::new());
        let (mut left, mut stride) = (total, one);
        for &component in shape.iter().rev() {
            let number = of.index(self, component)?;
            let number = self.as_width(number, wide);
            let extent = self.integers(Opcode::MaxI, vec![SIGNED], number, zero);
            let extent = self.nonnegative(extent);
            extents.insert(0, extent);
            strides.insert(0, stride);
            // Without elements any stride is right: a factor of 0 keeps the divisor of the extent.
            stride = self.integers(Opcode::MulI, vec![WRAP], stride, extent);
            if extents.len() < shape.len() {
                let count = self.integers(Opcode::MaxI, vec![SIGNED], extent, one);
                let down = vec![SIGNED, Attr::Rounding(Rounding::Zero)];
                left = self.integers(Opcode::DivI, down, left, count);
            }
        }
        let mut first = self.integers(Opcode::MinI, vec![SIGNED], extents[0], left);
        if let Some(packed) = packed {
            first = self.put(Opcode::Select, &[packed, first, zero], vec![], wide, &[]);
        }
        extents[0] = self.nonnegative(first);
        let unit = 1 << (shape.len() - 1);
        Some(self.make_array(of.dtype, data.base, extents, strides, unit))
    }

    fn array_stride(&mut self, of: &Derive<'_>, axis: usize) -> Option<Value> {
        self.at(of.place);
        self.array_view(of.array, of.place)?;
        let data = self.arrays[of.array.index as usize].clone();
        match data.strides.get(axis) {
            Some(_) if data.unit_stride >> axis & 1 != 0 => Some(self.integer(1, DType::I64)),
            Some(&stride) => Some(self.as_width(stride, DType::I64)),
            None => {
                let message = format!("`stride`: axis {} of an array with {} axes", shown(axis), data.strides.len());
                self.report(of.place, message, &[AXES_COUNT]);
                None
            }
        }
    }
}

macro_rules! array_parts {
    ($name:ident) => {
        impl<T: Element, const R: usize> $name<T, R> {
            fn derive(self, place: Place, name: &'static str) -> Derive<'static> {
                Derive { place, name, array: self.handle, dtype: T::DTYPE, elem: T::NAME }
            }

            /// Returns the elements of a range along an axis: `a..b`, `a..` or `..b`, of numbers or
            /// scalars, or `ct::range(a, b)`, whose step is ignored ([`Self::step`]). Ends are
            /// clamped to the array.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// /// The sum of the rows of a group, which end where those of the next one begin.
            /// fn sums(x: Array<i32, 2>, ends: Array<i32, 1>, y: ArrayMut<i32, 2>) {
            ///     let group = ct::bid(0);
            ///     let rows = x.slice(0, ends.load_scalar(group - 1)..ends.load_scalar(group));
            ///     let sum = ct::fold(..rows.num_tiles(0, [2, 4]), ct::zeros([1, 4]), |sum, i| {
            ///         sum + rows.load((i, 0), [2, 4]).sum(0)
            ///     });
            ///     y.store((group, 0), sum);
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let (x, ends) = (device.full([7, 4], 1)?, device.array(&[3, 3, 7], [3])?);
            /// let mut y = device.zeros([3, 4])?;
            /// ct::launch(sums, 3, (&x, &ends, &mut y))?;
            /// assert_eq!(y.to_vec()?, [3, 3, 3, 3, 0, 0, 0, 0, 4, 4, 4, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn slice(self, axis: impl Axis, range: impl ElementRange) -> Self {
                let axis = axis.axis(R);
                let of = self.derive(caller_location(), "slice");
                let made = record(|t| t.slice_array(&of, axis, range.ends()));
                made.map_or(self, Self::from_handle)
            }

            /// Returns every `step`-th element along an axis, from the first one on. A step that is
            /// a scalar is at least 1.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn even(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store(0, x.step(0, 2).load(0, [4]));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4, 5], [5])?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(even, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 3, 5, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn step(self, axis: impl Axis, step: impl IntoIndex) -> Self {
                let axis = axis.axis(R);
                let of = self.derive(caller_location(), "step");
                let made = record(|t| t.step_array(&of, axis, step.component()));
                made.map_or(self, Self::from_handle)
            }

            /// Returns the same memory with its axes in another order: axis `d` of the result is
            /// axis `order[d]` of this array. Nothing is copied.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn turned(x: Array<i32, 3>, y: ArrayMut<i32, 3>) {
            ///     y.store((0, 0, 0), x.permute([1, 2, 0]).load((0, 0, 0), [1, 2, 2]));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 1, 2])?, ct::Device::cpu().zeros([1, 2, 2])?);
            /// ct::launch(turned, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn permute(self, order: [usize; R]) -> $name<T, R> {
                let place = caller_location();
                $name::from_handle(record(|t| t.permute_array(self.handle, place, T::DTYPE, &order)))
            }

            /// Returns the same memory with two axes exchanged.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn turned(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
            ///     y.store((0, 0), x.swap_axes(0, 1).load((0, 0), [2, 2]));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2, 2])?);
            /// ct::launch(turned, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn swap_axes(self, a: impl Axis, b: impl Axis) -> Self {
                let (place, a, b) = (caller_location(), a.axis(R), b.axis(R));
                if a >= R || b >= R {
                    let message = format!("`swap_axes`: axes {} and {} of an array with {R} axes", shown(a), shown(b));
                    record(|t| t.report(place, message, &[AXES_COUNT]));
                    return self;
                }
                let mut order: [usize; R] = std::array::from_fn(|d| d);
                order.swap(a, b);
                Self::from_handle(record(|t| t.permute_array(self.handle, place, T::DTYPE, &order)))
            }

            /// Returns the elements in row-major order as an array of another shape, of numbers and
            /// scalars.
            ///
            /// The array is contiguous and row-major in memory; otherwise the result is empty, with
            /// an extent of 0. If the shape has more elements than the array, the first extent is
            /// reduced.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// fn heads(x: Array<i32, 2>, y: ArrayMut<i32, 3>) {
            ///     let x = x.reshape((x.extent(0), 2, 4));
            ///     y.store((0, 0, 0), x.load((0, 0, 0), [2, 2, 4]));
            /// }
            ///
            /// let x = ct::Device::cpu().from_fn([2, 8], |[i, j]| (8 * i + j) as i32)?;
            /// let mut y = ct::Device::cpu().zeros([2, 2, 4])?;
            /// ct::launch(heads, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, (0..16).collect::<Vec<_>>());
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn reshape<const N: usize>(self, shape: impl TileIndex<N>) -> $name<T, N> {
                const { assert!(N > 0, "an array has at least one axis after `reshape`") };
                let of = self.derive(caller_location(), "reshape");
                $name::from_handle(record(|t| {
                    t.reshape_array(&of, &shape.components()).unwrap_or_else(|| t.poison_array(N))
                }))
            }
        }

        impl<T: Element> $name<T, 2> {
            /// Returns the same memory with the two axes exchanged.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn turned(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
            ///     y.store((0, 0), x.transpose().load((0, 0), [2, 2]));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2, 2])?);
            /// ct::launch(turned, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn transpose(self) -> Self {
                self.swap_axes(0, 1)
            }
        }
    };
}
array_parts!(Array);
#[cfg(not(doctest))] // the examples are the same
array_parts!(ArrayMut);

impl<T: Element, const R: usize> Array<T, R> {
    /// Returns the stride of an axis: the number of elements in memory from one element to the
    /// next.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn strides(x: Array<i32, 2>, y: ArrayMut<i64, 1>) {
    ///     y.store_scalar(0, x.stride(0));
    ///     y.store_scalar(1, x.transpose().stride(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().zeros::<i32, 2>([3, 5])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(strides, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [5, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn stride(&self, axis: impl Axis) -> Scalar<i64> {
        let axis = axis.axis(R);
        let of = self.derive(caller_location(), "stride");
        Scalar::from_raw(record(|t| match t.array_stride(&of, axis) {
            Some(stride) => t.raw(stride),
            None => t.poison(Type::scalar(DType::I64)),
        }))
    }
}

macro_rules! index_axis {
    ($($(#[$doc:meta])* $name:ident $rank:literal $less:literal;)+) => {$(
        impl<T: Element> $name<T, $rank> {
            /// Returns the array at one index of an axis, without this axis. Outside of the array
            /// the result is empty: loads read padding, and stores have no effect.
            $(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn index_axis(self, axis: impl Axis, index: impl IntoIndex) -> $name<T, $less> {
                let axis = axis.axis($rank);
                let of = self.derive(caller_location(), "index_axis");
                $name::from_handle(record(|t| {
                    t.index_array(&of, axis, index.component()).unwrap_or_else(|| t.poison_array($less))
                }))
            }
        }
    )+};
}
index_axis! {
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn column(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.index_axis(1, ct::bid(0) + 1).load(0, [2]));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(column, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    Array 2 1; Array 3 2; Array 4 3; Array 5 4; Array 6 5; Array 7 6; Array 8 7;
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn fill_row(y: ArrayMut<i32, 2>) {
    ///     y.index_axis(0, 1).store(0, ct::full([2], 7));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([2, 2])?;
    /// ct::launch(fill_row, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 7, 7]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ArrayMut 2 1; ArrayMut 3 2; ArrayMut 4 3; ArrayMut 5 4; ArrayMut 6 5; ArrayMut 7 6; ArrayMut 8 7;
}
