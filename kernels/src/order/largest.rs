//! The column of the largest value of each row, from the largest values of groups of columns.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use crate::check::require;
use crate::launch::{Run, is_overlapped};

/// Groups of a tile.
const TILE: usize = 2048;

fn kernel(values: Array<f32, 2>, columns: Array<i32, 2>, result: ArrayMut<i32, 1>, overlapped: bool) {
    if overlapped {
        ct::grid_dependency_control_launch_dependents();
    }
    let row = ct::bid(0);
    let padded = ct::LoadOptions::new().padding(Padding::NegInf);
    let start = (ct::full::<f32, 2>([TILE, 1], f32::NEG_INFINITY), ct::full::<i32, 2>([TILE, 1], i32::MAX));
    let (max, at) = ct::fold(ct::range(0, values.num_tiles(0, [TILE, 1])).unroll(2), start, |(max, at), i| {
        let x = values.load_with((i, row), [TILE, 1], padded.clone());
        let is_larger = x.gt(max);
        (is_larger.select(x, max), is_larger.select(columns.load((i, row), [TILE, 1]), at))
    });
    let first = max.eq(max.reduce_max(0)).select(at, i32::MAX).reduce_min(0).item();
    result.entry(row).store(first);
}

/// Queues the columns of the largest values of the rows, the first of equal ones. `values` and
/// `columns`, of shape (groups, rows), have the largest value of each group of columns and the
/// first column that has it, as [`Matmul::largest`](crate::products::Matmul::largest) stores them.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (values, columns) = (device.array(&[1.0f32, 5.0, 4.0, 5.0], [2, 2])?, device.array(&[3, 2, 9, 8], [2, 2])?);
/// let mut result = device.zeros([2])?;
/// let stream = device.default_stream();
/// cutlet_kernels::order::largest_of_groups(&stream, values.view(), columns.view(), result.view_mut())?;
/// assert_eq!(result.to_vec()?, [9, 2]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for other shapes; those of the launch.
#[track_caller]
pub fn largest_of_groups(
    stream: &Stream,
    values: DeviceView<f32, 2>,
    columns: DeviceView<i32, 2>,
    result: DeviceViewMut<i32, 1>,
) -> ct::Result<()> {
    let ([groups, rows], shape) = (values.shape(), columns.shape());
    require(shape == [groups, rows] && result.len() == rows, || {
        format!("values of shape {:?}, columns of {shape:?}, {} results", [groups, rows], result.len())
    })?;
    if groups * rows == 0 {
        return Ok(());
    }
    let launch = ct::Launch::new(rows).stream(stream).hints(Hints::new().num_warps(8).occupancy(2));
    launch.run(kernel, (values, columns, result, ct::Constant(is_overlapped())))
}
