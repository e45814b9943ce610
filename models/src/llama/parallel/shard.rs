//! Parts of the weights: products that read the state are cut by outputs, products that write it by
//! inputs.

use std::ops::Range;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};

use super::argument;
use crate::llama::Real;
use crate::llama::config::Config;
use crate::llama::weight_kind::{GROUP, Kind};

/// Tokens of a grain of the vocabulary: the largest group of logits.
const GRAIN: usize = 64;
/// Extent of the tiles of copies.
const TILE: usize = 64;

/// A rank, and the number of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The rank, from 0 on.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
}

/// The part of the weights of a product.
pub(in crate::llama) struct Cut {
    /// Ranges of the outputs, which the part has one after another: several of queries, keys and
    /// values.
    outputs: [Range<usize>; 3],
    inputs: Range<usize>,
}

impl Shard {
    /// The one rank of a decoder on one device.
    pub const WHOLE: Shard = Shard { rank: 0, ranks: 1 };

    /// Returns the extents of the part.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for extents that the ranks do not divide.
    #[track_caller]
    pub fn config(self, whole: &Config, kind: Kind) -> ct::Result<Config> {
        let Shard { rank, ranks } = self;
        let Config { heads, key_heads, dim, inner, vocabulary, .. } = *whole;
        if ranks == 0 || rank >= ranks {
            return Err(argument(format!("rank {rank} of {ranks}")));
        }
        if !key_heads.is_multiple_of(ranks) || !heads.is_multiple_of(ranks) || !inner.is_multiple_of(ranks) {
            return Err(argument(format!(
                "{heads} heads of queries, {key_heads} of keys and {inner} gated activations for {ranks} ranks: multiples of \
                 the ranks"
            )));
        }
        let inputs = [heads * dim / ranks, inner / ranks];
        if kind == Kind::Packed && ranks > 1 && inputs.iter().any(|extent| !extent.is_multiple_of(GROUP)) {
            return Err(argument(format!(
                "{inputs:?} inputs of a rank of {ranks}: multiples of {GROUP}, the inputs of a scale"
            )));
        }
        let tokens = self.tokens(vocabulary);
        if tokens.is_empty() {
            return Err(argument(format!("{vocabulary} tokens for {ranks} ranks: at least {GRAIN} for each")));
        }
        let [heads, key_heads, inner] = [heads, key_heads, inner].map(|extent| extent / ranks);
        Ok(Config { heads, key_heads, inner, vocabulary: tokens.len(), ..*whole })
    }

    /// Returns the tokens whose logits the rank has: whole groups of logits, as far as there are
    /// any.
    #[must_use]
    pub fn tokens(self, vocabulary: usize) -> Range<usize> {
        let grains = vocabulary.div_ceil(GRAIN);
        let [start, end] = [self.rank, self.rank + 1].map(|at| (grains * at / self.ranks * GRAIN).min(vocabulary));
        start..end
    }

    fn range(self, extent: usize) -> Range<usize> {
        extent * self.rank / self.ranks..extent * (self.rank + 1) / self.ranks
    }

    /// Returns the parts of the products of a layer.
    pub(in crate::llama) fn cuts(self, config: &Config) -> [Cut; 4] {
        let Config { hidden, heads, key_heads, dim, inner, .. } = *config;
        let (queries, keys) = (self.range(heads * dim), self.range(key_heads * dim));
        let behind = |offset: usize| offset + keys.start..offset + keys.end;
        let activations = self.range(inner);
        let one = |range: Range<usize>| [range, 0..0, 0..0];
        [
            Cut {
                outputs: [queries.clone(), behind(heads * dim), behind((heads + key_heads) * dim)],
                inputs: 0..hidden,
            },
            Cut { outputs: one(0..hidden), inputs: queries },
            Cut { outputs: one(2 * activations.start..2 * activations.end), inputs: 0..hidden },
            Cut { outputs: one(0..hidden), inputs: activations },
        ]
    }
}

impl Cut {
    /// Returns the part of weights of shape (outputs, inputs).
    pub(in crate::llama) fn of<T: Real>(
        &self,
        stream: &Stream,
        numbers: DeviceArray<T, 2>,
    ) -> ct::Result<DeviceArray<T, 2>> {
        let shape = [self.outputs.iter().map(Range::len).sum(), self.inputs.len()];
        if numbers.shape() == shape {
            return Ok(numbers);
        }
        let mut part = numbers.device().zeros(shape)?;
        let mut start = 0;
        for range in self.outputs.iter().filter(|range| !range.is_empty()) {
            let from = numbers.view().slice(0, range.clone())?.slice(1, self.inputs.clone())?;
            let to = part.slice_mut(0, start..start + range.len())?;
            let grid = [range.len().div_ceil(TILE), shape[1].div_ceil(TILE)];
            ct::Launch::new(grid).stream(stream).launch(copy::<T>, (from, to, ct::Constant(TILE)))?;
            start += range.len();
        }
        Ok(part)
    }
}

fn copy<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: usize) {
    let at = [ct::bid(0), ct::bid(1)];
    y.store(at, x.load(at, [tile, tile]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_vocabulary_are_adjacent() {
        for (vocabulary, ranks) in [(203, 2), (203, 4), (128_256, 2), (128_256, 8)] {
            let mut end = 0;
            for rank in 0..ranks {
                let tokens = Shard { rank, ranks }.tokens(vocabulary);
                assert_eq!(tokens.start, end);
                assert!(tokens.len() >= 11 && tokens.start.is_multiple_of(GRAIN), "{tokens:?}");
                end = tokens.end;
            }
            assert_eq!(end, vocabulary);
        }
    }

    #[test]
    fn extents_that_ranks_do_not_divide_are_refused() {
        let config = Config { key_heads: 2, vocabulary: 100, ..Config::llama_3_2_1b() };
        let refused = |ranks, kind| Shard { rank: 0, ranks }.config(&config, kind).unwrap_err().to_string();
        assert!(refused(4, Kind::Plain).contains("2 of keys"), "{}", refused(4, Kind::Plain));
        let config = Config { heads: 2, ..config };
        let narrow = Shard { rank: 1, ranks: 2 }.config(&config, Kind::Packed).unwrap_err().to_string();
        assert!(narrow.contains("multiples of 128"), "{narrow}");
        let part = Shard { rank: 1, ranks: 2 }.config(&config, Kind::Plain).expect("a part");
        assert_eq!((part.heads, part.key_heads, part.inner, part.vocabulary), (1, 1, 4096, 36));
    }
}
