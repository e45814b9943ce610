//! Keys and values of all layers in pages.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::attention::Pages;

use super::Real;
use super::config::Config;

/// Tokens of a page.
pub const PAGE: usize = 64;

/// Keys and values of sequences, and the pages of each sequence.
pub struct Cache<T> {
    /// Keys and values of each layer, of shape (pages · tokens of a page, heads · dim).
    pub(super) layers: Vec<[DeviceArray<T, 2>; 2]>,
    /// Pages of sequences, of shape (sequences, pages of a sequence).
    pub(super) table: DeviceArray<i32, 2>,
    /// Tokens of each sequence.
    pub(super) lengths: DeviceArray<i32, 1>,
    key_heads: usize,
}
ct::impl_graph_resource!(impl<T: Element> Cache<T> { layers, table, lengths });

/// Returns the page of tokens of a sequence: sequences that grow together alternate in the pages.
fn page(sequences: usize, sequence: usize, at: usize) -> usize {
    at * sequences + sequence
}

impl<T: Real> Cache<T> {
    /// Allocates pages for sequences of up to `capacity` tokens.
    ///
    /// # Errors
    /// Those of the allocations.
    pub fn new(device: Device, config: &Config, sequences: usize, capacity: usize) -> ct::Result<Cache<T>> {
        let pages = capacity.div_ceil(PAGE);
        let shape = [sequences * pages * PAGE, config.key_heads * config.dim];
        let layer = |_| Ok([device.zeros(shape)?, device.zeros(shape)?]);
        Ok(Cache {
            layers: (0..config.layers).map(layer).collect::<ct::Result<_>>()?,
            table: device.from_fn([sequences, pages], |[sequence, at]| page(sequences, sequence, at) as i32)?,
            lengths: device.zeros([sequences])?,
            key_heads: config.key_heads,
        })
    }

    /// Returns the number of sequences, and of tokens that a sequence may have.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        let [sequences, pages] = self.table.shape();
        [sequences, pages * PAGE]
    }

    /// Returns the row of a token.
    pub(super) fn row(&self, sequence: usize, token: usize) -> usize {
        page(self.shape()[0], sequence, token / PAGE) * PAGE + token % PAGE
    }

    /// Returns the pages of a layer.
    pub(super) fn pages(&self, layer: usize) -> ct::Result<Pages<'_, T>> {
        let [keys, values] = &self.layers[layer];
        let [rows, columns] = keys.shape();
        let shape = [rows / PAGE, PAGE, self.key_heads, columns / self.key_heads];
        Ok(Pages {
            keys: keys.view().reshape(shape)?,
            values: values.view().reshape(shape)?,
            table: self.table.view(),
            lengths: self.lengths.view(),
        })
    }

    /// Sets the lengths of all sequences, whose tokens are in the cache.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences.
    pub fn set_lengths(&mut self, lengths: &[i32]) -> ct::Result<()> {
        self.lengths.copy_from(lengths)
    }
}
