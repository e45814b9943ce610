//! Random kernels with a promise of independent rows. The bits of a row of accepted kernels are
//! equal for all other rows, numbers of rows and grids. Each rule of the analysis refuses kernels
//! whose bits differ: the comparison finds an analysis without the rule.

use std::collections::BTreeMap;

use cutlet as ct;
use cutlet::prelude::*;

const COLUMNS: usize = 8;
/// Rows of a tile.
const TILE: usize = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Numbers that a kernel knows.
#[derive(Clone, Copy, Debug)]
enum Number {
    Tile,
    Block,
    Blocks,
    Rows,
    Columns,
    Counter,
}

/// A step: most have the last two tiles as operands.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The tile of rows at a distance.
    Load(i32),
    Pointers(i32),
    Weights,
    Sum(usize),
    Scan(usize),
    Sort(usize),
    Largest,
    Add,
    Select,
    Times(Number),
    Flat,
    Halves,
    Transposed,
    Fold(Number),
    Scratch,
    While,
}

/// Distribution of the tiles of rows among tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A tile each.
    One,
    /// Every n-th tile.
    Strided,
    /// As `Strided`, and the result of the last tile is carried.
    Carried,
}

#[derive(Clone, Debug)]
struct Kernel {
    share: Share,
    steps: Vec<Step>,
    guard: Option<[Number; 2]>,
    by_pointers: bool,
    early: bool,
}

