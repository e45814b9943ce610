//! Convolutions with one input channel for each group: a weight for each tap and channel, without products of matrices.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::taps::{Geometry, Taps};
use crate::Number;
use crate::launch::Run;

/// Constants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, columns and channels of a tile.
    tile: [usize; 3],
    taps: Vec<Taps>,
    width: usize,
}

type Added<T> = (Option<Array<T, 2>>, Option<Array<T, 5>>);

/// Images are (batch, rows, columns, channel), results (batch, rows, columns, results of a channel, channel).
fn convolve<T: Number>(
    images: Vec<Array<T, 4>>,
    w: Array<T, 3>,
    (bias, residual): Added<T>,
    y: ArrayMut<T, 5>,
    form: Form,
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let [high, wide, channels] = form.tile;
    let tile = [1, high, wide, 1, channels];
    let (columns, tiles) = (y.num_tiles(2, tile), y.num_tiles(4, tile));
    let (place, n) = (ct::bid(1), ct::bid(2));
    let (r, c) = (place / columns, place % columns);
    let (number, j) = (ct::bid(0) / tiles, ct::bid(0) % tiles);
    let mut sum = ct::zeros::<f32, 2>([high * wide, channels]);
    for taps in &form.taps {
        for (row, above) in taps.rows.taps() {
            for (column, before) in taps.columns.taps() {
                let at = (n, ct::at(r * high + above), ct::at(c * wide + before), j);
                let x = images[taps.phase].load(at, [1, high, wide, channels]).reshape([high * wide, channels]);
                let tap = (row * form.width + column) as i32;
                let w = w.load((tap, number, j), [1, 1, channels]).reshape([1, channels]);
                sum = x.cast::<f32>().fma(w.cast::<f32>(), sum);
            }
        }
    }
    let at = (n, r, c, number, j);
    if let Some(bias) = bias {
        sum += bias.load((number, j), [1, channels]).cast::<f32>();
    }
    if let Some(residual) = residual {
        sum += residual.load(at, tile).cast::<f32>().reshape([high * wide, channels]);
    }
    y.store(at, activation(sum).cast::<T>().reshape(tile));
}

/// Queues the convolution of images by weights (rows, columns, 1, outputs).
#[track_caller]
pub fn forward<T: Number>(
    stream: &Stream,
    geometry: Geometry,
    x: DeviceView<T, 4>,
    w: DeviceView<T, 4>,
    (bias, residual): (Option<DeviceView<T, 1>>, Option<DeviceView<T, 4>>),
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2> + Copy,
    y: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    let ([batch, rows, columns, outputs], channels) = (y.shape(), x.shape()[3]);
    let results = outputs / channels;
    // Output channels of a group are adjacent: they are an axis before the channels.
    let split = [batch, rows, columns, channels, results];
    let order = [0, 1, 2, 4, 3];
    let residual = residual.map(|residual| residual.reshape(split)?.permute(order)).transpose()?;
    let bias = bias.map(|bias| bias.reshape([channels, results])?.permute([1, 0])).transpose()?;
    let w = w.reshape([geometry.taps[0] * geometry.taps[1], channels, results])?.permute([0, 2, 1])?;
    let wide = columns.next_power_of_two().min(8);
    let tile = [rows.next_power_of_two().min(4), wide, channels.next_power_of_two().min(64)];
    let grid = [channels.div_ceil(tile[2]) * results, rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]), batch];
    let form = Form { tile, taps: geometry.of_results(), width: geometry.taps[1] };
    let kernel = move |images: Vec<Array<T, 4>>, w: Array<T, 3>, added: Added<T>, y: ArrayMut<T, 5>, form: Form| {
        convolve(images, w, added, y, form, activation);
    };
    let y = y.reshape(split)?.permute(order)?;
    let images = geometry.views(x)?;
    ct::Launch::new(grid).stream(stream).run(kernel, (images, w, (bias, residual), y, ct::Constant(form)))
}
