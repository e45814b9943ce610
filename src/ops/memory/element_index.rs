//! Element indices of an array, for `gather`, `scatter` and atomics.
//!
//! An index has one component for each axis of the array: an integer tile of the rank of the
//! result, a scalar, a number or a range. They are broadcast together to the shape of the result.
//! [`Trace::places`] converts them to addresses and the mask of elements inside of the array. Each
//! component is scaled and compared in its own shape, before the broadcast.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

use crate::dtype::DType;
use crate::element::{Element, Int};
use crate::ir::{Attr, CmpPred, Elem, Opcode, Overflow, Sign, Type, Value};
use crate::sealed::Sealed;
use crate::tile::{ArrayHandle, Handle, Place, Scalar, Source, Tile, Trace, ValueHandle};

use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::each_tuple;
use crate::util::sort;

/// One component of an index, before it is recorded. It is public because a sealed trait mentions
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    kind: Kind,
    dtype: DType,
    signed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A scalar or a tile of the result's rank.
    Value(ValueHandle),
    /// A host number.
    Number(i64),
    /// `len` positions from `start` on.
    Span { start: Source, len: i64 },
}

impl Component {
    /// A signed integer tile of the result's rank.
    pub(crate) fn of(raw: ValueHandle, dtype: DType) -> Component {
        Component { kind: Kind::Value(raw), dtype, signed: true }
    }

    fn value<I: Int>(raw: ValueHandle) -> Component {
        Component { kind: Kind::Value(raw), dtype: I::DTYPE, signed: I::SIGNED }
    }

    /// Returns the component for an axis whose extent may exceed i32: the positions of a span do
    /// not wrap.
    fn of_long_axis(self) -> Component {
        match self.kind {
            Kind::Span { .. } => Component { dtype: DType::I64, ..self },
            Kind::Value(_) | Kind::Number(_) => self,
        }
    }

    fn number(number: i64) -> Component {
        let dtype = if i32::try_from(number).is_ok() { DType::I32 } else { DType::I64 };
        Component { kind: Kind::Number(number), dtype, signed: true }
    }
}

/// One component of an element index with a result of rank `N`: an integer tile of rank `N`, a
/// scalar, a number, or a range. A range in place `d` of the index is along axis `d` of the result.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>, places: impl ct::ops::AxisIndex<1>) {
///     y.store(0, x.gather([places]));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[3, 4], [2])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(|x, y| pick(x, y, 0..2usize), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [3, 4]);
/// ct::launch(|x, y| pick(x, y, ct::astile([1, 0])), 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [4, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index one axis of an array where the result has {N} axes",
    note = "take an integer tile with {N} axes (`.unsqueeze(axis)`), a `Scalar`, a number, or a range of numbers"
)]
pub trait AxisIndex<const N: usize>: Sealed {
    #[doc(hidden)]
    fn component(self) -> Component;
}

impl<I: Int, const N: usize> AxisIndex<N> for Tile<I, N> {
    fn component(self) -> Component {
        Component::value::<I>(self.raw())
    }
}
impl<I: Int, const N: usize> AxisIndex<N> for Scalar<I> {
    fn component(self) -> Component {
        Component::value::<I>(self.raw())
    }
}
macro_rules! numbers {
    ($($ty:ty)+) => {$(
        impl<const N: usize> AxisIndex<N> for $ty {
            fn component(self) -> Component {
                Component::number(i64::try_from(self).unwrap_or(i64::MAX))
            }
        }
    )+};
}
numbers!(i32 i64 usize);

/// Positions from a start that may be known only when the kernel runs; see [`span`].
///
/// ```
/// # use cutlet::doctest::*;
/// fn part(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let columns: ct::ops::Span = ct::span(ct::bid(0) + 1, 2);
///     y.store(0, x.gather(columns));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(part, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2, 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: Source,
    len: i64,
}

