//! Convolutions with one input channel for each group: a weight for each tap and channel, without
//! products of matrices.
//!
//! A tile has some columns and channels of adjacent rows. A row of the image is loaded once for
//! each column of the window, and multiplied by the weights of all rows of the window. Images,
//! results and gradients are (batch, rows, columns, results of a channel, channel). The gradient of
//! the image is such a convolution, too: of the gradient of the results, summed over the results of
//! a channel.

use std::ops::Range;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Hints, Stream};

use super::taps::{Geometry, Tap, Taps};
use crate::Number;
use crate::launch::{Run, num_multiprocessors};

/// Constants of the kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, columns and channels of a tile.
    tile: [usize; 3],
    taps: Vec<Taps>,
    /// Columns of the window.
    width: usize,
}

impl Form {
    /// The most elements of a row of a tile: 8 for each thread of 4 warps.
    const ROW: usize = 1024;

    /// Returns the tile for results of rows, columns and channels: columns that cover the results
    /// with the fewest places outside.
    fn new([rows, columns, channels]: [usize; 3], taps: Vec<Taps>, width: usize) -> Form {
        let channels = channels.next_power_of_two().min(256);
        let most = (Self::ROW / channels).min(columns.next_power_of_two());
        let wides = (0..=most.ilog2()).map(|power| 1usize << power).filter(|&wide| wide >= most.min(4));
        let wide = wides.min_by_key(|&wide| (columns.next_multiple_of(wide), std::cmp::Reverse(wide)));
        let tile = [rows.next_power_of_two().min(4), wide.unwrap_or(most), channels];
        Form { tile, taps, width }
    }

    /// The grid for results of this shape.
    fn grid(&self, [batch, rows, columns, results, channels]: [usize; 5]) -> [usize; 3] {
        let [high, wide, lanes] = self.tile;
        [channels.div_ceil(lanes) * results, rows.div_ceil(high) * columns.div_ceil(wide), batch]
    }

    /// Returns hints with registers for the taps of a window.
    fn hints(&self, occupancy: u32) -> Hints {
        let [_, wide, channels] = self.tile;
        Hints::new().num_warps((wide * channels / 256).clamp(1, 8) as u32).occupancy(occupancy)
    }

    /// The number of a tap of the window.
    fn number(&self, tap: Tap) -> Scalar<i32> {
        tap.number[0] * self.width as i32 + tap.number[1]
    }
}

type Added<T> = (Option<Array<T, 2>>, Option<Array<T, 5>>);

/// `numbers` are the results of a channel that the images have.
fn convolve<T: Number>(
    images: Vec<Array<T, 5>>,
    w: Array<T, 3>,
    (bias, residual): Added<T>,
    y: ArrayMut<T, 5>,
    (form, numbers): (Form, Range<i32>),
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let [high, wide, channels] = form.tile;
    let (tile, shape) = ([1, 1, wide, 1, channels], [wide, channels]);
    let (columns, tiles) = (y.num_tiles(2, tile), y.num_tiles(4, tile));
    let (place, n) = (ct::bid(1), ct::bid(2));
    let (r, c) = (place / columns * high, place % columns);
    let (result, j) = (ct::bid(0) / tiles, ct::bid(0) % tiles);
    let mut sums = vec![ct::zeros::<f32, 2>(shape); high];
    for (taps, number) in form.taps.iter().flat_map(|&taps| numbers.clone().map(move |number| (taps, number))) {
        let weight = |tap: Tap| {
            w.load((form.number(tap), result + number, j), [1, 1, channels]).reshape([1, channels]).cast::<f32>()
        };
        let load = |row: Scalar<i32>, column: Scalar<i32>| {
            let at = (n, r + row, ct::at(c * wide + column), number, j);
            images[taps.phase].load(at, tile).reshape(shape).cast::<f32>()
        };
        if taps.is_unrolled() {
            let weights: Vec<_> = (0..taps.count() as i32).map(|at| weight(taps.tap(ct::scalar(at)))).collect();
            let load = |[row, column]: [i32; 2]| load(ct::scalar(row), ct::scalar(column));
            taps.rows(high, load, |i, at, x| sums[i] = x.fma(weights[at], sums[i]));
            continue;
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = taps.fold(*sum, |sum, tap| load(tap.offset[0] + i as i32, tap.offset[1]).fma(weight(tap), sum));
        }
    }
    let bias = bias.map(|bias| bias.load((result, j), [1, channels]).cast::<f32>());
    for (i, mut sum) in sums.into_iter().enumerate() {
        let at = (n, r + i as i32, c, result, j);
        if let Some(bias) = bias {
            sum += bias;
        }
        if let Some(residual) = residual {
            sum += residual.load(at, tile).cast::<f32>().reshape(shape);
        }
        y.store(at, activation(sum).cast::<T>().reshape(tile));
    }
}

