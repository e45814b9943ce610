//! Kernels of the radix sort, and their tiles.

use cutlet as ct;
use cutlet::layout::{Modes, local, spatial};
use cutlet::prelude::*;
use cutlet::{Hints, Stream};

use crate::launch::target;
use crate::order::key::{Direction, Key};

/// Bits of a digit.
const BITS: usize = 8;
/// Values of a digit.
pub const BINS: usize = 1 << BITS;
/// States of a count in its two upper bits. Other words are unknown yet.
const OWN: u32 = 1 << 30;
const ALL: u32 = 2 << 30;
/// Tiles that one step of the look-back reads. The rate of tiles is that of steps times this
/// number.
const WINDOW: usize = 16;

/// Tiles of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    warps: usize,
    /// Elements of a thread.
    elements: usize,
    /// Tile blocks of a multiprocessor.
    blocks: u32,
}

impl Tiles {
    /// A thread has sixteen keys of 4 bytes or eight of 8 bytes in registers.
    pub fn new(key: usize, has_values: bool) -> Tiles {
        match (key, has_values) {
            (..=4, _) => Tiles { warps: 8, elements: 16, blocks: 3 },
            (_, false) => Tiles { warps: 8, elements: 8, blocks: 3 },
            (_, true) => Tiles { warps: 8, elements: 8, blocks: 2 },
        }
    }

    /// Returns the number of elements of a tile.
    pub fn tile(self) -> usize {
        32 * self.warps * self.elements
    }
}

/// The tiles of a sort, its direction, and the kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub tile: usize,
    warps: usize,
    pub blocks: u32,
    /// Layouts are chosen for the code of this device.
    layouts: bool,
    direction: Direction,
}

impl Plan {
    pub fn new(tiles: Tiles, stream: &Stream, direction: Direction) -> Plan {
        let Tiles { warps, blocks, .. } = tiles;
        Plan { tile: tiles.tile(), warps, blocks, layouts: target(stream).is_some(), direction }
    }

    pub fn hints(self) -> Hints {
        Hints::new().num_warps(self.warps as u32).occupancy(self.blocks)
    }

    /// A warp has adjacent elements, 32 of them in a register: the layout of ranks.
    fn by_warp<T: ByteSized>(self, tile: Tile<T, 1>) -> Tile<T, 1> {
        self.with(tile, spatial([self.warps as i64]) * local([(self.tile / self.warps / 32) as i64]) * spatial([32]))
    }

    /// Adjacent threads have adjacent elements.
    fn by_thread<T: ByteSized>(self, tile: Tile<T, 1>) -> Tile<T, 1> {
        let threads = 32 * self.warps as i64;
        self.with(tile, local([self.tile as i64 / threads]) * spatial([threads]))
    }

    fn with<T: ByteSized>(self, tile: Tile<T, 1>, layout: Modes) -> Tile<T, 1> {
        if self.layouts { tile.with_layout(layout) } else { tile }
    }

    /// Returns the digits of a pass in the order of the direction.
    fn digits<K: Key>(self, keys: Tile<K, 1>, pass: usize) -> Tile<i32, 1> {
        let digits = K::digits(keys, pass * BITS, BITS).cast::<i32>();
        if self.direction == Direction::Descending { (BINS as i32 - 1) - digits } else { digits }
    }
}

/// Counts the values of all digits in shared memory, and adds them up.
pub fn count<K: Key>(keys: Array<K, 1>, counts: ArrayMut<i32, 2>, plan: Plan) {
    let passes = 8 * size_of::<K>() / BITS;
    let own = ct::scratch::<i32, 1>([passes * BINS]);
    own.store(0, ct::zeros([passes * BINS]));
    let tiles = ct::range(ct::bid(0), keys.num_tiles(0, [plan.tile])).step(ct::num_blocks(0));
    ct::fold(tiles, (), |(), i| {
        let inside = (ct::arange(0..plan.tile) + i * plan.tile).lt(keys.extent(0));
        let options = ct::AtomicOptions::new().relaxed(ct::Scope::Block).mask(inside);
        let tile = keys.load(i, [plan.tile]);
        for pass in 0..passes {
            own.atomic_add_with(plan.digits(tile, pass) + (pass * BINS) as i32, 1, options);
        }
    });
    counts.atomic_store_add((0, 0), own.load(0, [passes * BINS]).reshape([passes, BINS]));
}

