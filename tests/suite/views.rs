//! Tiles at element offsets, tiles that overlap or leave gaps, tiles with one axis at listed
//! positions: loads and stores across every edge of arrays with odd extents, contiguous and not.

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
    each!(listed_rows: f64 f32 f16 i64);
    // Bytes one by one, each with an address and a mask: they may spill.
    suite.test("views/listed_rows/u8", listed_rows::<u8>);
    suite.test("views/listed_rows/bool", listed_rows::<bool>);
    each!(listed_columns: f32 f16 u8);
    suite.lean("views/listed_stores", listed_stores);
    suite.lean("views/listed_far", listed_far);
    suite.lean("views/listed_ranks", listed_ranks);
    suite.lean("views/listed_in_place", listed_in_place);
    suite.lean("views/listed_product", listed_product);
    each!(sliced: f64 f32 f16 u8);
    suite.lean("views/every_nth", every_nth);
    suite.lean("views/one_index", one_index);
    suite.lean("views/reshaped", reshaped);
    suite.lean("views/parts_overlap", parts_overlap);
    suite.lean("views/far_offsets", far_offsets);
    suite.lean("views/padded", padded);
    suite.lean("views/transposed", transposed);
    suite.lean("views/stencil", stencil);
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
    // Whole tiles: loaded padding would overwrite the adjacent tile.
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