/// Products of image and results, summed over the places of a split: for all taps of a phase, or
/// one of many. Sums are (split, tap, results of a channel, channel).
fn products<T: Number>(x: Array<T, 5>, dy: Array<T, 5>, sums: ArrayMut<f32, 4>, form: Form, splits: usize) {
    let [high, wide, channels] = form.tile;
    let (tile, shape) = ([1, 1, wide, 1, channels], [wide, channels]);
    let tiles = dy.num_tiles(4, tile);
    let (result, j) = (ct::bid(0) / tiles, ct::bid(0) % tiles);
    let (taps, tap, split) = (form.taps[0], form.taps[0].tap(ct::bid(1)), ct::bid(2));
    let (images, highs, wides) = (dy.extent(0), dy.extent(1).ceil_div(high as i32), dy.num_tiles(2, tile));
    let all = ct::range(split, images * highs * wides).step(splits as i32);
    let count = if taps.is_unrolled() { taps.count() } else { 1 };
    let each = ct::fold(all, vec![ct::zeros::<f32, 2>(shape); count], |mut sums: Vec<Tile<f32, 2>>, at| {
        let (c, place) = (at % wides, at / wides);
        let (r, n) = (place % highs * high, place / highs);
        let load = |row: Scalar<i32>, column: Scalar<i32>| {
            x.load((n, r + row, ct::at(c * wide + column), 0, j), tile).reshape(shape).cast::<f32>()
        };
        let dy = |i: usize| dy.load((n, r + i as i32, c, result, j), tile).reshape(shape).cast::<f32>();
        let dy: Vec<_> = (0..high).map(dy).collect();
        if taps.is_unrolled() {
            let load = |[row, column]: [i32; 2]| load(ct::scalar(row), ct::scalar(column));
            taps.rows(high, load, |i, at, x| sums[at] = x.fma(dy[i], sums[at]));
        } else {
            for (i, dy) in dy.into_iter().enumerate() {
                sums[0] = load(tap.offset[0] + i as i32, tap.offset[1]).fma(dy, sums[0]);
            }
        }
        sums
    });
    for (at, sum) in each.into_iter().enumerate() {
        let tap = if taps.is_unrolled() { taps.tap(ct::scalar(at as i32)) } else { tap };
        sums.store((split, form.number(tap), result, j), sum.sum(0).reshape([1, 1, 1, channels]));
    }
}

/// Returns an array (batch, rows, columns, channel · results) as (batch, rows, columns, results,
/// channel).
#[track_caller]
fn split<T: Number>(view: DeviceView<T, 4>, channels: usize) -> ct::Result<DeviceView<T, 5>> {
    let [batch, rows, columns, all] = view.shape();
    if all == channels {
        return view.reshape([batch, rows, columns, 1, channels]);
    }
    view.reshape([batch, rows, columns, channels, all / channels])?.permute([0, 1, 2, 4, 3])
}

/// As [`split`], of an array that is written.
#[track_caller]
fn split_mut<T: Number>(view: DeviceViewMut<T, 4>, channels: usize) -> ct::Result<DeviceViewMut<T, 5>> {
    let [batch, rows, columns, all] = view.shape();
    if all == channels {
        return view.reshape([batch, rows, columns, 1, channels]);
    }
    view.reshape([batch, rows, columns, channels, all / channels])?.permute([0, 1, 2, 4, 3])
}

