//! Group norm of images (Wu and He, 2018) of shape (images, channels, ..), with gradients.
//!
//! A group of channels is in registers from its load to its store: in one tile, or in the tile
//! blocks of a cluster, which share the positions of each channel. Larger groups are read once for
//! each sum and once for the result. Sums of a channel over positions are stored for each image,
//! and added over images by a second kernel, in one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{Form, is_hopper};
use super::sums::sum_rows;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, target};

/// Largest number of elements of a tile.
const LARGEST_TILE: usize = 12288;

/// In a kernel: the group of a tile block, in an array of shape (images, groups, channels,
/// positions).
#[derive(Clone, Copy)]
struct Group {
    form: Form,
    rank: Scalar<i32>,
    cluster: Option<ct::Cluster>,
    /// Channels and positions.
    extents: [Scalar<i32>; 2],
    /// Tiles along channels and positions of this block.
    tiles: [Scalar<i32>; 2],
}

impl Group {
    fn new<T: Number>(x: Array<T, 4>, form: Form) -> Group {
        let cluster = (form.parts > 1).then(|| ct::cluster(form.parts));
        let tiles = match form.by_chunks {
            true => [2, 3].map(|axis| x.num_tiles(axis, form.shape())),
            false => [ct::scalar(1), ct::scalar(1)],
        };
        let rank = cluster.map_or(ct::scalar(0), ct::Cluster::rank);
        Group { form, rank, cluster, extents: [x.extent(2), x.extent(3)], tiles }
    }

    /// Index of a tile of the group.
    fn at(self, [i, j]: [Scalar<i32>; 2]) -> [Scalar<i32>; 4] {
        [ct::bid(2), ct::bid(1), i, j + self.rank]
    }

    /// Sum of all elements of one tile of each block.
    fn total(self, x: Tile<f32, 4>) -> Tile<f32, 4> {
        let sum = x.sum([2, 3]);
        self.cluster.map_or(sum, |cluster| cluster.sum(sum))
    }

    /// Sum over the group of a function of its tiles.
    fn sum(self, term: impl Fn([Scalar<i32>; 2]) -> Tile<f32, 4>) -> Tile<f32, 4> {
        if !self.form.by_chunks {
            return self.total(term([ct::scalar(0), ct::scalar(0)]));
        }
        let all = self.tiles[0] * self.tiles[1];
        let start = ct::zeros::<f32, 4>(self.form.shape());
        self.total(ct::fold(..all, start, |sum, at| sum + term([at / self.tiles[1], at % self.tiles[1]])))
    }

    /// Runs a function for each tile of the group.
    fn each(self, work: impl Fn([Scalar<i32>; 2])) {
        match self.form.by_chunks {
            false => work([ct::scalar(0), ct::scalar(0)]),
            true => ct::for_each(..self.tiles[0] * self.tiles[1], |at| work([at / self.tiles[1], at % self.tiles[1]])),
        }
    }

    /// Zeros outside of the group.
    fn inside(self, x: Tile<f32, 4>, [i, j]: [Scalar<i32>; 2]) -> Tile<f32, 4> {
        let Form { rows, tile, padded, .. } = self.form;
        if !padded {
            return x;
        }
        let channel = (i * rows + ct::arange(0..rows)).lt(self.extents[0]).reshape([1, 1, rows, 1]);
        let position = ((j + self.rank) * tile + ct::arange(0..tile)).lt(self.extents[1]).reshape([1, 1, 1, tile]);
        ct::select(channel & position, x, 0.0)
    }

    /// Elements of a vector of shape (groups, channels).
    fn of_channels<T: Number>(self, x: Array<T, 2>, i: Scalar<i32>) -> Tile<f32, 4> {
        let rows = self.form.rows;
        x.load((ct::bid(1), i), [1, rows]).cast::<f32>().reshape([1, 1, rows, 1])
    }

    /// Mean, and inverse deviation.
    fn statistics<T: Number>(self, x: Array<T, 4>, epsilon: Scalar<f32>) -> [Tile<f32, 4>; 2] {
        let count = (self.extents[0] * self.extents[1]).cast::<f32>();
        let load = |at| x.load(self.at(at), self.form.shape()).cast::<f32>();
        let mean = self.sum(load) / count;
        let squares = self.sum(|at| {
            let centered = self.inside(load(at) - mean, at);
            centered * centered
        });
        [mean, (squares / count + epsilon).rsqrt()]
    }
}

fn forward<T: Number>(
    x: Array<T, 4>,
    [weight, bias]: [Array<T, 2>; 2],
    y: ArrayMut<T, 4>,
    epsilon: Scalar<f32>,
    form: Form,
) {
    let group = Group::new(x, form);
    let [mean, scale] = group.statistics(x, epsilon);
    group.each(|at| {
        let [weight, bias] = [weight, bias].map(|v| group.of_channels(v, at[0]));
        let x = x.load(group.at(at), form.shape()).cast::<f32>();
        y.store(group.at(at), ((x - mean) * scale).fma(weight, bias).cast::<T>());
    });
}

