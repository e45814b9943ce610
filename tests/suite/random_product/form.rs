//! Random products as data: sizes, tiles, views, the order of the sum, its epilogue, hints.

use cutlet::Hints;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Path of an operand from its array to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Loaded, converted if the array has another type, multiplied.
    Straight,
    /// The array is loaded in the other order, and the tile transposed.
    Turned,
    /// Negated in between, so that it has to go through registers.
    Negated,
}

/// Order of a block along k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// Tile after tile.
    Steps,
    /// The numbers of the tiles are loaded from an array.
    Loaded,
    /// At most a number of tiles, an argument of the launch.
    Limited,
    /// Until an element of the sum is large enough.
    Enough,
    /// In one of two loops, by the block's row.
    Branched,
    /// Two products an iteration, with the same left operand.
    Twofold,
}

/// Assignment of tiles of the result to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `bid(0)` counts rows.
    Rows,
    /// `bid(0)` counts columns.
    Columns,
    /// Blocks take tile after tile, row by row.
    Persistent,
}

/// Epilogue of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    Nothing,
    Bias,
    PositiveBias,
    /// Bias times the row's largest element, 4 at most.
    RowMaximum,
    /// Bias times the column's largest element, 4 at most.
    ColumnMaximum,
    /// Between -8 and 8, through the type of the left operand.
    Narrowed,
}

/// A part of a larger array, as a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The array is stored in the other order.
    pub turned: bool,
    /// Elements before the part, by axis of the part.
    pub front: [usize; 2],
    /// Elements after the part.
    pub back: [usize; 2],
    /// Step between the elements of the part.
    pub step: [usize; 2],
}

/// Hints of the loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loops {
    /// Stages of the loads along k.
    pub stages: Option<u32>,
    /// Hint for a producer of that loop.
    pub streamed: Option<bool>,
    /// Ping-pong groups.
    pub teams: Option<u32>,
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Rows and columns of the result, and terms, of a tile.
    pub tile: [usize; 3],
    pub ways: [Way; 2],
    pub walk: Walk,
    pub order: Order,
    pub epilogue: Epilogue,
    /// The result is stored as the output's type, between -8 and 8.
    pub narrow: bool,
    /// The product of the tile is multiplied once more, as in attention.
    pub chained: bool,
    pub loops: Loops,
    /// Rows of the arrays are cut in the kernel, between numbers that it loads, and blocks beyond
    /// the result return.
    pub ragged: bool,
}

/// A kernel and a launch of it.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub form: Form,
    pub size: [usize; 3],
    /// Views of the left, the right and the result array.
    pub parts: [Part; 3],
    pub hints: Hints,
    /// Blocks of a persistent launch.
    pub blocks: usize,
    /// The most tiles along k.
    pub limit: usize,
}

/// Limits of a combination of element types.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements of the accumulator of a tile.
    pub accumulators: usize,
    /// Result arrays have another type.
    pub narrow: bool,
}

fn extent(random: &mut SmallRng) -> usize {
    match random.random_range(0..6) {
        0 => random.random_range(1..=40),
        1 | 2 => 16 * random.random_range(1..=14),
        3 | 4 => 64 * random.random_range(1..=4),
        _ => random.random_range(1..=230),
    }
}

/// Half of the parts are such as TMA can move.
fn part(random: &mut SmallRng) -> Part {
    let (offsets, odds): (&[usize], u32) = match random.random_range(0..4) {
        0 => (&[0], 1),
        1 => (&[0, 16, 32, 64], 1),
        _ => (&[0, 0, 1, 3, 8, 16], 8),
    };
    let mut side = || *offsets.choose(random).expect("a number");
    let (front, back) = ([side(), side()], [side(), side()]);
    let step = [(); 2].map(|()| if random.random_range(0..odds) == 1 { 2 } else { 1 });
    Part { turned: random.random_range(0..2) == 0, front, back, step }
}

/// Returns the hints of the loops, which each third product has.
fn loops(seed: u64) -> Loops {
    let mut random = SmallRng::seed_from_u64(!seed);
    if !seed.is_multiple_of(3) {
        return Loops::default();
    }
    Loops {
        stages: *[None, Some(1), Some(2), Some(3), Some(5), Some(9)].choose(&mut random).unwrap(),
        streamed: *[None, None, Some(false), Some(true)].choose(&mut random).unwrap(),
        teams: *[None, Some(1), Some(2), Some(2)].choose(&mut random).unwrap(),
    }
}

