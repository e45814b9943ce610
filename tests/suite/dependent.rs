//! Launches that may start before the kernel in front of them has ended, and promises about
//! numbers.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};
use crate::test_sample::one_in;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("dependent/chain", chain);
    suite.test("dependent/product", product);
    suite.test("assume/bounds", assumed);
}

const TILE: usize = 256;

/// Kernels that each read the elements that other blocks of the previous one have written.
fn chain(session: Session) -> Result<()> {
    fn waits(x: Array<i32, 1>, y: ArrayMut<i32, 1>, steps: Array<i32, 1>) {
        let block = ct::bid(0);
        let step = steps.load_scalar(block % steps.extent(0));
        ct::grid_dependency_control_wait();
        let other = (block * 7 + 3) % ct::num_blocks(0);
        let tile = x.load(other, [TILE]);
        ct::grid_dependency_control_launch_dependents();
        let slow = ct::fold(..100, tile, |tile, i| tile * 3 + i + step);
        y.store(block, slow);
    }
    /// Waits at its start, because it has no explicit wait.
    fn plain(x: Array<i32, 1>, y: ArrayMut<i32, 1>, steps: Array<i32, 1>) {
        let block = ct::bid(0);
        y.store(block, x.load((block + 1) % ct::num_blocks(0), [TILE]) + steps.load_scalar(0));
    }
    let (blocks, steps) = (100, [5, -3, 11]);
    let host = random::<i32>(1, blocks * TILE, Spread::Any);
    let device_steps = session.array(&steps, [3])?;
    let (mut x, mut y) = (session.array(&host, [host.len()])?, session.unwritten::<i32, 1>([host.len()])?);
    let Session::Run(_) = session else {
        session.launch(waits, [blocks], (&x, &mut y, &device_steps))?;
        let expected = after(&host, blocks, &steps, true);
        return session.check("one", &y, &|[i]| Want::exactly(expected[i]));
    };
    // SAFETY: before they wait, kernels read nothing but the steps.
    let launch = unsafe { ct::Launch::new(blocks).programmatic_dependent_launch() };
    let mut expected = host;
    for round in 0..12 / one_in(3) {
        match round % 3 {
            2 => launch.launch(plain, (&x, &mut y, &device_steps))?,
            _ => launch.launch(waits, (&x, &mut y, &device_steps))?,
        }
        expected = after(&expected, blocks, &steps, round % 3 != 2);
        std::mem::swap(&mut x, &mut y);
    }
    session.check("the last", &x, &|[i]| Want::exactly(expected[i]))
}

/// Returns the result of one kernel of the chain for an array.
fn after(x: &[i32], blocks: usize, steps: &[i32], waits: bool) -> Vec<i32> {
    let element = |i: usize| {
        let (block, inner) = (i / TILE, i % TILE);
        if !waits {
            return x[(block + 1) % blocks * TILE + inner].wrapping_add(steps[0]);
        }
        let start = x[(block * 7 + 3) % blocks * TILE + inner];
        (0..100).fold(start, |tile, i| tile.wrapping_mul(3).wrapping_add(i).wrapping_add(steps[block % steps.len()]))
    };
    (0..x.len()).map(element).collect()
}

/// A product whose operands come after the wait: also the warps that load wait.
fn product(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        ct::grid_dependency_control_wait();
        let acc = ct::fold(..a.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            ct::mma(a.load((i, k), [64, 64]), b.load((k, j), [64, 64]), acc)
        });
        ct::grid_dependency_control_launch_dependents();
        c.store((i, j), acc);
    }
    let [m, n, k] = [128, 128, 448];
    let (a, b) = (random::<f16>(2, m * k, Spread::Whole(3)), random::<f16>(3, k * n, Spread::Whole(3)));
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    session.launch(kernel, [2, 2], (&device_a, &device_b, &mut c))?;
    session.check("product", &c, &|[i, j]| {
        let terms = (0..k).map(|l| a[i * k + l].to_f64() * b[l * n + j].to_f64());
        Want::exactly(terms.sum::<f64>() as f32)
    })
}

/// Promises that are kept change nothing.
fn assumed(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i64, 1>, start: Scalar<i32>, wide: Scalar<u64>) {
        // SAFETY: the launch below keeps to all of these.
        let (start, wide, by) = unsafe {
            let by = ct::num_blocks(0).assume_bounds(1..);
            (start.assume_divisible_by(64).assume_bounds(0..=4096), wide.assume_bounds(..10), by)
        };
        let tile = x.load(start / 64, [64]);
        // SAFETY: as above: the numbers are below 100, and twice them even.
        let (small, even) = unsafe { (tile.assume_bounds(-99..100), (tile * 2).assume_divisible_by(6)) };
        let turns = ct::fold(ct::range(0, 17).step(by), ct::scalar(0i64), |n, i| n + i.cast::<i64>());
        y.store(0, (small / 2 + even % 2).cast::<i64>() + wide.cast::<i64>() / 2 + turns);
    }
    let data = random::<i32>(4, 300, Spread::Whole(99));
    let x = session.array(&data, [300])?;
    let mut y = session.unwritten::<i64, 1>([64])?;
    session.launch(kernel, [1], (&x, &mut y, 128, 9u64))?;
    session.check("halves", &y, &|[i]| Want::exactly(i64::from(data[128 + i] / 2) + 4 + (0..17).sum::<i64>()))
}