/// `sums`: sums over positions of dy · normal and dy, for each image, of shape (images, groups,
/// channels).
fn backward<T: Number>(
    [x, dy]: [Array<T, 4>; 2],
    weight: Array<T, 2>,
    dx: ArrayMut<T, 4>,
    sums: [ArrayMut<f32, 3>; 2],
    epsilon: Scalar<f32>,
    form: Form,
) {
    let group = Group::new(x, form);
    let count = (group.extents[0] * group.extents[1]).cast::<f32>();
    let [mean, scale] = group.statistics(x, epsilon);
    let load = |at| {
        let [x, dy] = [x, dy].map(|array| array.load(group.at(at), form.shape()).cast::<f32>());
        [(x - mean) * scale, dy]
    };
    // Sums over positions of a tile of channels, which also give the sums of the group.
    let of_channels = |i: Scalar<i32>| {
        let term = |j: Scalar<i32>| {
            let [normal, dy] = load([i, j]);
            [normal * dy, dy]
        };
        let parts = match form.by_chunks {
            false => term(ct::scalar(0)),
            true => {
                let start = [ct::zeros::<f32, 4>(form.shape()), ct::zeros(form.shape())];
                ct::fold(..group.tiles[1], start, |[a, b], j| {
                    let [x, y] = term(j);
                    [a + x, b + y]
                })
            }
        };
        let parts = parts.map(|part| {
            let sum = part.sum(3);
            group.cluster.map_or(sum, |cluster| cluster.sum(sum))
        });
        ct::if_then(group.rank.eq(0), || {
            for (array, part) in sums.iter().zip(parts) {
                array.store((ct::bid(2), ct::bid(1), i), part.reshape([1, 1, form.rows]));
            }
        });
        parts.map(|part| (part * group.of_channels(weight, i)).sum(2) / count)
    };
    let [along, level] = match form.by_chunks {
        false => of_channels(ct::scalar(0)),
        true => {
            let start = [ct::zeros::<f32, 4>([1; 4]), ct::zeros([1; 4])];
            ct::fold(..group.tiles[0], start, |[a, b], i| {
                let [x, y] = of_channels(i);
                [a + x, b + y]
            })
        }
    };
    group.each(|at| {
        let [normal, dy] = load(at);
        let weighted = dy * group.of_channels(weight, at[0]);
        dx.store(group.at(at), ((weighted - level - normal * along) * scale).cast::<T>());
    });
}

/// Shape of an array with an axis of groups, the form, and the grid.
#[track_caller]
fn form<const R: usize>(
    stream: &Stream,
    shape: [usize; R],
    groups: usize,
    vectors: &[usize],
) -> ct::Result<([usize; 4], Form, [usize; 3])> {
    const { assert!(R >= 2, "images have an axis of channels") };
    let [images, channels] = [shape[0], shape[1]];
    require(groups > 0 && channels.is_multiple_of(groups), || format!("{channels} channels in {groups} groups"))?;
    require(vectors.iter().all(|&len| len == channels), || {
        format!("{channels} channels, and a weight, bias or gradients of {vectors:?} elements")
    })?;
    let shape = [images, groups, channels / groups, shape[2..].iter().product::<usize>().max(1)];
    // An extent of a tile is a sum of at most two powers of two here.
    let rows = if shape[2].count_ones() <= 2 { shape[2] } else { shape[2].next_power_of_two() };
    let columns = shape[3].next_power_of_two();
    let largest_cluster = if is_hopper(target(stream)) { 16 } else { 1 };
    let parts = (rows * columns).div_ceil(LARGEST_TILE).next_power_of_two();
    let form = match parts <= largest_cluster && columns / parts >= 8.min(columns) {
        true => Form { rows, tile: columns / parts, parts, by_chunks: false, padded: true },
        false => {
            let tile = columns.min(4096);
            Form {
                rows: (8192 / tile).clamp(1, rows.next_power_of_two()),
                tile,
                parts: 1,
                by_chunks: true,
                padded: true,
            }
        }
    };
    let padded = !(shape[2].is_multiple_of(form.rows) && shape[3].is_multiple_of(form.tile * form.parts));
    Ok((shape, Form { padded, ..form }, [form.parts, groups, images]))
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
    let (shape, form, grid) = form(stream, x.shape(), groups, &[weight.len(), bias.len()])?;
    if x.is_empty() {
        return Ok(());
    }
    let of_group = [groups, shape[2]];
    let vectors = [weight.reshape(of_group)?, bias.reshape(of_group)?];
    let arguments = (x.reshape(shape)?, vectors, y.reshape(shape)?, epsilon, ct::Constant(form));
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
    let (shape, form, grid) = form(stream, x.shape(), groups, &vectors)?;
    if shape[2] == 0 {
        return Ok(());
    }
    let device = stream.device();
    let of_images = [shape[0], groups, shape[2]];
    let (mut of_weight, mut of_bias) = (device.zeros::<f32, 3>(of_images)?, device.zeros::<f32, 3>(of_images)?);
    if !x.is_empty() {
        let weight = weight.reshape([groups, shape[2]])?;
        let sums = [of_weight.view_mut(), of_bias.view_mut()];
        let inputs = [x.reshape(shape)?, dy.reshape(shape)?];
        let arguments = (inputs, weight, dx.reshape(shape)?, sums, epsilon, ct::Constant(form));
        ct::Launch::new(grid).stream(stream).run(backward::<T>, arguments)?;
    }
    let rows = [shape[0], groups * shape[2]];
    sum_rows(stream, of_weight.view().reshape(rows)?, dweight)?;
    sum_rows(stream, of_bias.view().reshape(rows)?, dbias)
}