/// Returns `len` positions from `start` on, as a component of an element index: a range whose start
/// is a scalar.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // Four elements of a row, from a run-time column on.
/// fn part(a: Array<f32, 2>, out: ArrayMut<f32, 2>, row: Scalar<i32>, column: Scalar<i32>) {
///     out.store((0, 0), a.gather((row, ct::span(column, 4))));
/// }
///
/// let a = ct::Device::cpu().from_fn([2, 8], |[i, j]| (10 * i + j) as f32)?;
/// let mut out = ct::Device::cpu().zeros([1, 4])?;
/// ct::launch(part, 1, (&a, &mut out, 1, 5))?;
/// assert_eq!(out.to_vec()?, [15.0, 16.0, 17.0, 0.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[must_use]
pub fn span(start: impl Operand<Scalar<i32>>, len: usize) -> Span {
    Span { start: start.source(), len: i64::try_from(len).unwrap_or(i64::MAX) }
}

impl Sealed for Span {}
impl<const N: usize> AxisIndex<N> for Span {
    fn component(self) -> Component {
        Component { kind: Kind::Span { start: self.start, len: self.len }, dtype: DType::I32, signed: true }
    }
}
impl<const N: usize> AxisIndex<N> for Range<i32> {
    fn component(self) -> Component {
        let len = i64::from(self.end) - i64::from(self.start);
        let start = Source::Literal(Element::to_bits(self.start));
        Component { kind: Kind::Span { start, len }, dtype: DType::I32, signed: true }
    }
}
impl<const N: usize> AxisIndex<N> for Range<usize> {
    fn component(self) -> Component {
        let [start, end] = [self.start, self.end].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        Component {
            kind: Kind::Span { start: Source::Extent(self.start), len: end - start },
            dtype: DType::I32,
            signed: true,
        }
    }
}

/// An element index of an array of rank `R` with a result of rank `N`: a tuple or an array with one
/// [`AxisIndex`] for each axis, or for `R = 1` that component itself.
///
/// A scalar or a number alone names one element (`N = 0`), a range alone several (`N = 1`). Within
/// a tuple or an array they are broadcast, and `N` is inferred from the other components or from
/// the value. One element of several axes is an [`Entry`](crate::ops::Entry).
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn pick<const N: usize>(x: Array<i32, 2>, at: impl ct::ops::GatherIndex<2, N>) -> Tile<i32, N> {
///     x.gather(at)
/// }
/// fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
///     let i = ct::arange(0..2);
///     y.store(0, pick(x, (i, i)));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(kernel, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not index the {R} axes of this array",
    note = "one component an axis: `(rows, cols)`, `(rows, 0)`; integer tiles of one rank, scalars and numbers",
    note = "a scalar or a number alone names one element, with a `Scalar` as its value (`tile.item()`); `[i]` is for tiles"
)]
pub trait GatherIndex<const R: usize, const N: usize>: Sealed {
    #[doc(hidden)]
    fn components(self) -> [Component; R];
}

impl<I: Int, const N: usize> GatherIndex<1, N> for Tile<I, N> {
    fn components(self) -> [Component; 1] {
        [Component::value::<I>(self.raw())]
    }
}
impl<A: AxisIndex<N>, const R: usize, const N: usize> GatherIndex<R, N> for [A; R] {
    fn components(self) -> [Component; R] {
        self.map(A::component)
    }
}
macro_rules! single_index {
    ($($ty:ty [$($generics:tt)*] $rank:literal;)+) => {$(
        impl<$($generics)*> GatherIndex<1, $rank> for $ty {
            fn components(self) -> [Component; 1] {
                [AxisIndex::<$rank>::component(self)]
            }
        }
    )+};
}
single_index! { Scalar<I> [I: Int] 0; i32 [] 0; i64 [] 0; usize [] 0; Span [] 1; Range<i32> [] 1; Range<usize> [] 1; }

macro_rules! tuple_index {
    ($($rank:literal: $($name:ident $index:tt),+;)+) => {$(
        impl<const N: usize, $($name: AxisIndex<N>),+> GatherIndex<$rank, N> for ($($name,)+) {
            fn components(self) -> [Component; $rank] {
                [$(self.$index.component()),+]
            }
        }
    )+};
}
each_tuple! { tuple_index }

