//! Rows of order: sorted rows of a matrix, the largest elements of rows.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row, warps};
use super::{examples, kernels};

pub fn sort(place: Place, m: usize, n: usize) -> ct::Result<Box<dyn Row>> {
    type Set = [ct::DeviceArray<f32, 2>; 2];
    let addresses = |set: &Set| set.iter().map(|array| array.address()).collect();
    let mut row = Configurations::new(place, addresses, |d| Ok([d.zeros([m, n])?, d.zeros([m, n])?]))?;
    for (label, hints) in warps() {
        row = row.with(label, hints, move |[x, y]: &mut Set, call| {
            call.run(m, kernels::sort, (&*x, y, Constant(n.next_power_of_two())))
        });
    }
    Ok(Box::new(row))
}

/// x, value, index.
type Set = (ct::DeviceArray<f32, 2>, ct::DeviceArray<f32, 2>, ct::DeviceArray<i32, 2>);

/// Rows that one tile holds.
pub fn top_k(place: Place, [m, n, k]: [usize; 3]) -> ct::Result<Box<dyn Row>> {
    let addresses = |(x, value, index): &Set| vec![x.address(), value.address(), index.address()];
    let make = |d: Device| Ok((d.zeros([m, n])?, d.zeros([m, k])?, d.zeros([m, k])?));
    let mut row = Configurations::new(place, addresses, make)?;
    for rows in [4, 8, 16, 32] {
        // Up to 16 elements a thread.
        let chosen = [1, 2, 4, 8].into_iter().filter(|warps| rows as u32 <= 4 * warps).map(Some);
        for num_warps in std::iter::once(None).chain(chosen) {
            let label = num_warps.map_or_else(|| format!("{rows} rows"), |n| format!("{rows} rows {n} warps"));
            let mut hints = NO_HINTS;
            hints.num_warps = num_warps;
            row = row.with(label, hints, move |(x, value, index): &mut Set, call| {
                let extents = ([rows, n.next_power_of_two()], k);
                call.run(m.div_ceil(rows), kernels::top_k, (&*x, value, index, Constant(extents)))
            });
        }
    }
    Ok(Box::new(row))
}

/// Rows of a vocabulary: rounds of blocks that each leave `k` elements.
pub fn top_k_of_many(place: Place, [m, n, k]: [usize; 3]) -> ct::Result<Box<dyn Row>> {
    use examples::vocabulary::{LEFT, choose};
    // x, the remaining elements of the rounds (the result first), no words.
    type Left = (ct::DeviceArray<f32, 2>, ct::DeviceArray<i32, 2>);
    type Set = (ct::DeviceArray<f32, 2>, Vec<Left>, ct::DeviceArray<i32, 2>);
    assert!(k.next_power_of_two() == LEFT, "the example leaves {LEFT}");
    const TILES: [usize; 4] = [512, 1024, 2048, 4096];
    let widest = n.div_ceil(TILES[0]) * LEFT;
    let addresses = |(x, left, _): &Set| {
        let (value, index) = &left[0];
        vec![x.address(), value.address(), index.address()]
    };
    let make = |d: Device| {
        let left = [LEFT, widest, widest].map(|width| Ok((d.zeros([m, width])?, d.zeros([m, width])?)));
        Ok((d.zeros([m, n])?, left.into_iter().collect::<ct::Result<_>>()?, d.zeros([0, 0])?))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    for tile in TILES {
        for num_warps in [None, Some(4), Some(8)] {
            let label = num_warps.map_or_else(|| format!("tile {tile}"), |n| format!("tile {tile} {n} warps"));
            let mut hints = NO_HINTS;
            hints.num_warps = num_warps;
            row = row.with(label, hints, move |(x, left, none): &mut Set, call| {
                let [result, rounds @ ..] = &mut left[..] else { unreachable!("three pairs") };
                let mut rounds = rounds.iter_mut().collect::<Vec<_>>();
                let (mut width, mut turn) = (n, 0);
                while width > tile {
                    let parts = width.div_ceil(tile);
                    rounds.swap(0, 1);
                    let [to, from] = &mut rounds[..] else { unreachable!("two pairs") };
                    let mut largest = to.0.view_mut().slice(1, ..parts * LEFT)?;
                    let mut chosen = to.1.view_mut().slice(1, ..parts * LEFT)?;
                    let outputs = (&mut largest, &mut chosen);
                    let constants = Constant((tile, turn == 0));
                    match turn {
                        0 => call.run([parts, m], choose, ((x.view(), none.view()), outputs, constants))?,
                        _ => {
                            let inputs = (from.0.view().slice(1, ..width)?, from.1.view().slice(1, ..width)?);
                            call.run([parts, m], choose, (inputs, outputs, constants))?;
                        }
                    }
                    (width, turn) = (parts * LEFT, turn + 1);
                }
                let [from, _] = &rounds[..] else { unreachable!("two pairs") };
                let inputs = (from.0.view().slice(1, ..width)?, from.1.view().slice(1, ..width)?);
                let tile = width.next_power_of_two();
                call.run([1, m], choose, (inputs, (&mut result.0, &mut result.1), Constant((tile, false))))
            });
        }
    }
    Ok(Box::new(row))
}
