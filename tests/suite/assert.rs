//! Assertions: those that hold cost nothing but their test, those that fail become the error of the
//! next wait.

use anyhow::{Result, bail, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("assert/holds", holds);
    suite.alone("assert/scalar", scalar);
    suite.alone("assert/tile", tile);
    suite.alone("assert/types", types);
    suite.alone("assert/again", again);
    suite.alone("assert/in_loops", in_loops);
}

/// The error of a launch in which an assertion fails; `None` where nothing runs, or a failure would
/// cost the context.
fn failure(session: Session, launch: impl FnOnce() -> Result<()>) -> Result<Option<String>> {
    if matches!(session, Session::RunTileIr(_)) {
        return Ok(None);
    }
    match launch() {
        Ok(()) if session.only_compiles() => Ok(None),
        Ok(()) => bail!("nothing failed"),
        Err(error) => Ok(Some(error.to_string())),
    }
}

fn check(session: Session, error: Option<String>, accepts: impl Fn(&str) -> bool) -> Result<()> {
    let Some(error) = error else { return Ok(()) };
    // Tile IR reports the message without values.
    if session.through_tile_ir() {
        ensure!(error.contains("assertion failed"), "{error}");
        return Ok(());
    }
    ensure!(accepts(&error), "{error}");
    Ok(())
}

/// There is no message and no change.
fn holds(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let at = (ct::bid(0), ct::bid(1));
        let x = x.load(at, [8, 32]);
        ct::assert!(x.abs().le(9.0), "{x} in {}", at.0);
        ct::assert!(x.sum(..).item().le(1e9));
        ct::assert!(at.0.lt(ct::num_blocks(0)), "100 %, without values");
        y.store(at, x + 1.0);
    }
    let shape = [30, 70];
    let data = random::<f32>(1, 2100, Spread::Whole(9));
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f32, 2>(shape)?;
    session.launch(kernel, [4, 3], (&x, &mut y))?;
    session.check("sums", &y, &|at| Want::exactly(data[ravel(at, shape)] + 1.0))
}

/// One value fails in one block.
fn scalar(session: Session) -> Result<()> {
    const PLACE: u32 = line!() + 3;
    fn kernel(limit: Scalar<i64>) {
        let (block, n) = (ct::bid(1), ct::bid(1).cast::<i64>() * 10_000_000_000);
        ct::assert!(
            n.ne(limit),
            "n = {n:+} of {limit:x}, 100 %, in block {block}, half: {:.2}",
            block.cast::<f32>() / 2.0
        );
    }
    let error = failure(session, || session.launch(kernel, [1, 20], (70_000_000_000i64,)))?;
    check(session, error, |error| {
        let message = "assertion failed: n = +70000000000 of 104c533c00, 100 %, in block 7, half: 3.50";
        error.contains(&format!("assert.rs:{PLACE}:9: {message}\n  in tile block (0, 7, 0)"))
    })
}

/// Elements fail: one of them is named, with its value.
fn tile(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, rows: Array<f64, 1>) {
        let at = (ct::bid(0), ct::bid(1));
        let (x, scale) = (x.load(at, [16, 64]), rows.load(at.0, [16]).unsqueeze(1));
        ct::assert!(x.lt(1000), "{x} beside {scale:.1}");
    }
    let shape = [64, 256];
    let mut data = random::<i32>(2, 64 * 256, Spread::Whole(999));
    let bad = [(37, 201), (38, 192), (47, 255)];
    for (number, &(i, j)) in bad.iter().enumerate() {
        data[ravel([i, j], shape)] = 1000 + number as i32;
    }
    let rows: Vec<f64> = (0..64).map(|i| f64::from(i) * 0.5).collect();
    let (x, rows) = (session.array(&data, shape)?, session.array(&rows, [64])?);
    let error = failure(session, || session.launch(kernel, [4, 4], (&x, &rows)))?;
    check(session, error, |error| {
        let fails = |&(i, j): &(usize, usize), number: usize| {
            let message = format!(
                "assertion failed: {} beside {:.1} (element [{}, {}])",
                1000 + number,
                i as f64 * 0.5,
                i % 16,
                j % 64
            );
            error.contains(&message) && error.contains("in tile block (2, 3, 0)")
        };
        bad.iter().enumerate().any(|(number, place)| fails(place, number))
    })
}

/// Values of every type, in conditions of one element.
fn types(session: Session) -> Result<()> {
    fn kernel(n: Scalar<i32>) {
        let all = ct::full::<i32, 1>([1], n);
        let (x, flag) = (n.cast::<f32>() / 2.0, n.gt(0));
        let (wide, narrow) = (n.cast::<u64>(), n.cast::<i8>());
        ct::assert!(
            all.gt(0),
            "{n} {x} {flag} {wide:x} {narrow} {} {} {}",
            x.cast::<f16>(),
            x.cast::<f64>(),
            n.cast::<u16>()
        );
    }
    let error = failure(session, || session.launch(kernel, [1], (-7,)))?;
    check(session, error, |error| error.contains("failed: -7 -3.5 0 fffffffffffffff9 -7 -3.5 -3.5 65529"))
}

/// A failure is reported once, and later launches succeed.
fn again(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, limit: Scalar<i32>) {
        let i = ct::bid(0);
        ct::assert!(i.lt(limit));
        y.store_scalar(i, i + limit);
    }
    let mut y = session.unwritten::<i32, 1>([8])?;
    for limit in [8, 3, 8, 0, 8] {
        if limit == 8 {
            session.launch(kernel, [8], (&mut y, limit))?;
            session.check("sums", &y, &|[i]| Want::exactly(i as i32 + 8))?;
        } else {
            let error = failure(session, || session.launch(kernel, [8], (&mut y, limit)))?;
            check(session, error, |error| error.contains("assertion failed\n  in tile block ("))?;
        }
    }
    Ok(())
}

/// Several assertions in loops and branches: the one that fails is named.
fn in_loops(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, y: ArrayMut<f32, 2>) {
        let acc = ct::fold(..x.num_tiles(1, [64, 64]), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            let tile = x.load((0, k), [64, 64]);
            ct::assert!(k.ge(0), "never");
            ct::if_then(k.gt(1), || ct::assert!(tile.lt(f16::from_f32(5.0)), "{tile} in round {k}"));
            ct::mma(tile, tile, acc)
        });
        y.store((0, 0), acc);
    }
    let shape = [64, 256];
    let mut data = vec![f16::from_f32(1.0); 64 * 256];
    data[ravel([3, 5], shape)] = f16::from_f32(8.0);
    data[ravel([60, 200], shape)] = f16::from_f32(6.5);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f32, 2>([64, 64])?;
    let error = failure(session, || session.launch(kernel, [1], (&x, &mut y)))?;
    check(session, error, |error| error.contains("assertion failed: 6.5 in round 3 (element [60, 8])"))
}
