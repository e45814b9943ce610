//! Convolution in two dimensions, as a product of matrices without a copy of the windows (implicit
//! GEMM).
//!
//! A tile of the result has a box of images, rows and columns, and some output channels. Each tap
//! of the window and each part of the input channels is a product of a box of the image and a tile
//! of weights. The box begins at any row and column. Boxes outside of the image have zeros: the
//! padding. TMA prefetches both for the products. Strides are those of views ([`super::taps`]).
//! Grouped channels are an axis of their own.
//!
//! If there are fewer tiles than multiprocessors, some tile blocks share the products of a tile
//! (split-K). Another kernel adds their sums in order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, Target};

use super::taps::{Line, Tap, Taps, Work, fitting_box};
use crate::Number;
use crate::launch::{Run, is_batch_invariant, num_multiprocessors, target};

/// Constants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Images, rows and columns of a box.
    pub boxed: [usize; 3],
    /// Output channels of a tile.
    pub outputs: usize,
    /// Input channels of a product.
    pub channels: usize,
    pub taps: Vec<Taps>,
    /// Columns of the window.
    pub width: usize,
    /// The weights are (taps, outputs, group, inputs) instead of (taps, inputs, group, outputs).
    pub is_transposed: bool,
    /// Tile blocks that share the products of a tile.
    pub splits: usize,
}

impl Form {
    /// Returns the tiles for results of this shape: batch, rows, columns, groups, channels.
    pub fn new<T>(
        [images, rows, columns, groups, outputs]: [usize; 5],
        channels: usize,
        stream: &Stream,
        taps: Vec<Taps>,
        width: usize,
    ) -> Form {
        let places = [images, rows, columns];
        let power = |extent: usize| extent.next_power_of_two().max(16);
        let (m, n, k) = match (target(stream), size_of::<T>()) {
            (None, _) => (32, 32, 16),
            (Some(Target::SM_90A), 2) => (128, 256, 64),
            (Some(_), 2) => (128, 128, 32),
            (Some(_), _) => (64, 64, 32),
        };
        let (n, k) = (n.min(power(outputs)), k.min(power(channels)));
        if is_batch_invariant() {
            let boxed = fitting_box(m, places);
            return Form { boxed, outputs: n, channels: k, taps, width, is_transposed: false, splits: 1 };
        }
        let blocks = num_multiprocessors(stream);
        let products = taps.iter().map(|taps| taps.count()).sum::<usize>() * channels.div_ceil(k);
        let work = |tile: [usize; 2]| {
            let [i, r, c] = fitting_box(tile[0], places);
            let boxes = images.div_ceil(i) * rows.div_ceil(r) * columns.div_ceil(c);
            Work { tiles: boxes * outputs.div_ceil(tile[1]) * groups, tile, products, blocks }
        };
        // Tiles down to 64 by 64, and one that all multiprocessors compute at a time.
        let halves = |extent: usize| std::iter::successors(Some(extent), |&half| (half > 64).then_some(half / 2));
        let mut tiles: Vec<[usize; 2]> = halves(m).flat_map(|m| halves(n).map(move |n| [m, n])).collect();
        let wide = [2 * m, n.min(128)];
        if m == 128 && n >= 128 && work(wide).tiles <= blocks {
            tiles.push(wide);
        }
        let time = |tile: [usize; 2]| work(tile).time(work(tile).splits());
        let [m, n] = tiles.into_iter().min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or([m, n]);
        // The interpreter shares the products of small tests, too.
        let splits = target(stream).map_or(Work::most_splits(products).min(3), |_| work([m, n]).splits());
        Form { boxed: fitting_box(m, places), outputs: n, channels: k, taps, width, is_transposed: false, splits }
    }

    /// The tile of the result.
    fn tile(&self) -> [usize; 5] {
        let [images, rows, columns] = self.boxed;
        [images, rows, columns, 1, self.outputs]
    }

    /// The grid for results of this shape.
    pub fn grid(&self, [images, rows, columns, groups, outputs]: [usize; 5]) -> [usize; 3] {
        let [i, r, c] = self.boxed;
        [outputs.div_ceil(self.outputs) * groups, rows.div_ceil(r) * columns.div_ceil(c), images.div_ceil(i)]
    }
}

/// Addends of the sums: a bias (group, channel), and a residual of the shape of the result.
type Added<T> = (Option<Array<T, 2>>, Option<Array<T, 5>>);

/// A tile of the result: numbers along images, rows, columns, groups and channels.
type Place = [Scalar<i32>; 5];

/// Returns the place of a tile block, with its number along the images.
fn place<T: Number>(y: ArrayMut<T, 5>, tile: [usize; 5], n: Scalar<i32>) -> Place {
    let (columns, tiles) = (y.num_tiles(2, tile), y.num_tiles(4, tile));
    let (place, channel) = (ct::bid(1), ct::bid(0));
    [n, place / columns, place % columns, channel / tiles, channel % tiles]
}

