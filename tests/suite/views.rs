//! Tiles at element offsets, tiles that overlap or leave gaps: loads and stores across every edge of arrays with odd
//! extents, contiguous and not.

use anyhow::Result;
use cutlet as ct;
use cutlet::LoadOptions;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("views/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(loads_at: f64 f32 f16 i64 u8 bool);
    each!(stores_at: f64 f32 f16 i64 u8 bool);
    each!(known_offsets: f32 f16 u8);
    each!(stepped: f64 f32 f16 u8);
    suite.lean("views/far_offsets", far_offsets);
    suite.lean("views/padded", padded);
    suite.lean("views/transposed", transposed);
    suite.lean("views/neighbours", neighbours);
    suite.lean("views/in_place", in_place);
}

const SHAPE: [usize; 2] = [37, 83];
const OFFSETS: [[i32; 2]; 9] = [[0, 0], [-1, 0], [0, -1], [3, -5], [-7, 16], [16, -15], [-100, 2], [2, 90], [-15, -31]];

/// The element of a row-major array that is moved by an offset, if it is inside.
fn moved(at: [usize; 2], by: [i64; 2], shape: [usize; 2]) -> Option<usize> {
    let from: [i64; 2] = std::array::from_fn(|d| at[d] as i64 + by[d]);
    let inside = from.iter().zip(shape).all(|(&i, extent)| (0..extent as i64).contains(&i));
    inside.then(|| ravel(from.map(|i| i as usize), shape))
}

fn grid(shape: [usize; 2], tile: [usize; 2]) -> [usize; 2] {
    [shape[0].div_ceil(tile[0]), shape[1].div_ceil(tile[1])]
}

fn load_at<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, i: Scalar<i32>, j: Scalar<i64>, tile: [usize; 2]) {
    let (a, b) = (ct::bid(0), ct::bid(1));
    let at = (ct::at(a * tile[0] + i), ct::at((b * tile[1]).cast::<i64>() + j));
    y.store((a, b), x.load(at, tile));
}

fn loads_at<T: Element>(session: Session) -> Result<()> {
    let data = random::<T>(1, SHAPE.iter().product(), Spread::Any);
    let x = session.array(&data, SHAPE)?;
    for (tile, offset) in [[8, 32], [32, 4], [1, 128]].into_iter().flat_map(|t| OFFSETS.map(|o| (t, o))) {
        let mut y = session.unwritten::<T, 2>(SHAPE)?;
        let by = offset.map(i64::from);
        let args = (&x, &mut y, offset[0], by[1], Constant(tile));
        session.launch(load_at::<T>, grid(SHAPE, tile), args)?;
        let want = |at| Want::SameBits(moved(at, by, SHAPE).map_or(0, |from| data[from].to_bits()));
        session.check(&format!("tiles {tile:?} loaded at {offset:?}"), &y, &want)?;
    }
    Ok(())
}

fn store_at<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, i: Scalar<i32>, j: Scalar<i32>, tile: [usize; 2]) {
    let (a, b) = (ct::bid(0), ct::bid(1));
    y.store((ct::at(a * tile[0] + i), ct::at(b * tile[1] + j)), x.load((a, b), tile));
}

fn stores_at<T: Element>(session: Session) -> Result<()> {
    // Whole tiles: what is loaded as padding would overwrite its neighbour.
    let (from, tile) = ([32, 64], [8, 32]);
    let data = random::<T>(2, from.iter().product(), Spread::Any);
    let x = session.array(&data, from)?;
    for offset in OFFSETS {
        let mut y = session.unwritten::<T, 2>(SHAPE)?;
        session.launch(store_at::<T>, grid(from, tile), (&x, &mut y, offset[0], offset[1], Constant(tile)))?;
        let by = offset.map(|o| -i64::from(o));
        let want = |at| {
            let bits = moved(at, by, from).map_or(unwritten::<T>().to_bits(), |from| data[from].to_bits());
            Want::SameBits(bits)
        };
        session.check(&format!("tiles stored at {offset:?}"), &y, &want)?;
    }
    Ok(())
}

