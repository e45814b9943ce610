//! Elements of arrays by index tiles: `gather` and `scatter`.
//!
//! Where `load` takes a block of neighbours, these take any elements: one index an axis for each element of the result.
//! What lies outside of the array reads as padding and is not written. Contiguous positions cost what a load costs.

use std::marker::PhantomData;

use super::access_options::Cache;
use super::element_index::{GatherIndex, Places, Request, Target};
use super::memory_order::{Order, Scope};
use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, HintValue, Hints, MemOrder, Opcode, Type};
use crate::ops::support::operand::Operand;
use crate::tile::{Array, ArrayMut, Handle, Place, Source, Tile, Trace, ValueHandle, caller_location, record};

/// How a gather of a `Tile<T, N>` treats what it should not read, and what the compiler may expect of it. T and N come
/// from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn pick(table: Array<f32, 1>, ids: Array<i32, 1>, out: ArrayMut<f32, 1>) {
///     let ids = ids.load([ct::bid(0)], [4]);
///     let options = ct::GatherOptions::new().mask(ids.ne(2)).padding(-1.0);
///     out.store([ct::bid(0)], table.gather_with(ids, options));
/// }
///
/// let device = ct::Device::cpu();
/// let (table, ids) = (device.array(&[10.0f32, 11.0, 12.0], [3])?, device.array(&[1, 2, -1, 0], [4])?);
/// let mut out = device.zeros([4])?;
/// ct::launch(pick, 1, (&table, &ids, &mut out))?;
/// assert_eq!(out.to_vec()?, [11.0, -1.0, -1.0, 10.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GatherOptions<T, const N: usize> {
    mask: Option<Source>,
    padding: Option<Source>,
    latency: Option<u32>,
    cache: Option<Cache>,
    order: Order,
    unchecked: bool,
    element: PhantomData<T>,
}

/// How a scatter of a tile of rank `N` treats what it should not write, and what the compiler may expect of it. N comes
/// from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn mark(rows: Array<i32, 1>, out: ArrayMut<i32, 2>) {
///     let rows = rows.load([0], [4]);
///     out.scatter_with((rows, 1), 7, ct::ScatterOptions::new().mask(rows.gt(0)));
/// }
///
/// let device = ct::Device::cpu();
/// let (rows, mut out) = (device.array(&[0, 2, 1, 5], [4])?, device.zeros([3, 2])?);
/// ct::launch(mark, 1, (&rows, &mut out))?;
/// assert_eq!(out.to_vec()?, [0, 0, 0, 7, 0, 7]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ScatterOptions<const N: usize> {
    mask: Option<Source>,
    latency: Option<u32>,
    cache: Option<Cache>,
    order: Order,
    unchecked: bool,
}

impl<T: ByteSized, const N: usize> Default for GatherOptions<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ByteSized, const N: usize> GatherOptions<T, N> {
    /// No mask, zero padding, weak, checked.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.gather_with(ct::astile([2, 0, 9, -1]), ct::GatherOptions::new()));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7], [3])?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(pick, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [7, 5, 0, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        let order = Order::default();
        GatherOptions {
            mask: None,
            padding: None,
            latency: None,
            cache: None,
            order,
            unchecked: false,
            element: PhantomData,
        }
    }

    /// What is read outside of the array, and where the mask is false: a tile, a scalar or a number.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.gather_with(ct::astile([2, 0, 9, -1]), ct::GatherOptions::new().padding(-1)));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7], [3])?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(pick, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [7, 5, -1, -1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn padding(self, value: impl Operand<Tile<T, N>>) -> Self {
        GatherOptions { padding: Some(value.source()), ..self }
    }

    /// The gather synchronises with a release of what it reads: what happened before that has happened before all that
    /// this tile block does afterwards.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // Waits for the flag that another block releases.
    /// fn wait(flag: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let acquire = || ct::GatherOptions::new().acquire(ct::Scope::Device);
    ///     ct::while_loop((), |()| flag.entry(0).load_with(acquire()).eq(0), |()| ());
    ///     y.store_scalar(0, 1);
    /// }
    ///
    /// let (mut flag, mut y) = (ct::Device::cpu().full([1], 1)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(wait, 1, (&mut flag, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn acquire(self, scope: Scope) -> Self {
        GatherOptions { order: Order::new(MemOrder::Acquire, scope), ..self }
    }
}

