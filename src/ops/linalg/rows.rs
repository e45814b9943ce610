//! A matrix with its rows in registers, as panels of a few rows.

use crate::element::{ByteSized, Element};
use crate::ops::{LoopState, fold, indices, range, scalar};
use crate::tile::{Scalar, Tile};
use crate::util::collect::CollectVec as _;

/// Maximum number of rows of a panel. A step of an algorithm updates whole panels.
const PANEL: usize = 8;

/// Matrices `[batch, rows, columns]`, divided into panels of rows.
#[derive(Clone)]
pub struct Rows<T: Element> {
    pub panels: Vec<Tile<T, 3>>,
    /// Number of rows of a panel.
    pub height: usize,
}

impl<T: ByteSized> Rows<T> {
    /// Divides a tile, whose rows become registers of each thread.
    pub fn of(tile: Tile<T, 3>) -> Rows<T> {
        Rows::of_local(tile.with_local_axis(1))
    }

    /// Divides a tile whose rows are registers of each thread already.
    pub fn of_local(tile: Tile<T, 3>) -> Rows<T> {
        let [batch, rows, columns] = tile.shape();
        let height = rows.min(PANEL);
        let panel = |number: usize| tile.extract([0, number, 0], [batch, height, columns]);
        let panels = match rows / height {
            1 => vec![tile],
            count => (0..count).map(panel).collect_vec(),
        };
        Rows { panels, height }
    }

    /// Returns the number of each row, by panels.
    pub fn numbers(&self) -> Vec<Tile<i32, 3>> {
        let number = |(panel, tile): (usize, &Tile<T, 3>)| {
            let [batch, rows, _] = tile.shape();
            indices([batch, rows, 1], 1) + (panel * self.height) as i32
        };
        self.panels.iter().enumerate().map(number).collect_vec()
    }
}

/// Returns a row of a panel, as a tile `[batch, 1, columns]`.
pub fn row<T: ByteSized>(panel: Tile<T, 3>, row: Scalar<i32>) -> Tile<T, 3> {
    let [batch, _, columns] = panel.shape();
    panel.extract((0, row, 0), [batch, 1, columns])
}

/// Returns a column of a panel, as a tile `[batch, rows, 1]`.
pub fn column<T: ByteSized>(panel: Tile<T, 3>, column: Scalar<i32>) -> Tile<T, 3> {
    let [batch, rows, _] = panel.shape();
    panel.extract((0, 0, column), [batch, rows, 1])
}

/// Returns one element of each matrix with one row, as a tile `[batch, 1, 1]`.
pub fn entry<T: ByteSized>(row: Tile<T, 3>, column: Scalar<i32>) -> Tile<T, 3> {
    let [batch, _, _] = row.shape();
    row.extract((0, 0, column), [batch, 1, 1])
}

/// Order of the steps of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// Form of the steps of one panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A loop: a short trace, and little code for the instruction cache.
    Loop,
    /// Rows and columns are constants: the rows of a panel are registers without selects.
    Unrolled,
}

/// Steps of an algorithm whose pivots are the rows of one panel.
#[derive(Clone, Copy)]
pub struct Steps {
    /// Panel of the pivots.
    pub panel: usize,
    /// Column of the first pivot.
    pub column: usize,
    count: usize,
    order: Order,
}

/// Row of a pivot within its panel, and its column.
#[derive(Clone, Copy)]
pub struct Pivot {
    pub row: Scalar<i32>,
    pub column: Scalar<i32>,
}

impl Steps {
    /// Returns the steps for each panel of `height` rows. The pivot of column 0 is in row `first`.
    pub fn by_panels(height: usize, first: usize, columns: usize, order: Order) -> Vec<Steps> {
        let count = height.min(columns);
        let steps =
            (0..columns).step_by(count).map(|column| Steps { panel: (first + column) / height, column, count, order });
        match order {
            Order::Ascending => steps.collect_vec(),
            Order::Descending => steps.rev().collect_vec(),
        }
    }

    /// Emits the steps.
    pub fn run<S: LoopState>(self, form: Form, state: S, step: impl Fn(S, Pivot) -> S) -> S {
        let count = self.count as i32;
        let step = |state: S, number: Scalar<i32>| {
            let row = match self.order {
                Order::Ascending => number,
                Order::Descending => count - 1 - number,
            };
            step(state, Pivot { row, column: row + self.column as i32 })
        };
        match form {
            Form::Loop => fold(range(0, count), state, step),
            Form::Unrolled => (0..count).fold(state, |state, number| step(state, scalar(number))),
        }
    }
}
