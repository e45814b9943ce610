//! Random kernels: a verdict agrees with the checks of the interpreter. No data decides in these
//! kernels, so each property is proved or refuted.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;
use cutlet::{Checks, Proof, Verdict};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// An index of a kernel.
#[derive(Clone, Debug)]
enum Index {
    Number(i32),
    Block(usize),
    Iteration,
    Binary(u8, Box<[Index; 2]>),
}

impl Index {
    fn random(random: &mut Random, depth: usize) -> Index {
        match random.below(if depth == 0 { 4 } else { 9 }) {
            0 => Index::Number(random.below(6) as i32),
            1 | 2 => Index::Block(random.below(2)),
            3 => Index::Iteration,
            _ => {
                let both = [Index::random(random, depth - 1), Index::random(random, depth - 1)];
                Index::Binary(random.below(8) as u8, Box::new(both))
            }
        }
    }

    fn traced(&self, iteration: Scalar<i32>) -> Scalar<i32> {
        match self {
            Index::Number(number) => ct::scalar(*number),
            Index::Block(axis) => ct::bid(*axis),
            Index::Iteration => iteration,
            Index::Binary(code, both) => {
                let [a, b] = both.as_ref();
                let (a, b) = (a.traced(iteration), b.traced(iteration));
                match code {
                    0 | 1 => a + b,
                    2 => a - b,
                    3 => a * b,
                    4 => a.floor_div(b.max(1)),
                    5 => a % b.max(1),
                    6 => a.min(b),
                    _ => a.max(b),
                }
            }
        }
    }
}

/// A kernel that stores tiles, and loads some of the same array.
#[derive(Clone, Debug)]
pub(crate) struct Random2 {
    grid: [usize; 2],
    extents: [usize; 2],
    tile: [usize; 2],
    trips: i32,
    store: [Index; 2],
    guard: Option<[Index; 2]>,
    load: Option<[Index; 2]>,
    pointers: bool,
}

impl Random2 {
    pub(crate) fn new(seed: u64) -> Random2 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut pair = |depth: usize| [Index::random(&mut random, depth), Index::random(&mut random, depth)];
        let (simple, store, guard, load) = ([Index::Block(0), Index::Block(1)], pair(2), pair(1), pair(2));
        let tile = [1 << random.below(2), 1 << random.below(3)];
        let grid = [1 + random.below(4), 1 + random.below(4)];
        // Half of the kernels are near to a partition, where a property holds.
        let near = random.below(2) == 0;
        let extents = if near {
            [grid[0] * tile[0] - random.below(tile[0]), grid[1] * tile[1] - random.below(tile[1])]
        } else {
            [1 + random.below(12), 1 + random.below(12)]
        };
        let store = if near && random.below(3) > 0 { simple.clone() } else { store };
        let load = match random.below(3) {
            0 => None,
            1 => Some(simple),
            _ => Some(load),
        };
        Random2 {
            grid,
            extents,
            tile,
            trips: 1 + random.below(3) as i32,
            store,
            guard: (random.below(3) == 0).then_some(guard),
            load,
            pointers: random.below(3) == 0,
        }
    }

    fn body(&self, y: ArrayMut<i32, 2>, k: Scalar<i32>) {
        let at = |index: &[Index; 2]| (index[0].traced(k), index[1].traced(k));
        let store = || {
            let loaded = self.load.as_ref().map(|load| y.load(at(load), self.tile));
            let value = loaded.map_or(ct::ones::<i32, 2>(self.tile), |tile| tile.max(1));
            let (i, j) = at(&self.store);
            if self.pointers {
                let [rows, columns] = self.tile;
                let rows = ct::arange(0..rows as i32).reshape([rows, 1]) + i * rows as i32;
                let columns = ct::arange(0..columns as i32).reshape([1, columns]) + j * columns as i32;
                y.scatter((rows, columns), value);
            } else {
                y.store((i, j), value);
            }
        };
        match &self.guard {
            Some([a, b]) => ct::if_then(a.traced(k).le(b.traced(k)), store),
            None => store(),
        }
    }

    fn kernel(&self) -> impl Fn(ArrayMut<i32, 2>) + '_ {
        |y: ArrayMut<i32, 2>| ct::for_each(..self.trips, |k| self.body(y, k))
    }

    fn proof(&self) -> Proof {
        let y = ct::ArraySpec::<i32, 2>::new(self.extents).mutable();
        ct::prove(self.kernel(), self.grid, (y,), Property::ALL).unwrap()
    }

    /// Returns the error of a launch with these checks, and the elements.
    pub(crate) fn run(&self, checks: Checks) -> (Option<String>, Vec<i32>) {
        let mut y = ct::Device::cpu().zeros::<i32, 2>(self.extents).unwrap();
        let launch = ct::Launch::new(self.grid).checks(checks).backend(ct::Backend::Cpu);
        let error = launch.launch(self.kernel(), (&mut y,)).err().map(|error| error.to_string());
        (error, y.to_vec().unwrap())
    }
}

impl Random2 {
    /// Launches without needless checks, and returns the elements.
    pub(crate) fn run_proved(&self) -> ct::Result<Vec<i32>> {
        let mut y = ct::Device::cpu().zeros::<i32, 2>(self.extents)?;
        ct::Launch::new(self.grid).proved().launch(self.kernel(), (&mut y,))?;
        y.to_vec()
    }
}

fn decided(proof: &Proof, property: Property) -> bool {
    match proof.verdict(property) {
        Some(Verdict::Proved) => true,
        Some(Verdict::Refuted(_)) => false,
        _ => panic!("{property} is not decided: {proof}"),
    }
}

/// Compares the verdicts of kernels with the checks. Returns how many properties hold.
fn compare(seeds: std::ops::Range<u64>) -> [usize; 4] {
    let mut held = [0; 4];
    for seed in seeds {
        let kernel = Random2::new(seed);
        let proof = kernel.proof();
        let run = |checks| kernel.run(checks).0;
        let [bounds, unique, covers, no_race] =
            [Bounds, UniqueWrites, Covers, NoRace].map(|property| decided(&proof, property));
        let problem = run(Checks { bounds: true, ..Checks::none() });
        assert_eq!(bounds, problem.is_none(), "{seed}: {kernel:?}\n{proof}\n{problem:?}");
        let problem = run(Checks { races: true, ..Checks::none() });
        assert_eq!(no_race, problem.is_none(), "{seed}: {kernel:?}\n{proof}\n{problem:?}");
        assert!(unique || !no_race, "{seed}: {kernel:?}\n{proof}");
        if kernel.load.is_none() {
            assert_eq!(unique, no_race, "{seed}: {kernel:?}\n{proof}");
        }
        // A kernel that stores nothing has no array that it must cover.
        let elements = kernel.run(Checks::none()).1;
        assert_eq!(covers, !elements.contains(&0), "{seed}: {kernel:?}\n{proof}\n{elements:?}");
        for (count, holds) in held.iter_mut().zip([bounds, unique, covers, no_race]) {
            *count += usize::from(holds);
        }
    }
    held
}

#[test]
fn verdicts_agree_with_the_checks() {
    let first = std::env::var("CUTLET_RANDOM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let count = std::env::var("CUTLET_RANDOM_COUNT").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let held = compare(first..first + count);
    println!("of {count} kernels hold: bounds, unique writes, covers, no race: {held:?}");
    assert!(held.iter().all(|&holds| holds > 0 && holds < count as usize), "{held:?}");
}