/// Offsets that are known while tracing: wide accesses, of the tile or of the vectors around it,
/// also before and after the array.
fn known_offsets<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2], by: [i32; 2]) {
        let (a, b) = (ct::bid(0), ct::bid(1));
        let at = (ct::at(a * tile[0] + by[0]), ct::at(b * tile[1] + by[1]));
        y.store((a, b), x.load(at, tile));
    }
    for (shape, tile) in [(SHAPE, [8, 32]), ([48, 96], [16, 32])] {
        let data = random::<T>(3, shape.iter().product(), Spread::Any);
        let x = session.array(&data, shape)?;
        let aligned = [[-16, -16], [0, -8], [-1, 48], [5, -2], [-3, -64], [0, 64]];
        let beside = [[0, -1], [-1, 1], [2, 3], [0, -31], [1, 33], [0, -33], [0, 95]];
        for by in aligned.into_iter().chain(beside) {
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
        let view = x.tiled(tile).step(step);
        let [tm, tn] = tile;
        ct::fold(view.indices(), (), |(), [a, b]| {
            let part = view.load((a + by, b + by));
            y.tiled([1, 1, tm, tn]).store((a, b, 0, 0), part.reshape([1, 1, tm, tn]));
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

/// A transposed view of every third column: no axis is contiguous, and strides are large relative
/// to extents.
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
fn stencil(session: Session) -> Result<()> {
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

/// One block reads its elements at other offsets: other threads hold them.
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

/// Positions in and around an extent, some of them twice.
fn positions(seed: u64, count: usize, extent: usize) -> Vec<i32> {
    let wild = random::<i32>(seed, count, Spread::Any);
    let near = |p: i32| p.rem_euclid(extent as i32 + 8) - 4;
    wild.iter().enumerate().map(|(i, &p)| if i % 7 == 3 { p } else { near(p) }).collect()
}

fn listed_rows<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, ids: Array<i32, 1>, y: ArrayMut<T, 2>, by: Scalar<i32>, [n, w]: [usize; 2]) {
        let (a, b) = (ct::bid(0), ct::bid(1));
        let rows = ids.load(a, [n]);
        let counted = x.load((ct::at(rows), b), [n, w]);
        let moved = x.load((ct::at(rows.cast::<i64>()), ct::at(b * w + by)), [n, w]);
        y.store((a, b), counted);
        y.store((a + ct::num_blocks(0), b), moved);
    }
    for (shape, tile) in [(SHAPE, [8, 32]), ([48, 96], [32, 16]), ([5, 200], [16, 64]), ([9, 7], [4, 1])] {
        let data = random::<T>(8, shape.iter().product(), Spread::Any);
        let ids = positions(9, 4 * tile[0], shape[0]);
        let (x, list) = (session.array(&data, shape)?, session.array(&ids, [ids.len()])?);
        for by in [-3, 16] {
            let out = [2 * ids.len(), shape[1]];
            let mut y = session.unwritten::<T, 2>(out)?;
            let grid = [4, shape[1].div_ceil(tile[1])];
            session.launch(kernel::<T>, grid, (&x, &list, &mut y, by, Constant(tile)))?;
            let want = |[i, j]: [usize; 2]| {
                let row = i64::from(ids[i % ids.len()]);
                let shift = if i < ids.len() { 0 } else { i64::from(by) };
                Want::SameBits(moved([0, j], [row, shift], shape).map_or(0, |from| data[from].to_bits()))
            };
            session.check(&format!("rows of {shape:?} by {tile:?}, columns moved by {by}"), &y, &want)?;
        }
    }
    Ok(())
}

/// The listed axis is the contiguous one.
fn listed_columns<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, first: Scalar<i32>) {
        let columns = ct::arange(0..32) * 5 + first;
        y.store((ct::bid(0), 0), x.load((ct::bid(0), ct::at(columns)), [8, 32]));
    }
    let data = random::<T>(10, SHAPE.iter().product(), Spread::Any);
    let x = session.array(&data, SHAPE)?;
    for first in [-11, 0, 60] {
        let mut y = session.unwritten::<T, 2>([SHAPE[0], 32])?;
        session.launch(kernel::<T>, [5], (&x, &mut y, first))?;
        let want = |[i, j]: [usize; 2]| {
            let from = moved([i, 0], [0, 5 * j as i64 + i64::from(first)], SHAPE);
            Want::SameBits(from.map_or(0, |from| data[from].to_bits()))
        };
        session.check(&format!("every fifth column from {first} on"), &y, &want)?;
    }
    Ok(())
}

fn listed_stores(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let b = ct::bid(0);
        // 37 and 32 have no common factor: each row once, those outside of the array not at all.
        let rows = ct::arange(0..32) * 7 % 32 * 3 - 20;
        y.store((ct::at(rows), b), x.load((0, b), [32, 32]));
    }
    let data = random::<f32>(11, 32 * 83, Spread::Any);
    let x = session.array(&data, [32, 83])?;
    let mut y = session.unwritten::<f32, 2>(SHAPE)?;
    session.launch(kernel, [3], (&x, &mut y))?;
    let want = |[i, j]: [usize; 2]| {
        let from = (0..32).find(|k| k * 7 % 32 * 3 == i + 20);
        Want::SameBits(from.map_or(unwritten::<f32>(), |k| data[ravel([k, j], [32, 83])]).to_bits().into())
    };
    session.check("rows stored", &y, &want)
}

/// Positions that fit no 32-bit number, and numbers that are large as unsigned ones.
fn listed_far(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, far: Array<i64, 1>, large: Array<u32, 1>, y: ArrayMut<i32, 2>) {
        y.store((0, 0), x.load((ct::at(far.load(0, [16])), 0), [16, 8]));
        y.store((1, 0), x.load((ct::at(large.load(0, [16])), 0), [16, 8]));
        y.store((2, 0), x.load((ct::at(large.load(0, [16]).cast::<u8>()), i64::MAX / 8), [16, 8]));
    }
    let far = [
        0,
        9,
        10,
        -1,
        1 << 32,
        (1 << 32) + 3,
        -(1 << 32) + 3,
        i64::MIN,
        i64::MAX,
        1 << 31,
        1 << 62,
        4,
        5,
        1 << 61,
        7,
        8,
    ];
    let large = far.map(|p| p as u32);
    let data: Vec<i32> = (1..=80).collect();
    let x = session.array(&data, [10, 8])?;
    let (far_list, large_list) = (session.array(&far, [16])?, session.array(&large, [16])?);
    let mut y = session.unwritten::<i32, 2>([48, 8])?;
    session.launch(kernel, [1], (&x, &far_list, &large_list, &mut y))?;
    let want = |[i, j]: [usize; 2]| {
        let row = [far[i % 16], large[i % 16].into(), -1][i / 16];
        Want::SameBits(if (0..10).contains(&row) { row as u64 * 8 + j as u64 + 1 } else { 0 })
    };
    session.check("far positions", &y, &want)
}

