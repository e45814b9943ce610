//! Group norm of images (Wu and He, 2018) of shape (images, channels, ..), with gradients.
//!
//! Tile blocks have parts of a group. A first pass stores the mean of each part and the sum of its
//! squared differences, which later passes combine (Chan, Golub and LeVeque, 1979). The backward
//! pass also stores the sums of dy · n and dy of each channel in each part, for the normalised
//! images n. A last kernel adds these over images and parts. All sums have one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Stream};

use super::sums::sum_rows;
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Least elements of a part.
const ELEMENTS: usize = 8192;
/// Longest part along the positions of a channel.
const LONGEST: usize = 2048;
/// Elements of a tile of sums of parts.
const PARTS: usize = 4096;

/// Extents of parts, for an array of shape (images, groups, channels, positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Channels and positions of a part.
    tile: [usize; 2],
    /// Parts of a group along its channels and positions.
    parts: [usize; 2],
    /// Parts reach outside of the group.
    padded: bool,
}

impl Form {
    fn new([_, _, channels, positions]: [usize; 4]) -> Form {
        let columns = positions.next_power_of_two().min(LONGEST);
        let rows = (ELEMENTS / columns).clamp(1, channels.next_power_of_two());
        let parts = [channels.div_ceil(rows), positions.div_ceil(columns)];
        let padded = !(channels.is_multiple_of(rows) && positions.is_multiple_of(columns));
        Form { tile: [rows, columns], parts, padded }
    }

    /// Shape of a tile.
    fn shape(self) -> [usize; 4] {
        [1, 1, self.tile[0], self.tile[1]]
    }

    /// Number of parts of a group.
    fn count(self) -> usize {
        self.parts[0] * self.parts[1]
    }
}

/// In a kernel: the part of a tile block.
#[derive(Clone, Copy)]
struct Part {
    form: Form,
    /// Channels and positions of a group.
    extents: [Scalar<i32>; 2],
}

impl Part {
    fn new<T: Number>(x: Array<T, 4>, form: Form) -> Part {
        Part { form, extents: [x.extent(2), x.extent(3)] }
    }

    /// Index of the tile: image, group, and parts along channels and positions.
    fn at(self) -> [Scalar<i32>; 4] {
        let along = self.form.parts[1] as i32;
        [ct::bid(2), ct::bid(1), ct::bid(0) / along, ct::bid(0) % along]
    }

    fn load<T: Number>(self, x: Array<T, 4>) -> Tile<f32, 4> {
        x.load(self.at(), self.form.shape()).cast::<f32>()
    }

    /// Zeros outside of the group.
    fn inside(self, x: Tile<f32, 4>) -> Tile<f32, 4> {
        let ([rows, columns], [_, _, i, j]) = (self.form.tile, self.at());
        if !self.form.padded {
            return x;
        }
        let channel = (i * rows + ct::arange(0..rows)).lt(self.extents[0]).reshape([1, 1, rows, 1]);
        let position = (j * columns + ct::arange(0..columns)).lt(self.extents[1]).reshape([1, 1, 1, columns]);
        ct::select(channel & position, x, 0.0)
    }

    /// Elements of a vector of shape (groups, channels).
    fn of_channels<T: Number>(self, x: Array<T, 2>) -> Tile<f32, 4> {
        let rows = self.form.tile[0];
        x.load((ct::bid(1), self.at()[2]), [1, rows]).cast::<f32>().reshape([1, 1, rows, 1])
    }

    /// Numbers of elements of the parts with these indices.
    fn counts<const R: usize>(self, part: Tile<i32, R>) -> Tile<f32, R>
    where
        Tile<i32, R>: Copy,
    {
        let ([rows, columns], along) = (self.form.tile, self.form.parts[1] as i32);
        let [channels, positions] = self.extents;
        let high = (channels - part / along * rows as i32).min(rows as i32).max(0);
        let wide = (positions - part % along * columns as i32).min(columns as i32);
        (high * wide).cast::<f32>()
    }

    /// Mean and inverse deviation of the group, from those of its parts.
    fn combine(self, parts: Array<f32, 4>, epsilon: Scalar<f32>) -> [Tile<f32, 4>; 2] {
        let tile = self.form.count().next_power_of_two().min(PARTS);
        let counts = |i: Scalar<i32>| self.counts(i * tile + ct::arange(0..tile)).reshape([1, 1, tile, 1]);
        let load = |i: Scalar<i32>| parts.load([ct::bid(2), ct::bid(1), i, ct::scalar(0)], [1, 1, tile, 2]).split(3);
        let sum = |term: &dyn Fn(Scalar<i32>) -> Tile<f32, 4>| {
            let add = |sum: Tile<f32, 4>, i| sum + term(i);
            ct::fold(..parts.num_tiles(2, [1, 1, tile, 2]), ct::zeros([1, 1, tile, 1]), add).sum(2)
        };
        let count = (self.extents[0] * self.extents[1]).cast::<f32>();
        let mean = sum(&|i| {
            let [mean, _] = load(i);
            mean * counts(i)
        }) / count;
        let squares = sum(&|i| {
            let [of_part, squares] = load(i);
            squares + (of_part - mean) * (of_part - mean) * counts(i)
        });
        [mean, (squares / count + epsilon).rsqrt()]
    }
}

