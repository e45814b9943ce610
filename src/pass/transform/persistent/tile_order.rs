//! Order of the tile blocks of a kernel whose work grows along the first axis of the grid.
//!
//! A plane is all tile blocks with the same second and third index, such as one head of causal
//! attention. The tile blocks of a plane load the same arrays in their loops. So each plane is
//! computed in a short time, and its arrays stay in the L2 cache.
//!
//! The first planes are divided into items of equal work: two tile blocks of a plane, one as long
//! as the other one is short. The last planes are sorted, the longest tile blocks first, so that
//! the sums of the CTAs become equal: some three tile blocks for each CTA.
//!
//! ```text
//! planes 0, 1:    (0, x = 2) + (0, x = 0)   (0, 1) + (1, 1)   (1, 2) + (1, 0)
//! last planes:    (2, 2) (3, 2) (2, 1) (3, 1) (2, 0) (3, 0)
//! ```
//!
//! Consecutive rounds of items go through the CTAs in opposite directions.

use super::scalar_writer::ScalarWriter;
use crate::dtype::DType;
use crate::ir::{CmpPred, Opcode, Value};

/// Tile blocks of the sorted planes for each CTA.
const SORTED_ROUNDS: i64 = 3;

/// Values of the order that do not depend on the iteration.
pub struct TileOrder {
    /// Extents of the grid, as i32.
    grid: [Value; 3],
    /// Number of the CTA, and number of CTAs.
    cta: Value,
    ctas: Value,
    /// Number of planes in pairs, and of sorted ones.
    paired: Value,
    sorted: Value,
    /// Number of items of the planes in pairs.
    pair_items: Value,
    /// Number of items of this CTA that are pairs.
    own_pairs: Value,
    /// Number of tile blocks of this CTA.
    pub iterations: Value,
}

impl TileOrder {
    /// Emits the values.
    pub fn new(to: &mut ScalarWriter<'_>, [cta, ctas]: [Value; 2], grid: [Value; 3]) -> TileOrder {
        let [one, two, rounds] = [1, 2, SORTED_ROUNDS].map(|number| to.number(number));
        let planes = to.int(Opcode::MulI, grid[1], grid[2]);
        // Enough sorted planes; an even number of others.
        let wanted = to.int(Opcode::MulI, rounds, ctas);
        let below = to.int(Opcode::SubI, grid[0], one);
        let wanted = to.int(Opcode::AddI, wanted, below);
        let [wanted, _] = to.div_rem(wanted, grid[0]);
        let wanted = to.min(wanted, planes);
        let rest = to.int(Opcode::SubI, planes, wanted);
        let [pairs, _] = to.div_rem(rest, two);
        let paired = to.int(Opcode::MulI, pairs, two);
        let sorted = to.int(Opcode::SubI, planes, paired);
        let sorted = to.positive(sorted);
        let pair_items = to.int(Opcode::MulI, pairs, grid[0]);
        let sorted_items = to.int(Opcode::MulI, sorted, grid[0]);
        let items = to.int(Opcode::AddI, pair_items, sorted_items);
        let own_pairs = own_items(to, [cta, ctas], pair_items);
        let own = own_items(to, [cta, ctas], items);
        let iterations = to.int(Opcode::AddI, own_pairs, own);
        TileOrder { grid, cta, ctas, paired, sorted, pair_items, own_pairs, iterations }
    }

    /// Returns the indices of the tile block of an iteration.
    pub fn decode(&self, to: &mut ScalarWriter<'_>, iteration: Value) -> [Value; 3] {
        let [one, two] = [1, 2].map(|number| to.number(number));
        let own_pair_tiles = to.int(Opcode::MulI, self.own_pairs, two);
        let is_pair = to.compare(CmpPred::Lt, iteration, own_pair_tiles);
        let [pair_round, half] = to.div_rem(iteration, two);
        let sorted_round = to.int(Opcode::SubI, iteration, self.own_pairs);
        let round = to.select(is_pair, pair_round, sorted_round);
        let start = to.int(Opcode::MulI, round, self.ctas);
        let place = place_in_round(to, [self.cta, self.ctas], round);
        let item = to.int(Opcode::AddI, start, place);
        let last = to.int(Opcode::SubI, self.grid[0], one);

        // Two planes have as many items as a plane has tile blocks. The first half is of the first
        // plane. The item in the middle has a tile block of both, if the extent is odd.
        let [pair, place] = to.div_rem(item, self.grid[0]);
        let [half_extent, _] = to.div_rem(self.grid[0], two);
        let first_items = to.int(Opcode::SubI, self.grid[0], half_extent);
        let is_second = to.compare(CmpPred::Eq, half, one);
        let limit = to.select(is_second, half_extent, first_items);
        let is_first_plane = to.compare(CmpPred::Lt, place, limit);
        let is_first_half = to.compare(CmpPred::Lt, place, first_items);
        let in_second = to.int(Opcode::SubI, place, first_items);
        let short = to.select(is_first_half, place, in_second);
        let long = to.int(Opcode::SubI, last, short);
        let pair_x = to.select(is_second, short, long);
        let first_plane = to.int(Opcode::MulI, pair, two);
        let second_plane = to.int(Opcode::AddI, first_plane, one);
        let pair_plane = to.select(is_first_plane, first_plane, second_plane);

        let number = to.int(Opcode::SubI, item, self.pair_items);
        let [step, plane] = to.div_rem(number, self.sorted);
        let sorted_x = to.int(Opcode::SubI, last, step);
        let sorted_plane = to.int(Opcode::AddI, self.paired, plane);

        let x = to.select(is_pair, pair_x, sorted_x);
        let plane = to.select(is_pair, pair_plane, sorted_plane);
        let [z, y] = to.div_rem(plane, self.grid[1]);
        [x, y, z].map(|index| to.not_negative(index))
    }
}

/// Returns the number of items that a CTA computes.
fn own_items(to: &mut ScalarWriter<'_>, [cta, ctas]: [Value; 2], items: Value) -> Value {
    let [full_rounds, rest] = to.div_rem(items, ctas);
    let place = place_in_round(to, [cta, ctas], full_rounds);
    let has_more = to.compare(CmpPred::Lt, place, rest);
    let [zero, one] = [0, 1].map(|number| to.number(number));
    let more = to.select(has_more, one, zero);
    to.int(Opcode::AddI, full_rounds, more)
}

/// Returns the place of a CTA in a round: its number, or in every second round that of the opposite
/// CTA.
fn place_in_round(to: &mut ScalarWriter<'_>, [cta, ctas]: [Value; 2], round: Value) -> Value {
    let [zero, one] = [0, 1].map(|number| to.number(number));
    let parity = to.and(round, one, DType::I32);
    let is_odd = to.compare(CmpPred::Ne, parity, zero);
    let last = to.int(Opcode::SubI, ctas, one);
    let opposite = to.int(Opcode::SubI, last, cta);
    to.select(is_odd, opposite, cta)
}