fn listed_ranks(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, c: Array<i32, 3>, ids: Array<i32, 1>, y: ArrayMut<i32, 1>, d: ArrayMut<i32, 3>) {
        let ids = ids.load(0, [16]);
        y.store(0, x.load(ct::at(ids), [16]));
        d.store((0, 0, 0), c.load((ct::at(1), ct::at(ids), 1), [2, 16, 4]));
        let order = LoadOptions::new().order([2, 0, 1]).padding(Padding::Zero);
        d.store((1, 0, 0), c.load_with((ct::at(ids), 0, ct::at(-1)), [16, 2, 4], order).permute([1, 0, 2]));
    }
    let (ids, cube) = (positions(12, 16, 9), [3, 9, 7]);
    let data = random::<i32>(13, cube.iter().product(), Spread::Any);
    let (x, c) = (session.array(&data[..9], [9])?, session.array(&data, cube)?);
    let list = session.array(&ids, [16])?;
    let (mut y, mut d) = (session.unwritten::<i32, 1>([16])?, session.unwritten::<i32, 3>([4, 16, 4])?);
    session.launch(kernel, [1], (&x, &c, &list, &mut y, &mut d))?;
    let element = |at: [i64; 3]| {
        let inside = at.iter().zip(cube).all(|(&i, extent)| (0..extent as i64).contains(&i));
        Want::SameBits(if inside { data[ravel(at.map(|i| i as usize), cube)] as u32 as u64 } else { 0 })
    };
    let row = |i: usize| match ids[i] {
        p @ 0..9 => Want::SameBits(data[p as usize] as u32 as u64),
        _ => Want::SameBits(0),
    };
    session.check("one axis", &y, &|[i]| row(i))?;
    session.check("three axes", &d, &|[a, i, b]| {
        let (a, position, b) = (a as i64, i64::from(ids[i]), b as i64);
        if a < 2 { element([a + 1, position, b + 4]) } else { element([a - 2, b - 1, position]) }
    })
}

/// Rows that were written by other threads of the block.
fn listed_in_place(session: Session) -> Result<()> {
    fn kernel(x: ArrayMut<i32, 2>) {
        x.store((0, 0), x.load((0, 0), [16, 32]) * 2);
        let turned = ct::arange_from(16, 15, -1);
        x.store((0, 0), x.load((ct::at(turned), 0), [16, 32]) + 1);
        x.store((ct::at(turned), 0), x.load((0, 0), [16, 32]));
    }
    let mut x = session.array(&(0..512).collect::<Vec<i32>>(), [16, 32])?;
    session.launch(kernel, [1], (&mut x,))?;
    session.check("rows in place", &x, &|[i, j]| Want::SameBits(2 * (32 * i + j) as u64 + 1))
}

