//! Elements of arrays by index tiles: `gather` and `scatter`.
//!
//! Each element of the result has one index for each axis of the array. Elements outside of the
//! array read as padding and are not written. Contiguous positions cost as much as a load.

use crate::util::collect::CollectVec as _;
use std::marker::PhantomData;

use super::access_options::{AccessOptions, Cache, example, option, options};
use super::element_index::{GatherIndex, Places, Request, Target};
use super::memory_order::{Order, Scope};
use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::op_table::Effect;
use crate::ir::{MemOrder, Opcode, Type};
use crate::ops::support::operand::Operand;
use crate::tile::{Array, ArrayMut, Handle, Place, Source, Tile, Trace, ValueHandle, caller_location, record};

/// Options of a gather of a `Tile<T, N>`: mask, padding, memory order, bounds check, and hints. T
/// and N are inferred from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn pick(table: Array<f32, 1>, ids: Array<i32, 1>, out: ArrayMut<f32, 1>) {
///     let ids = ids.load(ct::bid(0), [4]);
///     let options = ct::GatherOptions::new().mask(ids.ne(2)).padding(-1.0);
///     out.store(ct::bid(0), table.gather_with(ids, options));
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
    access: AccessOptions,
    element: PhantomData<T>,
}

/// Options of a scatter of a tile of rank `N`: mask, memory order, bounds check, and hints. N is
/// inferred from the call.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn mark(rows: Array<i32, 1>, out: ArrayMut<i32, 2>) {
///     let rows = rows.load(0, [4]);
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
    access: AccessOptions,
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
    /// # use cutlet::doctest::*;
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
        GatherOptions { mask: None, padding: None, access: AccessOptions::default(), element: PhantomData }
    }

    /// Sets the padding, which is read outside of the array and where the mask is false: a tile, a
    /// scalar or a number.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
    /// # use cutlet::doctest::*;
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
        ScatterOptions { mask: None, access: AccessOptions::default() }
    }
}

options! { [T: ByteSized, const N: usize] GatherOptions<T, N>, {access, access},
    ["options" "ct::GatherOptions::new()" "y.store(0, x.gather_with(ct::arange(0..4), options));"]:
    mask acquire relaxed latency cache check_bounds
}
options! { [const N: usize] ScatterOptions<N>, {access, access},
    ["options" "ct::ScatterOptions::new()" "y.scatter_with(ct::arange(0..4), x.load(0, [4]), options);"]:
    mask release relaxed latency cache check_bounds
}

/// A gather or scatter, without its types.
struct Access<'a> {
    place: Place,
    name: &'static str,
    target: Target<'a>,
    dtype: DType,
    rank: usize,
    mask: Option<Source>,
    options: AccessOptions,
}

impl Access<'_> {
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
            unchecked: self.options.unchecked,
        })
    }
}

impl Trace {
    fn gather(&mut self, access: &Access<'_>, padding: Option<Source>) -> ValueHandle {
        self.at(access.place);
        let least = Type::tile(access.dtype, vec![1; access.rank]);
        access.options.check(self, access.place, access.name);
        let attrs = access.options.attrs();
        let Some(places) = access.places(self, Effect::Read, ("padding", padding)) else { return self.poison(least) };
        let Places { pointers, mask, shape } = places;
        let ty = Type::tile(access.dtype, shape.as_slice());
        let padding_tile = match mask {
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
        let (mask, padding_tile): (Vec<_>, Vec<_>) =
            (mask.into_iter().collect_vec(), padding_tile.into_iter().collect_vec());
        let loaded = self.emit(Opcode::LoadPtr, &[&[pointers], &mask, &padding_tile, &[]], attrs, vec![], &types);
        self.raw(loaded[0])
    }

    fn scatter(&mut self, access: &Access<'_>, value: Source) {
        self.at(access.place);
        access.options.check(self, access.place, access.name);
        let attrs = access.options.attrs();
        let Some(Places { pointers, mask, shape }) = access.places(self, Effect::Write, ("value", Some(value))) else {
            return;
        };
        let Some(value) = self.stretched_operand(access.place, value, access.dtype, &shape) else { return };
        let mask: Vec<_> = mask.into_iter().collect_vec();
        let token = self.builder.module.intern(Type::Token);
        self.emit(Opcode::StorePtr, &[&[pointers], &[value], &mask, &[]], attrs, vec![], &[token]);
    }
}

/// Records a load of the elements of a target, with a result of rank `N`.
#[track_caller]
pub(crate) fn load_from<T: ByteSized, const N: usize>(
    name: &'static str,
    target: Target<'_>,
    options: GatherOptions<T, N>,
) -> ValueHandle {
    let GatherOptions { mask, padding, access: options, .. } = options;
    let access = Access { place: caller_location(), name, target, dtype: T::DTYPE, rank: N, mask, options };
    record(|t| t.gather(&access, padding))
}

/// Records a store to the elements of a target.
#[track_caller]
pub(crate) fn store_to<const N: usize>(
    name: &'static str,
    dtype: DType,
    target: Target<'_>,
    value: Source,
    options: ScatterOptions<N>,
) {
    let ScatterOptions { mask, access: options } = options;
    let access = Access { place: caller_location(), name, target, dtype, rank: N, mask, options };
    record(|t| t.scatter(&access, value));
}

impl<T: ByteSized, const R: usize> Array<T, R> {
    /// Gathers the elements at element indices: one integer tile, scalar, number or range for each
    /// axis of the array, broadcast together to the shape of the result. Elements outside of the
    /// array, also at negative indices, read as zero. One element by scalars is an
    /// [`entry`](Self::entry).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// // Rows of a table by number.
    /// fn embed(table: Array<f32, 2>, ids: Array<i32, 1>, out: ArrayMut<f32, 2>) {
    ///     let ids = ids.load(ct::bid(0), [2]);
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

    /// Gathers elements with options, as [`Self::gather`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// // The diagonal, where it is positive.
    /// fn diagonal(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
    ///     let i = ct::arange(0..2);
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
    /// Scatters a value to the elements at element indices: one integer tile, scalar, number or
    /// range for each axis of the array, broadcast together with the value. Elements outside of the
    /// array, also at negative indices, are not written. Of several values for one element an
    /// unspecified one is written. One element by scalars is an [`entry`](ArrayMut::entry).
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn reverse(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.scatter(3 - ct::arange(0..4), x);
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

    /// Scatters a value with options, as [`ArrayMut::scatter`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn diagonal(y: ArrayMut<i32, 2>) {
    ///     let i = ct::arange(0..2);
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
