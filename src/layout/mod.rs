//! Layouts: the distribution of the elements of a tile over the threads of a tile block and their
//! registers.
//!
//! A [`Layout`] is a linear map over F2, the field of two elements. Each bit of the register, lane
//! and warp number has a basis, an element index. A hardware position contains the element whose
//! index is the exclusive or of the bases of its set bits. Element indices are flat and row-major.
//! Extents are powers of two, so each dimension is a range of bits of that index. Replication,
//! transposition, reshaping, reductions and conversions are then computations with small matrices
//! over F2.
//!
//! [`Modes`] is the notation for users: the atoms [`local`] and [`spatial`] and their products, as
//! in `local([2, 1]) * spatial([8, 4]) * local([1, 2])`. It is lowered to a [`Layout`]. Both print
//! as a grid of `thread: register` cells, and `to_svg` draws it.
//! [`Tile::with_layout`](crate::Tile::with_layout) sets such a layout of a tile.
//!
//! This module depends only on shapes and hardware positions, and not on the IR, back ends or
//! element types.
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
pub use convert::{AffinePlan, AffineSide, Conversion, Round, SharedPlan, ShufflePlan};
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
