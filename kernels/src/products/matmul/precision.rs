//! Precision of products.

/// Accuracy of products and sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 operands are multiplied as they are. Sums of 8-bit floats have the bits of f32.
    #[default]
    Full,
    /// f32 operands are rounded to tf32 for tensor cores. Sums of 8-bit floats keep some 14 bits.
    Fast,
}
