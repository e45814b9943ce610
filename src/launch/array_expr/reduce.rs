//! Reduction of an expression along an axis. If there are few lines, each is divided into parts,
//! whose results are combined by a further launch.

use super::combine::Combine;
use super::fusion::{Code, FusedExpr, surveyed};
use super::generated::launched;
use super::store::{place, to_array};
use super::tiling::{Survey, counts, line, parts};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::Constant;
use crate::ops::{bid, fold, full, indices, range};
use crate::runtime::DeviceArray;
use crate::tile::{ArrayMut, Scalar, Tile};

/// Division of the lines along an axis.
pub struct Lines<const R: usize> {
    /// Shape of the arrays, original or replaced.
    pub shape: [usize; R],
    /// The shape is a replacement for that of the arrays.
    pub given: bool,
    pub axis: usize,
    pub tile: [usize; R],
    /// Tiles of a part along the axis.
    pub each: usize,
    /// Parts of a line.
    pub parts: usize,
}

impl<const R: usize> Lines<R> {
    /// Returns the division along an axis.
    ///
    /// # Errors
    /// [`Error::Argument`] if the axis does not exist.
    #[track_caller]
    pub fn along(survey: &Survey<R>, axis: usize) -> Result<Lines<R>> {
        let shape = survey.shape();
        if axis >= R {
            return Err(Error::argument(format!("along axis {axis} of an array of shape {shape:?}")));
        }
        Ok(Lines::new(survey, shape, false, axis))
    }

    fn new(survey: &Survey<R>, shape: [usize; R], given: bool, axis: usize) -> Lines<R> {
        let tile = survey.tile(shape);
        let counts = counts(shape, tile);
        let others = (0..R).filter(|&d| d != axis).map(|d| counts[d]).product();
        let (each, parts) = parts(counts[axis], others);
        Lines { shape, given, axis, tile, each, parts }
    }

    /// Returns the division into parts of one tile along an axis, for elements of `bytes` bytes.
    pub fn of_tiles(survey: &Survey<R>, axis: usize, bytes: usize) -> Lines<R> {
        let lines =
            Lines { shape: survey.shape(), given: false, axis, tile: survey.long_tile(axis, bytes), each: 1, parts: 1 };
        Lines { parts: lines.count(), ..lines }
    }

    /// Returns the shape with another extent along the axis.
    pub fn with(&self, extent: usize) -> [usize; R] {
        std::array::from_fn(|d| if d == self.axis { extent } else { self.shape[d] })
    }

    /// Returns the shape of a tile with the extent 1 along the axis.
    pub fn flat(&self) -> [usize; R] {
        std::array::from_fn(|d| if d == self.axis { 1 } else { self.tile[d] })
    }

    pub fn blocks(&self) -> usize {
        counts(self.with(self.parts), self.flat()).iter().product()
    }

    /// Returns the constants that the kernel is compiled for.
    pub fn constants(&self, identity: impl Element) -> Constant<CutLines<R>> {
        let several = counts(self.with(self.parts), self.flat()).map(|n| n > 1);
        let ragged = !self.shape[self.axis].is_multiple_of(self.tile[self.axis]);
        let Lines { tile, axis, .. } = *self;
        Constant(CutLines { tile, axis, several, ragged, flat: self.flat(), identity: identity.to_bits() })
    }

    /// Returns the number of tiles along the axis.
    fn count(&self) -> usize {
        self.shape[self.axis].div_ceil(self.tile[self.axis])
    }

    pub fn numbers(&self) -> Numbers<i64, i32> {
        (self.shape[self.axis] as i64, self.count() as i32, self.each as i32, self.parts as i32)
    }
}

/// Extent of the axis, tiles along it, tiles of a part, and parts.
pub type Numbers<Extent, Count> = (Extent, Count, Count, Count);

/// Constants of a kernel over lines.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CutLines<const R: usize> {
    pub tile: [usize; R],
    /// Tile with the extent 1 along the axis.
    pub flat: [usize; R],
    pub axis: usize,
    /// There are several tiles of results along each axis.
    pub several: [bool; R],
    /// The last tile of a line exceeds the axis.
    pub ragged: bool,
    pub identity: u64,
}

