//! Models whose layers are kernels of [cutlet](https://docs.rs/cutlet).
//!
//! | type | model |
//! |---|---|
//! | [`MiniLm`] | sentence embeddings of BERT's layers (all-MiniLM-L6-v2) |
//! | [`Llama`] | a decoder of the shape of Llama 3, with seeded random weights |

#![deny(unsafe_code)]

pub mod llama;
pub mod minilm;

pub use llama::Llama;
pub use minilm::MiniLm;