/// Stores the sums of the counts before in a row, and clears counts and tickets for the next sort.
pub fn starts(counts: ArrayMut<i32, 2>, starts: ArrayMut<i32, 2>, tickets: ArrayMut<i32, 1>, passes: usize) {
    let all = counts.load((0, 0), [passes, BINS]);
    starts.store((0, 0), all.cumsum_with(1, ct::ScanOptions::new().exclusive()));
    counts.store((0, 0), ct::zeros([passes, BINS]));
    tickets.store(0, ct::zeros([passes]));
}

/// Arrays of a pass: starts and tickets of all passes; counts of tiles of this pass, and of the
/// next one to be cleared.
type State = (Array<i32, 2>, ArrayMut<i32, 1>, ArrayMut<u32, 2>, ArrayMut<u32, 2>);

/// Sums of the counts of all tiles before `mine`, from the starts on.
fn look_back(tiles: ArrayMut<u32, 2>, start: Tile<i32, 1>, mine: Scalar<i32>) -> Tile<i32, 1> {
    let options = ct::GatherOptions::<u32, 1>::new().relaxed(ct::Scope::Device).padding(ALL);
    let bins = ct::arange(0..BINS);
    let found = bins.lt(0);
    let state = (mine - 1, start, found);
    let (_, sum, _) = ct::loop_with_control(state, |(last, sum, found): (_, Tile<i32, 1>, _), control| {
        let words: Vec<_> = (0..WINDOW).map(|back| tiles.gather_with((last - back, bins), options)).collect();
        let (mut next, mut all, mut unknown) = (sum, found, bins.lt(0));
        for word in words {
            unknown |= !all & word.lt(OWN);
            next = ct::select(all, next, next + (word & (OWN - 1)).cast::<i32>());
            all |= word.ge(ALL);
        }
        // 0: to be read again. 1: to be continued. 2: found.
        let progress = (!unknown).select(all.cast::<i32>() + 1, 0).reduce_min(0).item();
        control.continue_if(progress.eq(0), (last, sum, found));
        control.break_if(progress.eq(2), (last, next, all));
        (last - WINDOW, next, all)
    });
    sum
}

/// A pass over a digit. Values are positions if there is no array of them.
pub fn pass<K: Key, V: Number>(
    (keys, sorted): (Array<K, 1>, ArrayMut<K, 1>),
    (values, sorted_values): (Option<Array<V, 1>>, Option<ArrayMut<V, 1>>),
    (starts, tickets, tiles, next): State,
    (plan, number): (Plan, usize),
) {
    let tile = plan.tile;
    let mine = tickets.entry(number as i32).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    next.store((mine, 0), ct::zeros([1, BINS]));
    let elements = plan.by_warp(keys.load(mine, [tile]));
    let left = keys.extent(0) - mine * tile;
    let numbers = ct::arange(0..tile);
    // Elements beyond the end are the last ones of their tile.
    let digits = ct::select(numbers.lt(left), plan.digits(elements, number), BINS as i32 - 1);
    // The counts are published before the ranks are known: later tiles wait for them.
    let counts = digits.histogram(BINS);
    let publish = |words: Tile<u32, 1>| {
        tiles.scatter_with((mine, ct::arange(0..BINS)), words, ct::ScatterOptions::new().relaxed(ct::Scope::Device));
    };
    // The first tile begins at the starts, and knows all.
    let bins = ct::arange(0..BINS);
    let is_first = ct::full::<i32, 1>([BINS], mine).eq(0);
    let start = starts.gather_with((number as i32, bins), ct::GatherOptions::new().mask(is_first));
    publish((start + counts).cast::<u32>() | is_first.select(ALL, OWN));
    let (ranks, _) = digits.ranks(BINS);
    let before = counts.cumsum_with(0, ct::ScanOptions::new().exclusive());
    let places = ranks + before.gather(0, digits);
    let own = ct::scratch::<K, 1>([tile]);
    own.scatter(places, elements);
    let own_values = sorted_values.map(|_| {
        let own = ct::scratch::<V, 1>([tile]);
        let values = match values {
            Some(values) => plan.by_warp(values.load(mine, [tile])),
            None => (numbers + mine * tile).cast::<V>(),
        };
        own.scatter(places, values);
        own
    });
    let sums = look_back(tiles, start, mine);
    publish((sums + counts).cast::<u32>() | ALL);
    let elements = plan.by_thread(own.load(0, [tile]));
    let places = (sums - before).gather(0, plan.digits(elements, number)) + numbers;
    let options = ct::ScatterOptions::new().mask(numbers.lt(left));
    sorted.scatter_with(places, elements, options);
    if let (Some(own), Some(values)) = (own_values, sorted_values) {
        values.scatter_with(places, plan.by_thread(own.load(0, [tile])), options);
    }
}