impl Kernel {
    fn new(seed: u64) -> Kernel {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 77);
        let number = |random: &mut Random| match random.below(6) {
            0 => Number::Tile,
            1 => Number::Block,
            2 => Number::Blocks,
            3 => Number::Rows,
            4 => Number::Columns,
            _ => Number::Counter,
        };
        let share = [Share::One, Share::One, Share::Strided, Share::Carried][random.below(4)];
        let mut steps = vec![Step::Load(0)];
        for _ in 0..1 + random.below(4) {
            // One of four operations along rows or to other rows.
            let (axis, distance) = (usize::from(random.below(5) > 0), i32::from(random.below(5) == 0));
            steps.push(match random.below(19) {
                0 | 1 => Step::Load(distance),
                2 => Step::Pointers(distance),
                3 => Step::Weights,
                4 => Step::Sum(axis),
                5 => Step::Scan(axis),
                6 | 7 => Step::Sort(axis),
                8 => Step::Largest,
                9 | 10 => Step::Add,
                11 => Step::Select,
                12 => Step::Times(number(&mut random)),
                13 => Step::Flat,
                14 => Step::Halves,
                15 => Step::Transposed,
                16 => Step::Fold(number(&mut random)),
                17 => Step::Scratch,
                _ => Step::While,
            });
        }
        let guard = [number(&mut random), number(&mut random)];
        Kernel {
            share,
            steps,
            guard: (random.below(6) == 0).then_some(guard),
            by_pointers: random.below(4) == 0,
            early: random.below(10) == 0,
        }
    }

    /// Computes the result of a tile of rows.
    fn tile(&self, (x, w): (Array<f32, 2>, Array<f32, 1>), number: &dyn Fn(Number) -> Scalar<i32>) -> Tile<f32, 2> {
        let (id, full) = (number(Number::Tile), [TILE, COLUMNS]);
        let mut last = ct::ones::<f32, 2>(full);
        let mut tile = ct::zeros::<f32, 2>(full);
        for &step in &self.steps {
            let next = match step {
                Step::Load(distance) => x.load((id + distance, 0), full),
                Step::Pointers(distance) => {
                    let rows = ct::arange(0..TILE).unsqueeze(1) + (id + distance) * TILE as i32;
                    x.gather((rows, ct::arange(0..COLUMNS).unsqueeze(0)))
                }
                Step::Weights => w.load(0, [COLUMNS]).unsqueeze(0).broadcast_to(full),
                Step::Sum(axis) => tile.sum(axis).broadcast_to(full),
                Step::Scan(axis) => tile.cumsum(axis),
                Step::Sort(axis) => tile.sort(axis),
                Step::Largest => tile.top_k(1, 2).0.sum(1).broadcast_to(full) + last,
                Step::Add => tile * 0.75 + last,
                Step::Select => tile.gt(last).select(last * 0.5, tile),
                Step::Times(of) => tile * (number(of) + 2).cast::<f32>(),
                Step::Flat => tile.reshape([TILE * COLUMNS]).reshape([TILE, 2, COLUMNS / 2]).reshape(full) + last,
                Step::Halves => {
                    let half = [TILE, COLUMNS / 2];
                    ct::cat([tile.extract((0, 1), half), tile.extract((0, 0), half)], 1)
                }
                Step::Transposed => tile.reshape([COLUMNS, TILE]).transpose(),
                Step::Fold(of) => {
                    let weights = w.load(0, [COLUMNS]).unsqueeze(0);
                    ct::fold(..(number(of) & 7), tile, |sum, k| sum * 0.5 + weights * k.cast::<f32>())
                }
                Step::Scratch => {
                    let own = ct::scratch::<f32, 2>(full);
                    own.store((0, 0), tile);
                    own.load((0, 0), full) + last
                }
                Step::While => {
                    let limit = tile.extract((0, 0), [1, 1]).sum(..).item();
                    let start = (ct::scalar(0.0f32), tile);
                    ct::while_loop(start, |(k, _)| k.lt(limit.min(3.0)), |(k, sum)| (k + 1.0, sum * 0.5)).1
                }
            };
            (last, tile) = (tile, next);
        }
        tile
    }

    fn body(&self, x: Array<f32, 2>, w: Array<f32, 1>, y: ArrayMut<f32, 2>, promised: bool) {
        if promised {
            ct::require_rowwise(0).constant(w);
        }
        let store = |id: Scalar<i32>, counter: Scalar<i32>, carried: Tile<f32, 2>| {
            let number = |of: Number| match of {
                Number::Tile => id,
                Number::Block => ct::bid(0),
                Number::Blocks => ct::num_blocks(0),
                Number::Rows => x.extent(0),
                Number::Columns => x.extent(1),
                Number::Counter => counter,
            };
            let result = self.tile((x, w), &number);
            let stored = if self.share == Share::Carried { result + carried } else { result };
            let write = || match self.by_pointers {
                true => {
                    let rows = ct::arange(0..TILE).unsqueeze(1) + id * TILE as i32;
                    y.scatter((rows, ct::arange(0..COLUMNS).unsqueeze(0)), stored);
                }
                false => y.store((id, 0), stored),
            };
            if self.early && self.share == Share::One {
                ct::return_if(x.entry((0, 0)).load().gt(0.0));
            }
            match self.guard {
                Some([a, b]) => ct::if_then(number(a).le(number(b)), write),
                None => write(),
            }
            result
        };
        let zeros = ct::zeros::<f32, 2>([TILE, COLUMNS]);
        let tiles = ct::range(ct::bid(0), y.num_tiles(0, [TILE, COLUMNS])).step(ct::num_blocks(0));
        match self.share {
            Share::One => {
                store(ct::bid(0), ct::scalar(0), zeros);
            }
            Share::Strided => {
                ct::fold(tiles, ct::scalar(0), |counter, id| {
                    store(id, counter, zeros);
                    counter + 1
                });
            }
            Share::Carried => {
                ct::fold(tiles, zeros, |carried, id| store(id, ct::scalar(0), carried) * 0.5);
            }
        }
    }

    /// Returns the reason of a refusal.
    fn refusal(&self) -> Option<String> {
        let (x, w) = (ct::ArraySpec::<f32, 2>::new([16, COLUMNS]), ct::ArraySpec::<f32, 1>::new([COLUMNS]));
        let kernel = |x: Array<f32, 2>, w: Array<f32, 1>, y: ArrayMut<f32, 2>| self.body(x, w, y, true);
        ct::inspect(kernel, (x, w, x.mutable())).ir().err().map(|error| error.to_string())
    }

    /// Returns the bits of a row, without the promise.
    fn row(&self, row: usize, [rows, blocks, seed]: [usize; 3]) -> Vec<u32> {
        let device = ct::Device::cpu();
        let value = |i: usize, j: usize| {
            let other = if i == row { 0 } else { seed };
            ((i * 31 + j * 17 + other * 101) % 23) as f32 * 0.37 - 4.0
        };
        let x = device.from_fn([rows, COLUMNS], |[i, j]| value(i, j)).unwrap();
        let w = device.from_fn([COLUMNS], |[j]| 0.5 + j as f32 * 0.3).unwrap();
        let mut y = device.full([rows, COLUMNS], -1.0f32).unwrap();
        let grid = if self.share == Share::One { rows / TILE } else { blocks };
        let unpromised = |x: Array<f32, 2>, w: Array<f32, 1>, y: ArrayMut<f32, 2>| self.body(x, w, y, false);
        ct::launch(unpromised, grid, (&x, &w, &mut y)).unwrap();
        y.to_vec().unwrap()[row * COLUMNS..][..COLUMNS].iter().map(|x| x.to_bits()).collect()
    }

    /// Returns a launch in which the bits of a row are others.
    fn differing(&self) -> Option<(usize, [usize; 3])> {
        [1, 6, 9].into_iter().find_map(|row| {
            let base = self.row(row, [16, 4, 0]);
            let others = [[16, 4, 1], [16, 4, 2], [16, 1, 0], [16, 3, 0], [32, 4, 0], [12, 2, 1]];
            others.into_iter().find(|&launch| self.row(row, launch) != base).map(|launch| (row, launch))
        })
    }
}

/// Parts of the messages of the rules.
const RULES: [&str; 4] = ["combines the rows", "another row", "different rows", "the grid or on the number of rows"];

#[test]
fn accepted_kernels_have_independent_rows() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("CUTLET_RANDOM_SEED").unwrap_or(0);
    let count: u64 = number("CUTLET_RANDOM_COUNT").unwrap_or(150);
    let (mut accepted, mut needless) = (0, 0);
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in first..first + count {
        let kernel = Kernel::new(seed);
        let (refusal, differing) = (kernel.refusal(), kernel.differing());
        let Some(message) = refusal else {
            assert_eq!(differing, None, "{seed}: row and launch differ: {kernel:?}");
            accepted += 1;
            continue;
        };
        assert!(message.contains("random_rows.rs"), "{seed}: {message}");
        needless += usize::from(differing.is_none());
        if differing.is_some() {
            let rule = RULES.into_iter().find(|rule| message.contains(rule)).unwrap_or("others");
            *found.entry(rule).or_default() += 1;
        }
    }
    println!("of {count} kernels: {accepted} accepted, {needless} refused without a differing bit, else {found:?}");
    assert!(accepted * 5 > count, "{accepted} of {count} kernels are accepted");
    assert!(RULES.iter().all(|rule| found.contains_key(rule)), "{found:?}");
}
