//! Extents of a model, and the angles of its rotary position embedding.

use std::f64::consts::PI;

/// Rotary position embedding with the scaling of Llama 3: long wavelengths are multiplied by a
/// factor, short ones are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the wavelengths.
    pub theta: f64,
    /// Factor of long wavelengths.
    pub factor: f64,
    /// Wavelengths above `original / low` are multiplied.
    pub low: f64,
    /// Wavelengths below `original / high` are kept.
    pub high: f64,
    /// Tokens of a sequence of the original training.
    pub original: f64,
}

impl Rope {
    /// Returns the frequencies of the pairs of a head of `dim` elements, in radians a token.
    #[must_use]
    pub fn frequencies(&self, dim: usize) -> Vec<f64> {
        let scaled = |pair: usize| {
            let frequency = self.theta.powf(-((2 * pair) as f64) / dim as f64);
            let turns = self.original * frequency / (2.0 * PI);
            let kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / self.factor)
        };
        (0..dim / 2).map(scaled).collect()
    }
}

/// Extents and constants of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Layers.
    pub layers: usize,
    /// Elements of a token's state: a multiple of 64.
    pub hidden: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values, which divide the heads of queries.
    pub key_heads: usize,
    /// Elements of a head: a power of two.
    pub dim: usize,
    /// Elements of the gated activations.
    pub inner: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Summand of the mean of squares in norms.
    pub epsilon: f32,
    /// Rotary position embedding.
    pub rope: Rope,
}

impl Config {
    /// Returns the extents of Llama-3.2-1B.
    #[must_use]
    pub fn llama_3_2_1b() -> Config {
        Config {
            layers: 16,
            hidden: 2048,
            heads: 32,
            key_heads: 8,
            dim: 64,
            inner: 8192,
            vocabulary: 128_256,
            epsilon: 1e-5,
            rope: Rope { theta: 500_000.0, factor: 32.0, low: 1.0, high: 4.0, original: 8192.0 },
        }
    }

    /// Returns outputs and inputs of the products of a layer and of the vocabulary, in the order of
    /// [`Product`].
    #[must_use]
    pub fn products(&self) -> [[usize; 2]; 5] {
        let attended = self.heads * self.dim;
        [
            [attended + 2 * self.key_heads * self.dim, self.hidden],
            [self.hidden, attended],
            [2 * self.inner, self.hidden],
            [self.hidden, self.inner],
            [self.vocabulary, self.hidden],
        ]
    }
}

/// A product of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// Queries, keys and values.
    Qkv,
    /// Attention's results to the state.
    Out,
    /// Gate and factor of the activations.
    Gated,
    /// Activations to the state.
    Down,
    /// State to logits.
    Head,
}

impl Product {
    /// All products.
    pub const ALL: [Product; 5] = [Product::Qkv, Product::Out, Product::Gated, Product::Down, Product::Head];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_wavelengths_are_multiplied() {
        let frequencies = Config::llama_3_2_1b().rope.frequencies(64);
        assert_eq!(frequencies[0], 1.0);
        let plain = |pair: i32| 500_000f64.powf(-f64::from(2 * pair) / 64.0);
        // 8192 tokens are 1.3 turns of pair 17, and 0.87 of pair 18.
        assert!((frequencies[10] / plain(10) - 1.0).abs() < 1e-12);
        assert!((frequencies[31] * 32.0 / plain(31) - 1.0).abs() < 1e-12);
        let between = frequencies[16] / plain(16);
        assert!(between > 1.0 / 32.0 && between < 1.0, "{between}");
    }
}
