//! Convolution in two dimensions, as a product of matrices without a copy of the windows (implicit
//! GEMM).
//!
//! A tile of the result has a box of images, rows and columns, and some output channels. Each tap
//! of the window and each part of the input channels is a product of a box of the image, which
//! begins at any row and column, and of a tile of weights. Boxes outside of the image have zeros:
//! the padding. TMA loads both ahead of the products. Strides are those of views ([`super::taps`]).
//! Grouped channels are an axis of their own.
//!
//! If there are fewer tiles than multiprocessors, some tile blocks share the products of a tile
//! (split-K). Another kernel adds their sums in order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, Target};

use super::taps::{Taps, fitting_box, splits};
use crate::Number;
use crate::launch::{Run, num_multiprocessors, target};

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
    pub occupancy: u32,
    pub ctas: u32,
}

impl Form {
    fn hints(&self) -> cutlet::Hints {
        let mut hints = cutlet::Hints::new();
        if self.occupancy > 0 {
            hints = hints.occupancy(self.occupancy);
        }
        if self.ctas > 0 {
            hints = hints.num_ctas(self.ctas);
        }
        hints
    }

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
        let (mut m, mut n, k) = match (target(stream), size_of::<T>()) {
            (None, _) => (32, 32, 16),
            (Some(Target::SM_90A), 2) => (128, 256, 64),
            (Some(_), 2) => (128, 128, 32),
            (Some(_), _) => (64, 64, 32),
        };
        n = n.min(power(outputs));
        let k = k.min(power(channels));
        let blocks = |m: usize, n: usize| {
            let [i, r, c] = fitting_box(m, places);
            images.div_ceil(i) * rows.div_ceil(r) * columns.div_ceil(c) * outputs.div_ceil(n) * groups
        };
        let products = taps.iter().map(|taps| taps.count()).sum::<usize>() * channels.div_ceil(k);
        // The interpreter shares the products of small tests, too.
        let wanted = target(stream).map_or(16, |_| num_multiprocessors(stream));
        let splits = |blocks: usize| splits(blocks, products, wanted);
        // Enough tile blocks for all multiprocessors: large tiles with shared products, or tiles
        // down to 64 by 64.
        if splits(blocks(m, n)) == 1 {
            while n > 64 && blocks(m, n) < wanted {
                n /= 2;
            }
            if m > 64 && blocks(m, n) < wanted {
                m = 64;
            }
        }
        let (mut boxed, mut splits) = (fitting_box(m, places), splits(blocks(m, n)));
        let mut k = k;
        let (mut occupancy, mut ctas) = (0, 0);
        if let Ok(text) = std::env::var("CONV") {
            let v: Vec<usize> = text.split(',').filter_map(|x| x.parse().ok()).collect();
            boxed = fitting_box(v[0], places);
            n = v[1];
            k = v[2];
            splits = v[3];
            occupancy = v[4] as u32;
            ctas = v[5] as u32;
        }
        Form { boxed, outputs: n, channels: k, taps, width, is_transposed: false, splits, occupancy, ctas }
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

/// A tile of the result: numbers of its box of images, rows and columns, of its group, and of its
/// channels.
#[derive(Clone, Copy)]
struct Place {
    n: Scalar<i32>,
    r: Scalar<i32>,
    c: Scalar<i32>,
    group: Scalar<i32>,
    j: Scalar<i32>,
}

impl Place {
    /// The place of a tile block, with its number along the images.
    fn new<T: Number>(y: ArrayMut<T, 5>, tile: [usize; 5], n: Scalar<i32>) -> Place {
        let (columns, tiles) = (y.num_tiles(2, tile), y.num_tiles(4, tile));
        let (place, channel) = (ct::bid(1), ct::bid(0));
        Place { n, r: place / columns, c: place % columns, group: channel / tiles, j: channel % tiles }
    }