/// Returns weights as (tap, results of a channel, channel).
#[track_caller]
fn weights<T: Number>(geometry: Geometry, w: DeviceView<T, 4>, channels: usize) -> ct::Result<DeviceView<T, 3>> {
    let (taps, results) = (geometry.taps[0] * geometry.taps[1], w.shape()[3] / channels);
    if results == 1 {
        return w.reshape([taps, 1, channels]);
    }
    w.reshape([taps, channels, results])?.permute([0, 2, 1])
}

/// Queues the gradient of the images.
#[track_caller]
pub fn input_gradient<T: Number>(
    stream: &Stream,
    geometry: Geometry,
    dy: DeviceView<T, 4>,
    w: DeviceView<T, 4>,
    dx: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    let channels = dx.shape()[3];
    let (w, dy, mut dx) = (weights(geometry, w, channels)?, split(dy, channels)?, split_mut(dx, channels)?);
    let results = dy.shape()[3] as i32;
    for (phase, taps) in geometry.of_image().into_iter().enumerate() {
        let part = geometry.view_mut(dx.reborrow(), phase)?;
        let [batch, rows, columns, ..] = part.shape();
        if part.is_empty() {
            continue;
        }
        let form = Form::new([rows, columns, channels], vec![taps], geometry.taps[1]);
        let grid = form.grid([batch, rows, columns, 1, channels]);
        let launch = ct::Launch::new(grid).hints(form.hints(4)).stream(stream);
        let kernel = |images: Vec<Array<T, 5>>, w: Array<T, 3>, dx: ArrayMut<T, 5>, form: (Form, Range<i32>)| {
            convolve(images, w, (None, None), dx, form, |sum| sum);
        };
        launch.run(kernel, (vec![dy], w, part, ct::Constant((form, 0..results))))?;
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
    let channels = x.shape()[3];
    let (phases, dy) = (geometry.views(split(x, channels)?)?, split(dy, channels)?);
    let ([batch, rows, columns, results, _], all) = (dy.shape(), geometry.taps[0] * geometry.taps[1]);
    let form = |taps| Form::new([rows.max(1), columns.max(1), channels], taps, geometry.taps[1]);
    let [high, wide, lanes] = form(Vec::new()).tile;
    let boxes = batch * rows.div_ceil(high) * columns.div_ceil(wide);
    let tiles = channels.div_ceil(lanes) * results;
    // Fewer tile blocks than multiprocessors hold at a time: their sums are another kernel's reads.
    let splits = (2 * num_multiprocessors(stream)).div_ceil(tiles).min(boxes).max(1);
    let mut sums = stream.device().unspecified::<f32, 5>([splits, all, 1, channels, results])?;
    for taps in geometry.of_results() {
        let blocks = if taps.is_unrolled() { 1 } else { taps.count() };
        let form = form(vec![taps]);
        let own = sums.view_mut().reshape([splits, all, channels, results])?;
        let own = if results == 1 { own.reshape([splits, all, 1, channels])? } else { own.permute([0, 1, 3, 2])? };
        let launch = ct::Launch::new([tiles, blocks, splits]).hints(form.hints(3)).stream(stream);
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
    let channels = x.shape()[3];
    let residual = residual.map(|residual| split(residual, channels)).transpose()?;
    // Output channels of a group are adjacent: they are an axis before the channels.
    let bias = bias.map(|bias| {
        let results = bias.shape()[0] / channels;
        if results == 1 { bias.reshape([1, channels]) } else { bias.reshape([channels, results])?.permute([1, 0]) }
    });
    let (w, y) = (weights(geometry, w, channels)?, split_mut(y, channels)?);
    let [batch, rows, columns, results, _] = y.shape();
    let form = Form::new([rows, columns, channels], geometry.of_results(), geometry.taps[1]);
    let grid = form.grid([batch, rows, columns, results, channels]);
    type Constants = (Form, Range<i32>);
    let kernel =
        move |images: Vec<Array<T, 5>>, w: Array<T, 3>, added: Added<T>, y: ArrayMut<T, 5>, form: Constants| {
            convolve(images, w, added, y, form, activation);
        };
    let (images, added) = (geometry.views(split(x, channels)?)?, (bias.transpose()?, residual));
    ct::Launch::new(grid)
        .hints(form.hints(4))
        .stream(stream)
        .run(kernel, (images, w, added, y, ct::Constant((form, 0..1))))
}
