//! Elements of 1 to 8 bits in kernels: tiles of packed arrays, unpacked in registers and packed
//! again.
//!
//! Loads read words. The elements are extracted by the conversion ([`NarrowTile::cast`]), when the
//! target type is known. A conversion then is a shift, a mask and one operation of floats. It
//! consists of existing ops of the IR.

mod array;
mod bits;
mod dequantize;
mod quantize;
mod store;
mod tile;
mod word_packing;
mod words;

pub use array::{PackedArray, PackedArrayMut, PackedFacts};
pub use tile::NarrowTile;