/// Offsets that are known while tracing: aligned ones take wide accesses, also before and behind the array.
fn known_offsets<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2], by: [i32; 2]) {
        let (a, b) = (ct::bid(0), ct::bid(1));
        let at = (ct::at(a * tile[0] + by[0]), ct::at(b * tile[1] + by[1]));
        y.store((a, b), x.load(at, tile));
    }
    for (shape, tile) in [(SHAPE, [8, 32]), ([48, 96], [16, 32])] {
        let data = random::<T>(3, shape.iter().product(), Spread::Any);
        let x = session.array(&data, shape)?;
        for by in [[-16, -16], [0, -8], [-1, 48], [5, -2], [-3, -64], [0, 64]] {
            let mut y = session.unwritten::<T, 2>(shape)?;
            session.launch(kernel::<T>, grid(shape, tile), (&x, &mut y, Constant(tile), Constant(by)))?;
            let want = |at| Want::SameBits(moved(at, by.map(i64::from), shape).map_or(0, |i| data[i].to_bits()));
            session.check(&format!("{shape:?} by {tile:?} at {by:?}"), &y, &want)?;
        }
    }
    Ok(())
}

/// Offsets that no 32-bit number holds, and the ends of those.
fn far_offsets(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>, offsets: Array<i64, 1>) {
        let i = ct::bid(0);
        y.store(i, x.load(ct::at(offsets.load_scalar(i)), [16]));
    }
    let offsets = [
        i64::MIN,
        i64::MIN + 16,
        -1 << 40,
        -(1 << 32) - 1,
        -1 << 32,
        -1 << 31,
        -16,
        -15,
        -3,
        -1,
        0,
        5,
        99,
        100,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        (1 << 32) + 1,
        1 << 62,
        i64::MAX - 15,
        i64::MAX,
    ];
    let data: Vec<i32> = (1..=100).collect();
    let (x, list) = (session.array(&data, [100])?, session.array(&offsets, [offsets.len()])?);
    let mut y = session.unwritten::<i32, 1>([16 * offsets.len()])?;
    session.launch(kernel, [offsets.len()], (&x, &mut y, &list))?;
    let want = |[at]: [usize; 1]| {
        let from = i128::from(offsets[at / 16]) + (at % 16) as i128;
        Want::SameBits(if (0..100).contains(&from) { from as u64 + 1 } else { 0 })
    };
    session.check("far offsets", &y, &want)
}

fn padded(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, by: Scalar<i32>) {
        let options = LoadOptions::new().padding(Padding::NegInf).order([1, 0]);
        y.store((0, 0), x.load_with((ct::at(by), ct::at(by * 2)), [64, 32], options));
    }
    let data = random::<f32>(4, 20 * 40, Spread::Moderate);
    let x = session.array(&data, [20, 40])?;
    for by in [-9, 0, 4, 30] {
        let mut y = session.unwritten::<f32, 2>([64, 32])?;
        session.launch(kernel, [1], (&x, &mut y, by))?;
        let want = |[i, j]: [usize; 2]| {
            let from = moved([j, i], [2 * i64::from(by), by.into()], [20, 40]);
            Want::SameBits(from.map_or(f32::NEG_INFINITY, |from| data[from]).to_bits().into())
        };
        session.check(&format!("padded at {by}"), &y, &want)?;
    }
    Ok(())
}

