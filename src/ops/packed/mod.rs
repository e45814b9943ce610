//! Elements of 1 to 8 bits in kernels: tiles of packed arrays, unpacked in registers and packed again.
//!
//! Words are loaded; what an element is is worked out of them when it is known what it becomes ([`NarrowTile::cast`]), so
//! that a shift into place, a mask and one operation of floats are all that a conversion takes. All of it is made of ops
//! that the IR has.

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
