//! Values of a kernel: tiles in registers, their conversions, views, and tiles in shared memory.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::schedule::ConversionCache;
use crate::dtype::DType;
use crate::ir::{OpId, Value};
use crate::layout::Layout;

/// Values of the kernel that are computed so far.
#[derive(Default)]
pub struct Values {
    /// Tiles in registers, by value index.
    pub tiles: Vec<Option<Tile>>,
    /// The same values in other layouts.
    pub conversions: ConversionCache<Rc<[Operand]>>,
    /// Functions of the thread number.
    pub thread_indices: ThreadIndexCache,
    pub views: FxHashMap<Value, Rc<TensorView>>,
    /// Addresses of tiles in pipeline stages.
    pub stage_addresses: FxHashMap<Value, Operand>,
    /// Tiles in stages of `cp.async` whose elements are thread-private.
    pub private_tiles: FxHashMap<OpId, ThreadPrivateTile>,
    /// Operands that the current op has not read yet, in the layouts of its requirements.
    pub operands: VecDeque<(Value, Layout)>,
}

/// A mark to which the caches can be reset.
#[derive(Clone, Copy, Debug)]
pub struct CacheMark {
    conversions: usize,
    thread_indices: usize,
}

/// The values that all partitions share.
pub struct Snapshot {
    tiles: Vec<Option<Tile>>,
    views: FxHashMap<Value, Rc<TensorView>>,
    mark: CacheMark,
}

impl Values {
    /// Returns no values, of a module with `count` values.
    pub fn new(count: usize) -> Values {
        Values { tiles: vec![None; count], ..Values::default() }
    }

    /// Defines a value: its registers in its layout.
    pub fn define(&mut self, value: Value, tile: Tile) {
        self.tiles[value.index()] = Some(tile);
    }

    /// Returns a mark to which [`Values::release`] can reset conversions and thread indices.
    pub fn mark(&self) -> CacheMark {
        CacheMark { conversions: self.conversions.len(), thread_indices: self.thread_indices.mark() }
    }

    /// Forgets conversions and thread indices that were computed since the mark.
    pub fn release(&mut self, mark: CacheMark) {
        self.conversions.truncate(mark.conversions);
        self.thread_indices.truncate(mark.thread_indices);
    }

    /// Returns the values that all partitions share.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tiles: self.tiles.clone(), views: self.views.clone(), mark: self.mark() }
    }

    /// Forgets all values that were computed since the snapshot.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        self.tiles.clone_from(&snapshot.tiles);
        self.views.clone_from(&snapshot.views);
        self.release(snapshot.mark);
    }

    /// Returns the registers of a value, if they are known in exactly this layout.
    pub fn in_layout(&self, value: Value, layout: &Layout) -> Option<Rc<[Operand]>> {
        let own = self.tiles[value.index()].as_ref().filter(|tile| tile.layout.is_same(layout));
        own.map(|tile| &tile.regs).or_else(|| self.conversions.find(value, layout)).cloned()
    }
}

/// The registers of a tile.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Layout of the elements.
    pub layout: Layout,
    /// One operand for each register.
    pub regs: Rc<[Operand]>,
}

/// Functions of the thread number: images of its bits, and the operand with the value.
#[derive(Debug, Default)]
pub struct ThreadIndexCache {
    pub linear: FxHashMap<Vec<u32>, Operand>,
    /// Keys in the order of computation. An instruction is reused only inside of its region.
    pub order: Vec<Vec<u32>>,
}

impl ThreadIndexCache {
    /// Returns the number of entries, for [`ThreadIndexCache::truncate`].
    pub fn mark(&self) -> usize {
        self.order.len()
    }

    /// Forgets the entries since `mark`.
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
    /// Strides in elements, with the same width.
    pub strides: Vec<Operand>,
    /// Extents and strides are 64 bits wide.
    pub wide: bool,
}

/// A tile in a stage of `cp.async` with thread-private elements.
pub struct ThreadPrivateTile {
    /// Address of the thread's elements.
    pub address: Operand,
    pub vector: usize,
    /// Offsets of the vectors.
    pub offsets: Vec<u32>,
}
