//! Matrix products: tiles, splits, persistent kernels and batches against the textbook form.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use super::{assert_equal, exact, noise, places};

const EXTENTS: [usize; 3] = [40, 24, 72];

/// The textbook form: products of a column and a row, without `mma`.
fn textbook<T: Element + CastTo<f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>) {
    let column = a.load((ct::bid(0), 0), [8, 128]).cast::<f32>().unsqueeze(2);
    let row = b.load((0, ct::bid(1)), [128, 8]).cast::<f32>().unsqueeze(0);
    c.store((ct::bid(0), ct::bid(1)), (column * row).sum(1).squeeze(1));
}

fn tiled<T: MmaInput<T, f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sums = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sums, l| {
        ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), sums)
    });
    c.store((i, j), sums);
}

/// Each block makes every third tile of the result, in descending order.
fn persistent<T: MmaInput<T, f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [m, n]));
    ct::fold(ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0)), (), |(), index| {
        let (i, j) = (rows - 1 - index / columns, index % columns);
        let sums = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sums, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), sums)
        });
        c.store((i, j), sums);
    });
}

/// Blocks of one tile add their parts of the sums to memory.
fn split<T: MmaInput<T, f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
    let (i, j, part) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let tiles = ct::range(part, a.num_tiles(1, [m, k])).step(ct::num_blocks(2));
    let sums = ct::fold(tiles, ct::zeros::<f32, 2>([m, n]), |sums, l| {
        ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), sums)
    });
    c.atomic_store_add((i, j), sums);
}

fn batched(a: Array<f16, 3>, b: Array<f16, 3>, c: ArrayMut<f32, 3>, (batch, [m, n, k]): (usize, [usize; 3])) {
    let (i, j, first) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let sums = ct::fold(..a.num_tiles(2, [batch, m, k]), ct::zeros::<f32, 3>([batch, m, n]), |sums, l| {
        ct::mma(a.load((first, i, l), [batch, m, k]), b.load((first, l, j), [batch, k, n]), sums)
    });
    c.store((first, i, j), sums);
}

fn forms<T>(convert: fn(f32) -> T, tiles: &[[usize; 3]]) -> ct::Result<Vec<(String, Vec<u64>)>>
where
    T: MmaInput<T, f32> + CastTo<f32> + Copy,
{
    let [m, n, k] = EXTENTS;
    let mut results = Vec::new();
    for (device, backend) in places() {
        let a = device.from_fn([m, k], |[i, j]| convert(noise(i * k + j, 1)))?;
        let b = device.from_fn([k, n], |[i, j]| convert(noise(i * n + j, 2)))?;
        let mut run = |name: String, launch: &dyn Fn(&mut ct::DeviceArray<f32, 2>) -> ct::Result<()>| {
            let mut c = device.zeros([m, n])?;
            launch(&mut c)?;
            results.push((format!("{name} on {backend}"), super::bits(&c)?));
            Ok::<(), ct::Error>(())
        };
        run("textbook".into(), &|c| exact([m / 8, n / 8], backend).launch(textbook::<T>, (&a, &b, c)))?;
        for &tile in tiles {
            let [rows, columns] = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
            let form = Constant(tile);
            run(format!("tiles {tile:?}"), &|c| exact([rows, columns], backend).launch(tiled::<T>, (&a, &b, c, form)))?;
            run(format!("persistent {tile:?}"), &|c| exact(3, backend).launch(persistent::<T>, (&a, &b, c, form)))?;
            run(format!("split {tile:?}"), &|c| {
                exact([rows, columns, 2], backend).launch(split::<T>, (&a, &b, c, form))
            })?;
        }
    }
    Ok(results)
}

#[test]
fn products_of_all_tiles_and_orders_are_equal() -> ct::Result<()> {
    assert_equal(&forms(f16::from_f32, &[[16, 16, 16], [32, 8, 64], [64, 32, 32]])?);
    assert_equal(&forms(|x| x, &[[16, 32, 32]])?);
    assert_equal(&forms(bf16::from_f32, &[[16, 16, 64]])?);
    Ok(())
}

#[test]
fn batched_products_are_equal() -> ct::Result<()> {
    let (batch, [m, n, k]) = (3, [16, 24, 40]);
    let mut results = Vec::new();
    for (device, backend) in places() {
        let a = device.from_fn([batch, m, k], |[h, i, j]| f16::from_f32(noise((h * m + i) * k + j, 3)))?;
        let b = device.from_fn([batch, k, n], |[h, i, j]| f16::from_f32(noise((h * k + i) * n + j, 4)))?;
        for (of, tile) in [(1, [16, 8, 16]), (1, [8, 32, 64]), (2, [16, 16, 32])] {
            let mut c = device.zeros([batch, m, n])?;
            let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch.div_ceil(of)];
            exact(grid, backend).launch(batched, (&a, &b, &mut c, Constant((of, tile))))?;
            results.push((format!("{of} x {tile:?} on {backend}"), super::bits(&c)?));
        }
    }
    assert_equal(&results);
    Ok(())
}

#[test]
fn products_of_f64_are_equal() -> ct::Result<()> {
    fn product(a: Array<f64, 2>, b: Array<f64, 2>, c: ArrayMut<f64, 2>, [m, n, k]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let sums = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f64, 2>([m, n]), |sums, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), sums)
        });
        c.store((i, j), sums);
    }
    let mut results = Vec::new();
    for (device, backend) in places() {
        let array = |way| device.from_fn([16, 16], |[i, j]| f64::from(noise(i * 16 + j, way)).exp());
        let (a, b) = (array(5)?, array(6)?);
        for tile in [[16, 16, 16], [8, 8, 4]] {
            let mut c = device.zeros([16, 16])?;
            exact([16 / tile[0], 16 / tile[1]], backend).launch(product, (&a, &b, &mut c, Constant(tile)))?;
            results.push((format!("{tile:?} on {backend}"), super::bits(&c)?));
        }
    }
    assert_equal(&results);
    Ok(())
}