/// The elements of an access.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// Elements of an array by their indices.
    Elements { array: ArrayHandle, index: &'a [Component] },
    /// Elements at pointers.
    Pointers(ValueHandle),
}

/// An access to elements.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub place: Place,
    /// The name of the method.
    pub name: &'static str,
    pub target: Target<'a>,
    pub dtype: DType,
    /// The rank of the result.
    pub rank: usize,
    /// Tiles that are broadcast together with the index: mask, padding, value, by name.
    pub others: &'a [(&'static str, Option<Source>)],
    pub mask: Option<Source>,
    /// True if the caller promises that all elements under the mask are inside of the array.
    pub unchecked: bool,
}

/// Addresses of elements.
pub(crate) struct Places {
    /// A tile of pointers.
    pub pointers: Value,
    /// The mask of elements that may be accessed; `None` for all.
    pub mask: Option<Value>,
    /// The shape of the result.
    pub shape: Vec<i64>,
}

fn wrap() -> Vec<Attr> {
    vec![Attr::Overflow(Overflow::None)]
}

impl Trace {
    /// Emits the addresses of the elements of a request. Returns `None` after a problem.
    pub(crate) fn places(&mut self, request: &Request<'_>) -> Option<Places> {
        self.at(request.place);
        match request.target {
            Target::Elements { array, index } => self.places_by_index(request, array, index),
            Target::Pointers(pointers) => {
                let pointers = self.check_usable(pointers, request.place)?;
                let shape = self.stretched(request, &[("pointers", pointers)])?;
                let mask = self.user_mask(request, &shape)?;
                let pointers = self.stretch_pointer(pointers, request.dtype, &shape);
                Some(Places { pointers, mask, shape })
            }
        }
    }

    /// Returns the mask of the user, if there is one; `None` after a problem.
    fn user_mask(&mut self, request: &Request<'_>, shape: &[i64]) -> Option<Option<Value>> {
        match request.mask {
            Some(source) => self.stretched_operand(request.place, source, DType::I1, shape).map(Some),
            None => Some(None),
        }
    }

    fn places_by_index(
        &mut self,
        request: &Request<'_>,
        array: ArrayHandle,
        components: &[Component],
    ) -> Option<Places> {
        let array = self.array_data(array, request.place)?;
        let mut positions = Vec::with_capacity(components.len());
        let components: Vec<Component> = (components.iter().zip(&array.extents))
            .map(|(&component, &extent)| if self.fits(extent) { component } else { component.of_long_axis() })
            .collect_vec();
        for (axis, component) in components.iter().enumerate() {
            let position = self.position((request.place, request.name), request.rank, axis, component)?;
            positions.push(("index", position));
        }
        let shape = self.stretched(request, &positions)?;
        let user = self.user_mask(request, &shape)?;
        // An array without axes has one element, at its base.
        let index = array.extents.first().map_or(DType::I32, |&extent| self.builder.module.dtype(extent));
        let mut parts = Vec::new();
        let mut masks = Vec::new();
        for (axis, (&(_, position), component)) in positions.iter().zip(&components).enumerate() {
            if !request.unchecked {
                masks.push(self.is_inside(position, component, array.extents[axis]));
            }
            let offset = self.converted(position, component.dtype, component.signed, index);
            let unit = array.unit_stride >> axis & 1 != 0;
            parts.push(if unit { offset } else { self.combined(Opcode::MulI, wrap(), offset, array.strides[axis]) });
        }
        let offset = self.folded(Opcode::AddI, &wrap(), parts).unwrap_or_else(|| self.splat(index, 0, &[]));
        let offset = self.stretch(offset, &shape);
        let inside = self.folded(Opcode::AndI, &[], masks).map(|mask| self.stretch(mask, &shape));
        let mask = match (inside, user) {
            (Some(inside), Some(user)) => Some(self.put(Opcode::AndI, &[inside, user], vec![], DType::I1, &shape)),
            (inside, user) => inside.or(user),
        };
        let base = self.stretch_pointer(array.base, request.dtype, &shape);
        let pointers = self.pointers(request.dtype, base, offset, &shape);
        Some(Places { pointers, mask, shape })
    }