/// Listed rows as operands of a product.
fn listed_product(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, w: Array<f16, 2>, ids: Array<i32, 1>, y: ArrayMut<f32, 2>) {
        let rows = ids.load(ct::bid(0), [32]);
        let acc = ct::fold(..x.num_tiles(1, [32, 16]), ct::zeros([32, 32]), |acc, k| {
            ct::mma(x.load((ct::at(rows), k), [32, 16]), w.load((k, 0), [16, 32]), acc)
        });
        y.store((ct::bid(0), 0), acc);
    }
    let number = |i: usize| f16::from_f32((i * 7 % 9) as f32 - 4.0);
    let (x, w): (Vec<f16>, Vec<f16>) =
        ((0..20 * 64).map(number).collect(), (0..64 * 32).map(|i| number(i + 3)).collect());
    let ids = positions(14, 64, 20);
    let (a, b) = (session.array(&x, [20, 64])?, session.array(&w, [64, 32])?);
    let list = session.array(&ids, [64])?;
    let mut y = session.unwritten::<f32, 2>([64, 32])?;
    session.launch(kernel, [2], (&a, &b, &list, &mut y))?;
    session.check("listed rows times a matrix", &y, &|[i, j]| {
        let row = ids[i];
        let product = |k: usize| x[row as usize * 64 + k].to_f32() * w[k * 32 + j].to_f32();
        Want::SumOf(if (0..20).contains(&row) { (0..64).map(product).sum::<f32>().into() } else { 0.0 })
    })
}

/// Slices in the kernel, with ends in any order and anywhere: of loaded and of stored arrays.
fn sliced<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, a: Scalar<i32>, b: Scalar<i32>, c: Scalar<i64>) {
        let part = x.slice(0, ct::range(a, b)).slice(1, c..);
        let out = y.slice(1, ..b);
        out.store((ct::bid(0), ct::bid(1)), part.load((ct::bid(0), ct::bid(1)), [8, 32]));
    }
    let data = random::<T>(15, SHAPE.iter().product(), Spread::Any);
    let x = session.array(&data, SHAPE)?;
    let far = [i64::MIN, -5, 0, 16, 33, 83, 1 << 40];
    for (k, [a, b]) in
        [[0, 37], [5, 30], [-3, 99], [16, 20], [20, 10], [37, 40], [i32::MIN, i32::MAX]].iter().enumerate()
    {
        let c = far[(k * 3) % far.len()];
        let mut y = session.unwritten::<T, 2>(SHAPE)?;
        session.launch(kernel::<T>, grid(SHAPE, [8, 32]), (&x, &mut y, *a, *b, c))?;
        let start = [(*a).clamp(0, 37) as usize, c.clamp(0, 83) as usize];
        let end = (*b).clamp(start[0] as i32, 37) as usize;
        let want = |[i, j]: [usize; 2]| {
            let from = [i + start[0], j + start[1]];
            let bits = match (j as i64) < i64::from(*b) {
                false => unwritten::<T>().to_bits(),
                true if from[0] < end && from[1] < SHAPE[1] => data[ravel(from, SHAPE)].to_bits(),
                true => 0,
            };
            Want::SameBits(bits)
        };
        session.check(&format!("rows {a}..{b}, columns {c}.."), &y, &want)?;
    }
    Ok(())
}

fn every_nth(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, n: Scalar<i32>) {
        let part = x.step(0, 3).step(1, n).swap_axes(0, 1);
        y.store((0, 0), part.load((0, 0), [64, 16]) + part.extent(0) * 1000);
        let _ = part.transpose().stride(0);
    }
    let data: Vec<i32> = (0..37 * 83).collect();
    let x = session.array(&data, SHAPE)?;
    for n in [i32::MIN, 0, 1, 2, 41, 82, 83, 100, i32::MAX] {
        let mut y = session.unwritten::<i32, 2>([64, 16])?;
        session.launch(kernel, [1], (&x, &mut y, n))?;
        let step = n.max(1) as usize;
        let want = |[j, i]: [usize; 2]| {
            let (i, j) = (3 * i, j.saturating_mul(step));
            let inside = i < SHAPE[0] && j < SHAPE[1];
            let count = 83usize.div_ceil(step) * 1000;
            Want::SameBits(if inside { data[ravel([i, j], SHAPE)] as u64 + count as u64 } else { count as u64 })
        };
        session.check(&format!("every {n}-th column"), &y, &want)?;
    }
    Ok(())
}