impl<const N: usize> Default for ScatterOptions<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> ScatterOptions<N> {
    /// No mask, weak, checked.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn put(y: ArrayMut<i32, 1>) {
    ///     y.scatter_with(ct::astile([2, 0]), ct::astile([7, 5]), ct::ScatterOptions::new());
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([3])?;
    /// ct::launch(put, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [5, 0, 7]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        ScatterOptions { mask: None, latency: None, cache: None, order: Order::default(), unchecked: false }
    }

    /// Whoever acquires what is written sees all that this tile block did before.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn publish(data: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>) {
    ///     data.scatter(ct::astile([1, 0]), 7);
    ///     flag.scatter_with(ct::astile([0]), 1, ct::ScatterOptions::new().release(ct::Scope::Device));
    /// }
    ///
    /// let (mut data, mut flag) = (ct::Device::cpu().zeros([2])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(publish, 1, (&mut data, &mut flag))?;
    /// assert_eq!((data.to_vec()?, flag.to_vec()?), (vec![7, 7], vec![1]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn release(self, scope: Scope) -> Self {
        ScatterOptions { order: Order::new(MemOrder::Release, scope), ..self }
    }
}

macro_rules! common_options {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> $name {
            /// Only where this is true: nothing else is accessed, wherever it points.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     let options = ct::GatherOptions::new().mask(ct::astile([true, false]));
            ///     y.store(0, x.gather_with(ct::astile([2, 2]), options));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7], [3])?, ct::Device::cpu().zeros([2])?);
            /// ct::launch(pick, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [7, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn mask(self, mask: impl Operand<Tile<bool, N>>) -> Self {
                Self { mask: Some(mask.source()), ..self }
            }

            /// How long this access may take, from 1 (short) to 10 (long). Never changes results; the ptx back end has
            /// no use for it.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store(0, x.gather_with(ct::astile([2, 0]), ct::GatherOptions::new().latency(8)));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7], [3])?, ct::Device::cpu().zeros([2])?);
            /// ct::launch(pick, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [7, 5]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn latency(self, latency: u32) -> Self {
                Self { latency: Some(latency), ..self }
            }

            /// How long caches should keep what it touches: see [`Cache`].
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     let options = ct::GatherOptions::new().cache(ct::Cache::NoAllocate);
            ///     y.store(0, x.gather_with(ct::arange(4, 3, -1), options));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([4], 2.0f32)?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(copy, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2.0; 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn cache(self, cache: Cache) -> Self {
                Self { cache: Some(cache), ..self }
            }

            /// Other tile blocks of the scope may access the same elements at the same time; each access of an element
            /// is one.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn pick(x: ArrayMut<i32, 1>) {
            ///     let options = ct::GatherOptions::new().relaxed(ct::Scope::Device);
            ///     let first = x.entry(0).load_with(options); // others may change it meanwhile
            ///     x.entry(ct::bid(0) + 1).store(first);
            /// }
            ///
            /// let mut x = ct::Device::cpu().array(&[5, 0, 0], [3])?;
            /// ct::launch(pick, 2, (&mut x,))?;
            /// assert_eq!(x.to_vec()?, [5, 5, 5]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn relaxed(self, scope: Scope) -> Self {
                Self { order: Order::new(MemOrder::Relaxed, scope), ..self }
            }

            /// `false` is a **promise** that every element under the mask lies inside of the array, so that no check is
            /// needed.
            ///
            /// # Safety
            /// With `false`, every index under the mask is inside of its axis, in every tile block of every launch.
            /// Else a GPU reads or writes memory that does not belong to the array. `true`, the default, promises
            /// nothing.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn pick(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     // SAFETY: launched with three elements.
            ///     let options = unsafe { ct::GatherOptions::new().check_bounds(false) };
            ///     y.store(0, x.gather_with(ct::astile([2, 0]), options));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7], [3])?, ct::Device::cpu().zeros([2])?);
            /// ct::launch(pick, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [7, 5]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub unsafe fn check_bounds(self, check: bool) -> Self {
                Self { unchecked: !check, ..self }
            }
        }
    };
}
common_options!([T: ByteSized, const N: usize] GatherOptions<T, N>);
#[cfg(not(doctest))] // the examples are the same
common_options!([const N: usize] ScatterOptions<N>);

