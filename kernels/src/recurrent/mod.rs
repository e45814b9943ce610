//! Recurrent layers: selective scan, Mamba-2, gated delta rule, Kimi delta attention, log-linear
//! attention.
//!
//! | function | state of a head | decay |
//! |---|---|---|
//! | [`SelectiveScan`] (Mamba) | a channel and its states | of each channel and state |
//! | [`Mamba2`] (SSD) | states x channels | of the head |
//! | [`GatedDeltaRule`] | keys x values | of the head |
//! | [`KimiDelta`] (KDA) | keys x values | of each key channel |
//! | [`log_linear_attention`] | keys x values, for each level of tokens | of the head |
//!
//! Each has a function of whole sequences, which computes by chunks of steps, and one of single
//! steps for decoding, which updates states in place and allocates nothing. Log-linear attention
//! has no function of single steps. Sequences are arrays (batch, tokens, heads, channels). Those of
//! the delta rules and of Mamba-2 may be packed: a batch of one, with the first token of each
//! sequence ([`Packing`]). Logarithms of decays are natural. States are f32. Mamba-2 and the delta
//! rules have gradients of whole sequences.

mod delta_chunks;
mod delta_gradients;
mod delta_inputs;
mod delta_rule;
mod kimi_delta;
mod log_linear;
mod mamba2;
mod mamba2_gradients;
mod selective_scan;
mod tokens;

pub use delta_gradients::DeltaGradients;
pub use delta_inputs::DeltaInputs;
pub use delta_rule::GatedDeltaRule;
pub use kimi_delta::KimiDelta;
pub use log_linear::{LogLinearInputs, log_linear_attention};
pub use mamba2::{Mamba2, Mamba2Inputs};
pub use mamba2_gradients::Mamba2Gradients;
pub use selective_scan::{SelectiveInputs, SelectiveScan};
pub use tokens::{Packing, States};
