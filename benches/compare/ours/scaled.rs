//! Rows of products of 8-bit floats with scales.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use super::configuration::{Configurations, NO_HINTS, Place, Row};
use super::examples::scaled_matmul::{BLOCK, scaled_matmul as kernel};

/// Both matrices along the sums; scales of rows and of columns; the result.
type Set = ([ct::DeviceArray<f8e4m3fn, 2>; 2], [ct::DeviceArray<f32, 2>; 2], ct::DeviceArray<bf16, 2>);

pub fn scaled_matmul(place: Place, [m, n, k]: [usize; 3]) -> ct::Result<Box<dyn Row>> {
    let addresses = |([a, b], [rows, columns], c): &Set| {
        vec![a.address(), b.address(), rows.address(), columns.address(), c.address()]
    };
    let blocks = k.div_ceil(BLOCK);
    let make = |d: Device| {
        let scales = [d.zeros([blocks, m])?, d.zeros([blocks, n.div_ceil(BLOCK)])?];
        Ok(([d.zeros([m, k])?, d.zeros([n, k])?], scales, d.zeros([m, n])?))
    };
    let mut row = Configurations::new(place, addresses, make)?;
    for [tm, tn] in [[128, 128], [128, 192], [128, 64], [64, 192]] {
        let grid = (m.div_ceil(tm) * n.div_ceil(tn)).min(place.device.num_multiprocessors());
        let extents = Constant([tm, tn]);
        // Clusters of two need an even number of blocks.
        let pairs = (grid % 2 == 0).then_some((" 2 blocks a cluster", NO_HINTS.num_ctas(2)));
        for (what, hints) in [("", NO_HINTS)].into_iter().chain(pairs) {
            row = row.with(format!("{tm}x{tn}{what}"), hints, move |([a, b], [rows, columns], c): &mut Set, call| {
                call.run(grid, kernel, ((&*a, b.transpose()?), (&*rows, &*columns), c, extents))
            });
        }
    }
    Ok(Box::new(row))
}