    /// Emits a component as a value of rank 0 or of the rank of the result.
    pub(crate) fn position(
        &mut self,
        (place, name): (Place, &str),
        rank: usize,
        axis: usize,
        component: &Component,
    ) -> Option<Value> {
        match component.kind {
            Kind::Value(raw) => self.check_usable(raw, place),
            Kind::Number(number) => {
                let bits = number as u64 & (u64::MAX >> (64 - component.dtype.bits()));
                Some(self.splat(component.dtype, bits, &[]))
            }
            Kind::Span { start, len } => {
                if axis >= rank {
                    let axes = if rank == 1 { "1 axis".to_string() } else { format!("{rank} axes") };
                    let message = format!(
                        "`{name}`: the range in place {axis} runs along axis {axis}, and the index tiles have {axes}"
                    );
                    let way_out = "give the index tiles one more axis, of extent 1: `rows.unsqueeze(1)`";
                    self.report(place, message, &[way_out]);
                    return None;
                }
                if !self.legal_shape(place, name, &[len]) {
                    return None;
                }
                let iota = self.put(Opcode::Iota, &[], vec![], DType::I32, &[len]);
                let mut shape = vec![1; rank];
                shape[axis] = len;
                let range = match rank {
                    1 => iota,
                    _ => self.put(Opcode::Reshape, &[iota], vec![], DType::I32, &shape),
                };
                let range = self.converted(range, DType::I32, true, component.dtype);
                let zero = matches!(start, Source::Literal(0) | Source::Extent(0));
                let start = self.scalar(place, start, DType::I32)?;
                let start = self.converted(start, DType::I32, true, component.dtype);
                Some(if zero { range } else { self.combined(Opcode::AddI, wrap(), range, start) })
            }
        }
    }

    /// Returns the shape of the result; `None` after a problem.
    pub(crate) fn stretched(&mut self, request: &Request<'_>, positions: &[(&str, Value)]) -> Option<Vec<i64>> {
        let mut shapes: Vec<(&str, Vec<i64>)> =
            positions.iter().map(|&(name, value)| (name, self.builder.module.shape(value).to_vec())).collect_vec();
        for &(name, source) in request.others {
            if let Some(Source::Value(raw)) = source {
                shapes.push((name, self.shape(raw)));
            }
        }
        shapes.retain(|(_, shape)| !shape.is_empty());
        let mut common = vec![1; request.rank];
        let mut fits = true;
        for (_, shape) in &shapes {
            for (extent, &other) in common.iter_mut().zip(shape) {
                fits &= *extent == 1 || other == 1 || *extent == other;
                *extent = (*extent).max(other);
            }
        }
        if !fits {
            let list: Vec<String> = shapes.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect_vec();
            let message = format!("`{}`: these shapes do not go together: {}", request.name, list.join(", "));
            let way_out = "extents must be equal or 1: use `reshape`, `unsqueeze` or `broadcast_to`";
            self.report(request.place, message, &[way_out]);
            return None;
        }
        self.legal_shape(request.place, request.name, &common).then_some(common)
    }

    /// Broadcasts an operand to the shape of the result. Returns `None` after a problem.
    pub(crate) fn stretched_operand(
        &mut self,
        place: Place,
        source: Source,
        dtype: DType,
        shape: &[i64],
    ) -> Option<Value> {
        Some(match source {
            Source::Value(raw) => {
                let value = self.check_usable(raw, place)?;
                self.stretch(value, shape)
            }
            Source::Literal(bits) => self.splat(dtype, bits, shape),
            Source::Extent(n) => self.splat_extent(place, n, shape),
        })
    }

