//! Distributed layouts: which thread of a tile block holds which element of a tile in which register.
//!
//! A [`Layout`] is a linear map over F2, the field of two elements: every bit of the register
//! number, the lane number and the warp number has an *image*, an element index, and a hardware
//! position holds the element whose index is the XOR of the images of its set bits. Elements are
//! counted by their flat row-major index; extents are powers of two, so every dimension is a range
//! of bits of that index. Replication, transposition, reshaping, reductions and conversions are
//! then small matrix computations over F2.
//!
//! [`Modes`] is the form for people: atoms [`local`] and [`spatial`] and their product, as in
//! `local([2, 1]) * spatial([8, 4]) * local([1, 2])`; it lowers to a [`Layout`]. Both forms print as a grid of
//! `thread: slot` cells, and `to_svg` draws it.
//! [`Tile::with_layout`](crate::Tile::with_layout) has the threads of a tile block hold a tile so.
//!
//! This room is pure mathematics: it knows shapes and hardware positions, but no IR, no back end and no
//! element type.
//!
//! ```
//! use cutlet::layout::{Layout, local, spatial};
//!
//! // The accumulator fragment of a tensor-core instruction m16n8: two rows and two columns a lane.
//! let fragment = local([2, 1]) * spatial([8, 4]) * local([1, 2]);
//! let layout: Layout = fragment.to_layout(1).unwrap();
//! assert_eq!(layout.num_registers(), 4);
//! assert_eq!(layout.element(3, 5, 0), 9 * 8 + 3); // register 3 of lane 5: row 9, column 3
//! ```

mod convert;
#[doc(hidden)]
pub mod f2_matrix;
mod inverse;
mod linear_layout;
mod mma_fragments;
mod modes;
mod modes_algebra;
mod modes_product;
mod modes_reshape;
mod modes_to_linear;
mod print;
mod shared_layout;
mod svg;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use convert::{Conversion, Round, SharedPlan, ShufflePlan, SumPlan, SumSide};
#[doc(hidden)]
pub use inverse::Inverse;
pub use linear_layout::Layout;
#[doc(hidden)]
pub use mma_fragments::{Instruction, Tiling};
pub use mma_fragments::{wgmma_accumulator, wgmma_left};
pub use modes::{Modes, SpatialMode, column_local, column_spatial, local, spatial};
pub use modes_algebra::auto_local_spatial;
#[doc(hidden)]
pub use shared_layout::{Access, SharedLayout, Side};