    fn index(self) -> [Scalar<i32>; 5] {
        [self.n, self.r, self.c, self.group, self.j]
    }
}

/// Returns the sum of the products of a tile: of all, or of every `splits`-th one from `split` on.
fn sum<T: Number>(
    images: &[Array<T, 5>],
    w: Array<T, 4>,
    Place { n, r, c, group, j }: Place,
    split: Option<Scalar<i32>>,
    form: &Form,
) -> Tile<f32, 2> {
    let ([i, high, wide], outputs, channels) = (form.boxed, form.outputs, form.channels);
    let m = i * high * wide;
    form.taps.iter().fold(ct::zeros([m, outputs]), |sum, taps| {
        let image = images[taps.phase];
        let shape = [i, high, wide, 1, channels];
        let parts = image.num_tiles(4, shape);
        let product = |sum: Tile<f32, 2>, at: Scalar<i32>| {
            let (tap, part) = (taps.tap(at / parts), at % parts);
            let at = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), group, part);
            let left = image.load(at, shape).reshape([m, channels]);
            let number = tap.number[0] * form.width as i32 + tap.number[1];
            let right = if form.is_transposed {
                w.load((number, j, group, part), [1, outputs, 1, channels]).reshape([outputs, channels]).transpose()
            } else {
                w.load((number, part, group, j), [1, channels, 1, outputs]).reshape([channels, outputs])
            };
            ct::mma(left, right, sum)
        };
        let products = parts * taps.count() as i32;
        match split {
            None => ct::fold(..products, sum, product),
            Some(split) => ct::fold(ct::range(split, products).step(form.splits as i32), sum, product),
        }
    })
}

/// Stores a tile of the result of its sums.
fn store<T: Number>(
    mut sum: Tile<f32, 2>,
    place: Place,
    (bias, residual): Added<T>,
    y: ArrayMut<T, 5>,
    tile: [usize; 5],
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let [m, outputs] = sum.shape();
    if let Some(bias) = bias {
        sum += bias.load((place.group, place.j), [1, outputs]).cast::<f32>();
    }
    if let Some(residual) = residual {
        sum += residual.load(place.index(), tile).cast::<f32>().reshape([m, outputs]);
    }
    y.store(place.index(), activation(sum).cast::<T>().reshape(tile));
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
    let place = Place::new(y, tile, ct::bid(2));
    store(sum(&images, w, place, None, &form), place, added, y, tile, activation);
}

/// The sums of a split, along the images of `sums`.
fn convolve_split<T: Number>(images: Vec<Array<T, 5>>, w: Array<T, 4>, sums: ArrayMut<f32, 5>, form: Form) {
    let (tile, splits) = (form.tile(), form.splits as i32);
    let place = Place::new(sums, tile, ct::bid(2) / splits);
    let split = ct::bid(2) % splits;
    let sum = sum(&images, w, place, Some(split), &form);
    let tiles = ct::num_blocks(2) / splits;
    sums.store(Place { n: split * tiles + place.n, ..place }.index(), sum.reshape(tile));
}

/// Adds the sums of all splits in order. A tile is a part of a box.
fn add_splits<T: Number>(
    sums: Array<f32, 5>,
    added: Added<T>,
    y: ArrayMut<T, 5>,
    (tile, splits): ([usize; 5], usize),
    activation: impl Fn(Tile<f32, 2>) -> Tile<f32, 2>,
) {
    let place = Place::new(y, tile, ct::bid(2));
    let (shape, splits) = ([tile[..4].iter().product(), tile[4]], splits as i32);
    let images = sums.extent(0) / splits;
    let sum = ct::fold(..ct::scalar(splits), ct::zeros::<f32, 2>(shape), |sum, split| {
        let Place { n, r, c, group, j } = place;
        sum + sums.load((ct::at(split * images + n * tile[0]), r, c, group, j), tile).reshape(shape)
    });
    store(sum, place, added, y, tile, activation);
}

/// Views of what is added to the sums.
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
        let launch = ct::Launch::new([channels, places, boxes]).hints(form.hints()).stream(stream);
        return launch.run(kernel, (images, w, added, y, ct::Constant(form)));
    }
    let mut covered = shape;
    covered[0] = form.splits * boxes * form.boxed[0];
    let mut sums = stream.device().unspecified::<f32, 5>(covered)?;
    let launch = ct::Launch::new([channels, places, boxes * form.splits]).hints(form.hints()).stream(stream);
    launch.run(convolve_split::<T>, (images, w, &mut sums, ct::Constant(form.clone())))?;
    let part = Form { boxed: fitting_box(16, [shape[0], shape[1], shape[2]]), outputs: form.outputs.min(64), ..form };
    let kernel = move |sums: Array<f32, 5>, added: Added<T>, y: ArrayMut<T, 5>, tile: ([usize; 5], usize)| {
        add_splits(sums, added, y, tile, activation);
    };
    let launch = ct::Launch::new(part.grid(shape)).stream(stream);
    launch.run(kernel, (&sums, added, y, ct::Constant((part.tile(), part.splits))))
}
