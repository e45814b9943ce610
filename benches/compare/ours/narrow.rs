//! Rows with packed weights.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::{examples, kernels};

/// Weights of a column that share a scale, as in `rows.py`.
const GROUP: usize = 128;
/// Most parts of a sum.
const PARTS: usize = 16;

/// x, weights, scales, y; parts of sums of few rows.
type Set = (
    ct::DeviceArray<f16, 2>,
    ct::packed::PackedDeviceArray<ct::packed::u4, 2>,
    [ct::DeviceArray<f16, 2>; 2],
    ct::DeviceArray<f32, 3>,
);

pub fn quantized_matmul(place: Place, [m, n, k]: [usize; 3]) -> ct::Result<Box<dyn Row>> {
    use examples::quantized_matmul::quantized_matmul;
    let is_small = m <= 64;
    let addresses =
        |(x, weights, [scales, y], _): &Set| vec![x.address(), weights.address(), scales.address(), y.address()];
    let make = |d: Device| {
        let parts = if is_small { d.zeros([PARTS, m, n])? } else { d.zeros([1, 1, 1])? };
        let halves = [d.zeros([k.div_ceil(GROUP), n])?, d.zeros([m, n])?];
        Ok((d.zeros([m, k])?, d.packed_zeros([k, n])?, halves, parts))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    let tm = m.next_power_of_two().max(16);
    let small = [[tm, 32, 128], [tm, 64, 64], [tm, 64, 128], [tm, 128, 64], [tm, 128, 128]];
    let large = [
        [128, 128, 64],
        [128, 128, 32],
        [128, 256, 64],
        [256, 128, 64],
        [256, 128, 128],
        [128, 64, 64],
        [64, 128, 64],
        [64, 256, 64],
    ];
    for tile in if is_small { &small[..] } else { &large[..] }.iter().copied() {
        let [tm, tn, tk] = tile;
        for num_warps in if is_small { [None, Some(2)] } else { [None, Some(8)] } {
            let warps = num_warps.map_or_else(String::new, |n| format!(" {n} warps"));
            let label = format!("{tm}x{tn}x{tk}{warps}");
            let grid = [m.div_ceil(tm), n.div_ceil(tn)];
            let mut hints = NO_HINTS;
            hints.num_warps = num_warps;
            row = row.with(label.clone(), hints, move |(x, weights, [scales, y], _): &mut Set, call| {
                let arguments = (&*x, &*weights, &*scales, y, Constant((tile, GROUP)));
                call.run(grid, quantized_matmul::<ct::packed::u4>, arguments)
            });
            for count in [4, 8, PARTS].into_iter().filter(|_| is_small) {
                let label = format!("{label} in {count} parts");
                row = row.with(label, hints, move |(x, weights, [scales, y], parts): &mut Set, call| {
                    let mut parts = parts.view_mut().slice(0, ..count)?;
                    let arguments = (&*x, &*weights, &*scales, &mut parts, Constant((tile, GROUP)));
                    call.run([grid[0], grid[1], count], kernels::quantized_parts, arguments)?;
                    let sums = [m.div_ceil(16), n.div_ceil(64)];
                    call.run(sums, kernels::quantized_sum, (parts.as_view(), y, Constant([count, 16, 64])))
                });
            }
        }
    }
    Ok(Box::new(row))
}
