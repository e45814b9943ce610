//! Sums over the rows of a matrix, in one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::launch::Run;

/// A block adds a stripe of columns.
fn kernel<T: Number>(x: Array<f32, 2>, sums: ArrayMut<T, 1>, tile: [usize; 2]) {
    let j = ct::bid(0);
    let sum = ct::fold(..x.num_tiles(0, tile), ct::zeros::<f32, 2>(tile), |sum, i| sum + x.load((i, j), tile));
    sums.store(j, sum.sum(0).squeeze(0).cast::<T>());
}

/// Queues the sums over the rows of a matrix.
#[track_caller]
pub fn sum_rows<T: Number>(stream: &Stream, x: DeviceView<f32, 2>, sums: DeviceViewMut<T, 1>) -> ct::Result<()> {
    let [rows, columns] = x.shape();
    let tile = [rows.next_power_of_two().min(64), 32];
    ct::Launch::new(columns.div_ceil(tile[1])).stream(stream).run(kernel::<T>, (x, sums, ct::Constant(tile)))
}
