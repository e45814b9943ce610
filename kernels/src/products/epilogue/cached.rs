//! Queries, keys and values of a product: rotary position embedding of queries and keys, and the
//! store of keys and values in the rows of a cache.

use cutlet as ct;
use cutlet::element::{Element, Float};
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Place, Stage};
use crate::check::require;

/// Columns of a product of queries, keys and values: heads of queries, then of keys, then of
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadColumns {
    /// Columns of a head: a power of two from 2 on.
    pub dim: usize,
    /// Heads of queries.
    pub queries: usize,
    /// Heads of keys, and of values.
    pub keys: usize,
}

impl HeadColumns {
    /// Returns the number of all columns.
    #[must_use]
    pub fn columns(self) -> usize {
        (self.queries + 2 * self.keys) * self.dim
    }
}

/// Rotates adjacent columns of queries and keys by the angles of the row's position, and stores
/// keys and values in the row's row of a cache.
///
/// | argument | shape |
/// |---|---|
/// | `angles` | cosines and sines of f32, (positions, dim / 2) |
/// | `rows` | positions and rows of the cache, (rows); a row of the cache below 0 is not stored |
/// | `cache` | keys and values, (rows of the cache, heads of keys · dim) |
#[derive(Clone, Copy, Debug)]
pub struct RotateCached<G, R, C, H> {
    pub(crate) angles: G,
    pub(crate) rows: R,
    pub(crate) cache: C,
    pub(crate) heads: H,
}
ct::impl_kernel_args!(RotateCached<G, R, C, H> { angles, rows, cache, heads });

type Angles = (Array<f32, 2>, Array<f32, 2>);
type Rows = (Array<i32, 1>, Array<i32, 1>);
type Cache<T> = (ArrayMut<T, 2>, ArrayMut<T, 2>);

impl<S: Float, T: Element> Stage<S> for RotateCached<Angles, Rows, Cache<T>, HeadColumns> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let ([m, n], HeadColumns { dim, queries, keys }) = (sums.shape(), self.heads);
        let (of_queries, of_keys) = ((queries * dim) as i32, (keys * dim) as i32);
        let positions = self.rows.0.load(place.row, [m]);
        // A tile has a part of a head, or some whole heads.
        let (part, heads, width) = match n < dim {
            true => (place.column % (dim / n) as i32, 1, n),
            false => (ct::scalar(0), n / dim, dim),
        };
        let angle = |of: Array<f32, 2>| {
            of.load((ct::at(positions), part), [m, width / 2]).cast::<S>().reshape([m, 1, width / 2])
        };
        let (cos, sin) = (angle(self.angles.0), angle(self.angles.1));
        let [x, y] = sums.reshape([m, heads, width / 2, 2]).unstack(3);
        let rotated = ct::stack([x * cos - y * sin, y * cos + x * sin], 3).reshape([m, n]);
        let first = place.column * n as i32;
        let values = ct::select(place.column_indices(n).lt(of_queries + of_keys), rotated, sums);
        ct::if_then((first + n as i32).gt(of_queries), || {
            let is_inside = place.row_indices(m).reshape([m]).lt(place.extents[0]);
            let rows = ct::select(is_inside, self.rows.1.load(place.row, [m]), -1);
            let (keys, stored) = (self.cache.0, values.cast::<T>());
            keys.store((ct::at(rows), ct::at(first - of_queries)), stored);
            self.cache.1.store((ct::at(rows), ct::at(first - (of_queries + of_keys))), stored);
        });
        values
    }
}

impl<S, T, G, R, C> Epilogue<S> for RotateCached<(G, G), (R, R), (C, C), HeadColumns>
where
    S: Float,
    T: Element,
    G: Argument<Kernel = Array<f32, 2>>,
    R: Argument<Kernel = Array<i32, 1>>,
    C: Argument<Kernel = ArrayMut<T, 2>>,
{
    type Kernel = RotateCached<Angles, Rows, Cache<T>, HeadColumns>;
    type Arg<'x>
        = RotateCached<
        (G::Arg<'x>, G::Arg<'x>),
        (R::Arg<'x>, R::Arg<'x>),
        (C::Arg<'x>, C::Arg<'x>),
        ct::Constant<HeadColumns>,
    >
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        let RotateCached { angles, rows, cache, heads } = self;
        RotateCached {
            angles: (angles.0.arg(), angles.1.arg()),
            rows: (rows.0.arg(), rows.1.arg()),
            cache: (cache.0.arg(), cache.1.arg()),
            heads: ct::Constant(*heads),
        }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let HeadColumns { dim, keys, .. } = self.heads;
        require(dim.is_power_of_two() && (2..=256).contains(&dim), || format!("heads of {dim} columns"))?;
        let columns = self.heads.columns();
        let fits = columns == extents.columns && extents.batches == 1 && !extents.is_grouped;
        require(fits, || format!("{columns} columns of heads for {}", text(extents)))?;
        let angles = [self.angles.0.extents(), self.angles.1.extents()];
        require(angles[0] == angles[1] && angles[0][1] == dim / 2, || format!("angles of shapes {angles:?}"))?;
        let rows = [self.rows.0.extents(), self.rows.1.extents()];
        require(rows.iter().all(|shape| *shape == [extents.rows]), || {
            format!("positions and rows of the cache of shapes {rows:?} for {}", text(extents))
        })?;
        let cache = [self.cache.0.extents(), self.cache.1.extents()];
        require(cache[0] == cache[1] && cache[0][1] == keys * dim, || {
            format!("a cache of shapes {cache:?}, rows have {} columns", keys * dim)
        })?;
        Ok(extents)
    }

    fn width(&self) -> usize {
        2
    }
}
