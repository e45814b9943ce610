//! Rows of `cutlet_kernels::order`.

use cutlet as ct;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::order::{Direction, SortPlan, sort_keys, sort_keys_by, sort_pairs};

use crate::row::{Row, Work};

/// Returns random words on a GPU. Values do not matter to the cost model and to ptxas.
fn words(device: Device, n: usize) -> ct::Result<DeviceArray<u32, 1>> {
    if device.target().is_none() {
        return device.zeros([n]);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    device.from_fn([n], |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 32) as u32
    })
}

fn sort(log: u32) -> Row {
    let n = 1usize << log;
    Row::new(
        format!("sort u32 2^{log}"),
        // A pass counts, and four passes read and write.
        Work::bytes(4.0 * n as f64 * 9.0),
        move |device| Ok((words(device, n)?, device.zeros([n])?)),
        |(x, y)| sort_keys(&x.device().default_stream(), x.view(), y.view_mut(), Direction::Ascending),
    )
}

fn pairs(log: u32) -> Row {
    let n = 1usize << log;
    Row::new(
        format!("sort u32 with u32 2^{log}"),
        Work::bytes(4.0 * n as f64 * 17.0),
        move |device| Ok((words(device, n)?, device.zeros::<u32, 1>([n])?, device.zeros([n])?, device.zeros([n])?)),
        |(x, v, y, w)| {
            let (from, to) = ((x.view(), v.view()), (y.view_mut(), w.view_mut()));
            sort_pairs(&x.device().default_stream(), from, to, Direction::Ascending)
        },
    )
}

/// Plans for a comparison.
fn planned([warps, elements, blocks]: [usize; 3]) -> Row {
    let n = 1usize << 26;
    Row::new(
        format!("sort plan u32 2^26 {warps} {elements} {blocks}"),
        Work::bytes(4.0 * n as f64 * 9.0),
        move |device| {
            let plan = SortPlan { warps, elements, blocks: blocks as u32 };
            Ok((words(device, n)?, device.zeros([n])?, plan))
        },
        |(x, y, plan)| {
            sort_keys_by(&x.device().default_stream(), x.view(), y.view_mut(), (Direction::Ascending, *plan))
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend([24, 26, 28].map(sort));
    rows.extend([24, 26, 28].map(pairs));
    rows.extend([[8, 16, 3], [16, 8, 2], [16, 16, 1], [8, 8, 4], [8, 8, 6], [4, 16, 6]].map(planned));
    rows
}
