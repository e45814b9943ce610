//! Convolutions with one input channel for each group: a weight for each tap and channel, without
//! products of matrices.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Hints, Stream};

use super::taps::{Geometry, Taps};
use crate::Number;
use crate::launch::{Run, num_multiprocessors};

/// Constants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, columns and channels of a tile.
    tile: [usize; 3],
    taps: Vec<Taps>,
    width: usize,
}

type Added<T> = (Option<Array<T, 2>>, Option<Array<T, 5>>);

/// Images are (batch, rows, columns, channel), results (batch, rows, columns, results of a channel,
/// channel).
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
        sum = taps.fold(sum, |sum: Tile<f32, 2>, tap| {
            let at = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), j);
            let x = images[taps.phase].load(at, [1, high, wide, channels]).reshape([high * wide, channels]);
            let place = tap.number[0] * form.width as i32 + tap.number[1];
            let w = w.load((place, number, j), [1, 1, channels]).reshape([1, channels]);
            x.cast::<f32>().fma(w.cast::<f32>(), sum)
        });
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

/// Elements of the image in one phase. Results are (batch, rows, columns, results of a channel,
/// channel).
fn spread<T: Number>(dy: Array<T, 5>, w: Array<T, 3>, dx: ArrayMut<T, 4>, form: Form, results: usize) {
    let [high, wide, channels] = form.tile;
    let tile = [1, high, wide, channels];
    let columns = dx.num_tiles(2, tile);
    let (j, place, n) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let (r, c) = (place / columns, place % columns);
    let mut sum = ct::zeros::<f32, 4>(tile);
    for taps in &form.taps {
        for number in 0..results as i32 {
            sum = taps.fold(sum, |sum: Tile<f32, 4>, tap| {
                let at = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), number, j);
                let dy = dy.load(at, [1, high, wide, 1, channels]).reshape(tile);
                let place = tap.number[0] * form.width as i32 + tap.number[1];
                let w = w.load((place, number, j), [1, 1, channels]).reshape([1, 1, 1, channels]);
                dy.cast::<f32>().fma(w.cast::<f32>(), sum)
            });
        }
    }
    dx.store((n, r, c, j), sum.cast::<T>());
}

/// Products of image and results, summed over the places of a split. Sums are (split, tap, results
/// of a channel, channel).
fn products<T: Number>(x: Array<T, 4>, dy: Array<T, 5>, sums: ArrayMut<f32, 4>, form: Form, splits: usize) {
    let [high, wide, channels] = form.tile;
    let tile = [1, high, wide, 1, channels];
    let tiles = dy.num_tiles(4, tile);
    let (number, j) = (ct::bid(0) / tiles, ct::bid(0) % tiles);
    let (tap, split) = (form.taps[0].tap(ct::bid(1)), ct::bid(2));
    let [images, highs, wides] = [0, 1, 2].map(|axis| dy.num_tiles(axis, tile));
    let places = high * wide;
    let all = ct::range(split, images * highs * wides).step(splits as i32);
    let sum = ct::fold(all, ct::zeros::<f32, 2>([places, channels]), |sum: Tile<f32, 2>, at| {
        let (c, place) = (at % wides, at / wides);
        let (r, n) = (place % highs, place / highs);
        let from = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), j);
        let x = x.load(from, [1, high, wide, channels]).reshape([places, channels]);
        let dy = dy.load((n, r, c, number, j), tile).reshape([places, channels]);
        x.cast::<f32>().fma(dy.cast::<f32>(), sum)
    });
    let place = tap.number[0] * form.width as i32 + tap.number[1];
    sums.store((split, place, number, j), sum.sum(0).reshape([1, 1, 1, channels]));
}

/// Returns hints with registers for the taps of a window.
fn hints() -> Hints {
    Hints::new().num_warps(8).occupancy(4)
}

