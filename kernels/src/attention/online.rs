//! Online softmax (Milakov and Gimelshein, 2018): the sums of a tile of rows over blocks of keys,
//! each of which rescales the sums to the largest score until then.

use cutlet as ct;
use cutlet::prelude::*;

/// Maximum of no scores. It is finite, so that a block without a visible key has weights of 0.
pub const MIN_SCORE: f32 = -1e30;

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

    /// Returns a carried maximum, or a difference of two, times the factor.
    fn of(self, max: Tile<f32, 2>) -> Tile<f32, 2> {
        if self.scales_max { max } else { max * self.factor }
    }
}

impl Online {
    /// Returns the state before the first key.
    pub fn new(m: usize, columns: usize, blocks: usize) -> Online {
        let sums = vec![ct::zeros([m, columns]); blocks];
        Online { sums, max: ct::full([m, 1], MIN_SCORE), total: ct::zeros([m, 1]) }
    }

    /// Adds a block of keys. `products` returns the new sums from the weights and a function of the
    /// old sum of a block of columns, in program order.
    pub fn add(
        self,
        scores: Tile<f32, 2>,
        exponent: Exponent,
        products: impl FnOnce(Tile<f32, 2>, &dyn Fn(usize) -> Tile<f32, 2>) -> Vec<Tile<f32, 2>>,
    ) -> Online {
        let Exponent { factor, shift, scales_max } = exponent;
        let largest = scores.reduce_max(1);
        let max = self.max.max(if scales_max { largest * factor } else { largest });
        let least = if shift == 0.0 { exponent.of(max) } else { exponent.of(max) - shift };
        let weights = if scales_max { scores * factor - least } else { scores.fma(factor, -least) }.exp2();
        let decay = exponent.of(self.max - max).exp2();
        let sums = products(weights, &|block| self.sums[block] * decay);
        Online { sums, max, total: self.total * decay + weights.sum(1) }
    }

    /// Returns the results, and log₂ of the sums of exponentials. A row without a visible key has
    /// zeros, and a logarithm of at most [`MIN_SCORE`] times the factor.
    ///
    /// `sink` has scores, in powers of two, without a value: one for all rows or one for each.
    pub fn finish(self, exponent: Exponent, sink: Option<Tile<f32, 2>>) -> (Vec<Tile<f32, 2>>, Tile<f32, 2>) {
        let own = exponent.of(self.max);
        let max = sink.map_or(own, |sink| own.max(sink));
        // At most 1: a fused difference of equal maxima of no key is a large number of either sign.
        let scale = (own - max).min(0.0).exp2();
        let total = sink.map_or(self.total, |sink| self.total * scale + (sink - max).exp2());
        // The weight of the largest score is 1: smaller sums are those of no key.
        let total = total.max(f32::MIN_POSITIVE);
        let share = sink.map_or_else(|| 1.0 / total, |_| scale / total);
        (self.sums.into_iter().map(|sum| sum * share).collect(), max + total.log2())
    }
}
