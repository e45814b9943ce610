//! `map`: a function of scalars, applied to every element.
//!
//! 1. The closure is recorded once on scalars, in a scratch block.
//! 2. Each op that depends on an element is recorded again on tiles. Other values remain scalars
//!    and are broadcast at their use by an op on tiles.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::element::ByteSized;
use crate::error::Location;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Module, OpId, Type, TypeId, Value};
use crate::tile::{Handle, Place, Region, Scalar, Tile, Trace, ValueHandle, caller_location, in_region, record};

/// Records `body` on scalars of the elements of `sources`, then lifts it to their shape.
fn map_tiles(
    place: Place,
    name: &str,
    what: &'static str,
    sources: &[ValueHandle],
    out: DType,
    body: &dyn Fn(&[ValueHandle]) -> ValueHandle,
) -> ValueHandle {
    let mut shape = record(|t| t.shape(sources[0]));
    let start = record(|t| {
        t.at(place);
        for other in sources.iter().map(|&source| t.shape(source)) {
            let fits = shape.iter().zip(&other).all(|(&a, &b)| a == b || a == 1 || b == 1);
            if !fits {
                let message = format!("`{name}` of tiles with shapes {shape:?} and {other:?}");
                t.report(place, message, &["extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"]);
                return None;
            }
            shape.iter_mut().zip(other).for_each(|(extent, other)| *extent = (*extent).max(other));
        }
        let values: Vec<Value> = sources.iter().map(|&s| t.check_usable(s, place)).collect::<Option<_>>()?;
        if !t.admits(place, Effect::Pure, shape.len()) {
            return None;
        }
        let values: Vec<Value> = values.into_iter().map(|value| t.stretch(value, &shape)).collect_vec();
        let types: Vec<TypeId> = values
            .iter()
            .map(|&v| {
                let dtype = t.builder.module.dtype(v);
                t.builder.module.intern(Type::scalar(dtype))
            })
            .collect_vec();
        let region = Region { what, place, scalar_only: true };
        let args = t.open(region, &types);
        Some((values, args))
    });
    let out = Type::tile(out, shape.as_slice());
    let Some((values, args)) = start else { return record(|t| t.poison(out)) };
    let handles: Vec<ValueHandle> = record(|t| args.iter().map(|&a| t.raw(a)).collect_vec());
    let result = in_region(|| body(&handles));
    record(|t| {
        let result = t.check_usable(result, place);
        let scratch = t.close();
        let Some(result) = result else { return t.poison(out) };
        let mut lift = Lift { shape, lifted: FxHashMap::default(), moved: FxHashMap::default() };
        lift.lifted.extend(args.into_iter().zip(values));
        lift.block(t, scratch);
        t.at(place);
        let value = lift.tile(t, result);
        t.raw(value)
    })
}

/// Map from the values of a scratch block to those outside.
struct Lift {
    shape: Vec<i64>,
    /// Values that depend on an element, as tiles.
    lifted: FxHashMap<Value, Value>,
    /// Values that do not depend on an element, as scalars.
    moved: FxHashMap<Value, Value>,
}

impl Lift {
    fn block(&mut self, t: &mut Trace, scratch: BlockId) {
        for op in t.builder.module.block(scratch).ops.clone() {
            if let Some(place) = location(&t.builder.module, op) {
                t.builder.set_location(&place);
            }
            let depends = t.builder.module.op(op).operands.iter().any(|v| self.lifted.contains_key(v));
            if depends { self.lift_op(t, op) } else { self.move_op(t, op) }
        }
    }

    /// The tile of a value from the scratch block or from outside.
    fn tile(&self, t: &mut Trace, value: Value) -> Value {
        match self.lifted.get(&value) {
            Some(&tile) => tile,
            None => t.stretch(self.moved.get(&value).copied().unwrap_or(value), &self.shape),
        }
    }

    fn lift_op(&mut self, t: &mut Trace, id: OpId) {
        let op = t.builder.module.op(id).clone();
        let operands: Vec<Value> = op.operands.iter().map(|&v| self.tile(t, v)).collect_vec();
        let dtype = t.builder.module.dtype(op.results[0]);
        let result = t.put(op.code, &operands, op.attrs, dtype, &self.shape);
        self.lifted.insert(op.results[0], result);
    }