/// Returns the tile for images of rows, columns and channels.
fn tile([rows, columns, channels]: [usize; 3]) -> [usize; 3] {
    [rows.next_power_of_two().min(4), columns.next_power_of_two().min(8), channels.next_power_of_two().min(64)]
}

/// Queues the gradient of the images.
#[track_caller]
pub fn input_gradient<T: Number>(
    stream: &Stream,
    geometry: Geometry,
    dy: DeviceView<T, 4>,
    w: DeviceView<T, 4>,
    mut dx: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    let ([batch, rows, columns, outputs], channels) = (dy.shape(), dx.shape()[3]);
    let results = outputs / channels;
    let dy = dy.reshape([batch, rows, columns, channels, results])?.permute([0, 1, 2, 4, 3])?;
    let w = w.reshape([geometry.taps[0] * geometry.taps[1], channels, results])?.permute([0, 2, 1])?;
    for (phase, taps) in geometry.of_image().into_iter().enumerate() {
        let part = geometry.view_mut(dx.reborrow(), phase)?;
        let [_, rows, columns, _] = part.shape();
        if part.is_empty() {
            continue;
        }
        let tile = tile([rows, columns, channels]);
        let form = Form { tile, taps: vec![taps], width: geometry.taps[1] };
        let grid = [channels.div_ceil(tile[2]), rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]), batch];
        let launch = ct::Launch::new(grid).hints(hints()).stream(stream);
        launch.run(spread::<T>, (dy, w, part, ct::Constant(form), ct::Constant(results)))?;
    }
    Ok(())
}

/// Queues the sums of the gradient of the weights: (split, tap, 1, channel, results of a channel).
/// Returns them.
#[track_caller]
pub fn weight_sums<T: Number>(
    stream: &Stream,
    geometry: Geometry,
    x: DeviceView<T, 4>,
    dy: DeviceView<T, 4>,
) -> ct::Result<DeviceArray<f32, 5>> {
    let ([batch, rows, columns, outputs], channels) = (dy.shape(), x.shape()[3]);
    let (results, taps) = (outputs / channels, geometry.taps[0] * geometry.taps[1]);
    let tile = tile([rows.max(1), columns.max(1), channels]);
    let boxes = batch * rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]);
    let tiles = channels.div_ceil(tile[2]) * results;
    // Some tile blocks on each multiprocessor wait for memory at a time.
    let splits = (8 * num_multiprocessors(stream)).div_ceil(tiles * taps).min(boxes).max(1);
    let mut sums = stream.device().zeros::<f32, 5>([splits, taps, 1, channels, results])?;
    let dy = dy.reshape([batch, rows, columns, channels, results])?.permute([0, 1, 2, 4, 3])?;
    let phases = geometry.views(x)?;
    for taps in geometry.of_results() {
        let form = Form { tile, taps: vec![taps], width: geometry.taps[1] };
        let shape = [splits, geometry.taps[0] * geometry.taps[1], channels, results];
        let own = sums.view_mut().reshape(shape)?.permute([0, 1, 3, 2])?;
        let launch = ct::Launch::new([tiles, taps.count(), splits]).stream(stream);
        launch.run(products::<T>, (phases[taps.phase], dy, own, ct::Constant(form), ct::Constant(splits)))?;
    }
    Ok(sums)
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
    let tile = tile([rows, columns, channels]);
    let grid = [channels.div_ceil(tile[2]) * results, rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]), batch];
    let form = Form { tile, taps: geometry.of_results(), width: geometry.taps[1] };
    let kernel = move |images: Vec<Array<T, 4>>, w: Array<T, 3>, added: Added<T>, y: ArrayMut<T, 5>, form: Form| {
        convolve(images, w, added, y, form, activation);
    };
    let y = y.reshape(split)?.permute(order)?;
    let images = geometry.views(x)?;
    ct::Launch::new(grid)
        .hints(hints())
        .stream(stream)
        .run(kernel, (images, w, (bias, residual), y, ct::Constant(form)))
}
