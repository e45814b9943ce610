//! Support for ops: operands, promotion, indices, rounding modes, regions and expression builders.

pub(super) mod axis;
pub(super) mod bit_words;
pub(super) mod expr_builder;
pub(super) mod float_mode;
pub(super) mod i32_count;
pub(super) mod index_arith;
pub(super) mod misuse;
pub(super) mod operand;
pub(super) mod promote;
mod reassociate;
pub(super) mod region_builder;
pub(super) mod tile_index;
pub(super) mod tile_set;
pub(crate) mod tile_shape;
