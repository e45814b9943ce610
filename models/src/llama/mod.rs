//! A decoder of the shape of Llama 3 (Grattafiori et al., 2024): grouped queries, rotary position
//! embedding, SwiGLU, RMS norm, embeddings that are also the weights of the logits, and a paged
//! cache.
//!
//! A layer has five kernels, whose epilogues contain norms, rotation, residuals and the store of
//! keys and values. A decode step has 5 · layers + 3 kernels and no allocation: it is one graph of
//! launches. The chosen tokens are the input of the next step, so that steps follow one another
//! without the host.
//!
//! | file | |
//! |---|---|
//! | [`config`] | extents, frequencies of the rotation |
//! | [`weights`] | plain weights, packed weights of 4 bits |
//! | [`cache`] | pages of keys and values |
//! | [`layers`] | the kernels of a layer |
//! | [`embed`] | the first kernel of a pass |
//! | [`step`] | prefill, decode step, graph |
//! | [`parallel`] | several devices with a part of the weights each |

pub mod cache;
pub mod config;
pub mod embed;
pub mod layers;
pub mod parallel;
mod real;
pub mod step;
mod weight_kind;
pub mod weights;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray};

pub use cache::Cache;
pub use config::{Config, Product, Rope};
pub use layers::{Activations, Early, Part, Plan};
pub use parallel::{Method, Parallel};
pub use real::Real;
pub use step::{Decoding, Prompts};
pub use weight_kind::Kind;
pub use weights::{Layer, Weight};

use parallel::Shard;
use weights::{Operand, Random};

/// A decoder, or the part of a rank of a decoder on several devices. Weights are on a device.
pub struct Llama<T> {
    /// Extents of the part.
    config: Config,
    shard: Shard,
    device: Device,
    /// Embeddings, of shape (vocabulary, hidden).
    words: Weight<T>,
    /// Packed weights of the logits. None: the embeddings.
    head: Option<Weight<T>>,
    /// Weight of the norm after the last layer.
    norm: DeviceArray<T, 1>,
    layers: Vec<Layer<T>>,
    /// Cosines and sines, of shape (positions, dim / 2).
    cos: DeviceArray<f32, 2>,
    sin: DeviceArray<f32, 2>,
}
ct::impl_graph_resource!(impl<T: Element> Llama<T> { words, head, norm, layers, cos, sin });

impl<T: Real> Llama<T> {
    /// Makes a decoder with seeded random weights, for sequences of up to `capacity` tokens.
    ///
    /// # Errors
    /// Those of allocations and launches; [`ct::Error::Argument`] for extents that kernels refuse.
    pub fn random(device: Device, config: Config, kind: Kind, capacity: usize, seed: u64) -> ct::Result<Llama<T>> {
        Llama::part(device, config, Shard::WHOLE, kind, capacity, seed)
    }

    /// Makes the part of a rank of the decoder that [`Llama::random`] makes with the same seed.
    ///
    /// # Errors
    /// As [`Llama::random`]; [`ct::Error::Argument`] for extents that the ranks do not divide.
    #[track_caller]
    pub fn part(
        device: Device,
        whole: Config,
        shard: Shard,
        kind: Kind,
        capacity: usize,
        seed: u64,
    ) -> ct::Result<Llama<T>> {
        let config = shard.config(&whole, kind)?;
        let stream = device.default_stream();
        let mut random = Random { stream: &stream, device, seed, kind, count: 0 };
        let words = random.numbers([whole.vocabulary, config.hidden], 1.0)?;
        let norm = random.numbers::<T>([1, config.hidden], 1.0)?.to_vec()?;
        let head = match kind {
            Kind::Plain => None,
            Kind::Packed => {
                let mut copy = device.unspecified([config.vocabulary, config.hidden])?;
                copy.view_mut().copy_from_array(&words.view().slice(0, shard.tokens(whole.vocabulary))?)?;
                Some(Weight::new(&stream, copy, kind)?)
            }
        };
        let layers = (0..config.layers).map(|_| random.layer(&whole, shard)).collect::<ct::Result<_>>()?;
        let frequencies = config.rope.frequencies(config.dim);
        let angle = |[position, pair]: [usize; 2]| position as f64 * frequencies[pair];
        let shape = [capacity, config.dim / 2];
        Ok(Llama {
            norm: device.array(&norm, [config.hidden])?,
            cos: device.from_fn(shape, |at| angle(at).cos() as f32)?,
            sin: device.from_fn(shape, |at| angle(at).sin() as f32)?,
            config,
            shard,
            device,
            words: Weight { plain: Some(words), packed: None },
            head,
            layers,
        })
    }

    /// Returns the extents. Those of a part have its heads, gated activations and logits.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the kind of the weights of products.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.head.is_some() { Kind::Packed } else { Kind::Plain }
    }

    /// Returns the layers.
    #[must_use]
    pub fn layers(&self) -> &[Layer<T>] {
        &self.layers
    }

    /// Returns the embeddings, of shape (vocabulary, hidden).
    #[must_use]
    pub fn words(&self) -> &Weight<T> {
        &self.words
    }

    /// Returns the weights of the logits: the embeddings of all tokens, or the packed numbers of
    /// the part.
    #[must_use]
    pub fn head(&self) -> &Weight<T> {
        self.head.as_ref().unwrap_or(&self.words)
    }

    /// Returns the weights of the logits of the part.
    fn operand_of_head(&self) -> ct::Result<Operand<'_, T>> {
        let plain = match (&self.head, &self.words.plain) {
            (Some(head), _) => return Ok(head.operand()),
            (None, Some(words)) => words,
            (None, None) => return Ok(self.words.operand()),
        };
        Ok(Operand::Plain(plain.view().slice(0, self.shard.tokens(plain.shape()[0]))?))
    }

    /// Returns the first token whose logit the part has.
    fn first_token(&self) -> usize {
        self.shard.tokens(self.words.plain.as_ref().map_or(0, |words| words.shape()[0])).start
    }

    /// Returns the weight of the norm after the last layer.
    #[must_use]
    pub fn norm(&self) -> &DeviceArray<T, 1> {
        &self.norm
    }
}
