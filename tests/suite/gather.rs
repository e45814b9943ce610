//! Gather and scatter: every element type, index tiles of every width, ranges and scalars, masks
//! and padding, positions inside and outside, contiguous ones at every alignment, arrays whose axes
//! are in any order.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{GatherOptions, ScatterOptions};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("gather/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(anywhere: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(contiguous: f64 f32 f16 u8 bool);
    each!(rows: f64 f32 f16 i8);
    each!(widths: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.lean("gather/masks", masks);
    suite.lean("gather/divided", divided);
    suite.lean("gather/ranks", ranks);
    suite.lean("gather/reversed_in_place", reversed_in_place);
    suite.lean("gather/scalars", scalars);
    suite.lean("gather/duplicates", duplicates);
    suite.lean("gather/assumed", assumed);
    suite.lean("gather/in_a_loop", in_a_loop);
    suite.test("gather/wide_indices", wide_indices);
}

/// Positions around and in an axis: some outside on either side, some far away.
fn positions(seed: u64, count: usize, extent: usize) -> Vec<i32> {
    let mut all = random::<i32>(seed, count, Spread::Between(-9.0, extent as f64 + 9.0));
    for (at, far) in [(3, i32::MIN), (5, i32::MAX), (7, -1), (11, extent as i32)] {
        if let Some(place) = all.get_mut(at) {
            *place = far;
        }
    }
    all
}

fn inside(position: i64, extent: usize) -> Option<usize> {
    usize::try_from(position).ok().filter(|&position| position < extent)
}

fn gather_all<T: ByteSized>(x: Array<T, 1>, at: Array<i32, 1>, y: ArrayMut<T, 1>, tile: usize) {
    let at = at.load([ct::bid(0)], [tile]);
    y.store([ct::bid(0)], x.gather(at));
}

fn scatter_all<T: ByteSized>(x: Array<T, 1>, at: Array<i32, 1>, y: ArrayMut<T, 1>, tile: usize) {
    let at = at.load([ct::bid(0)], [tile]);
    y.scatter(at, x.load([ct::bid(0)], [tile]));
}

/// Elements from anywhere, and to anywhere (each at most once).
fn anywhere<T: ByteSized>(session: Session) -> Result<()> {
    for (extent, tile) in [(1000, 256), (77, 64), (3000, 1024)] {
        let data = random::<T>(1, extent, Spread::Any);
        let at = positions(2, extent, extent);
        let (x, index) = (session.array(&data, [extent])?, session.array(&at, [extent])?);
        let grid = [extent.div_ceil(tile)];
        let mut y = session.unwritten::<T, 1>([extent])?;
        session.launch(gather_all::<T>, grid, (&x, &index, &mut y, Constant(tile)))?;
        let zero = T::from_bits(0);
        let want = |[i]: [usize; 1]| {
            let element = inside(at[i].into(), extent).map_or(zero, |from| data[from]);
            Want::SameBits(element.to_bits())
        };
        session.check(&format!("gather by tiles of {tile}"), &y, &want)?;

        // A permutation that also points outside: position 7 i, of a longer range.
        // Beyond the end of the data there is nowhere to write to.
        let to: Vec<i32> = (0..extent as i32).map(|i| (7 * i) % 3001 - 5).collect();
        let to = [to, vec![-1; extent.div_ceil(tile) * tile - extent]].concat();
        let index = session.array(&to, [to.len()])?;
        let mut y = session.unwritten::<T, 1>([extent])?;
        session.launch(scatter_all::<T>, grid, (&x, &index, &mut y, Constant(tile)))?;
        let mut wanted = vec![unwritten::<T>(); extent];
        for (&element, &to) in data.iter().zip(&to) {
            if let Some(to) = inside(to.into(), extent) {
                wanted[to] = element;
            }
        }
        let want = |[i]: [usize; 1]| Want::SameBits(wanted[i].to_bits());
        session.check(&format!("scatter by tiles of {tile}"), &y, &want)?;
    }
    Ok(())
}

