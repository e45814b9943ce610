//! The rows: which kernels of `examples/` run at which sizes, and the tile sizes and hints to choose from.
//!
//! A row's name is kernel, element type and numbers; `benches/compare/rows.py` has the same names, the
//! inputs and the references.

use anyhow::{Context, Result, bail};
use cutlet as ct;
use cutlet::element::{CastTo, Element, MmaInput};
use cutlet::prelude::*;
use cutlet::{Device, Hints};

use super::configuration::{Configurations, Place, Row};
use super::examples;

/// Opens the row of this name.
///
/// # Errors
/// When there is none, or its arrays do not fit into memory.
pub fn open(name: &str, place: Place) -> Result<Box<dyn Row>> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let [kernel, element, numbers @ ..] = &words[..] else { bail!("row `{name}`: kernel, type and sizes are needed") };
    // Of attention, `causal` or `full` comes last.
    let (numbers, _mask) = match numbers {
        [numbers @ .., mask @ ("causal" | "full")] => (numbers, Some(*mask)),
        numbers => (numbers, None),
    };
    let numbers: Vec<usize> =
        numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>().with_context(|| format!("row `{name}`"))?;
    Ok(match (*kernel, *element, &numbers[..]) {
        ("vadd", "f32", &[n]) => vadd(place, n)?,
        ("saxpy", "f32", &[n]) => saxpy(place, n)?,
        ("transpose", "f32", &[m, n]) => transpose(place, m, n)?,
        ("softmax", "f32", &[m, n]) => softmax(place, m, n)?,
        ("layernorm", "f32", &[m, n]) => layernorm(place, m, n)?,
        ("matmul", "f16", &[m, n, k]) => matmul::<f16, f16, f16>(place, [m, n, k], false, 2)?,
        ("matmul", "bf16", &[m, n, k]) => matmul::<bf16, bf16, bf16>(place, [m, n, k], false, 2)?,
        ("matmul", "tf32", &[m, n, k]) => matmul::<f32, tf32, f32>(place, [m, n, k], false, 4)?,
        ("matmul", "e4m3", &[m, n, k]) => matmul::<f8e4m3fn, f8e4m3fn, f16>(place, [m, n, k], true, 1)?,
        ("batched_matmul", "tf32", &[batch, m, n, k]) => batched_matmul(place, [batch, m, n, k])?,
        _ => bail!("no row `{name}`"),
    })
}

const NO_HINTS: Hints = Hints { num_warps: None, stages: None, num_ctas: None, occupancy: None };

fn vadd(place: Place, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[a, b, c]: &mut Set, call| {
            call.run(n.div_ceil(tile), examples::vadd::vadd, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn saxpy(place: Place, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(n.div_ceil(tile), examples::saxpy::saxpy, (0.75f32, &*x, y, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn transpose(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([n, m])?]))?;
    for [tm, tn] in [[32, 32], [64, 32], [32, 64], [64, 64], [128, 64], [64, 128], [128, 128]] {
        let grid = [m.div_ceil(tm), n.div_ceil(tn)];
        row = row.with(format!("tile {tm}x{tn}"), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(grid, examples::transpose::transpose, (&*x, y, Constant([tm, tn])))
        });
    }
    Ok(Box::new(row))
}

/// Choices of warps for kernels whose tile is given by the problem: a row a block.
fn warps() -> impl Iterator<Item = (String, Hints)> {
    let chosen = |n| (format!("{n} warps"), Hints { num_warps: Some(n), ..NO_HINTS });
    [("no hints".to_string(), NO_HINTS)].into_iter().chain([4, 8, 16].map(chosen))
}

fn softmax(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, examples::softmax::softmax, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

fn layernorm(place: Place, m: usize, n: usize) -> Result<Box<dyn Row>> {
    use examples::layernorm::{EPSILON, layernorm};
    type Set = (ct::DeviceArray<f32, 2>, [ct::DeviceArray<f32, 1>; 2], ct::DeviceArray<f32, 2>);
    let addresses = |(x, [w, b], y): &Set| vec![x.address(), w.address(), b.address(), y.address()];
    let make = |d: Device| Ok((d.zeros([m, n])?, [d.zeros([n])?, d.zeros([n])?], d.zeros([m, n])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |(x, [w, b], y): &mut Set, call| {
            call.run(m, layernorm, (&*x, &*w, &*b, y, EPSILON, Constant(n)))
        });
    }
    Ok(Box::new(row))
}

/// Tiles of products: two of the result for each of the loop, which holds `128 / bytes` or half of it.
fn product_tiles(bytes: usize) -> Vec<([usize; 3], Hints)> {
    let mut tiles = Vec::new();
    for depth in [128 / bytes, 64 / bytes] {
        for [tm, tn] in [[128, 128], [128, 256], [256, 128]] {
            tiles.push(([tm, tn, depth], NO_HINTS));
            tiles.push(([tm, tn, depth], Hints { num_warps: Some(8), ..NO_HINTS }));
        }
    }
    tiles
}

fn product_label([tm, tn, tk]: [usize; 3], hints: Hints) -> String {
    format!("{tm}x{tn}x{tk}{}", hints.num_warps.map_or(String::new(), |n| format!(" {n} warps")))
}

/// `columns`: the second matrix lies column by column.
fn matmul<T, I, O>(place: Place, [m, n, k]: [usize; 3], columns: bool, bytes: usize) -> Result<Box<dyn Row>>
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<O>,
    O: Element,
{
    type Set<T, O> = (ct::DeviceArray<T, 2>, ct::DeviceArray<T, 2>, ct::DeviceArray<O, 2>);
    let addresses = |(a, b, c): &Set<T, O>| vec![a.address(), b.address(), c.address()];
    let lying = if columns { [n, k] } else { [k, n] };
    let make = |d: Device| Ok((d.zeros([m, k])?, d.zeros(lying)?, d.zeros([m, n])?));
    let mut row = Configurations::new(place, addresses, make)?;
    let multiprocessors = place.device.num_multiprocessors();
    for (tile, hints) in product_tiles(bytes) {
        let label = product_label(tile, hints);
        let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
        row = row.with(label.clone(), hints, move |(a, b, c): &mut Set<T, O>, call| {
            let b = if columns { b.transpose()? } else { b.view() };
            call.run(tiles, examples::matmul::matmul::<T, I, f32, O>, (&*a, b, c, Constant(tile)))
        });
        row = row.with(format!("{label} persistent"), hints, move |(a, b, c): &mut Set<T, O>, call| {
            let b = if columns { b.transpose()? } else { b.view() };
            let kernel = examples::matmul::matmul_persistent::<T, I, f32, O>;
            call.run(tiles.min(multiprocessors), kernel, (&*a, b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

fn batched_matmul(place: Place, [batch, m, n, k]: [usize; 4]) -> Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 3>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let make = |d: Device| Ok([d.zeros([batch, m, k])?, d.zeros([batch, k, n])?, d.zeros([batch, m, n])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    for (tile, hints) in product_tiles(4) {
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch];
        row = row.with(product_label(tile, hints), hints, move |[a, b, c]: &mut Set, call| {
            call.run(grid, examples::batched_matmul::batched_matmul, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}
