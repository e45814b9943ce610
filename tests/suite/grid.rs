//! Grids: block indices of all sizes, and values that are computed from them.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::harness::{Session, Suite, Want, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("grid/axes", axes);
    suite.test("grid/more_than_24_bits", more_than_24_bits);
    suite.test("grid/largest", largest);
}

/// The block's place along every axis, and the extents of the grid.
fn axes(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 3>, z: ArrayMut<i32, 1>) {
        let at = [0, 1, 2].map(ct::bid);
        y.store(at, (at[0] * 100 + at[1] * 10 + at[2]).broadcast_to([1, 1, 1]));
        ct::if_then((at[0] + at[1] + at[2]).eq(0), || {
            (0..3).for_each(|axis| z.store_scalar(axis, ct::num_blocks(axis)))
        });
    }
    let grid = [5, 3, 2];
    let (mut y, mut z) = (session.unwritten::<i32, 3>(grid)?, session.unwritten::<i32, 1>([3])?);
    session.launch(kernel, grid, (&mut y, &mut z))?;
    session.check("places", &y, &|[i, j, k]| Want::exactly((100 * i + 10 * j + k) as i32))?;
    session.check("extents", &z, &|[axis]| Want::exactly(grid[axis] as i32))
}

/// Checks that Tile IR refuses a launch. Returns true if there are no results to check.
fn is_refused(session: Session, launched: Result<()>) -> Result<bool> {
    if !session.through_tile_ir() || session.only_compiles() {
        return launched.map(|()| session.only_compiles());
    }
    let error = launched.expect_err("a grid of 2^24 blocks").to_string();
    ensure!(error.contains("limits"), "{error}");
    Ok(true)
}

/// Blocks from 2^24 on decide and store as others do. Their tiles of 256 elements start at 2^32 and
/// later: where 32 bits wrap, that is at the start of the array.
fn more_than_24_bits(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, last: ArrayMut<i32, 1>, first: i32) {
        let i = ct::bid(0);
        ct::if_then(i.ge(first), || {
            y.store(i, i.broadcast_to([256]));
            last.store_scalar(i - first, ct::num_blocks(0));
        });
    }
    // The unoptimized interpreter takes a minute for all blocks; its numbers all have 64 bits.
    let fewer =
        cutlet_reference::HAS_ASSERTIONS && matches!(session, Session::Run(device) if device == ct::Device::cpu());
    let first = if fewer { 1 << 18 } else { 1 << 24 };
    let blocks = first + 3;
    let (mut y, mut last) = (session.unwritten::<i32, 1>([300])?, session.unwritten::<i32, 1>([5])?);
    let args = (&mut y, &mut last, ct::Constant(first as i32));
    if is_refused(session, session.launch(kernel, [blocks], args))? {
        return Ok(());
    }
    session.check("outside", &y, &|_| Want::exactly(unwritten::<i32>()))?;
    session.check("the last blocks", &last, &|[i]| Want::exactly(if i < 3 { blocks as i32 } else { unwritten() }))
}

/// The last block of the largest grid; on GPUs, which go through it in seconds.
fn largest(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>) {
        let i = ct::bid(0);
        ct::if_then(i.eq(ct::num_blocks(0) - 1), || y.store_scalar(0, i));
    }
    let mut y = session.unwritten::<i32, 1>([1])?;
    let is_slow = |device: ct::Device| device.target().is_none();
    let blocks = match session {
        Session::Run(device) if is_slow(device) => 1000,
        _ => i32::MAX as usize,
    };
    if is_refused(session, session.launch(kernel, [blocks], (&mut y,)))? {
        return Ok(());
    }
    session.check("the last block", &y, &|_| Want::exactly(blocks as i32 - 1))
}