fn shifted<T: ByteSized>(x: Array<T, 1>, y: ArrayMut<T, 1>, (tile, from, to): (usize, i32, i32)) {
    let at = ct::bid(0) * tile + ct::arange(0..tile);
    y.scatter(at + to, x.gather(at + from));
}

/// Neighbours: where the launch knows enough, accesses are wide, and the rest is right all the
/// same.
fn contiguous<T: ByteSized>(session: Session) -> Result<()> {
    for extent in [4096, 1000, 1001, 16] {
        for (from, to) in [(0, 0), (1, 0), (0, 3), (-16, 16), (8, -8), (i32::MAX, 0)] {
            let data = random::<T>(3, extent, Spread::Any);
            let x = session.array(&data, [extent])?;
            let mut y = session.unwritten::<T, 1>([extent])?;
            let tile = 512;
            session.launch(shifted::<T>, [extent.div_ceil(tile)], (&x, &mut y, Constant((tile, from, to))))?;
            let last = (extent.div_ceil(tile) * tile) as i64;
            let want = |[i]: [usize; 1]| {
                let at = i as i64 - i64::from(to);
                if !(0..last).contains(&at) {
                    return Want::SameBits(unwritten::<T>().to_bits());
                }
                // Positions wrap.
                let source = i64::from((at as i32).wrapping_add(from));
                Want::SameBits(inside(source, extent).map_or(0, |source| data[source].to_bits()))
            };
            session.check(&format!("{extent} elements from {from} to {to}"), &y, &want)?;
        }
    }
    Ok(())
}

fn pick_rows<T: ByteSized>(x: Array<T, 2>, rows: Array<i32, 1>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
    let rows = rows.load([ct::bid(0)], [tile[0]]).unsqueeze(1);
    let picked = x.gather((rows, ct::span(ct::bid(1) * tile[1], tile[1])));
    y.store((ct::bid(0), ct::bid(1)), picked);
}

fn place_rows<T: ByteSized>(x: Array<T, 2>, rows: Array<i32, 1>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
    let rows = rows.load([ct::bid(0)], [tile[0]]).unsqueeze(1);
    let placed = x.load((ct::bid(0), ct::bid(1)), tile);
    y.scatter((rows, ct::bid(1) * tile[1] + ct::arange(0..tile[1]).unsqueeze(0)), placed);
}

/// Rows by number, of arrays in either order of memory.
fn rows<T: ByteSized>(session: Session) -> Result<()> {
    for [extent, width] in [[50, 64], [37, 53], [20, 256]] {
        let count = 45;
        let data = random::<T>(4, extent * width, Spread::Any);
        let at = positions(5, count, extent);
        let index = session.array(&at, [count])?;
        let (tile, grid) = ([8, 32], [count.div_ceil(8), width.div_ceil(32)]);
        let x = session.array(&data, [extent, width])?;
        let mut y = session.unwritten::<T, 2>([count, width])?;
        session.launch(pick_rows::<T>, grid, (&x, &index, &mut y, Constant(tile)))?;
        let want = |[i, j]: [usize; 2]| {
            let element = inside(at[i].into(), extent).map(|row| data[row * width + j]);
            Want::SameBits(element.map_or(0, T::to_bits))
        };
        session.check("rows", &y, &want)?;

        let flipped = random::<T>(6, extent * width, Spread::Any);
        let x = session.array(&flipped, [width, extent])?;
        let mut y = session.unwritten::<T, 2>([count, width])?;
        session.launch(pick_rows::<T>, grid, (x.view().transpose()?, &index, &mut y, Constant(tile)))?;
        let want = |[i, j]: [usize; 2]| {
            let element = inside(at[i].into(), extent).map(|row| flipped[j * extent + row]);
            Want::SameBits(element.map_or(0, T::to_bits))
        };
        session.check("rows of a transposed array", &y, &want)?;

        let to: Vec<i32> = (0..extent as i32).map(|i| (i * 3) % (2 * extent as i32 + 1) - 4).collect();
        let (x, index) = (session.array(&data, [extent, width])?, session.array(&to, [extent])?);
        let mut y = session.unwritten::<T, 2>([extent, width])?;
        let grid = [extent.div_ceil(8), width.div_ceil(32)];
        session.launch(place_rows::<T>, grid, (&x, &index, &mut y, Constant(tile)))?;
        // Rows beyond the last one have number 0.
        let padded = extent.div_ceil(8) * 8;
        let rows: Vec<i32> = to.iter().copied().chain(std::iter::repeat_n(0, padded - extent)).collect();
        let want = |[i, j]: [usize; 2]| {
            let from: Vec<usize> = (0..padded).filter(|&row| rows[row] == i as i32).collect();
            match from[..] {
                [] => Want::SameBits(unwritten::<T>().to_bits()),
                [row] => Want::SameBits(if row < extent { data[row * width + j].to_bits() } else { 0 }),
                _ => Want::Open,
            }
        };
        session.check("rows placed", &y, &want)?;
    }
    Ok(())
}

