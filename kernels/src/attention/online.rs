//! Online softmax (Milakov and Gimelshein, 2018): the sums of a tile of rows over blocks of keys, each of which rescales the
//! sums to the largest score until then.

use cutlet as ct;
use cutlet::prelude::*;

/// Maximum of no scores. It is finite, so that a block without a visible key has weights of 0.
pub const LEAST: f32 = -1e30;

/// State of `m` rows: weighted sums of values in `blocks` of columns, largest score, and sum of weights.
pub struct Online {
    pub sums: Vec<Tile<f32, 2>>,
    pub max: Tile<f32, 2>,
    pub total: Tile<f32, 2>,
}
ct::impl_loop_state!(Online { sums, max, total });

impl Online {
    /// Returns the state before the first key.
    pub fn new(m: usize, columns: usize, blocks: usize) -> Online {
        Online {
            sums: (0..blocks).map(|_| ct::zeros([m, columns])).collect(),
            max: ct::full([m, 1], LEAST),
            total: ct::zeros([m, 1]),
        }
    }

    /// Adds a block of keys. A weight is 2 to the power of `factor` times its score, and the largest weight is 1. `products` returns
    /// the new sums from the weights and a function of the old sum of a block of columns, in program order.
    pub fn add(
        self,
        scores: Tile<f32, 2>,
        factor: Scalar<f32>,
        products: impl FnOnce(Tile<f32, 2>, &dyn Fn(usize) -> Tile<f32, 2>) -> Vec<Tile<f32, 2>>,
    ) -> Online {
        self.add_shifted(scores, (factor, 0.0), products)
    }

    /// Adds a block of keys as [`Online::add`] does. The largest weight is 2 to the power of `shift`.
    pub fn add_shifted(
        self,
        scores: Tile<f32, 2>,
        (factor, shift): (Scalar<f32>, f32),
        products: impl FnOnce(Tile<f32, 2>, &dyn Fn(usize) -> Tile<f32, 2>) -> Vec<Tile<f32, 2>>,
    ) -> Online {
        let max = self.max.max(scores.reduce_max(1));
        let least = if shift == 0.0 { -max * factor } else { shift - max * factor };
        let weights = scores.fma(factor, least).exp2();
        let decay = ((self.max - max) * factor).exp2();
        let sums = products(weights, &|block| self.sums[block] * decay);
        Online { sums, max, total: self.total * decay + weights.sum(1) }
    }

    /// Returns the results, and log₂ of the sums of exponentials. A row without a visible key has zeros, and a logarithm of at
    /// most [`LEAST`] times the factor.
    ///
    /// `sink` is a score, in powers of two, without a value.
    pub fn finish(self, factor: Scalar<f32>, sink: Option<Scalar<f32>>) -> (Vec<Tile<f32, 2>>, Tile<f32, 2>) {
        let max = self.max * factor;
        let (max, scale, total) = match sink {
            None => (max, None, self.total),
            Some(sink) => {
                let above = max.max(sink);
                let scale = (max - above).exp2();
                (above, Some(scale), self.total * scale + (sink - above).exp2())
            }
        };
        // The weight of the largest score is 1: smaller sums are those of no key.
        let total = total.max(f32::MIN_POSITIVE);
        let share = scale.map_or_else(|| 1.0 / total, |scale| scale / total);
        (self.sums.into_iter().map(|sum| sum * share).collect(), max + total.log2())
    }
}
