//! Kernels of cutlet on several GPUs, one process and one thread for all of them: each rank has a
//! device, a stream and arrays of its own, and [`AllReduce`] adds arrays of all ranks up, by NCCL
//! ([`Nccl`]) or on the host ([`OnHost`]).
//!
//! [`TensorParallel`] is an application: a multilayer perceptron whose weights are divided among
//! ranks.
//!
//! ```
//! use cutlet_nccl::{OnHost, Shape, TensorParallel};
//!
//! let ranks = OnHost::new(&[cutlet::Device::cpu(); 2])?;
//! let mut layer = TensorParallel::new(ranks, Shape { tokens: 40, width: 64, hidden: 192 }, 1)?;
//! layer.forward()?;
//! assert_eq!(layer.output(0).to_vec()?, layer.output(1).to_vec()?);
//! # Ok::<(), cutlet::Error>(())
//! ```

mod kernels;
mod mlp;
mod nccl;
mod on_host;
mod ranks;

pub use mlp::{Shape, TensorParallel};
pub use nccl::Nccl;
pub use on_host::OnHost;
pub use ranks::{AllReduce, Rank, Summed};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