    fn move_op(&mut self, t: &mut Trace, id: OpId) {
        let op = t.builder.module.op(id).clone();
        let groups: Vec<Vec<Value>> = (0..op.code.spec().operands.len())
            .map(|g| op.group(g).iter().map(|v| self.moved.get(v).copied().unwrap_or(*v)).collect_vec())
            .collect_vec();
        let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect_vec();
        let types: Vec<TypeId> = op.results.iter().map(|&v| t.builder.module.ty_id(v)).collect_vec();
        let results = t.emit(op.code, &groups, op.attrs, vec![], &types);
        self.moved.extend(op.results.into_iter().zip(results));
    }
}

fn location(module: &Module, op: OpId) -> Option<Location> {
    module.location(module.op(op).loc).cloned()
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Applies a function of one value to every element. The function is traced once and may
    /// contain elementwise operations on scalars.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn gelu(x: Scalar<f32>) -> Scalar<f32> {
    ///     0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
    /// }
    ///
    /// fn activate(x: Tile<f32, 2>) -> Tile<f32, 2> {
    ///     x.map(gelu)
    /// }
    ///
    /// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
    /// ct::assert!((activate(ct::astile([[0.0, 1.0]])) - ct::astile([[0.0, 0.841192]])).abs().lt(1e-5));
    /// # }, ())?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn map<U: ByteSized>(self, function: impl Fn(Scalar<T>) -> Scalar<U>) -> Tile<U, R> {
        let place = caller_location();
        let body = |x: &[ValueHandle]| function(Scalar::from_raw(x[0])).raw();
        Tile::from_raw(map_tiles(place, "map", "the closure of `map`", &[self.raw()], U::DTYPE, &body))
    }

    /// Applies a function of two values to the elements of two tiles. Axes of extent 1 are
    /// broadcast.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(y: ArrayMut<i32, 2>) {
    ///     let (rows, columns) = (ct::arange_from(2, 1, 1).unsqueeze(1), ct::arange(0..4).unsqueeze(0));
    ///     y.store((0, 0), rows.zip_map(columns, |row, column| 10 * row + column));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([2, 4])?;
    /// ct::launch(kernel, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [10, 11, 12, 13, 20, 21, 22, 23]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn zip_map<V: ByteSized, U: ByteSized>(
        self,
        other: Tile<V, R>,
        function: impl Fn(Scalar<T>, Scalar<V>) -> Scalar<U>,
    ) -> Tile<U, R> {
        let place = caller_location();
        let body = |x: &[ValueHandle]| function(Scalar::from_raw(x[0]), Scalar::from_raw(x[1])).raw();
        Tile::from_raw(map_tiles(
            place,
            "zip_map",
            "the closure of `zip_map`",
            &[self.raw(), other.raw()],
            U::DTYPE,
            &body,
        ))
    }
}

impl<T: ByteSized, const R: usize> Tile<T, R> {
    /// Applies a function to each element and reduces the results along axes:
    /// `self.map(function).reduce(axes, identity, combine)`. Both forms generate the same code.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn largest_square(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
    ///     let x = x.load((0, 0), [2, 4]);
    ///     y.store((0, 0), x.map_reduce(1, 0, |x| x * x, |a, b| a.max(b)));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.array(&[1, -5, 2, 0, 3, 3, -2, 1], [2, 4])?;
    /// let mut y = device.zeros([2, 1])?;
    /// ct::launch(largest_square, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [25, 9]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn map_reduce<U: ByteSized>(
        self,
        axes: impl crate::ops::reduce::reduce::Axes,
        identity: U,
        function: impl Fn(Scalar<T>) -> Scalar<U>,
        combine: impl Fn(Scalar<U>, Scalar<U>) -> Scalar<U>,
    ) -> Tile<U, R> {
        self.map(function).reduce(axes, identity, combine)
    }
}

/// A tile as a function of the index: `from_fn([n, m], |[i, j]| …)`. The function is traced once
/// and may contain elementwise operations on scalars, as that of [`Tile::map`].
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(y: ArrayMut<i32, 2>) {
///     y.store((0, 0), ct::from_fn([2, 4], |[i, j]| 10 * i + j));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2, 4])?;
/// ct::launch(kernel, 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [0, 1, 2, 3, 10, 11, 12, 13]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn from_fn<T: ByteSized, const R: usize>(
    shape: [usize; R],
    function: impl Fn([Scalar<i32>; R]) -> Scalar<T>,
) -> Tile<T, R> {
    let place = caller_location();
    let numbers: [ValueHandle; R] =
        std::array::from_fn(|axis| crate::ops::create::construct::indices(shape, axis).raw());
    let body = |x: &[ValueHandle]| function(std::array::from_fn(|axis| Scalar::from_raw(x[axis]))).raw();
    Tile::from_raw(map_tiles(place, "from_fn", "the closure of `from_fn`", &numbers, T::DTYPE, &body))
}