/// What a gather or scatter is, without its types.
struct Access<'a> {
    place: Place,
    name: &'static str,
    target: Target<'a>,
    dtype: DType,
    rank: usize,
    mask: Option<Source>,
    latency: Option<u32>,
    cache: Option<Cache>,
    order: Order,
    unchecked: bool,
}

impl Access<'_> {
    fn attrs(&self, t: &mut Trace) -> Vec<Attr> {
        let mut attrs = self.order.attrs();
        if let Some(latency) = self.latency
            && !(1..=10).contains(&latency)
        {
            let message = format!("`{}`: latency {latency} is not between 1 and 10", self.name);
            t.report(self.place, message, &["leave it out unless measurements ask for it"]);
        }
        let latency = self.latency.map(|latency| ("latency".to_string(), HintValue::Int(latency.into())));
        let list: Vec<_> = latency.into_iter().chain(self.cache.map(Cache::hint)).collect();
        if !list.is_empty() {
            attrs.push(Attr::Hints(Hints(vec![("default".to_string(), list)])));
        }
        attrs
    }

    fn places(&self, t: &mut Trace, effect: Effect, other: (&'static str, Option<Source>)) -> Option<Places> {
        if !t.admits(self.place, effect, self.rank) {
            return None;
        }
        t.places(&Request {
            place: self.place,
            name: self.name,
            target: self.target,
            dtype: self.dtype,
            rank: self.rank,
            others: &[("mask", self.mask), other],
            mask: self.mask,
            unchecked: self.unchecked,
        })
    }
}

impl Trace {
    fn gather(&mut self, access: &Access<'_>, padding: Option<Source>) -> ValueHandle {
        self.at(access.place);
        let least = Type::tile(access.dtype, vec![1; access.rank]);
        let attrs = access.attrs(self);
        let Some(places) = access.places(self, Effect::Read, ("padding", padding)) else { return self.poison(least) };
        let Places { pointers, mask, shape } = places;
        let ty = Type::tile(access.dtype, shape.as_slice());
        let otherwise = match mask {
            Some(_) => {
                let source = padding.unwrap_or(Source::Literal(0));
                match self.stretched_operand(access.place, source, access.dtype, &shape) {
                    Some(value) => Some(value),
                    None => return self.poison(ty),
                }
            }
            None => None,
        };
        let types = [self.builder.module.intern(ty), self.builder.module.intern(Type::Token)];
        let (mask, otherwise): (Vec<_>, Vec<_>) = (mask.into_iter().collect(), otherwise.into_iter().collect());
        let loaded = self.emit(Opcode::LoadPtr, &[&[pointers], &mask, &otherwise, &[]], attrs, vec![], &types);
        self.raw(loaded[0])
    }

    fn scatter(&mut self, access: &Access<'_>, value: Source) {
        self.at(access.place);
        let attrs = access.attrs(self);
        let Some(Places { pointers, mask, shape }) = access.places(self, Effect::Write, ("value", Some(value))) else {
            return;
        };
        let Some(value) = self.stretched_operand(access.place, value, access.dtype, &shape) else { return };
        let mask: Vec<_> = mask.into_iter().collect();
        let token = self.builder.module.intern(Type::Token);
        self.emit(Opcode::StorePtr, &[&[pointers], &[value], &mask, &[]], attrs, vec![], &[token]);
    }
}

/// Records a load of what the target names, with a result of rank `N`.
#[track_caller]
pub(crate) fn load_from<T: ByteSized, const N: usize>(
    name: &'static str,
    target: Target<'_>,
    options: GatherOptions<T, N>,
) -> ValueHandle {
    let GatherOptions { mask, padding, latency, cache, order, unchecked, .. } = options;
    let access = Access {
        place: caller_location(),
        name,
        target,
        dtype: T::DTYPE,
        rank: N,
        mask,
        latency,
        cache,
        order,
        unchecked,
    };
    record(|t| t.gather(&access, padding))
}