impl<const R: usize> CutLines<R> {
    /// Returns the index of the tile of results of this block, and the first and last tile
    /// (exclusive) of its part.
    pub fn part<T: Element>(
        &self,
        out: ArrayMut<T, R>,
        (_, count, each, parts): Numbers<Scalar<i64>, Scalar<i32>>,
    ) -> ([Scalar<i32>; R], [Scalar<i32>; 2]) {
        let tiles = |d| if d == self.axis { parts } else { out.num_tiles(d, self.tile) };
        let counts = std::array::from_fn(|d| self.several[d].then(|| tiles(d)));
        let at = place(bid(0), counts);
        let first = at[self.axis] * each;
        (at, [first, (first + each).min(count)])
    }

    /// Returns a tile along the axis, with the identity outside of the axis.
    pub fn tile<C: Code<R>>(
        &self,
        code: C,
        arrays: C::Arrays,
        at: [Scalar<i32>; R],
        extent: Scalar<i64>,
    ) -> Tile<C::Elem, R> {
        let tile = code.tile(arrays, at, self.tile);
        if !self.ragged {
            return tile;
        }
        let width = self.tile[self.axis];
        let mut along = [1; R];
        along[self.axis] = width;
        let left = (extent - at[self.axis].cast::<i64>() * width as i64).min(width as i64).cast::<i32>();
        let inside = indices(along, self.axis).lt(left).broadcast_to(self.tile);
        inside.select(tile, C::Elem::from_bits(self.identity))
    }
}

/// Reduces each part of each line. The result has the parts of a line along the axis.
#[track_caller]
pub fn partial<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    survey: &Survey<R>,
    lines: &Lines<R>,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let mut out = survey.device().unspecified(lines.with(lines.parts))?;
    let (given, code) = expr.decompose(lines.given.then_some(lines.shape))?;
    let kernel = move |arrays: E::Arrays,
                       out: ArrayMut<E::Elem, R>,
                       numbers: Numbers<Scalar<i64>, Scalar<i32>>,
                       cut: CutLines<R>| {
        let identity = E::Elem::from_bits(cut.identity);
        let (at, [first, end]) = cut.part(out, numbers);
        let start = if C::COMMUTES { cut.tile } else { cut.flat };
        let result = fold(range(first, end), full(start, identity), |result, k| {
            let mut at = at;
            at[cut.axis] = k;
            let tile = cut.tile(code, arrays, at, numbers.0);
            // Elementwise if the order is free, else in order, tile by tile.
            let tile = if C::COMMUTES { tile } else { combine.along(tile, cut.axis, identity) };
            combine.join(result, tile)
        });
        let result = if C::COMMUTES { combine.along(result, cut.axis, identity) } else { result };
        out.store(at, result);
    };
    launched(kernel, lines.blocks(), (given, &mut out, lines.numbers(), lines.constants(identity)))?;
    Ok(out)
}

/// Reduces along an axis, which keeps the extent 1.
#[track_caller]
pub fn reduce<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    axis: usize,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let survey = surveyed(&expr)?;
    let lines = Lines::along(&survey, axis)?;
    let mut result = partial(expr, &survey, &lines, identity, combine)?;
    while result.shape()[axis] > 1 {
        let survey = surveyed(&&result)?;
        result = partial(&result, &survey, &Lines::along(&survey, axis)?, identity, combine)?;
    }
    Ok(result)
}

/// Reduces all elements, in row-major order.
#[track_caller]
pub fn reduce_all<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    identity: E::Elem,
    combine: C,
) -> Result<E::Elem> {
    if R == 0 {
        return Ok(to_array(expr)?.to_vec()?[0]);
    }
    let survey = surveyed(&expr)?;
    if survey.shape().contains(&0) {
        return Ok(identity);
    }
    let lines = match survey.is_line() {
        true => Lines::new(&survey, line(survey.shape()), true, R - 1),
        false => Lines::along(&survey, R - 1)?,
    };
    let mut result = partial(expr, &survey, &lines, identity, combine)?;
    for axis in (0..R).rev() {
        while result.shape()[axis] > 1 {
            result = reduce(&result, axis, identity, combine)?;
        }
    }
    Ok(result.to_vec()?[0])
}
