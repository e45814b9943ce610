//! Attention.

mod forward;

pub use forward::Attention;
