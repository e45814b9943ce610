//! Tiles that fill the registers, used again after they were reduced: read a second time, unless
//! memory has changed.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.lean("large/block", |session| rows(session, [3, 65536], [1, 65536], None, Along::Rows));
    suite.test("large/rows", |session| rows(session, [3, 8192], [1, 8192], ONE_WARP, Along::Rows));
    suite.test("large/ragged_rows", |session| rows(session, [2, 15_001], [1, 16_384], ONE_WARP, Along::Rows));
    suite.test("large/columns", |session| rows(session, [200, 90], [128, 64], ONE_WARP, Along::Columns));
    suite.test("large/many_rows", |session| rows(session, [150, 100], [64, 128], ONE_WARP, Along::Rows));
    suite.test("large/overwritten", overwritten);
    suite.test("large/closure", closure);
}

/// A warp has few registers for so large a tile as a tile block of many.
const ONE_WARP: Option<u32> = Some(1);

/// Along which axis of a tile its elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Along {
    Rows,
    Columns,
}

/// x less its largest element, and that by how much all such differences come to: three passes over
/// x.
fn passes(x: Array<i32, 2>, y: ArrayMut<i32, 2>, (tile, along): ([usize; 2], Along)) {
    let axis = usize::from(along == Along::Rows);
    let at = [ct::bid(0), ct::bid(1)];
    let x = x.load(at, tile);
    let below = x.reduce_max(axis) - x;
    let sum = (below * below).sum(axis);
    y.store(at, below ^ sum);
}

fn rows(session: Session, shape: [usize; 2], tile: [usize; 2], num_warps: Option<u32>, along: Along) -> Result<()> {
    // Tile IR's assembler takes minutes for the largest.
    if num_warps.is_none() && session.through_tile_ir() {
        return Ok(());
    }
    let data = random::<i32>(5, shape[0] * shape[1], Spread::Any);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<i32, 2>(shape)?;
    let grid = [shape[0].div_ceil(tile[0]), shape[1].div_ceil(tile[1])];
    let mut hints = ct::Hints::new();
    hints.num_warps = num_warps;
    session.launch_with(hints, passes, grid, (&x, &mut y, Constant((tile, along))))?;
    if session.only_compiles() {
        return Ok(());
    }
    // Elements outside of the array are 0.
    let element = |at: [usize; 2]| if at[0] < shape[0] && at[1] < shape[1] { data[ravel(at, shape)] } else { 0 };
    let line = |[i, j]: [usize; 2]| -> Vec<i32> {
        match along {
            Along::Rows => (0..tile[1]).map(|k| element([i, j / tile[1] * tile[1] + k])).collect(),
            Along::Columns => (0..tile[0]).map(|k| element([i / tile[0] * tile[0] + k, j])).collect(),
        }
    };
    let mut known = std::collections::HashMap::new();
    let mut results = vec![0; data.len()];
    for i in 0..shape[0] {
        for j in 0..shape[1] {
            let name = match along {
                Along::Rows => [i, j / tile[1]],
                Along::Columns => [i / tile[0], j],
            };
            let (most, sum) = *known.entry(name).or_insert_with(|| {
                let line = line([i, j]);
                let most = *line.iter().max().unwrap();
                let squares = line.iter().map(|&x| most.wrapping_sub(x).wrapping_mul(most.wrapping_sub(x)));
                (most, squares.fold(0i32, i32::wrapping_add))
            });
            results[ravel([i, j], shape)] = most.wrapping_sub(element([i, j])) ^ sum;
        }
    }
    let name = format!("three passes, tiles {tile:?}");
    session.check(&name, &y, &|at| Want::exactly(results[ravel(at, shape)]))
}

/// The row is written between its reduction and the second use of the loaded tile.
fn overwrites(y: ArrayMut<i32, 2>, z: ArrayMut<i32, 2>, tile: [usize; 2]) {
    let at = (ct::bid(0), ct::scalar(0));
    let x = y.load(at, tile);
    let sum = x.sum(1);
    y.store(at, sum.broadcast_to(tile));
    z.store(at, x ^ sum);
}

fn overwritten(session: Session) -> Result<()> {
    let shape = [2, 8192];
    let data = random::<i32>(6, shape[0] * shape[1], Spread::Any);
    let mut y = session.array(&data, shape)?;
    let mut z = session.unwritten::<i32, 2>(shape)?;
    let hints = ct::Hints::new().num_warps(1);
    session.launch_with(hints, overwrites, [shape[0]], (&mut y, &mut z, Constant([1, shape[1]])))?;
    let sum = |i: usize| data[i * shape[1]..(i + 1) * shape[1]].iter().fold(0i32, |sum, &x| sum.wrapping_add(x));
    let sums = [sum(0), sum(1)];
    session.check("what was read", &z, &|at| Want::exactly(data[ravel(at, shape)] ^ sums[at[0]]))?;
    session.check("what was written", &y, &|at| Want::exactly(sums[at[0]]))
}

/// Combined by a closure of several operations, over a row and over its first half.
fn exclusive_or(x: Array<i32, 2>, y: ArrayMut<i32, 2>, tile: [usize; 2]) {
    let at = (ct::bid(0), ct::scalar(0));
    let x = x.load(at, tile);
    let either = x.reduce(1, 0, |a, b| (a & !b) | (!a & b));
    y.store(at, (x.reduce_min(1) ^ either) - x);
}

fn closure(session: Session) -> Result<()> {
    let shape = [2, 8000];
    let data = random::<i32>(7, shape[0] * shape[1], Spread::Any);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<i32, 2>(shape)?;
    let hints = ct::Hints::new().num_warps(1);
    session.launch_with(hints, exclusive_or, [shape[0]], (&x, &mut y, Constant([1, 8192])))?;
    let of = |i: usize| {
        let row = &data[i * shape[1]..(i + 1) * shape[1]];
        row.iter().fold(0, |a, b| a ^ b) ^ row.iter().fold(0, |a: i32, &b| a.min(b))
    };
    let combined = [of(0), of(1)];
    session.check("a closure over rows", &y, &|at| Want::exactly(combined[at[0]].wrapping_sub(data[ravel(at, shape)])))
}
