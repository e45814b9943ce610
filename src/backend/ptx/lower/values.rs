//! Values of the kernel in registers and shared memory.

use std::collections::HashMap;
use std::rc::Rc;

use crate::backend::ptx::inst::{Operand, Ty};
use crate::dtype::DType;
use crate::ir::Value;
use crate::layout::Layout;

/// The registers of a tile: one operand for each register slot of the layout.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Where the elements are.
    pub layout: Layout,
    /// One operand a slot.
    pub slots: Rc<[Operand]>,
}

/// Values in further layouts than their own, in the order in which they came about.
#[derive(Debug, Default)]
pub struct Cache {
    tiles: Vec<(Value, Tile)>,
    /// Positions of a value's tiles.
    of: HashMap<Value, Vec<usize>>,
}

impl Cache {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// Forgets all but the first ones.
    pub fn truncate(&mut self, len: usize) {
        for (value, _) in self.tiles.drain(len.min(self.tiles.len())..) {
            self.of.get_mut(&value).and_then(Vec::pop);
        }
    }

    pub fn push(&mut self, value: Value, tile: Tile) {
        self.of.entry(value).or_default().push(self.tiles.len());
        self.tiles.push((value, tile));
    }

    /// The tiles of a value, the latest first.
    pub fn of(&self, value: Value) -> impl Iterator<Item = &Tile> {
        self.of.get(&value).into_iter().flatten().rev().map(|&position| &self.tiles[position].1)
    }
}

/// Computed once per kernel: images of the thread-number bits to their value.
#[derive(Debug, Default)]
pub struct ThreadCache {
    pub linear: HashMap<Vec<u32>, Operand>,
    /// Instructions may be reused only inside the region that made them.
    pub order: Vec<Vec<u32>>,
}

impl ThreadCache {
    /// Number of entries, for [`ThreadCache::truncate`].
    pub fn mark(&self) -> usize {
        self.order.len()
    }

    /// Forgets what was computed since `mark`.
    pub fn truncate(&mut self, mark: usize) {
        for key in self.order.drain(mark..) {
            self.linear.remove(&key);
        }
    }
}

/// A tensor view of the kernel.
#[derive(Clone, Debug)]
pub struct TensorView {
    /// Element type.
    pub elem: DType,
    /// Base address (B64).
    pub base: Operand,
    /// Extents in elements, B32 or B64.
    pub extents: Vec<Operand>,
    /// Strides in elements, as the extents.
    pub strides: Vec<Operand>,
    /// Extents and strides are 64 bits wide.
    pub wide: bool,
}

impl TensorView {
    /// The integer type of offsets.
    pub fn index_type(&self) -> Ty {
        if self.wide { Ty::S64 } else { Ty::S32 }
    }
}

/// A tile of which each thread has its own elements in a stage.
pub struct OwnTile {
    /// The thread's place in shared memory.
    pub address: Operand,
    pub run: usize,
    /// Offsets of the pieces.
    pub pieces: Vec<u32>,
}
