//! Epilogues: functions of a tile of sums, which run in the kernel of a product before its result
//! is stored.
//!
//! | stage | value for a sum x of row i and column j |
//! |---|---|
//! | [`Bias`] | x + bias of the column |
//! | [`Residual`] | x + element of a matrix |
//! | [`Gate`] | x · element of a matrix |
//! | [`Scale`], [`ScaleRows`], [`ScaleColumns`] | x · number, number of the row, number of the column |
//! | [`Activate`] | activation of x |
//! | [`GatePairs`] | activation of x · its right neighbour, for even columns |
//! | [`Rotate`] | rotary position embedding of heads of columns |
//! | [`RotateCached`] | rotary position embedding by positions; stores keys and values in rows of a cache |
//! | [`SquareSums`], [`NormalizeRows`] | x, with sums of squares; x over the root of their mean |
//! | [`Largest`] | x; stores the largest of groups of columns |
//! | [`Round`] | x, rounded to an element type |
//! | [`RowSums`], [`ColumnSums`] | x; adds the sums of rows or columns to a vector |
//! | [`QuantizeBlocks`] | x over the scale of its 128 columns of the row; stores the scales |
//! | [`Apply`] | a function of tiles |
//!
//! [`Then`] joins two stages. Values are computed with in f32, or f64 for operands of f64. The
//! builders of products have a method for each stage.

mod argument;
mod cached;
mod largest;
mod numbers;
mod place;
mod quantize;
mod rotate;
mod squares;
mod stages;
mod sums;

pub use argument::{Argument, Epilogue, Extents, Stage};
pub use cached::{HeadColumns, RotateCached};
pub use largest::Largest;
pub use numbers::{Activate, Activation, Apply, Function, GatePairs, Round};
pub use place::{Columns, Matrix, Place, Rows};
pub use quantize::QuantizeBlocks;
pub use rotate::{Heads, Rotate, Rotation};
pub use squares::{NormalizeRows, SquareSums};
pub use stages::{Bias, Gate, Residual, Scale, ScaleColumns, ScaleRows, Then};
pub use sums::{ColumnSums, RowSums};

/// The epilogue without an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plain;
