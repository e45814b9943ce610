//! Rows of random numbers, dropout, sums, and Fourier transforms.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::{examples, kernels};

/// Seed of all random numbers.
const SEED: u64 = 42;

type Vector = ct::DeviceArray<f32, 1>;

/// `normal`: of the normal distribution, else uniform.
pub fn random(place: Place, n: usize, normal: bool) -> ct::Result<Box<dyn Row>> {
    let addresses = |y: &Vector| vec![y.address()];
    let mut row = Configurations::new(place, addresses, |d: Device| d.zeros([n]))?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |y: &mut Vector, call| {
            let arguments = (y, SEED, Constant(tile));
            match normal {
                true => call.run(n.div_ceil(tile), kernels::normals, arguments),
                false => call.run(n.div_ceil(tile), kernels::uniforms, arguments),
            }
        });
    }
    Ok(Box::new(row))
}

/// Both passes; the mask is kept nowhere.
pub fn dropout(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    use examples::dropout::{dropout, dropout_backward};
    // x, dy, y, dx.
    type Set = [Vector; 4];
    let mask = (0.9f32, SEED, 0u64);
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let make = |d: Device| Ok([d.zeros([n])?, d.zeros([n])?, d.zeros([n])?, d.zeros([n])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in [512, 1024, 2048, 4096, 8192] {
        row = row.with(format!("tile {tile}"), NO_HINTS, move |[x, dy, y, dx]: &mut Set, call| {
            let grid = n.div_ceil(tile);
            call.run(grid, dropout, (&*x, y, mask, Constant(tile)))?;
            call.run(grid, dropout_backward, (&*dy, dx, mask, Constant(tile)))
        });
    }
    Ok(Box::new(row))
}

/// By an atomic addition of each block, and by a second kernel that adds the sums of the blocks.
pub fn sum(place: Place, n: usize) -> ct::Result<Box<dyn Row>> {
    // x, total, parts.
    type Set = [Vector; 3];
    const MAX_PARTS: usize = 8;
    let multiprocessors = place.num_multiprocessors();
    let addresses = |[x, total, _]: &Set| vec![x.address(), total.address()];
    let make = |d: Device| Ok([d.zeros([n])?, d.zeros([1])?, d.zeros([MAX_PARTS * multiprocessors])?]);
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in [2048, 4096, 8192] {
        for each in [2, 4, MAX_PARTS] {
            let blocks = (each * multiprocessors).min(n.div_ceil(tile));
            let label = format!("tile {tile}, {each} a multiprocessor");
            row = row.with(format!("{label}, atomic"), NO_HINTS, move |[x, total, _]: &mut Set, call| {
                call.run(1, kernels::zero_sum, (&mut *total,))?;
                call.run(blocks, kernels::sum_atomic, (&*x, total, Constant(tile)))
            });
            row = row.with(format!("{label}, two kernels"), NO_HINTS, move |[x, total, parts]: &mut Set, call| {
                let mut parts = parts.view_mut().slice(0, ..blocks)?;
                call.run(blocks, kernels::sum_parts, (&*x, &mut parts, Constant(tile)))?;
                call.run(1, kernels::sum_of_parts, (parts.as_view(), total, Constant(blocks.next_power_of_two())))
            });
        }
    }
    Ok(Box::new(row))
}

/// Rows of complex numbers, with adjacent real and imaginary parts.
pub fn fft(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, 2 * n])?, d.zeros([m, 2 * n])?]))?;
    for rows in [1, 2, 4, 8, 16] {
        for num_warps in [None, Some(2), Some(4), Some(8)] {
            let label = num_warps.map_or_else(|| format!("{rows} rows"), |n| format!("{rows} rows {n} warps"));
            let mut hints = NO_HINTS;
            hints.num_warps = num_warps;
            row = row.with(label, hints, move |[x, y]: &mut Set, call| {
                let arguments =
                    (ct::math::Interleaved(&*x), ct::math::Interleaved(&mut *y), Constant([rows, n]), Constant(false));
                call.run(m.div_ceil(rows), examples::fft::fft, arguments)
            });
        }
    }
    Ok(Box::new(row))
}