/// Stores the mean of each part and the sum of its squared differences.
fn statistics<T: Number>(x: Array<T, 4>, parts: ArrayMut<f32, 4>, form: Form) {
    let part = Part::new(x, form);
    let x = part.load(x);
    let count = part.counts(ct::full([1], ct::bid(0))).reshape([1, 1, 1, 1]);
    let mean = x.sum([2, 3]) / count;
    let centered = part.inside(x - mean);
    let squares = (centered * centered).sum([2, 3]);
    parts.store([ct::bid(2), ct::bid(1), ct::bid(0), ct::scalar(0)], ct::cat([mean, squares], 3));
}

fn forward<T: Number>(
    x: Array<T, 4>,
    parts: Array<f32, 4>,
    [weight, bias]: [Array<T, 2>; 2],
    y: ArrayMut<T, 4>,
    epsilon: Scalar<f32>,
    form: Form,
) {
    let part = Part::new(x, form);
    let [weight, bias] = [weight, bias].map(|vector| part.of_channels(vector));
    let x = part.load(x);
    let [mean, scale] = part.combine(parts, epsilon);
    y.store(part.at(), ((x - mean) * scale).fma(weight, bias).cast::<T>());
}

/// Stores the sums over the positions of a part of dy · normal and dy, of shape (images · parts,
/// groups, channels).
fn sums<T: Number>(
    [x, dy]: [Array<T, 4>; 2],
    parts: Array<f32, 4>,
    sums: [ArrayMut<f32, 3>; 2],
    epsilon: Scalar<f32>,
    form: Form,
) {
    let part = Part::new(x, form);
    let [x, dy] = [x, dy].map(|array| part.load(array));
    let [mean, scale] = part.combine(parts, epsilon);
    let [image, group, i, j] = part.at();
    for (array, tile) in sums.into_iter().zip([(x - mean) * scale * dy, dy]) {
        let sum = tile.sum(3).reshape([1, 1, form.tile[0]]);
        array.store([image * form.parts[1] as i32 + j, group, i], sum);
    }
}

fn backward<T: Number>(
    [x, dy]: [Array<T, 4>; 2],
    (parts, sums): (Array<f32, 4>, [Array<f32, 3>; 2]),
    weight: Array<T, 2>,
    dx: ArrayMut<T, 4>,
    epsilon: Scalar<f32>,
    (form, channels): (Form, usize),
) {
    let part = Part::new(x, form);
    let of_channels = part.of_channels(weight);
    let [x, dy] = [x, dy].map(|array| part.load(array));
    let [mean, scale] = part.combine(parts, epsilon);
    // The sums of the group, from those of its channels and parts.
    let [image, group, ..] = part.at();
    let weights = weight.load((group, 0), [1, channels]).cast::<f32>();
    let count = (part.extents[0] * part.extents[1]).cast::<f32>();
    let [along, level] = sums.map(|array| {
        let of_part = |sum: Tile<f32, 2>, j: Scalar<i32>| {
            let at = [image * form.parts[1] as i32 + j, group, ct::scalar(0)];
            sum + array.load(at, [1, 1, channels]).reshape([1, channels])
        };
        let sum = match form.parts[1] {
            count @ ..=16 => (0..count).fold(ct::zeros([1, channels]), |sum, j| of_part(sum, ct::scalar(j as i32))),
            count => ct::fold(..ct::scalar(count as i32), ct::zeros([1, channels]), of_part),
        };
        ((sum * weights).sum(1) / count).reshape([1, 1, 1, 1])
    });
    let normal = (x - mean) * scale;
    dx.store(part.at(), ((dy * of_channels - level - normal * along) * scale).cast::<T>());
}

/// Shape of an array with an axis of groups, and the form.
#[track_caller]
fn form<const R: usize>(shape: [usize; R], groups: usize, vectors: &[usize]) -> ct::Result<([usize; 4], Form)> {
    const { assert!(R >= 2, "images have an axis of channels") };
    let [images, channels] = [shape[0], shape[1]];
    require(groups > 0 && channels.is_multiple_of(groups), || format!("{channels} channels in {groups} groups"))?;
    require(vectors.iter().all(|&len| len == channels), || {
        format!("{channels} channels, and a weight, bias or gradients of {vectors:?} elements")
    })?;
    let shape = [images, groups, channels / groups, shape[2..].iter().product()];
    Ok((shape, Form::new(shape.map(|extent| extent.max(1)))))
}

/// Queues the statistics of the parts.
#[track_caller]
fn launch_statistics<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 4>,
    form: Form,
) -> ct::Result<(DeviceArray<f32, 4>, [usize; 3])> {
    let [images, groups, ..] = x.shape();
    let mut parts = stream.device().zeros::<f32, 4>([images, groups, form.count(), 2])?;
    let grid = [form.count(), groups, images];
    ct::Launch::new(grid).stream(stream).run(statistics::<T>, (x, &mut parts, ct::Constant(form)))?;
    Ok((parts, grid))
}

