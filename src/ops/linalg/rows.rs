//! A matrix with its rows in registers, as panels of a few rows.

use crate::element::{ByteSized, Element};
use crate::ops::indices;
use crate::tile::Tile;

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
            count => (0..count).map(panel).collect(),
        };
        Rows { panels, height }
    }

    /// Returns the number of each row, by panels.
    pub fn numbers(&self) -> Vec<Tile<i32, 3>> {
        let number = |(panel, tile): (usize, &Tile<T, 3>)| {
            let [batch, rows, _] = tile.shape();
            indices([batch, rows, 1], 1) + (panel * self.height) as i32
        };
        self.panels.iter().enumerate().map(number).collect()
    }

    /// Returns a row, as a tile `[batch, 1, columns]`.
    pub fn row(&self, row: usize) -> Tile<T, 3> {
        let panel = self.panels[row / self.height];
        let [batch, _, columns] = panel.shape();
        panel.extract([0, row % self.height, 0], [batch, 1, columns])
    }

    /// Returns the part of a column in a panel, as a tile `[batch, rows, 1]`.
    pub fn column(&self, panel: usize, column: usize) -> Tile<T, 3> {
        let [batch, rows, _] = self.panels[panel].shape();
        self.panels[panel].extract([0, 0, column], [batch, rows, 1])
    }
}

/// Returns one element of each matrix with one row, as a tile `[batch, 1, 1]`.
pub fn entry<T: ByteSized>(row: Tile<T, 3>, column: usize) -> Tile<T, 3> {
    let [batch, _, _] = row.shape();
    row.extract([0, 0, column], [batch, 1, 1])
}