fn one_index(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 3>, y: ArrayMut<i32, 3>, at: Array<i64, 1>) {
        let k = ct::bid(0);
        let at = at.load_scalar(k);
        y.index_axis(0, k).store((0, 0), x.index_axis(1, at).load((0, 0), [4, 16]));
        let row = x.index_axis(0, at).index_axis(0, 2);
        y.index_axis(0, k + ct::num_blocks(0)).index_axis(0, 1).store(0, row.load(0, [16]));
    }
    let (cube, at) = ([3, 5, 9], [0, 2, 4, 5, -1, 1 << 32, (1 << 32) + 1, i64::MIN]);
    let data = random::<i32>(16, cube.iter().product(), Spread::Any);
    let (x, list) = (session.array(&data, cube)?, session.array(&at, [at.len()])?);
    let mut y = session.unwritten::<i32, 3>([16, 4, 16])?;
    session.launch(kernel, [at.len()], (&x, &mut y, &list))?;
    let want = |[k, i, j]: [usize; 3]| {
        let (index, first) = (at[k % 8], k < 8);
        let from = if first { [i as i64, index, j as i64] } else { [index, 2, j as i64] };
        let inside = from.iter().zip(cube).all(|(&i, extent)| (0..extent as i64).contains(&i));
        let element = if inside { data[ravel(from.map(|i| i as usize), cube)] } else { 0 };
        Want::SameBits((if first || i == 1 { element } else { unwritten::<i32>() }) as u32 as u64)
    };
    session.check("one index of an axis", &y, &want)
}

fn reshaped(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 3>, n: Scalar<i32>) {
        let x = x.reshape((n, 3, 8));
        y.store((0, 0, 0), x.load((0, 0, 0), [8, 4, 8]));
        let flat = y.reshape(y.extent(0) * y.extent(1) * y.extent(2));
        flat.store(ct::at(251), flat.load(0, [8]));
    }
    let data: Vec<i32> = (1..=240).collect();
    for (gap, n) in [(0, 10), (0, 4), (0, 0), (0, -1), (0, 11), (0, i32::MAX), (1, 4)] {
        let x = session.array(&data, [10, 24])?;
        let mut y = session.unwritten::<i32, 3>([8, 4, 8])?;
        // Rows with gaps between them have no other shape.
        let view = x.slice(1, 0..24 - gap)?;
        session.launch(kernel, [1], (view, &mut y, n))?;
        let element = |at: usize| {
            let [i, j, k] = [at / 32, at / 8 % 4, at % 8];
            let inside = gap == 0 && j < 3 && (i as i32) < n.min(10);
            if inside { data[24 * i + 8 * j + k] } else { 0 }
        };
        let want = |at| {
            let at = ravel(at, [8, 4, 8]);
            Want::SameBits(if at >= 251 { element(at - 251) } else { element(at) } as u64)
        };
        session.check(&format!("{n} matrices, gaps of {gap}"), &y, &want)?;
    }
    Ok(())
}

/// Parts of one array that overlap are one memory.
fn parts_overlap(session: Session) -> Result<()> {
    fn kernel(x: ArrayMut<i32, 1>) {
        let (low, high, all) = (x.slice(0, ..192), x.slice(0, 64..), x.reshape((4, 64)));
        high.store(0, low.load(0, [128]) + 1);
        all.store((3, 0), all.load((2, 0), [1, 64]) * 2);
        x.step(0, 2).store(0, high.load(0, [128]));
    }
    let mut x = session.array(&(0..256).collect::<Vec<i32>>(), [256])?;
    session.launch(kernel, [1], (&mut x,))?;
    let mut model: Vec<i32> = (0..256).collect();
    let first: Vec<i32> = model[..128].iter().map(|x| x + 1).collect();
    model[64..192].copy_from_slice(&first);
    let second: Vec<i32> = model[128..192].iter().map(|x| x * 2).collect();
    model[192..].copy_from_slice(&second);
    let third = model[64..192].to_vec();
    (0..128).for_each(|i| model[2 * i] = third[i]);
    session.check("overlapping parts", &x, &|[i]| Want::SameBits(model[i] as u64))
}