/// Queues the group norm of images of shape (images, channels, ..): (x - mean) / √(variance +
/// epsilon) · weight + bias, with mean and variance of each group of adjacent channels. The axes of
/// positions have the strides of one axis.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32, 3.0, 5.0, 5.0], [1, 2, 2])?; // two channels of two positions
/// let (weight, bias, mut y) = (device.full([2], 2.0)?, device.full([2], 10.0)?, device.zeros([1, 2, 2])?);
/// let (stream, vectors) = (device.default_stream(), [weight.view(), bias.view()]);
/// cutlet_kernels::norms::group_norm(&stream, x.view(), 2, vectors, y.view_mut(), 1e-9)?;
/// assert_eq!(y.to_vec()?, [8.0, 12.0, 10.0, 10.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes or strides do not fit; those of the launch.
#[track_caller]
pub fn group_norm<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    groups: usize,
    [weight, bias]: [DeviceView<T, 1>; 2],
    y: DeviceViewMut<T, R>,
    epsilon: f32,
) -> ct::Result<()> {
    require(x.shape() == y.shape(), || format!("group norm of an array of {:?} into {:?}", x.shape(), y.shape()))?;
    let (shape, form) = form(x.shape(), groups, &[weight.len(), bias.len()])?;
    if x.is_empty() {
        return Ok(());
    }
    let (x, y) = (x.reshape(shape)?, y.reshape(shape)?);
    let (parts, grid) = launch_statistics(stream, x, form)?;
    let of_group = [groups, shape[2]];
    let vectors = [weight.reshape(of_group)?, bias.reshape(of_group)?];
    let arguments = (x, &parts, vectors, y, epsilon, ct::Constant(form));
    ct::Launch::new(grid).stream(stream).run(forward::<T>, arguments)
}

/// Queues the gradients of [`group_norm`] for its operand, weight and bias.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, dy) = (device.array(&[1.0f32, 3.0], [1, 1, 2])?, device.array(&[1.0f32, 0.5], [1, 1, 2])?);
/// let (weight, mut dx) = (device.full([1], 2.0)?, device.zeros([1, 1, 2])?);
/// let (mut dweight, mut dbias) = (device.zeros([1])?, device.zeros([1])?);
/// let (stream, inputs) = (device.default_stream(), [x.view(), dy.view()]);
/// let gradients = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
/// cutlet_kernels::norms::group_norm_backward(&stream, inputs, 1, weight.view(), gradients, 0.0)?;
/// assert_eq!((dweight.to_vec()?, dbias.to_vec()?), (vec![-0.5], vec![1.5]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`group_norm`].
#[track_caller]
pub fn group_norm_backward<T: Number, const R: usize>(
    stream: &Stream,
    [x, dy]: [DeviceView<T, R>; 2],
    groups: usize,
    weight: DeviceView<T, 1>,
    (dx, [dweight, dbias]): (DeviceViewMut<T, R>, [DeviceViewMut<T, 1>; 2]),
    epsilon: f32,
) -> ct::Result<()> {
    require(x.shape() == dy.shape() && x.shape() == dx.shape(), || {
        format!("gradient of the group norm of {:?}, dy of {:?}, dx of {:?}", x.shape(), dy.shape(), dx.shape())
    })?;
    let vectors = [weight.len(), dweight.len(), dbias.len()];
    let (shape, form) = form(x.shape(), groups, &vectors)?;
    if shape[2] == 0 {
        return Ok(());
    }
    let device = stream.device();
    let of_parts = [shape[0] * form.parts[1], groups, shape[2]];
    let (mut of_weight, mut of_bias) = (device.zeros::<f32, 3>(of_parts)?, device.zeros::<f32, 3>(of_parts)?);
    if !x.is_empty() {
        let (x, dy, dx) = (x.reshape(shape)?, dy.reshape(shape)?, dx.reshape(shape)?);
        let weight = weight.reshape([groups, shape[2]])?;
        let (parts, grid) = launch_statistics(stream, x, form)?;
        let results = [of_weight.view_mut(), of_bias.view_mut()];
        let arguments = ([x, dy], &parts, results, epsilon, ct::Constant(form));
        ct::Launch::new(grid).stream(stream).run(sums::<T>, arguments)?;
        let saved = (&parts, [of_weight.view(), of_bias.view()]);
        let constants = ct::Constant((form, shape[2].next_power_of_two()));
        let arguments = ([x, dy], saved, weight, dx, epsilon, constants);
        ct::Launch::new(grid).stream(stream).run(backward::<T>, arguments)?;
    }
    let rows = [shape[0] * form.parts[1], groups * shape[2]];
    sum_rows(stream, of_weight.view().reshape(rows)?, dweight)?;
    sum_rows(stream, of_bias.view().reshape(rows)?, dbias)
}
