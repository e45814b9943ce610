//! Element types: names, Rust types, and conversions.
//!
//! `dtype` has the types of the IR and `element` the Rust types of elements. `float_codec` converts
//! numbers exactly. `packed_formats` has formats below one byte, `complex` complex numbers.

pub mod complex;
pub mod dtype;
pub mod element;
pub mod float_codec;
pub mod packed_formats;
