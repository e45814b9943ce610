//! Models whose layers are kernels of [cutlet](https://docs.rs/cutlet).
//!
//! | type | model |
//! |---|---|
//! | [`MiniLm`] | sentence embeddings of BERT's layers (all-MiniLM-L6-v2) |

#![deny(unsafe_code)]

pub mod minilm;

pub use minilm::MiniLm;
