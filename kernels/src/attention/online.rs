//! Online softmax (Milakov and Gimelshein, 2018): the sums of a tile of rows over blocks of keys,
//! each of which rescales the sums to the largest score until then.

use cutlet as ct;
use cutlet::prelude::*;

/// Maximum of no scores. It is finite, so that a block without a visible key has weights of 0.
pub const LEAST: f32 = -1e30;

/// State of `m` rows: weighted sums of values in `blocks` of columns, largest score, and sum of
/// weights.
pub struct Online {
    pub sums: Vec<Tile<f32, 2>>,
    pub max: Tile<f32, 2>,
    pub total: Tile<f32, 2>,
}
ct::impl_loop_state!(Online { sums, max, total });

/// Exponents of the weights, which are powers of two.
#[derive(Clone, Copy)]
pub struct Exponent {
    /// Factor of the scores.
    pub factor: Scalar<f32>,
    /// Exponent of the largest weight.
    pub shift: f32,
    /// The largest score is carried times the factor. Exponents are differences of products, not
    /// fused sums.
    pub scales_max: bool,
}

impl Exponent {
    /// Exponents with this factor of the scores, and largest weights of 1.
    pub fn new(factor: Scalar<f32>) -> Exponent {
        Exponent { factor, shift: 0.0, scales_max: false }
    }
}

impl Online {
    /// Returns the state before the first key.
    pub fn new(m: usize, columns: usize, blocks: usize) -> Online {
        Online {
            sums: (0..blocks).map(|_| ct::zeros([m, columns])).collect(),
            max: ct::full([m, 1], LEAST),
            total: ct::zeros([m, 1]),
        }
    }

    /// Adds a block of keys. `products` returns the new sums from the weights and a function of the
    /// old sum of a block of columns, in program order.
    pub fn add(
        self,
        scores: Tile<f32, 2>,
        Exponent { factor, shift, scales_max }: Exponent,
        products: impl FnOnce(Tile<f32, 2>, &dyn Fn(usize) -> Tile<f32, 2>) -> Vec<Tile<f32, 2>>,
    ) -> Online {
        let (max, weights, decay) = if scales_max {
            let max = self.max.max(scores.reduce_max(1) * factor);
            let least = if shift == 0.0 { max } else { max - shift };
            (max, (scores * factor - least).exp2(), self.max - max)
        } else {
            let max = self.max.max(scores.reduce_max(1));
            let least = if shift == 0.0 { -max * factor } else { shift - max * factor };
            (max, scores.fma(factor, least).exp2(), (self.max - max) * factor)
        };
        let decay = decay.exp2();
        let sums = products(weights, &|block| self.sums[block] * decay);
        Online { sums, max, total: self.total * decay + weights.sum(1) }
    }

    /// Returns the results, and log₂ of the sums of exponentials. A row without a visible key has
    /// zeros, and a logarithm of at most [`LEAST`] times the factor.
    ///
    /// `sink` has scores, in powers of two, without a value: one for all rows or one for each.
    pub fn finish(self, exponent: Exponent, sink: Option<Tile<f32, 2>>) -> (Vec<Tile<f32, 2>>, Tile<f32, 2>) {
        let max = if exponent.scales_max { self.max } else { self.max * exponent.factor };
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