/// Rows of some products, not of the first ones, are cut in the kernel.
fn is_ragged(seed: u64) -> bool {
    seed / 17 % 3 == 2
}

/// The product with this number.
pub fn generate(seed: u64, limits: Limits) -> Product {
    let mut random = SmallRng::seed_from_u64(seed);
    let random = &mut random;
    let chained = random.random_range(0..5) == 0;
    let size = [(); 3].map(|()| extent(random));
    let tile = loop {
        let side = |random: &mut SmallRng, least: usize, most: usize| match random.random_range(0..12) {
            0 => 1 << random.random_range(0..8),
            1 => *[24, 40, 48, 80, 96, 112, 160, 176, 192].choose(random).unwrap(),
            _ => 1 << random.random_range(least..=most),
        };
        let tile = match chained {
            true => [side(random, 4, 7), side(random, 4, 7), side(random, 4, 7)],
            false => [side(random, 4, 8), side(random, 3, 8), side(random, 3, 7)],
        };
        let accumulators = if chained { tile[0] * tile[1].max(tile[2]) * 2 } else { tile[0] * tile[1] };
        // Operands of 8 bytes have to fit shared memory, too.
        if accumulators <= limits.accumulators && (tile[0] + tile[1]) * tile[2] <= 2 * limits.accumulators.min(24 << 10)
        {
            break tile;
        }
    };
    let mut way = || *[Way::Straight, Way::Straight, Way::Straight, Way::Turned, Way::Negated].choose(random).unwrap();
    let ways = [way(), way()];
    use Walk::*;
    let walk = *[Steps, Steps, Steps, Loaded, Limited, Enough, Branched, Twofold].choose(random).unwrap();
    let order = *[Order::Rows, Order::Columns, Order::Persistent].choose(random).unwrap();
    use Epilogue::*;
    let epilogue = *[Nothing, Bias, PositiveBias, RowMaximum, ColumnMaximum, Narrowed].choose(random).unwrap();
    let mut hint = |values: &[u32]| match random.random_range(0..2) {
        0 => None,
        _ => values.choose(random).copied(),
    };
    // Threads that hold more than this of one tile spill so much that the assembler takes minutes.
    let most = [tile[0] * tile[1], tile[0] * tile[2], tile[1] * tile[2]].into_iter().max().unwrap_or(1);
    let holds = |warps: &u32| most <= *warps as usize * 32 * 128;
    let mut hints = Hints::new();
    hints.num_warps = hint(&[4, 8, 1, 2, 4, 8, 16, 32]).filter(holds);
    hints.num_stages = hint(&[1, 2, 3, 4, 8]);
    hints.occupancy = hint(&[1, 2, 2, 3, 8, 32]);
    hints.num_ctas = hint(&[1, 2, 2, 4]);
    let form = Form {
        tile,
        ways,
        walk,
        order,
        epilogue,
        narrow: limits.narrow,
        chained,
        loops: loops(seed),
        ragged: is_ragged(seed),
    };
    let mut parts = [part(random), part(random), part(random)];
    if form.ragged {
        parts.iter_mut().for_each(|part| part.step[0] = 1);
    }
    let product =
        Product { form, size, parts, hints, blocks: random.random_range(1..=24), limit: random.random_range(0..=6) };
    if seed.is_multiple_of(5) { with_data_partitions(seed, limits, product) } else { product }
}

/// Changes each fifth product to three data partitions, each with a third of the rows.
fn with_data_partitions(seed: u64, limits: Limits, mut product: Product) -> Product {
    let mut random = SmallRng::seed_from_u64(!seed);
    let tile = [192, *[32, 64, 96, 128].choose(&mut random).unwrap(), *[16, 32, 64].choose(&mut random).unwrap()];
    let accumulators = if product.form.chained { 2 * tile[0] * tile[1].max(tile[2]) } else { tile[0] * tile[1] };
    if accumulators <= limits.accumulators {
        product.form.tile = tile;
        product.hints.num_warps = Some(12).filter(|_| !product.form.chained || random.random_range(0..3) > 0);
        product.hints.occupancy = product.hints.occupancy.filter(|&blocks| blocks <= 2);
    }
    product
}
