//! Operands and results of a product in the kernel: matrices, batches of matrices, and rows of
//! groups.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::prelude::*;

use crate::products::epilogue::Place;
use crate::products::prologue::LeftStage;

/// The left operand.
pub trait Left<T: Element> {
    /// Returns the tile of a position at a tile index along the terms.
    fn load(&self, at: Place, k: Scalar<i32>, shape: [usize; 2]) -> Tile<T, 2>;

    /// Returns the number of rows of a matrix, or of all groups.
    fn rows(&self) -> Scalar<i32>;

    /// Returns the number of matrices.
    fn batches(&self) -> Scalar<i32>;
}

impl<U: Element, T: Element, P: LeftStage<U, T>> Left<T> for (P, Array<U, 2>) {
    fn load(&self, at: Place, k: Scalar<i32>, [m, tk]: [usize; 2]) -> Tile<T, 2> {
        let elements = match at.group {
            // Rows after the group are multiplied and not stored. A slice would not be copied by
            // TMA in a loop over tiles.
            Some([begin, _]) => self.1.load((ct::at(begin + at.row * m), k), [m, tk]),
            None => self.1.load((at.row, k), [m, tk]),
        };
        self.0.apply(elements, at, k)
    }

    fn rows(&self) -> Scalar<i32> {
        self.1.extent(0)
    }

    fn batches(&self) -> Scalar<i32> {
        ct::scalar(1)
    }
}

impl<U: Element, T: Element, P: LeftStage<U, T>> Left<T> for (P, Array<U, 3>) {
    fn load(&self, at: Place, k: Scalar<i32>, [m, tk]: [usize; 2]) -> Tile<T, 2> {
        self.0.apply(self.1.load((at.batch, at.row, k), [1, m, tk]).reshape([m, tk]), at, k)
    }

    fn rows(&self) -> Scalar<i32> {
        self.1.extent(1)
    }

    fn batches(&self) -> Scalar<i32> {
        self.1.extent(0)
    }
}

/// The right operand.
pub trait Right<T: Element> {
    /// Returns the tile of a position at a tile index along the terms.
    fn load(&self, at: Place, k: Scalar<i32>, shape: [usize; 2]) -> Tile<T, 2>;

    /// Returns the number of terms and of columns.
    fn extents(&self) -> [Scalar<i32>; 2];
}

impl<T: Element> Right<T> for Array<T, 2> {
    fn load(&self, at: Place, k: Scalar<i32>, shape: [usize; 2]) -> Tile<T, 2> {
        Array::load(self, (k, at.column), shape)
    }

    fn extents(&self) -> [Scalar<i32>; 2] {
        [self.extent(0), self.extent(1)]
    }
}

impl<T: Element> Right<T> for Array<T, 3> {
    fn load(&self, at: Place, k: Scalar<i32>, [tk, tn]: [usize; 2]) -> Tile<T, 2> {
        Array::load(self, (at.batch, k, at.column), [1, tk, tn]).reshape([tk, tn])
    }

    fn extents(&self) -> [Scalar<i32>; 2] {
        [self.extent(1), self.extent(2)]
    }
}

/// The result.
pub trait Target<O: Element>: Copy {
    /// Stores the tile of a position.
    fn store(self, at: Place, tile: Tile<O, 2>);
}

impl<O: Element> Target<O> for ArrayMut<O, 2> {
    fn store(self, at: Place, tile: Tile<O, 2>) {
        let array = at.group.map_or(self, |[begin, end]| self.slice(0, begin..end));
        array.store((at.row, at.column), tile);
    }
}

impl<O: Element> Target<O> for ArrayMut<O, 3> {
    fn store(self, at: Place, tile: Tile<O, 2>) {
        let [m, n] = tile.shape();
        self.store((at.batch, at.row, at.column), tile.reshape([1, m, n]));
    }
}
