//! Shapes of matrices, their blocks, and products of blocks.

use crate::element::{Element, Float, MmaInput};
use crate::ir::Type;
use crate::ops::{cat, indices, mma, zeros};
use crate::tile::{Handle, Place, Tile, record};
use crate::util::collect::CollectVec as _;

/// Largest extent of a matrix.
const MAX_EXTENT: usize = 128;

/// Rows and columns of a block: one column for each lane of a warp.
pub const BLOCK: usize = 32;

/// Element types of linear algebra: f32 and f64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn root<T: ct::ops::MatrixFloat>(a: Tile<T, 2>) -> Tile<T, 2> {
///     a.cholesky()
/// }
/// ct::assert!(root(ct::astile([[4.0f64, 0.0], [2.0, 2.0]])).eq(ct::astile([[2.0, 0.0], [1.0, 1.0]])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "linear algebra needs f32 or f64, and `{Self}` is neither",
    note = "convert first: `.cast::<f32>()`"
)]
pub trait MatrixFloat: Float + MmaInput<Self, Self> {}
impl MatrixFloat for f32 {}
impl MatrixFloat for f64 {}

/// Returns the extents `[batch, rows, columns]` of matrices, of a tile with 2 or 3 axes. Returns
/// `None` for a rejected tile, and reports rows that are no power of two or too many.
pub fn matrices<T: Element, const R: usize>(place: Place, name: &str, tile: Tile<T, R>) -> Option<[usize; 3]> {
    if record(|t| t.is_poisoned(tile.raw())) {
        return None;
    }
    let shape = tile.shape();
    let (rows, columns) = (shape[R - 2], shape[R - 1]);
    if !rows.is_power_of_two() || rows > MAX_EXTENT {
        let message = format!("`{name}` of matrices of {rows} rows: a tile of shape {shape:?}");
        let way_out = format!(
            "the number of rows is a power of two of at most {MAX_EXTENT}: load a larger tile and put the identity \
             matrix into the other rows and columns"
        );
        record(|t| t.report(place, message, &[&way_out]));
        return None;
    }
    Some([shape[..R - 2].iter().product(), rows, columns])
}

/// [`matrices`] with as many columns as rows. Reports others.
pub fn squares<T: Element, const R: usize>(place: Place, name: &str, tile: Tile<T, R>) -> Option<[usize; 3]> {
    let extents = matrices(place, name, tile)?;
    let [_, rows, columns] = extents;
    if rows != columns {
        let message = format!("`{name}` of matrices of {rows} rows and {columns} columns");
        record(|t| t.report(place, message, &["the matrices are square: the last two extents are equal"]));
        return None;
    }
    Some(extents)
}

/// Returns a tile of this shape for an operation that has been rejected.
pub fn rejected<T: Element, const R: usize>(shape: [usize; R]) -> Tile<T, R> {
    let shape: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect_vec();
    Tile::from_raw(record(|t| t.poison(Type::tile(T::DTYPE, shape))))
}

/// Returns a block of each matrix.
pub fn block<T: Element>(tile: Tile<T, 3>, row: usize, column: usize) -> Tile<T, 3> {
    let [batch, rows, columns] = tile.shape();
    tile.extract([0, row, column], [batch, rows.min(BLOCK), columns.min(BLOCK)])
}

/// Returns the blocks of a row of blocks, with all columns.
pub fn block_row<T: Element>(tile: Tile<T, 3>, row: usize) -> Tile<T, 3> {
    let [batch, rows, columns] = tile.shape();
    tile.extract([0, row, 0], [batch, rows.min(BLOCK), columns])
}

/// Returns `acc - a · b`.
pub fn minus_product<T: MatrixFloat>(acc: Tile<T, 3>, a: Tile<T, 3>, b: Tile<T, 3>) -> Tile<T, 3> {
    mma(-a, b, acc)
}

/// Returns `a · b`.
pub fn product<T: MatrixFloat>(a: Tile<T, 3>, b: Tile<T, 3>) -> Tile<T, 3> {
    let ([batch, rows, _], [_, _, columns]) = (a.shape(), b.shape());
    mma(a, b, zeros([batch, rows, columns]))
}

/// Returns the tile of blocks, given by rows of blocks.
pub fn joined<T: Element>(blocks: Vec<Vec<Tile<T, 3>>>) -> Tile<T, 3> {
    cat(blocks.into_iter().map(|row| cat(row, 2)), 1)
}

/// Returns the tile with zeros above the diagonal.
pub fn lower<T: MatrixFloat>(tile: Tile<T, 3>) -> Tile<T, 3> {
    let [rows, columns] = [1, 2].map(|axis| indices::<3>(tile.shape(), axis));
    rows.ge(columns).select(tile, T::from_f64(0.0))
}
