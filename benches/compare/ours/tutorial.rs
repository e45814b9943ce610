//! Rows of the kernels that `docs/tutorial.md` shows, from the file that its tests compare with the
//! page.

use anyhow::{Result, bail};
use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row, warps};

#[path = "../../../tests/documented_output/kernels.rs"]
#[allow(dead_code, reason = "one kernel has a mistake that the README shows")]
mod kernels;

/// Opens a row of a kernel, an element type and numbers.
///
/// # Errors
/// The tutorial has no such kernel, or the arrays do not fit into memory.
pub fn open(place: Place, kernel: &str, element: &str, numbers: &[usize]) -> Result<Box<dyn Row>> {
    Ok(match (kernel, element, numbers) {
        ("vadd", "f32", &[n]) => vadd(place, n)?,
        ("transpose", "f32", &[m, n]) => transpose(place, m, n)?,
        ("softmax", "f32", &[m, n]) => softmax(place, m, n)?,
        ("column_sums", "f32", &[m, n]) => column_sums(place, m, n)?,
        ("embedding", "f16", &[rows, columns, ids]) => embedding(place, rows, columns, ids)?,
        ("matmul", "f16", &[m, n, k]) => matmul(place, [m, n, k])?,
        ("attention", "f16", &[batch, heads, seq, dim]) => attention(place, batch * heads, seq, dim)?,
        _ => bail!("the tutorial has no row `{kernel} {element} {numbers:?}`"),
    })
}

fn vadd(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [1024, 512, 2048, 4096] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[a, b, c]: &mut Set, call| {
            call.run(n.div_ceil(tile), kernels::vadd, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn transpose(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([n, m])?]))?;
    for [tm, tn] in [[64, 64], [32, 32], [128, 64], [64, 128]] {
        let grid = [m.div_ceil(tm), n.div_ceil(tn)];
        row = row.with(format!("tile {tm}x{tn}"), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(grid, kernels::transpose, (&*x, y, Constant([tm, tn])))
        });
    }
    Ok(Box::new(row))
}

fn softmax(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, kernels::softmax, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

fn column_sums(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = (ct::DeviceArray<f32, 2>, ct::DeviceArray<f32, 1>);
    let addresses = |(x, sums): &Set| vec![x.address(), sums.address()];
    let mut row = Configurations::new(place, addresses, |d| Ok((d.zeros([m, n])?, d.zeros([n])?)))?;
    for tile in [[64, 64], [64, 32], [128, 64], [32, 64], [128, 32]] {
        let label = format!("tile {}x{}", tile[0], tile[1]);
        row = row.with(label, NO_HINTS, move |(x, sums): &mut Set, call| {
            call.run(n.div_ceil(tile[1]), kernels::column_sums, (&*x, sums, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn embedding(place: Place, rows: usize, columns: usize, ids: usize) -> ct::Result<Box<dyn Row>> {
    type Set = (ct::DeviceArray<f16, 2>, ct::DeviceArray<i32, 1>, ct::DeviceArray<f16, 2>);
    let addresses = |(table, ids, out): &Set| vec![table.address(), ids.address(), out.address()];
    let make = |d: Device| Ok((d.zeros([rows, columns])?, d.zeros([ids])?, d.zeros([ids, columns])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in [2048, 1024, 4096] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |(table, numbers, out): &mut Set, call| {
            let grid = [ids, columns.div_ceil(tile)];
            call.run(grid, kernels::embedding, (&*table, &*numbers, out, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn matmul(place: Place, [m, n, k]: [usize; 3]) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f16, 2>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let make = |d: Device| Ok([d.zeros([m, k])?, d.zeros([k, n])?, d.zeros([m, n])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in [[128, 128, 64], [128, 256, 64], [256, 128, 64], [128, 192, 64], [128, 256, 32]] {
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        let label = tile.map(|extent| extent.to_string()).join("x");
        row = row.with(label, NO_HINTS, move |[a, b, c]: &mut Set, call| {
            call.run(grid, kernels::matmul, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

/// The kernel in the fast float mode, and that of the first listing. The first axis of the arrays
/// counts the heads of all batches.
fn attention(place: Place, heads: usize, seq: usize, dim: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f16, 3>; 4];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let shape = [heads, seq, dim];
    let make = |d: Device| Ok([d.zeros(shape)?, d.zeros(shape)?, d.zeros(shape)?, d.zeros(shape)?]);
    let mut row = Configurations::new(place, addresses, make)?;
    for [tm, tn] in [[128, 64], [128, 128], [192, 128], [64, 128], [64, 64]] {
        let grid = [seq.div_ceil(tm), heads];
        row = row.with(format!("{tm}x{tn}"), NO_HINTS, move |[q, k, v, out]: &mut Set, call| {
            call.run(grid, kernels::attention_fast, (&*q, &*k, &*v, out, Constant([tm, tn, dim])))
        });
    }
    for [tm, tn] in [[128, 64], [64, 128]] {
        let grid = [seq.div_ceil(tm), heads];
        row = row.with(format!("first listing {tm}x{tn}"), NO_HINTS, move |[q, k, v, out]: &mut Set, call| {
            call.run(grid, kernels::attention, (&*q, &*k, &*v, out, Constant([tm, tn, dim])))
        });
    }
    Ok(Box::new(row))
}
