//! Position of a tile of the result, and tiles of other arrays at this position.

use cutlet as ct;
use cutlet::prelude::*;

/// Position of a tile of the result in its matrix.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Tile index of the rows, from the first row of the group on.
    pub row: Scalar<i32>,
    /// Tile index of the columns.
    pub column: Scalar<i32>,
    /// Index of the matrix in its batch, or of the group.
    pub batch: Scalar<i32>,
    /// First row of the group, and first row after it. None: the group is the whole matrix.
    pub group: Option<[Scalar<i32>; 2]>,
    /// Rows and columns of the matrix or group before the epilogue.
    pub extents: [Scalar<i32>; 2],
}

/// An array with an element for each element of the result: of the matrix, or of the batch.
pub trait Matrix: Copy {
    /// The type of the elements.
    type Element: Element;

    /// Returns the elements for a tile of the result.
    fn tile(self, place: Place, shape: [usize; 2]) -> Tile<Self::Element, 2>;
}

impl<T: Element> Matrix for Array<T, 2> {
    type Element = T;

    fn tile(self, place: Place, shape: [usize; 2]) -> Tile<T, 2> {
        let array = place.group.map_or(self, |[begin, end]| self.slice(0, begin..end));
        array.load((place.row, place.column), shape)
    }
}

impl<T: Element> Matrix for Array<T, 3> {
    type Element = T;

    fn tile(self, place: Place, [m, n]: [usize; 2]) -> Tile<T, 2> {
        self.load((place.batch, place.row, place.column), [1, m, n]).reshape([m, n])
    }
}

/// An array with an element for each column of the result: a vector, or a row for each matrix or
/// group.
pub trait Columns: Copy {
    /// The type of the elements.
    type Element: Element;

    /// Returns the elements for the columns of a tile of the result, as a row.
    fn columns(self, place: Place, n: usize) -> Tile<Self::Element, 2>;
}

impl<T: Element> Columns for Array<T, 1> {
    type Element = T;

    fn columns(self, place: Place, n: usize) -> Tile<T, 2> {
        self.load(place.column, [n]).unsqueeze(0)
    }
}

impl<T: Element> Columns for Array<T, 2> {
    type Element = T;

    fn columns(self, place: Place, n: usize) -> Tile<T, 2> {
        self.load((place.batch, place.column), [1, n])
    }
}

/// An array with an element for each row of the result: a vector, or a row for each matrix.
pub trait Rows: Copy {
    /// The type of the elements.
    type Element: Element;

    /// Returns the elements for the rows of a tile of the result, as a column.
    fn rows(self, place: Place, m: usize) -> Tile<Self::Element, 2>;
}

impl<T: Element> Rows for Array<T, 1> {
    type Element = T;

    fn rows(self, place: Place, m: usize) -> Tile<T, 2> {
        let array = place.group.map_or(self, |[begin, end]| self.slice(0, begin..end));
        array.load(place.row, [m]).unsqueeze(1)
    }
}

impl<T: Element> Rows for Array<T, 2> {
    type Element = T;

    fn rows(self, place: Place, m: usize) -> Tile<T, 2> {
        self.load((place.batch, place.row), [1, m]).reshape([m, 1])
    }
}

impl Place {
    /// Returns the row indices of a tile in its group, as a column.
    #[must_use]
    pub fn row_indices(&self, m: usize) -> Tile<i32, 2> {
        (ct::arange(0..m) + self.row * m).unsqueeze(1)
    }

    /// Returns the column indices of a tile, as a row.
    #[must_use]
    pub fn column_indices(&self, n: usize) -> Tile<i32, 2> {
        (ct::arange(0..n) + self.column * n).unsqueeze(0)
    }
}
