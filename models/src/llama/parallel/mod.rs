//! Tensor parallelism: ranks of one process, each on a device of its own with a part of the weights
//! (Shoeybi et al., 2019).
//!
//! * A rank has some heads, gated activations and logits. Products that read the state are cut by
//!   outputs, products that write it by inputs. Every rank has all embeddings.
//! * The results of the products that write the state are added over the ranks: two sums for each
//!   layer. Residual and sums of squares follow the sum.
//! * Logits stay on their rank. A rank reduces them to the largest one and its token, and the ranks
//!   exchange these.
//!
//! | sum | condition | kernels after the product |
//! |---|---|---|
//! | [`Method::Peers`], few rows | memory of peers | one: words of a value and a number, stored in the memory of the others |
//! | [`Method::Peers`], many rows | memory of peers | one: loads from the memory of the others after their flag |
#![cfg_attr(feature = "nccl", doc = "| [`Method::Nccl`] | library NCCL | that of NCCL, residual |")]
//! | [`Method::Host`] | | copies to the host and back, residual |
//!
//! One thread queues the work of all ranks. A decode step by peers is one graph for each rank
//! ([`Parallel::graph`]); the others are no graphs.

#[cfg(test)]
mod code;
mod error;
mod flags;
mod gathered;
mod link;
#[cfg(feature = "nccl")]
mod nccl;
mod pass;
mod shard;
mod shared;
mod sum;
mod words;

use cutlet as ct;
use cutlet::{Device, Stream};

#[cfg(feature = "nccl")]
pub use nccl::Nccl;
pub use pass::{ParallelDecoding, ParallelGraph, ParallelPrompts};
pub(super) use shard::Cut;
pub use shard::Shard;

use error::argument;

use super::config::Config;
use super::weights::Kind;
use super::{Llama, Real};

/// Way of the sums over ranks.
pub enum Method {
    /// By the host, in f64.
    Host,
    /// By kernels that access the memory of the other devices.
    Peers {
        /// States of up to this number of rows are sent as words, others are read after a flag.
        rows: usize,
    },
    /// By NCCL.
    #[cfg(feature = "nccl")]
    Nccl(Nccl),
}

impl Method {
    /// By kernels that access the memory of the other devices: by words up to 8 rows. Two H200 add
    /// one row in 2.2 us by words and in 3.3 us by flags, and 16 rows in 3.9 us and 3.4 us.
    #[must_use]
    pub fn peers() -> Method {
        Method::Peers { rows: 8 }
    }
}

/// A rank: its part of the decoder, and the stream of its work.
struct Rank<T> {
    model: Llama<T>,
    stream: Stream,
}

/// A decoder on several devices.
///
/// ```
/// use cutlet_models::llama::{Config, Kind, Method, Parallel, Plan, parallel::ParallelDecoding, parallel::ParallelPrompts};
///
/// let config = Config { layers: 1, hidden: 64, heads: 4, key_heads: 2, dim: 16, inner: 128, vocabulary: 150, ..Config::llama_3_2_1b() };
/// let devices = [cutlet::Device::cpu(); 2];
/// let model = Parallel::<f32>::random(&devices, config, Kind::Plain, 64, 7, Method::peers())?;
/// let mut decoding = ParallelDecoding::new(&model, 1, 64)?;
/// let mut prompts = ParallelPrompts::new(&model, &decoding, &[vec![1, 5, 9]])?;
/// model.prefill(&mut prompts, &mut decoding, &Plan::default())?;
/// model.step(&mut decoding, &Plan::default())?;
/// assert!(model.tokens(&decoding)?[0] < 150);
/// # Ok::<(), cutlet::Error>(())
/// ```
pub struct Parallel<T> {
    ranks: Vec<Rank<T>>,
    method: Method,
}

impl<T: Real> Parallel<T> {
    /// Makes the decoder of [`Llama::random`] with a rank on each of these devices. Ranks on one
    /// device are for tests.
    ///
    /// # Errors
    /// Those of [`Llama::part`]; [`ct::Error::Argument`] without a device.
    #[track_caller]
    pub fn random(
        devices: &[Device],
        config: Config,
        kind: Kind,
        capacity: usize,
        seed: u64,
        method: Method,
    ) -> ct::Result<Parallel<T>> {
        let streams = devices.iter().map(Device::stream).collect::<ct::Result<Vec<_>>>()?;
        Parallel::on_streams(&streams, config, kind, capacity, seed, method)
    }

    /// Makes the decoder with ranks on these streams, which are those of NCCL for [`Method`]s of
    /// it.
    ///
    /// # Errors
    /// As [`Parallel::random`].
    #[track_caller]
    pub fn on_streams(
        streams: &[Stream],
        config: Config,
        kind: Kind,
        capacity: usize,
        seed: u64,
        method: Method,
    ) -> ct::Result<Parallel<T>> {
        if streams.is_empty() {
            return Err(argument("a decoder without a device".into()));
        }
        let ranks = streams.len();
        let rank = |(rank, stream): (usize, &Stream)| {
            let model = Llama::part(stream.device(), config, Shard { rank, ranks }, kind, capacity, seed)?;
            Ok(Rank { model, stream: stream.clone() })
        };
        Ok(Parallel { ranks: streams.iter().enumerate().map(rank).collect::<ct::Result<_>>()?, method })
    }

    /// Returns the parts of the ranks.
    pub fn parts(&self) -> impl Iterator<Item = &Llama<T>> {
        self.ranks.iter().map(|rank| &rank.model)
    }

    /// Returns the way of the sums.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Replaces the way of the sums. States of passes are made again after it.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// Returns the streams of the ranks.
    #[must_use]
    pub fn streams(&self) -> Vec<Stream> {
        self.ranks.iter().map(|rank| rank.stream.clone()).collect()
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] if their work failed.
    pub fn synchronize(&self) -> ct::Result<()> {
        self.ranks.iter().try_for_each(|rank| rank.stream.synchronize())
    }
}