fn by_width<I: Int>(x: Array<f32, 1>, at: Array<I, 1>, y: ArrayMut<f32, 1>) {
    y.store([ct::bid(0)], x.gather(at.load([ct::bid(0)], [64])));
}

/// Indices of every width: signed ones may be negative, unsigned ones are not.
fn widths<I: Int>(session: Session) -> Result<()> {
    let extent = 200;
    let data = random::<f32>(7, extent, Spread::Moderate);
    let at = random::<I>(8, 128, Spread::Any);
    let (x, index) = (session.array(&data, [extent])?, session.array(&at, [128])?);
    let mut y = session.unwritten::<f32, 1>([128])?;
    session.launch(by_width::<I>, [2], (&x, &index, &mut y))?;
    let want = |[i]: [usize; 1]| {
        // No f64 near the extent is rounded.
        let position = at[i].to_f64();
        let is_inside = (0.0..extent as f64).contains(&position);
        Want::exactly(if is_inside { data[position as usize] } else { 0.0 })
    };
    session.check("by width", &y, &want)
}

fn masked(x: Array<f32, 2>, m: Array<bool, 2>, p: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>) {
    let tile = [8, 64];
    let (m, p) = (m.load([0, 0], tile), p.load([0, 0], tile));
    let options = GatherOptions::new().mask(m).padding(p);
    let columns = 0..64;
    let rows = ct::arange(0..8).unsqueeze(1);
    y.store([0, 0], x.gather_with((rows, columns.clone()), options));
    z.scatter_with((rows, columns), p, ScatterOptions::new().mask(m));
    let none = m & !m;
    z.scatter_with((rows, 0..64), 1.5, ScatterOptions::new().mask(none));
}

fn masks(session: Session) -> Result<()> {
    for extents in [[8, 64], [7, 61]] {
        let tile = [8, 64];
        let data = random::<f32>(9, extents[0] * extents[1], Spread::Any);
        let mask = random::<bool>(10, 512, Spread::Any);
        let padding = random::<f32>(11, 512, Spread::Any);
        let (x, m) = (session.array(&data, extents)?, session.array(&mask, tile)?);
        let p = session.array(&padding, tile)?;
        let (mut y, mut z) = (session.unwritten::<f32, 2>(tile)?, session.unwritten::<f32, 2>(extents)?);
        session.launch(masked, [1], (&x, &m, &p, &mut y, &mut z))?;
        let reads = |at: [usize; 2]| mask[ravel(at, tile)] && at[0] < extents[0] && at[1] < extents[1];
        let want = |at| {
            let element = if reads(at) { data[ravel(at, extents)] } else { padding[ravel(at, tile)] };
            Want::SameBits(element.to_bits().into())
        };
        session.check("masked gather", &y, &want)?;
        let want = |at| {
            let element = if reads(at) { padding[ravel(at, tile)] } else { unwritten() };
            Want::SameBits(element.to_bits().into())
        };
        session.check("masked scatter", &z, &want)?;
    }
    Ok(())
}

