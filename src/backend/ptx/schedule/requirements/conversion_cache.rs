//! Values in other layouts than their own, in the order of their computation.

use rustc_hash::FxHashMap;

use crate::ir::Value;
use crate::layout::Layout;

/// Values in other layouts than their own, each with some data.
#[derive(Debug)]
pub struct ConversionCache<T> {
    all: Vec<(Value, Layout, T)>,
    /// Positions of a value.
    of: FxHashMap<Value, Vec<usize>>,
}

impl<T> Default for ConversionCache<T> {
    fn default() -> ConversionCache<T> {
        ConversionCache { all: Vec::new(), of: FxHashMap::default() }
    }
}

impl<T> ConversionCache<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes all entries after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        for (value, ..) in self.all.drain(len.min(self.all.len())..) {
            self.of.get_mut(&value).and_then(Vec::pop);
        }
    }

    /// Adds a value in a layout.
    pub fn push(&mut self, value: Value, layout: Layout, data: T) {
        self.of.entry(value).or_default().push(self.all.len());
        self.all.push((value, layout, data));
    }

    /// Returns the data of a value in this layout.
    pub fn find(&self, value: Value, required: &Layout) -> Option<&T> {
        let mut entries = self.of.get(&value)?.iter().rev().map(|&position| &self.all[position]);
        entries.find(|(_, layout, _)| layout.is_same(required)).map(|(.., data)| data)
    }
}
