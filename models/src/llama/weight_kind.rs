//! Kinds of weights.

/// Inputs that share a scale.
pub const GROUP: usize = 128;

/// Kind of the weights of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Elements of the type of the activations.
    Plain,
    /// Codes of 4 bits and scales.
    Packed,
}