/// Records a store to what the target names.
#[track_caller]
pub(crate) fn store_to<const N: usize>(
    name: &'static str,
    dtype: DType,
    target: Target<'_>,
    value: Source,
    options: ScatterOptions<N>,
) {
    let ScatterOptions { mask, latency, cache, order, unchecked } = options;
    let access =
        Access { place: caller_location(), name, target, dtype, rank: N, mask, latency, cache, order, unchecked };
    record(|t| t.scatter(&access, value));
}

impl<T: ByteSized, const R: usize> Array<T, R> {
    /// The elements at these element indices: one integer tile, scalar, number or range for each axis of the
    /// array, stretched together to the shape of the result. What lies outside of the array reads as zero
    /// (negative indices too). One element by scalars is an [`entry`](Self::entry).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// // Rows of a table by number.
    /// fn embed(table: Array<f32, 2>, ids: Array<i32, 1>, out: ArrayMut<f32, 2>) {
    ///     let ids = ids.load([ct::bid(0)], [2]);
    ///     out.store((ct::bid(0), 0), table.gather((ids.unsqueeze(1), 0..4)));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let table = device.from_fn([3, 4], |[i, j]| (10 * i + j) as f32)?;
    /// let (ids, mut out) = (device.array(&[2, 0], [2])?, device.zeros([2, 4])?);
    /// ct::launch(embed, 1, (&table, &ids, &mut out))?;
    /// assert_eq!(out.to_vec()?, [20.0, 21.0, 22.0, 23.0, 0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn gather<const N: usize>(&self, index: impl GatherIndex<R, N>) -> Tile<T, N> {
        self.gather_with(index, GatherOptions::new())
    }

    /// [`Self::gather`] with mask, padding, order, bounds check and hints as stated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // The diagonal, where it is positive.
    /// fn diagonal(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
    ///     let i = ct::arange(2, 0, 1);
    ///     y.store(0, x.gather_with((i, i), ct::GatherOptions::new().mask(i.gt(0)).padding(-1)));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[5, 6, 7, 8], [2, 2])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(diagonal, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [-1, 8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn gather_with<const N: usize>(
        &self,
        index: impl GatherIndex<R, N>,
        options: GatherOptions<T, N>,
    ) -> Tile<T, N> {
        let (array, index) = (self.handle, &index.components());
        Tile::from_raw(load_from("gather", Target::Elements { array, index }, options))
    }
}

impl<T: ByteSized, const R: usize> ArrayMut<T, R> {
    /// Writes elements at these element indices: one integer tile, scalar, number or range for each axis of the array,
    /// stretched together with the value. What lies outside of the array is not written (negative indices too). Of
    /// several values for one element one is written; which one is open. One element by scalars is an
    /// [`entry`](ArrayMut::entry).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn reverse(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load([0], [4]);
    ///     y.scatter(3 - ct::arange(4, 0, 1), x);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[1, 2, 3, 4], [4])?, device.zeros([4])?);
    /// ct::launch(reverse, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [4, 3, 2, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter<const N: usize>(self, index: impl GatherIndex<R, N>, value: impl Operand<Tile<T, N>>) {
        self.scatter_with(index, value, ScatterOptions::new());
    }

    /// [`ArrayMut::scatter`] with mask, order, bounds check and hints as stated.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn diagonal(y: ArrayMut<i32, 2>) {
    ///     let i = ct::arange(2, 0, 1);
    ///     y.scatter_with((i, i), i + 1, ct::ScatterOptions::new().mask(i.gt(0)));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([2, 2])?;
    /// ct::launch(diagonal, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 0, 2]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_with<const N: usize>(
        self,
        index: impl GatherIndex<R, N>,
        value: impl Operand<Tile<T, N>>,
        options: ScatterOptions<N>,
    ) {
        let (array, index) = (self.handle, &index.components());
        store_to("scatter", T::DTYPE, Target::Elements { array, index }, value.source(), options);
    }
}
