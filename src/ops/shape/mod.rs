//! Shapes of tiles: reshapes, permutations, concatenation, extraction and gathers within a tile.

pub(super) mod cat_split;
pub(super) mod rearrange;
pub(super) mod reshape;
pub(super) mod tile_gather;
pub(super) mod with_layout;
pub(super) mod with_rank;