fn stepped<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 4>, tile: [usize; 2], step: [usize; 2], by: Scalar<i32>) {
        let view = x.tiles(tile).step(step);
        let [tm, tn] = tile;
        ct::for_each(view.along(0), (), |a, ()| {
            ct::for_each(view.along(1), (), |b, ()| {
                let part = view.load((a + by, b + by));
                y.tiles([1, 1, tm, tn]).store((a, b, 0, 0), part.reshape([1, 1, tm, tn]));
            });
        });
    }
    let data = random::<T>(5, SHAPE.iter().product(), Spread::Any);
    let x = session.array(&data, SHAPE)?;
    for (tile, step) in [([8, 32], [8, 16]), ([4, 16], [3, 20]), ([16, 8], [1, 64]), ([4, 8], [40, 7])] {
        let count = grid(SHAPE, step);
        for by in [0, -1, -2, 1] {
            let shape = [count[0], count[1], tile[0], tile[1]];
            let mut y = session.unwritten::<T, 4>(shape)?;
            session.launch(kernel::<T>, [1], (&x, &mut y, Constant(tile), Constant(step), by))?;
            let want = |[a, b, i, j]: [usize; 4]| {
                let start = [a, b].map(|n| n as i64 + i64::from(by));
                let from = moved([i, j], [start[0] * step[0] as i64, start[1] * step[1] as i64], SHAPE);
                Want::SameBits(from.map_or(0, |from| data[from].to_bits()))
            };
            session.check(&format!("tiles {tile:?} every {step:?}, {by} on"), &y, &want)?;
        }
    }
    Ok(())
}

/// A transposed view of every third column: no axis is contiguous, and strides are large beside extents.
fn transposed(session: Session) -> Result<()> {
    let base = [21, 100];
    let data = random::<f32>(6, base.iter().product(), Spread::Any);
    let x = session.array(&data, base)?;
    for offset in [[-1, -1], [-20, 3], [30, -20], [2, 2]] {
        let view = x.view().step(1, 3)?.transpose()?;
        let shape = view.shape();
        let mut y = session.unwritten::<f32, 2>(shape)?;
        let args = (view, &mut y, offset[0], i64::from(offset[1]), Constant([16, 8]));
        session.launch(load_at::<f32>, grid(shape, [16, 8]), args)?;
        let want = |at| {
            let from = moved(at, offset.map(i64::from), shape);
            Want::SameBits(
                from.map_or(0, |from| data[ravel([from % shape[1], 3 * (from / shape[1])], base)].to_bits().into()),
            )
        };
        session.check(&format!("a transposed view at {offset:?}"), &y, &want)?;
    }
    Ok(())
}

/// Five points around each element.
fn neighbours(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, [tm, tn]: [usize; 2]) {
        let (a, b) = (ct::bid(0), ct::bid(1));
        let at = |di: i32, dj: i32| x.load((ct::at(a * tm + di), ct::at(b * tn + dj)), [tm, tn]);
        y.store((a, b), at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - at(0, 0) * 4);
    }
    for (shape, tile) in [(SHAPE, [8, 64]), ([64, 256], [16, 128])] {
        let data = random::<i32>(7, shape.iter().product(), Spread::Any);
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<i32, 2>(shape)?;
        session.launch(kernel, grid(shape, tile), (&x, &mut y, Constant(tile)))?;
        let want = |at| {
            let near = |by| moved(at, by, shape).map_or(0, |from| data[from]);
            let around = [[-1, 0], [1, 0], [0, -1], [0, 1]].map(near).iter().fold(0i32, |sum, &x| sum.wrapping_add(x));
            Want::SameBits(around.wrapping_sub(near([0, 0]).wrapping_mul(4)) as u32 as u64)
        };
        session.check("five points", &y, &want)?;
    }
    Ok(())
}

/// One block reads what it wrote at other offsets: other threads hold those elements.
fn in_place(session: Session) -> Result<()> {
    fn kernel(x: ArrayMut<i32, 1>) {
        let doubled = x.load(0, [256]) * 2;
        x.store(0, doubled);
        let shifted = x.load(ct::at(-1), [256]) + x.load(ct::at(3), [256]);
        x.store(ct::at(5), shifted);
        x.store(0, x.load(ct::at(2), [256]));
    }
    let mut x = session.array(&(1..=256).collect::<Vec<i32>>(), [256])?;
    session.launch(kernel, [1], (&mut x,))?;
    let doubled = |i: i32| if (0..256).contains(&i) { 2 * (i + 1) } else { 0 };
    let second = |i: i32| match i {
        0..5 => doubled(i),
        5..256 => doubled(i - 6) + doubled(i - 2),
        _ => 0,
    };
    session.check("in place", &x, &|[i]| Want::SameBits(second(i as i32 + 2) as u32 as u64))
}
