//! Sums, scans and atomic additions in several orders.

use cutlet as ct;
use cutlet::prelude::*;

use super::{assert_equal, bits, exact, noise, places};

const LENGTH: usize = 1000;

/// The sum of tiles that are added one after another, or of the sums of tiles.
fn sum(x: Array<f32, 1>, y: ArrayMut<f32, 1>, (tile, early): (usize, bool)) {
    let tiles = x.num_tiles(0, [tile]);
    let total = match early {
        true => ct::fold(..tiles, ct::zeros::<f32, 1>([1]), |total, i| total + x.load(i, [tile]).sum(0)),
        false => ct::fold(..tiles, ct::zeros::<f32, 1>([tile]), |total, i| total + x.load(i, [tile])).sum(0),
    };
    y.store(0, total);
}

/// Each block adds the sum of its tile to memory.
fn atomic_sum(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let _before = y.entry(0).atomic_add(x.load(ct::bid(0), [tile]).sum(0).item());
}

/// The elements of a tile are added to one entry, by the block itself.
fn scattered_sum(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    y.atomic_add(ct::zeros::<i32, 1>([tile]), x.load(ct::bid(0), [tile]));
}

#[test]
fn sums_of_all_orders_are_equal() -> ct::Result<()> {
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([LENGTH], |[i]| noise(i, 1))?;
        let y = || device.zeros::<f32, 1>([2]);
        for form in [(32, false), (256, false), (64, true), (1024, true)] {
            let mut y = y()?;
            exact(1, backend).launch(sum, (&x, &mut y, Constant(form)))?;
            results.push((format!("{form:?} on {backend}"), bits(&y)?));
        }
        let mut atomic = y()?;
        exact(LENGTH.div_ceil(64), backend).launch(atomic_sum, (&x, &mut atomic, Constant(64)))?;
        results.push((format!("atomic on {backend}"), bits(&atomic)?));
        let mut scattered = y()?;
        exact(LENGTH.div_ceil(128), backend).launch(scattered_sum, (&x, &mut scattered, Constant(128)))?;
        results.push((format!("scattered on {backend}"), bits(&scattered)?));
    }
    assert_equal(&results);
    Ok(())
}

/// Prefix sums of rows, with a carry from tile to tile.
fn prefix(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    ct::fold(..x.num_tiles(1, [1, tile]), ct::zeros::<f32, 2>([1, 1]), |carry, i| {
        let x = x.load((row, i), [1, tile]);
        y.store((row, i), x.cumsum(1) + carry);
        carry + x.sum(1)
    });
}

#[test]
fn scans_of_all_tiles_are_equal() -> ct::Result<()> {
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([4, 300], |[i, j]| noise(i * 300 + j, 2))?;
        for tile in [8, 64, 512] {
            let mut y = device.zeros([4, 300])?;
            exact(4, backend).launch(prefix, (&x, &mut y, Constant(tile)))?;
            results.push((format!("tiles of {tile} on {backend}"), bits(&y)?));
        }
    }
    assert_equal(&results);
    Ok(())
}

/// Mean and variance in one pass, and in two; by division, or by a factor.
fn moments(x: Array<f32, 2>, y: ArrayMut<f32, 2>, (tile, two_passes): (usize, bool)) {
    let row = ct::bid(0);
    let tiles = || ..x.num_tiles(1, [1, tile]);
    let zero = || ct::zeros::<f32, 2>([1, 1]);
    let count = x.extent(1).cast::<f32>();
    let sum = ct::fold(tiles(), zero(), |sum, i| sum + x.load((row, i), [1, tile]).sum(1));
    let squares = if two_passes {
        let inside = |i: Scalar<i32>| (i * tile + ct::arange(0..tile)).unsqueeze(0).lt(x.extent(1));
        ct::fold(tiles(), zero(), |squares, i| {
            let from_mean = x.load((row, i), [1, tile]) * count - sum;
            squares + ct::select(inside(i), from_mean * from_mean, 0.0).sum(1)
        })
    } else {
        let squares = ct::fold(tiles(), zero(), |squares, i| {
            let x = x.load((row, i), [1, tile]);
            squares + (x * x).sum(1)
        });
        squares * count * count - sum * sum * count
    };
    y.store((row, 0), squares);
}

#[test]
fn expanded_squares_are_equal() -> ct::Result<()> {
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([4, 100], |[i, j]| noise(i * 100 + j, 3))?;
        for form in [(32, false), (128, false), (16, true), (64, true)] {
            let mut y = device.zeros([4, 1])?;
            exact(4, backend).launch(moments, (&x, &mut y, Constant(form)))?;
            results.push((format!("{form:?} on {backend}"), bits(&y)?));
        }
    }
    assert_equal(&results);
    Ok(())
}

/// Sums of columns in arrays of 16 bits: by one block, by additions of tiles, and by additions of
/// elements, several of them to one. An array of an odd length ends inside of a word.
fn columns<T: ct::ops::AtomicAdd>(x: Array<T, 2>, y: ArrayMut<T, 1>, form: Columns) {
    let tile = [4, 32];
    let part = |i: Scalar<i32>| x.load((i, 0), tile).cast::<f32>().sum(0).squeeze(0).cast::<T>();
    match form {
        Columns::OneBlock => {
            let sums =
                ct::fold(..x.num_tiles(0, tile), ct::zeros::<f32, 1>([32]), |sum, i| sum + part(i).cast::<f32>());
            y.store(0, sums.cast::<T>());
        }
        Columns::Tiles => y.atomic_store_add(0, part(ct::bid(0))),
        Columns::Elements => {
            let places = ct::arange(0..32).unsqueeze(0).broadcast_to(tile).reshape([128]);
            y.atomic_add(places, x.load((ct::bid(0), 0), tile).reshape([128]));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Columns {
    OneBlock,
    Tiles,
    Elements,
}

fn narrow_sums<T: ct::ops::AtomicAdd>() -> ct::Result<()> {
    let mut results = Vec::new();
    for (device, backend) in places() {
        let x = device.from_fn([30, 31], |[i, j]| T::from_f64(noise(i * 31 + j, 4).into()))?;
        for (form, grid) in [(Columns::OneBlock, 1), (Columns::Tiles, 8), (Columns::Elements, 8)] {
            let mut y = device.zeros::<T, 1>([31])?;
            exact(grid, backend).launch(columns::<T>, (&x, &mut y, Constant(form)))?;
            results.push((format!("{form:?} of {} on {backend}", T::NAME), bits(&y)?));
        }
    }
    assert_equal(&results);
    Ok(())
}

#[test]
fn atomic_sums_of_16_bits_are_equal() -> ct::Result<()> {
    narrow_sums::<f16>()?;
    narrow_sums::<bf16>()
}
