//! Conditions that launches check, and code that relies on them.

use anyhow::{Result, bail, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("require/equal", equal);
    suite.test("require/multiple", multiple);
    suite.test("require/bounds", bounds);
}

/// A launch whose condition does not hold.
fn refused(session: Session, launch: Result<()>, message: &str) -> Result<()> {
    match launch {
        Ok(()) if session.only_compiles() => Ok(()),
        Ok(()) => bail!("launched although `{message}`"),
        // ExportedKernel code is not told which condition it is.
        Err(_) if matches!(session, Session::InterpretTileIr(_)) => Ok(()),
        Err(error) => {
            ensure!(matches!(error.downcast_ref(), Some(ct::Error::Argument(_))), "{error}");
            ensure!(error.to_string().contains(message), "{error}");
            Ok(())
        }
    }
}

/// Arrays whose extents are told apart only by the condition: of other divisors, contiguity and
/// offsets.
fn equal(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let (n, m) = (a.extent(1), b.extent(0));
        ct::require!(n.eq(m), "inner extents {n} and {m}");
        ct::require!(c.extent(0).eq(a.extent(0)) & c.extent(1).eq(b.extent(1)), "outer extents");
        let (i, j) = (ct::bid(0), ct::bid(1));
        let sum = ct::fold(..b.num_tiles(0, [16, 32]), ct::zeros([32, 32]), |sum, k| {
            let (a, b) = (a.load((i, k), [32, 16]), b.load((k, j), [16, 32]));
            sum + (a.unsqueeze(2) * b.unsqueeze(0)).sum(1).squeeze(1)
        });
        c.store((i, j), sum);
    }
    for [m, n, k] in [[33, 37, 48], [64, 32, 21], [5, 70, 1]] {
        let (a, b) = (random::<f32>(1, m * k, Spread::Whole(9)), random::<f32>(2, k * n, Spread::Whole(9)));
        let (da, db) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
        let mut c = session.unwritten::<f32, 2>([m, n])?;
        let grid = [m.div_ceil(32), n.div_ceil(32)];
        session.launch(kernel, grid, (&da, &db, &mut c))?;
        session.check("products", &c, &|[i, j]| {
            let terms = (0..k).map(|x| a[ravel([i, x], [m, k])] * b[ravel([x, j], [k, n])]);
            Want::SumOf(terms.map(f64::from).sum())
        })?;
        let other = session.array(&[0.0; 7], [7, 1])?;
        let mut wrong = session.unwritten::<f32, 2>([m, 1])?;
        let launch = session.launch(kernel, [1, 1], (&da, &other, &mut wrong));
        refused(session, launch, &format!("inner extents {k} and 7"))?;
        session.check("not written", &wrong, &|_| Want::exactly(crate::harness::unwritten::<f32>()))?;
    }
    Ok(())
}

/// Code without checks at the edges, and with wide accesses.
fn multiple(session: Session) -> Result<()> {
    fn kernel(x: Array<i16, 2>, y: ArrayMut<i16, 2>, factor: Scalar<i16>) {
        let (rows, columns) = (x.extent(0), x.extent(1));
        ct::require!((columns % 64).eq(0) & (rows & 7).eq(0), "{rows} rows of {columns}");
        ct::require!(y.extent(0).eq(rows) & columns.eq(y.extent(1)));
        let at = (ct::bid(0), ct::bid(1));
        y.store(at, x.load(at, [8, 64]) * factor);
    }
    for shape in [[8, 64], [24, 192], [40, 320]] {
        let data = random::<i16>(3, shape[0] * shape[1], Spread::Any);
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<i16, 2>(shape)?;
        session.launch(kernel, [shape[0] / 8, shape[1] / 64], (&x, &mut y, 3i16))?;
        session.check("products", &y, &|at| Want::exactly(data[ravel(at, shape)].wrapping_mul(3)))?;
    }
    for shape in [[8, 32], [4, 64], [16, 80]] {
        let x = session.array(&vec![1i16; shape[0] * shape[1]], shape)?;
        let mut y = session.unwritten::<i16, 2>(shape)?;
        let launch = session.launch(kernel, [1, 1], (&x, &mut y, 3i16));
        refused(session, launch, &format!("{} rows of {}", shape[0], shape[1]))?;
    }
    Ok(())
}

/// Number arguments of several types, the grid, and bounds that make divisions shifts.
fn bounds(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, n: Scalar<i64>, scale: Scalar<f32>, limit: Scalar<u8>) {
        ct::require!(n.ge(0) & n.lt(1 << 20), "n = {n}");
        ct::require!(scale.gt(0.0) & scale.le(2.5), "scale = {scale:.2}");
        ct::require!(limit.gt(200) & ct::num_blocks(0).ge(2), "limit {limit}, {} blocks", ct::num_blocks(0));
        let i = ct::bid(0);
        let x = (n / 16 % 1024).cast::<i32>() + ct::arange(0..64) * i;
        y.store(i, (x.cast::<f32>() * scale).cast::<i32>() + limit.cast::<i32>());
    }
    let mut y = session.unwritten::<i32, 1>([150])?;
    for (n, scale) in [(0i64, 1.0f32), ((1 << 20) - 1, 2.5), (77_777, 0.5)] {
        session.launch(kernel, [3], (&mut y, n, scale, 201u8))?;
        session.check("numbers", &y, &|[at]| {
            let x = (n / 16 % 1024) as i32 + (at % 64 * (at / 64)) as i32;
            Want::exactly((x as f32 * scale) as i32 + 201)
        })?;
    }
    let cases = [
        (-1, 1.0, 201, 3, "n = -1"),
        (1 << 20, 1.0, 201, 3, "n = 1048576"),
        (5, f32::NAN, 201, 3, "scale = "),
        (5, 2.625, 201, 3, "scale = 2.6"),
        (5, 1.0, 200, 3, "limit 200, 3 blocks"),
        (5, 1.0, 255, 1, "limit 255, 1 blocks"),
    ];
    for (n, scale, limit, blocks, message) in cases {
        let launch = session.launch(kernel, [blocks], (&mut y, n, scale, limit));
        refused(session, launch, message)?;
    }
    Ok(())
}