/// Adds the products of a tile with the taps of a phase: every `splits`-th one from `split` on.
fn add<T: Number>(
    sum: Tile<f32, 2>,
    (image, w): (Array<T, 5>, Array<T, 4>),
    [n, r, c, group, j]: Place,
    (count, tap): (Scalar<i32>, impl Fn(Scalar<i32>) -> Tap),
    split: Scalar<i32>,
    form: &Form,
) -> Tile<f32, 2> {
    let ([i, high, wide], outputs, channels) = (form.boxed, form.outputs, form.channels);
    let shape = [i, high, wide, 1, channels];
    let parts = image.num_tiles(4, shape);
    ct::fold(ct::range(split, parts * count).step(form.splits as i32), sum, |sum, at| {
        let (tap, part) = (tap(at / parts), at % parts);
        let at = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), group, part);
        let left = image.load(at, shape).reshape([i * high * wide, channels]);
        let number = tap.number[0] * form.width as i32 + tap.number[1];
        let right = if form.is_transposed {
            w.load((number, j, group, part), [1, outputs, 1, channels]).reshape([outputs, channels]).transpose()
        } else {
            w.load((number, part, group, j), [1, channels, 1, outputs]).reshape([channels, outputs])
        };
        ct::mma(left, right, sum)
    })
}

/// Returns the sum of the products of a tile with the taps of all phases, as [`add`].
fn sum<T: Number>(x: &[Array<T, 5>], w: Array<T, 4>, at: Place, split: Scalar<i32>, form: &Form) -> Tile<f32, 2> {
    let zero = ct::zeros([form.boxed.iter().product(), form.outputs]);
    form.taps.iter().fold(zero, |sum, &taps| {
        let count = ct::scalar(taps.count() as i32);
        add(sum, (x[taps.phase], w), at, (count, |at| taps.tap(at)), split, form)
    })
}

/// Stores a tile of the result of its sums.
fn store<T: Number>(
    sum: Tile<f32, 2>,
    place: Place,
    (bias, residual): Added<T>,
    y: ArrayMut<T, 5>,
    tile: [usize; 5],
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let [m, outputs] = sum.shape();
    let sum = bias.map_or(sum, |bias| sum + bias.load((place[3], place[4]), [1, outputs]).cast::<f32>());
    let sum = residual.map_or(sum, |more| sum + more.load(place, tile).cast::<f32>().reshape([m, outputs]));
    y.store(place, activation(sum).cast::<T>().reshape(tile));
}

/// Images and results are (batch, rows, columns, group, channel).
fn convolve<T: Number>(
    images: Vec<Array<T, 5>>,
    w: Array<T, 4>,
    added: Added<T>,
    y: ArrayMut<T, 5>,
    form: Form,
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let tile = form.tile();
    let place = place(y, tile, ct::bid(2));
    store(sum(&images, w, place, ct::scalar(0), &form), place, added, y, tile, activation);
}

/// The sums of a split, along the images of `sums`.
fn convolve_split<T: Number>(images: Vec<Array<T, 5>>, w: Array<T, 4>, sums: ArrayMut<f32, 5>, form: Form) {
    let (tile, splits) = (form.tile(), form.splits as i32);
    let [n, r, c, group, j] = place(sums, tile, ct::bid(2) / splits);
    let split = ct::bid(2) % splits;
    let sum = sum(&images, w, [n, r, c, group, j], split, &form);
    let tiles = ct::num_blocks(2) / splits;
    sums.store((split * tiles + n, r, c, group, j), sum.reshape(tile));
}

/// Adds the sums of all splits in order. A tile is a part of a box.
fn add_splits<T: Number>(
    sums: Array<f32, 5>,
    added: Added<T>,
    y: ArrayMut<T, 5>,
    (tile, splits): ([usize; 5], usize),
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let place = place(y, tile, ct::bid(2));
    let (shape, splits) = ([tile[..4].iter().product(), tile[4]], splits as i32);
    let images = sums.extent(0) / splits;
    let sum = ct::fold(..ct::scalar(splits), ct::zeros::<f32, 2>(shape), |sum, split| {
        let [n, r, c, group, j] = place;
        sum + sums.load((ct::at(split * images + n * tile[0]), r, c, group, j), tile).reshape(shape)
    });
    store(sum, place, added, y, tile, activation);
}

/// Views of the addends of the sums.
type AddedViews<'a, T> = (Option<DeviceView<'a, T, 2>>, Option<DeviceView<'a, T, 5>>);

