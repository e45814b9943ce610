//! Arrays that are cut on the host, and stores that cast.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::CastTo;
use cutlet::prelude::*;
use cutlet::{ByPointer, Ptr, TiledView};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.lean("partition/grids", grids);
    suite.lean("partition/parts", parts);
    suite.lean("partition/splits", splits);
    suite.lean("partition/addresses", addresses);
    macro_rules! casts {
        ($($from:ident $to:ident)+) => {$(
            let name = concat!("partition/stores/", stringify!($from), "_as_", stringify!($to));
            suite.lean(name, stores::<$from, $to>);
        )+};
    }
    casts!(f32 f16 f32 bf16 f64 f32 i32 f32 f32 i8 u8 i64 i64 u8);
}

fn outer(a: TiledView<Array<f32, 1>, 1>, c: TiledView<ArrayMut<f32, 2>, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    c.store([i, j], a.load(i).unsqueeze(1) + a.load(j).unsqueeze(0));
}

fn grids(session: Session) -> Result<()> {
    let data: Vec<f32> = (0..50).map(|i| i as f32).collect();
    let a = session.array(&data, [50])?;
    for extent in [16, 32, 48] {
        let mut c = session.unwritten::<f32, 2>([50, 50])?;
        let tiles = c.partition_mut([extent, extent])?;
        assert_eq!((tiles.grid(), tiles.tile()), ([50usize.div_ceil(extent); 2], [extent; 2]));
        session.launch(outer, tiles.grid(), (a.partition([extent])?, tiles))?;
        session.check(&format!("tiles of {extent}"), &c, &|[i, j]| Want::exactly((i + j) as f32))?;
    }
    Ok(())
}

fn marked(c: TiledView<ArrayMut<i32, 2>, 2>) {
    let at = [ct::bid(0), ct::bid(1)];
    c.store(at, at[0] * 100 + at[1]);
}

/// Rows 10 to 20 of an array.
fn parts(session: Session) -> Result<()> {
    let mut c = session.array(&vec![-1; 2500], [50, 50])?;
    let mut part = c.view_mut().slice(0, 10..20)?;
    let tiles = part.partition_mut([4, 16])?;
    session.launch(marked, tiles.grid(), (tiles,))?;
    let want = |[i, j]: [usize; 2]| match i {
        10..20 => Want::exactly(((i - 10) / 4 * 100 + j / 16) as i32),
        _ => Want::exactly(-1),
    };
    session.check("part", &c, &want)
}

fn ends(x: Array<i32, 2>, low: ArrayMut<i32, 2>, high: ArrayMut<i32, 2>) {
    let (at, tile) = ([ct::bid(0), ct::bid(1)], [16, 16]);
    let x = x.load(at, tile);
    low.store(at, x + 1);
    high.store(at, -x);
}

/// Both parts of one array are written by one launch, and one of them is read by the next launch.
fn splits(session: Session) -> Result<()> {
    let data: Vec<i32> = (0..2000).collect();
    for (axis, at, parts) in [(0, 20, [[20, 50], [30, 50]]), (1, 21, [[50, 21], [50, 29]])] {
        let x = session.array(&data, [40, 50])?;
        let mut c = session.array(&vec![-1; 2500], [50, 50])?;
        let (mut low, mut high) = c.split_at_mut(axis, at)?;
        assert_eq!([low.shape(), high.shape()], parts);
        session.launch(ends, [4, 4], (&x, &mut low, &mut high))?;
        let (low, high) = (low.as_view(), high.reborrow());
        let (mut left, mut right) = high.split_at_mut(1, 10)?;
        session.launch(ends, [4, 4], (&low, &mut left, &mut right))?;
        let x = move |i: usize, j: usize| if i < 40 && j < 50 { (50 * i + j) as i32 } else { 0 };
        let low = move |i: usize, j: usize| if i < parts[0][0] && j < parts[0][1] { x(i, j) + 1 } else { 0 };
        let want = move |[i, j]: [usize; 2]| {
            if [i, j][axis] < at {
                return Want::exactly(low(i, j));
            }
            let mut index = [i, j];
            index[axis] -= at;
            match index[1] {
                0..10 => Want::exactly(low(index[0], index[1]) + 1),
                _ => Want::exactly(-low(index[0], index[1] - 10)),
            }
        };
        session.check(&format!("axis {axis}"), &c, &want)?;
    }
    Ok(())
}

fn copied(x: Ptr<i32>, y: Ptr<i32>, n: Scalar<i32>) {
    let at = ct::bid(0) * 64 + ct::arange(0..64);
    let inside = at.lt(n);
    // SAFETY: both have `n` elements, and `y` is given as `&mut`.
    unsafe {
        let found = x.offset(at).load_with(ct::GatherOptions::new().mask(inside));
        y.offset(at).store_with(found, ct::ScatterOptions::new().mask(inside));
    }
}

/// Arrays of which the kernel gets the addresses alone.
fn addresses(session: Session) -> Result<()> {
    let data: Vec<i32> = (0..200).collect();
    let x = session.array(&data, [200])?;
    let mut y = session.unwritten::<i32, 1>([150])?;
    let part = x.slice(0, 50..200)?;
    session.launch(copied, [3], (ByPointer(&part), ByPointer(&mut y), 150))?;
    session.check("copy", &y, &|[i]| Want::exactly(i as i32 + 50))
}

fn stored_as<S: CastTo<T>, T: Element>(x: Array<S, 1>, y: ArrayMut<T, 1>, z: ArrayMut<T, 1>, by_cast: ArrayMut<T, 1>) {
    let i = ct::bid(0);
    y.store_as(i, x.load(i, [64]));
    z.tiled([64]).store_as(i, x.load(i, [64]));
    by_cast.store(i, x.load(i, [64]).cast::<T>());
}

/// Stores with a conversion equal those of `cast`.
fn stores<S: CastTo<T>, T: Element>(session: Session) -> Result<()> {
    let x = session.array(&random::<S>(7, 100, Spread::Whole(100)), [100])?;
    let mut arrays = [0; 3].map(|_| session.unwritten::<T, 1>([100]));
    let [Ok(y), Ok(z), Ok(by_cast)] = &mut arrays else { anyhow::bail!("no memory") };
    session.launch(stored_as::<S, T>, [2], (&x, &mut *y, &mut *z, &mut *by_cast))?;
    let want = by_cast.to_vec()?;
    session.check("stored", y, &|[i]| Want::Bits(want[i].to_bits()))?;
    session.check("stored through a view", z, &|[i]| Want::Bits(want[i].to_bits()))
}
