//! Rows bound by memory that are more than elementwise: by index, scans, counts, neighbours, rows
//! of a matrix.

use cutlet as ct;
use cutlet::Device;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row, warps};
use super::{examples, kernels};

pub fn vadd_gather(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 1>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([n])?, d.zeros([n])?, d.zeros([n])?]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[a, b, c]: &mut Set, call| {
            call.run(n.div_ceil(tile), kernels::vadd_gather, (&*a, &*b, c, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

/// x, at, y.
type ByIndex = (ct::DeviceArray<f32, 1>, ct::DeviceArray<i32, 1>, ct::DeviceArray<f32, 1>);

fn by_index(place: Place, from: usize, n: usize) -> ct::Result<Configurations<ByIndex>> {
    let addresses = |(x, at, y): &ByIndex| vec![x.address(), at.address(), y.address()];
    Configurations::new(place, addresses, |d: Device| Ok((d.zeros([from])?, d.zeros([n])?, d.zeros([n])?)))
}

/// Tiles of accesses by index: few elements a thread, and many.
const INDEX_TILES: [usize; 5] = [256, 512, 1024, 2048, 4096];

pub fn gather(place: Place, n: usize, from: usize) -> ct::Result<Box<dyn Row>> {
    let mut row = by_index(place, from, n)?;
    for tile in INDEX_TILES {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |(x, at, y): &mut ByIndex, call| {
            call.run(n.div_ceil(tile), kernels::gather, (&*x, &*at, y, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

pub fn scatter(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    let mut row = by_index(place, n, n)?;
    for tile in INDEX_TILES {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |(x, at, y): &mut ByIndex, call| {
            call.run(n.div_ceil(tile), kernels::scatter, (&*x, &*at, y, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

pub fn cumsum(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, kernels::cumsum, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

/// In every call nothing is known of any tile at first, as in those of the others.
pub fn prefix_sum<T>(place: Place, n: usize) -> ct::Result<Box<dyn Row>>
where
    T: Number + BitcastTo<u32>,
    u32: BitcastTo<T>,
{
    use examples::prefix_sum::{forget, prefix_sum};
    const TILES: [usize; 4] = [2048, 4096, 8192, 16384];
    // x, y; the next tile, the states of the tiles.
    type Set<T> = ([ct::DeviceArray<T, 1>; 2], ct::DeviceArray<i32, 1>, Vec<ct::DeviceArray<u64, 1>>);
    let addresses = |([x, y], ..): &Set<T>| vec![x.address(), y.address()];
    let make = |d: Device| {
        let known = TILES.iter().map(|tile| d.zeros([n.div_ceil(*tile)])).collect::<ct::Result<_>>()?;
        Ok(([d.zeros([n])?, d.zeros([n])?], d.zeros([1])?, known))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    for (which, tile) in TILES.into_iter().enumerate() {
        let blocks = n.div_ceil(tile);
        for occupancy in [None, Some(2), Some(3)] {
            let label =
                occupancy.map_or_else(|| format!("tile {tile}"), |n| format!("tile {tile} {n} a multiprocessor"));
            let mut hints = NO_HINTS;
            hints.occupancy = occupancy;
            row = row.with(label, hints, move |([x, y], next, known): &mut Set<T>, call| {
                let known = &mut known[which];
                call.run(blocks.div_ceil(1024), forget, (&mut *next, &mut *known))?;
                call.run(blocks, prefix_sum::<T>, (&*x, y, next, known, Constant(tile)))
            });
        }
    }
    Ok(Box::new(row))
}

/// The counts begin at zero in every call, as those of the others do.
pub fn histogram(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    const BINS: usize = 256;
    type Set = (ct::DeviceArray<u8, 1>, ct::DeviceArray<i32, 1>);
    let addresses = |(x, bins): &Set| vec![x.address(), bins.address()];
    let mut row = Configurations::new(place, addresses, |d: Device| Ok((d.zeros([n])?, d.zeros([BINS])?)))?;
    for tile in [2048, 4096, 8192, 16384] {
        for each in [2, 4, 8] {
            let blocks = (each * place.num_multiprocessors()).min(n.div_ceil(tile));
            let label = format!("tile {tile}, {each} a multiprocessor");
            row = row.with(label, NO_HINTS, move |(x, bins): &mut Set, call| {
                call.run(1, kernels::zero, (&mut *bins, Constant(BINS)))?;
                call.run(blocks, examples::histogram::histogram, (&*x, bins, Constant(tile)))
            });
        }
    }
    Ok(Box::new(row))
}

pub fn stencil(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for tile in [[8, 128], [16, 128], [32, 128], [4, 256], [8, 256], [16, 256], [2, 512], [4, 512], [1, 1024], [32, 64]]
    {
        let grid = [n.div_ceil(tile[1]), m.div_ceil(tile[0])];
        row = row.with(format!("tile {}x{}", tile[0], tile[1]), NO_HINTS, move |[x, y]: &mut Set, call| {
            call.run(grid, examples::stencil::stencil, (&*x, y, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

pub fn embedding(place: Place, rows: usize, columns: usize, ids: usize) -> ct::Result<Box<dyn Row>> {
    type Set = (ct::DeviceArray<f16, 2>, ct::DeviceArray<i32, 1>, ct::DeviceArray<f16, 2>);
    let addresses = |(table, ids, out): &Set| vec![table.address(), ids.address(), out.address()];
    let make = |d: Device| Ok((d.zeros([rows, columns])?, d.zeros([ids])?, d.zeros([ids, columns])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in [1024, 2048, 4096] {
        for num_warps in [None, Some(4), Some(8)] {
            let label = num_warps.map_or_else(|| format!("tile {tile}"), |n| format!("tile {tile} {n} warps"));
            let mut hints = NO_HINTS;
            hints.num_warps = num_warps;
            row = row.with(label, hints, move |(table, numbers, out): &mut Set, call| {
                let grid = [ids, columns.div_ceil(tile)];
                call.run(grid, examples::embedding::embedding, (&*table, &*numbers, out, Constant(tile)))
            });
        }
    }
    Ok(Box::new(row))
}

pub fn argmax(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = (ct::DeviceArray<f32, 2>, ct::DeviceArray<i32, 2>, ct::DeviceArray<f32, 2>);
    let addresses = |(x, index, value): &Set| vec![x.address(), index.address(), value.address()];
    let make = |d: Device| Ok((d.zeros([m, n])?, d.zeros([m, 1])?, d.zeros([m, 1])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |(x, index, value): &mut Set, call| {
            call.run(m, examples::argmax::argmax, (&*x, index, value, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

pub fn welford(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 3];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let make = |d: Device| Ok([d.zeros([m, n])?, d.zeros([m, 1])?, d.zeros([m, 1])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    let tile = Constant(n.next_power_of_two());
    for (label, hints) in warps() {
        row = row
            .with(format!("two passes {label}"), hints, move |[x, mean, variance]: &mut Set, call| {
                call.run(m, examples::welford::moments, (&*x, mean, variance, tile))
            })
            .with(format!("pairs {label}"), hints, move |[x, mean, variance]: &mut Set, call| {
                call.run(m, examples::welford::welford, (&*x, mean, variance, tile))
            });
    }
    Ok(Box::new(row))
}