fn by_quotient(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    let at = ct::bid(0) * 512 + ct::arange(0..512);
    y.scatter(at, x.gather((at / 48, at % 48)));
}

/// Row and column from one number.
fn divided(session: Session) -> Result<()> {
    let data = random::<f32>(12, 40 * 48, Spread::Any);
    let x = session.array(&data, [40, 48])?;
    let mut y = session.unwritten::<f32, 1>([2048])?;
    session.launch(by_quotient, [4], (&x, &mut y))?;
    let want = |[i]: [usize; 1]| Want::SameBits(data.get(i).map_or(0, |x| x.to_bits().into()));
    session.check("by quotient and remainder", &y, &want)
}

fn of_rank_three(x: Array<f16, 3>, y: ArrayMut<f16, 3>, plane: Scalar<i64>) {
    // [4, 1, 1] with a range along axis 1 of the result, and an index tile along axis 2.
    let rows = ct::arange_from(4, 1, 1).reshape([4, 1, 1]);
    let columns = ct::arange_from(16, 15i16, -1).reshape([1, 1, 16]);
    y.store([0, 0, 0], x.gather((rows + ct::bid(0), 0..8, columns)));
    y.scatter((plane, 0..8, columns), ct::full([4, 8, 16], f16::from_f32(2.0)).reduce_max(0));
}

fn ranks(session: Session) -> Result<()> {
    let shape = [4, 7, 16];
    let data = random::<f16>(13, 4 * 7 * 16, Spread::Any);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f16, 3>([4, 8, 16])?;
    session.launch(of_rank_three, [1], (&x, &mut y, 3i64))?;
    let want = |[i, j, k]: [usize; 3]| {
        if i == 3 {
            return Want::exactly(f16::from_f32(2.0));
        }
        let read = i + 1 < 4 && j < 7;
        Want::SameBits(if read { data[ravel([i + 1, j, 15 - k], shape)].to_bits().into() } else { 0 })
    };
    session.check("rank 3", &y, &want)
}

fn reverse(x: ArrayMut<i32, 1>) {
    let at = ct::bid(0) * 256 + ct::arange(0..256);
    let back = ct::bid(0) * 256 + ct::arange_from(256, 255, -1);
    x.scatter(back, x.gather(at));
    x.scatter(at, x.gather(at) * 2);
}

/// All of a tile is read before any of it is written, and written before it is read again.
fn reversed_in_place(session: Session) -> Result<()> {
    let mut x = session.array(&(0..1024).collect::<Vec<i32>>(), [1024])?;
    session.launch(reverse, [4], (&mut x,))?;
    session.check("reversed", &x, &|[i]| Want::exactly((i as i32 / 256 * 256 + 255 - i as i32 % 256) * 2))
}

fn by_scalars(x: Array<f32, 2>, y: ArrayMut<f32, 1>, row: Scalar<i32>, column: Scalar<u32>) {
    let one = ct::zeros::<i32, 1>([1]);
    y.scatter((ct::bid(0) + one,), x.gather((row, column.cast::<i32>() + one)));
}

fn scalars(session: Session) -> Result<()> {
    let data = random::<f32>(14, 30, Spread::Any);
    let x = session.array(&data, [5, 6])?;
    for (row, column) in [(0, 0u32), (4, 5), (5, 0), (-1, 3), (2, 6)] {
        let mut y = session.unwritten::<f32, 1>([3])?;
        session.launch(by_scalars, [2], (&x, &mut y, row, column))?;
        let read = (0..5).contains(&row) && column < 6;
        let element = if read { data[row as usize * 6 + column as usize] } else { 0.0 };
        let want = |[i]: [usize; 1]| Want::SameBits(if i < 2 { element } else { unwritten() }.to_bits().into());
        session.check("one element", &y, &want)?;
    }
    Ok(())
}

fn all_to_few(y: ArrayMut<i32, 1>) {
    let n = ct::arange(0..512);
    y.scatter(n % 8, n);
}