/// Queues a convolution of images and results (batch, rows, columns, group, channel).
#[track_caller]
pub fn queue<T: Number>(
    stream: &Stream,
    images: Vec<DeviceView<T, 5>>,
    w: DeviceView<T, 4>,
    added: AddedViews<T>,
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2> + Copy,
    y: DeviceViewMut<T, 5>,
    form: Form,
) -> ct::Result<()> {
    let shape = y.shape();
    let [channels, places, boxes] = form.grid(shape);
    if form.splits == 1 {
        let kernel = move |images: Vec<Array<T, 5>>, w: Array<T, 4>, added: Added<T>, y: ArrayMut<T, 5>, form: Form| {
            convolve(images, w, added, y, form, activation);
        };
        let launch = ct::Launch::new([channels, places, boxes]).stream(stream);
        return launch.run(kernel, (images, w, added, y, ct::Constant(form)));
    }
    let mut covered = shape;
    covered[0] = form.splits * boxes * form.boxed[0];
    let mut sums = stream.device().unspecified::<f32, 5>(covered)?;
    let launch = ct::Launch::new([channels, places, boxes * form.splits]).stream(stream);
    launch.run(convolve_split::<T>, (images, w, &mut sums, ct::Constant(form.clone())))?;
    let part = Form { boxed: fitting_box(16, [shape[0], shape[1], shape[2]]), outputs: form.outputs.min(64), ..form };
    let kernel = move |sums: Array<f32, 5>, added: Added<T>, y: ArrayMut<T, 5>, tile: ([usize; 5], usize)| {
        add_splits(sums, added, y, tile, activation);
    };
    let launch = ct::Launch::new(part.grid(shape)).stream(stream);
    launch.run(kernel, (&sums, added, y, ct::Constant((part.tile(), part.splits))))
}

/// The gradient of images, in all phases. The image is (batch, rows, row phase, columns, column
/// phase and channel), taps are those of one phase after another.
fn convolve_phases<T: Number>(image: Array<T, 5>, w: Array<T, 4>, y: ArrayMut<T, 5>, (form, wide): (Form, usize)) {
    let ([i, high, columns], outputs, phases) = (form.boxed, form.outputs, form.taps.len() as i32);
    let tile = [i, high, 1, columns, outputs];
    let tiles = y.num_tiles(4, tile) / wide as i32;
    let (phase, across) = (ct::bid(2) % phases, y.num_tiles(3, tile));
    let (r, c) = (ct::bid(1) / across, ct::bid(1) % across);
    let place = [ct::bid(2) / phases, r, c, ct::scalar(0), ct::bid(0)];
    let of_phase = |number: &dyn Fn(Taps) -> i32| {
        let numbers = form.taps.iter().enumerate();
        numbers.fold(ct::scalar(0), |all: Scalar<i32>, (at, &taps)| ct::select(phase.eq(at as i32), number(taps), all))
    };
    let line = |line: &dyn Fn(Taps) -> Line| {
        let [first, step] = [of_phase(&|taps| line(taps).first as i32), of_phase(&|taps| line(taps).step as i32)];
        let [offset, slope] = [of_phase(&|taps| line(taps).offset), of_phase(&|taps| line(taps).offset_step)];
        move |at: Scalar<i32>| (first + at * step, offset + at * slope)
    };
    let (rows, width) = (line(&|taps| taps.rows), of_phase(&|taps| taps.columns.count.max(1) as i32));
    let columns = line(&|taps| taps.columns);
    let tap = |at: Scalar<i32>| {
        let ((row, above), (column, before)) = (rows(at / width), columns(at % width));
        Tap { number: [row, column], offset: [above, before] }
    };
    let count = of_phase(&|taps| taps.count() as i32);
    let zero = ct::zeros([form.boxed.iter().product(), outputs]);
    let sum = add(zero, (image, w), place, (count, tap), ct::scalar(0), &form);
    let wide = wide as i32;
    let at = (place[0], r, phase / wide, c, phase % wide * tiles + place[4]);
    y.store(at, sum.cast::<T>().reshape(tile));
}

/// Queues the gradient of images in all phases, with `wide` phases of columns.
#[track_caller]
pub fn queue_phases<T: Number>(
    stream: &Stream,
    image: DeviceView<T, 5>,
    w: DeviceView<T, 4>,
    y: DeviceViewMut<T, 5>,
    (form, wide): (Form, usize),
) -> ct::Result<()> {
    let [batch, rows, _, columns, channels] = y.shape();
    let [x, places, boxes] = form.grid([batch, rows, columns, 1, channels / wide]);
    let grid = [x, places, boxes * form.taps.len()];
    ct::Launch::new(grid).stream(stream).run(convolve_phases::<T>, (image, w, y, ct::Constant((form, wide))))
}