    /// Emits the comparison of a position with the extent. As an unsigned number, a negative
    /// position is too large.
    fn is_inside(&mut self, position: Value, component: &Component, extent: Value) -> Value {
        let own = self.builder.module.dtype(extent);
        let wide = if DType::I64 == own || DType::I64 == component.dtype { DType::I64 } else { DType::I32 };
        let position = self.converted(position, component.dtype, component.signed, wide);
        let extent = self.converted(extent, own, true, wide);
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
        self.combined(Opcode::CmpI, attrs, position, extent)
    }

    /// Converts a number of elements for `offset`: to i32, or to i64 if i32 does not hold all
    /// numbers of its type.
    pub(crate) fn signed_offset(&mut self, value: Value, component: &Component) -> Value {
        let (bits, signed) = (component.dtype.bits(), component.signed);
        let to = if bits < 32 || (bits == 32 && signed) { DType::I32 } else { DType::I64 };
        self.converted(value, component.dtype, signed, to)
    }

    /// Converts an integer to another width.
    fn converted(&mut self, value: Value, from: DType, signed: bool, to: DType) -> Value {
        let shape = self.builder.module.shape(value).to_vec();
        let sign = if signed { Sign::Signed } else { Sign::Unsigned };
        match from.bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Less => self.put(Opcode::ExtI, &[value], vec![Attr::Sign(sign)], to, &shape),
            std::cmp::Ordering::Greater => self.put(Opcode::TruncI, &[value], wrap(), to, &shape),
        }
    }

    /// Emits an op on two values that are broadcast together.
    fn combined(&mut self, code: Opcode, attrs: Vec<Attr>, a: Value, b: Value) -> Value {
        let shapes = [a, b].map(|value| self.builder.module.shape(value).to_vec());
        let longer = if shapes[0].len() >= shapes[1].len() { &shapes[0] } else { &shapes[1] };
        let mut shape = longer.clone();
        for other in &shapes {
            shape.iter_mut().zip(other).for_each(|(extent, &other)| *extent = (*extent).max(other));
        }
        let operands = [a, b].map(|value| self.stretch(value, &shape));
        let dtype = if code == Opcode::CmpI { DType::I1 } else { self.builder.module.dtype(a) };
        self.put(code, &operands, attrs, dtype, &shape)
    }

    /// Combines all values, small ones first.
    fn folded(&mut self, code: Opcode, attrs: &[Attr], mut values: Vec<Value>) -> Option<Value> {
        sort::by_key(&mut values, |&value| self.builder.module.shape(value).iter().product::<i64>());
        values.into_iter().reduce(|a, b| self.combined(code, attrs.to_vec(), a, b))
    }

    /// Broadcasts pointers to a shape.
    pub(crate) fn stretch_pointer(&mut self, pointer: Value, pointee: DType, shape: &[i64]) -> Value {
        let mut value = pointer;
        let from = self.builder.module.shape(pointer).to_vec();
        let elem = Elem::Ptr { pointee, attr: None };
        if from.is_empty() && !shape.is_empty() {
            let ones = Type::Tile { elem, shape: vec![1; shape.len()] };
            let ty = self.builder.module.intern(ones);
            value = self.emit(Opcode::Reshape, &[&[value]], vec![], vec![], &[ty])[0];
        }
        if self.builder.module.shape(value) == shape {
            return value;
        }
        let ty = self.builder.module.intern(Type::Tile { elem, shape: shape.to_vec() });
        self.emit(Opcode::Broadcast, &[&[value]], vec![], vec![], &[ty])[0]
    }

    /// Emits pointers that are moved by a number of elements.
    pub(crate) fn pointers(&mut self, pointee: DType, base: Value, offset: Value, shape: &[i64]) -> Value {
        let elem = Elem::Ptr { pointee, attr: None };
        let ty = self.builder.module.intern(Type::Tile { elem, shape: shape.to_vec() });
        self.emit(Opcode::Offset, &[&[base], &[offset]], vec![], vec![], &[ty])[0]
    }
}