/// One of several values for the same element is stored.
fn duplicates(session: Session) -> Result<()> {
    let mut y = session.unwritten::<i32, 1>([8])?;
    session.launch(all_to_few, [1], (&mut y,))?;
    if session.only_compiles() {
        return Ok(());
    }
    for (i, &got) in y.to_vec()?.iter().enumerate() {
        anyhow::ensure!((0..512).contains(&got) && got as usize % 8 == i, "element {i} is {got}");
    }
    Ok(())
}

fn copy_promised(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let at = ct::bid(0) * 256 + ct::arange(0..256);
    // SAFETY: launched over arrays of 1024 elements with 4 blocks.
    let (read, write) =
        unsafe { (GatherOptions::new().check_bounds(false), ScatterOptions::new().check_bounds(false)) };
    y.scatter_with(at, x.gather_with(at, read), write);
}

fn assumed(session: Session) -> Result<()> {
    let data = random::<f32>(15, 1024, Spread::Any);
    let x = session.array(&data, [1024])?;
    let mut y = session.unwritten::<f32, 1>([1024])?;
    session.launch(copy_promised, [4], (&x, &mut y))?;
    session.check("promised", &y, &|[i]| Want::SameBits(data[i].to_bits().into()))
}

fn sum_along(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    let columns = ct::bid(0) * 64 + ct::arange(0..64);
    let sum = ct::fold(..x.extent(0), ct::zeros::<f32, 1>([64]), |sum, row| sum + x.gather((row, columns)));
    y.scatter(columns, sum);
}

fn in_a_loop(session: Session) -> Result<()> {
    let data = random::<f32>(16, 9 * 120, Spread::Whole(100));
    let x = session.array(&data, [9, 120])?;
    let mut y = session.unwritten::<f32, 1>([120])?;
    session.launch(sum_along, [2], (&x, &mut y))?;
    session.check("sum", &y, &|[j]| Want::exactly((0..9).map(|i| data[i * 120 + j]).sum::<f32>()))
}

fn far_rows(x: Array<u8, 2>, rows: Array<i64, 1>, y: ArrayMut<u8, 2>) {
    let rows = rows.load([0], [4]).unsqueeze(1);
    y.scatter((ct::arange_from(4, 0u16, 1).unsqueeze(1), 0..32), x.gather((rows, 0..32)));
}

/// Elements more than 2^31 away.
fn wide_indices(session: Session) -> Result<()> {
    let row = (1 << 30) + 16;
    let at = [2i64, -1, 0, 1 << 40];
    let device = match session {
        Session::InterpretTileIr(_) | Session::Interpret(_) => return Ok(()),
        Session::Run(device) | Session::RunTileIr(device) if device.backend() != ct::Backend::Cpu => device,
        Session::Run(_) | Session::RunTileIr(_) => return Ok(()),
        _ => {
            let (far, index) = (ct::ArraySpec::<u8, 2>::new([3, row]), ct::ArraySpec::<i64, 1>::new([4]));
            let near = ct::ArraySpec::<u8, 2>::new([4, 32]);
            session.launch(far_rows, [1], (far, index, near.mutable()))?;
            let far = ct::ArraySpec::<u8, 2>::new([3, row]).mutable();
            return session.launch(far_rows, [1], (near, index, far));
        }
    };
    let mut far = device.zeros::<u8, 2>([3, row])?;
    let data = random::<u8>(17, 4 * 32, Spread::Any);
    let (near, index) = (session.array(&data, [4, 32])?, session.array(&[0i64, 1, 2, 3], [4])?);
    // Rows 0 to 2 of the near array; its last one is outside.
    session.launch(far_rows, [1], (&near, &index, &mut far))?;
    let index = session.array(&at, [4])?;
    let mut y = session.unwritten::<u8, 2>([4, 32])?;
    session.launch(far_rows, [1], (&far, &index, &mut y))?;
    let want = |[i, j]: [usize; 2]| Want::exactly(inside(at[i], 3).map_or(0, |from| data[from * 32 + j]));
    session.check("far apart", &y, &want)
}
