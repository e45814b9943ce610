//! Group norm of images (Wu and He, 2018) of shape (images, channels, ..), with gradients.
//!
//! The parts of a group are distributed round-robin among the tile blocks of a cluster. A first
//! loop over the parts reads memory: each element of a tile has its own mean and sum of squared
//! differences (Welford, 1962). The end of the loop combines them (Chan, Golub and LeVeque, 1979).
//! The next loops read the same parts from the second-level cache. The backward pass also stores
//! the sums of dy · n and dy of each channel in each part, for the normalised images n. A last
//! kernel adds these over images and parts. All sums have one order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{LARGEST_CLUSTER, is_hopper};
use super::sums::sum_rows;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, of_batch, target};

/// Least elements of a part.
const ELEMENTS: usize = 8192;
/// Longest part along the positions of a channel.
const LONGEST: usize = 4096;
/// Tile blocks on a multiprocessor, up to which a group has more blocks.
const BLOCKS: usize = 4;

/// Extents of parts, for an array of shape (images, groups, channels, positions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Channels and positions of a part.
    tile: [usize; 2],
    /// Parts of a group along its channels and positions.
    parts: [usize; 2],
    /// Parts reach outside of the group.
    padded: bool,
    /// Tile blocks of the cluster of a group.
    blocks: usize,
}

impl Form {
    fn new([images, groups, channels, positions]: [usize; 4], stream: &Stream) -> Form {
        let columns = positions.next_power_of_two().min(LONGEST);
        // Tiles that fill their group have no masks.
        let whole =
            |rows: usize| if channels.is_multiple_of(rows) { rows } else { rows.min(1 << channels.trailing_zeros()) };
        let most = (ELEMENTS / columns).clamp(1, channels.next_power_of_two());
        let rows = if 4 * whole(most) >= most { whole(most) } else { most };
        let parts = [channels.div_ceil(rows), positions.div_ceil(columns)];
        let padded = !(channels.is_multiple_of(rows) && positions.is_multiple_of(columns));
        let most = if is_hopper(target(stream)) { LARGEST_CLUSTER.min(parts[0] * parts[1]) } else { 1 };
        let wanted = BLOCKS * num_multiprocessors(stream) / (of_batch(images, 1) * groups).max(1);
        Form { tile: [rows, columns], parts, padded, blocks: 1 << most.min(wanted).max(1).ilog2() }
    }

    /// Shape of a tile.
    fn shape(self) -> [usize; 4] {
        [1, 1, self.tile[0], self.tile[1]]
    }

    /// Number of parts of a group.
    fn count(self) -> usize {
        self.parts[0] * self.parts[1]
    }

    /// The launch of a cluster for each group.
    fn launch(self, [images, groups, ..]: [usize; 4], stream: &Stream) -> ct::Launch<'_> {
        ct::Launch::new([self.blocks, groups, images]).stream(stream)
    }
}

/// In a kernel: the group of a tile block.
#[derive(Clone, Copy)]
struct Group {
    form: Form,
    cluster: Option<ct::Cluster>,
    /// Channels and positions of a group.
    extents: [Scalar<i32>; 2],
}

impl Group {
    fn new<T: Number>(x: Array<T, 4>, form: Form) -> Group {
        let cluster = (form.blocks > 1).then(|| ct::cluster(form.blocks));
        Group { form, cluster, extents: [x.extent(2), x.extent(3)] }
    }

    /// The parts of this block.
    fn parts(self) -> ct::StepRange {
        ct::range(ct::bid(0), ct::scalar(self.form.count() as i32)).step(self.form.blocks as i32)
    }

    /// Index of the tile of a part: image, group, and parts along channels and positions.
    fn at(self, part: Scalar<i32>) -> [Scalar<i32>; 4] {
        let along = self.form.parts[1] as i32;
        [ct::bid(2), ct::bid(1), part / along, part % along]
    }

    fn load<T: Number>(self, x: Array<T, 4>, part: Scalar<i32>) -> Tile<f32, 4> {
        x.load(self.at(part), self.form.shape()).cast::<f32>()
    }

    /// Elements of a part inside of the group.
    fn inside(self, part: Scalar<i32>) -> Tile<bool, 4> {
        let ([rows, columns], [_, _, i, j]) = (self.form.tile, self.at(part));
        let channel = (i * rows + ct::arange(0..rows)).lt(self.extents[0]).reshape([1, 1, rows, 1]);
        let position = (j * columns + ct::arange(0..columns)).lt(self.extents[1]).reshape([1, 1, 1, columns]);
        channel & position
    }

    /// Elements of a vector of shape (groups, channels).
    fn of_channels<T: Number>(self, x: Array<T, 2>, part: Scalar<i32>) -> Tile<f32, 4> {
        let rows = self.form.tile[0];
        x.load((ct::bid(1), self.at(part)[2]), [1, rows]).cast::<f32>().reshape([1, 1, rows, 1])
    }

    /// Sum of the elements of the tiles of all blocks.
    fn sum(self, x: Tile<f32, 4>) -> Tile<f32, 4> {
        let sum = x.sum([2, 3]);
        self.cluster.map_or(sum, |cluster| cluster.sum(sum))
    }

    /// Mean and inverse deviation of the group.
    fn statistics<T: Number>(self, x: Array<T, 4>, epsilon: Scalar<f32>) -> [Tile<f32, 4>; 2] {
        let zeros = || ct::zeros::<f32, 4>(self.form.shape());
        let all = (self.extents[0] * self.extents[1]).cast::<f32>();
        // Number, mean and squared differences of each element.
        let (count, mean, squares) = match self.form.padded {
            true => ct::fold(self.parts(), (zeros(), zeros(), zeros()), |(count, mean, squares), part| {
                let (x, inside) = (self.load(x, part), self.inside(part));
                let (more, apart) = (count + 1.0, x - mean);
                let next = mean + apart / more;
                let sum = apart.fma(x - next, squares);
                (ct::select(inside, more, count), ct::select(inside, next, mean), ct::select(inside, sum, squares))
            }),
            false => {
                let start = (ct::scalar(0.0f32), zeros(), zeros());
                let (count, mean, squares) = ct::fold(self.parts(), start, |(count, mean, squares), part| {
                    let x = self.load(x, part);
                    let (count, apart) = (count + 1.0, x - mean);
                    let next = apart.fma(1.0 / count, mean);
                    (count, next, apart.fma(x - next, squares))
                });
                (ct::full(self.form.shape(), count), mean, squares)
            }
        };
        let of_block = self.sum(mean * count) / all;
        let apart = mean - of_block;
        let squares = self.sum(squares + apart * apart * count);
        [of_block, (squares / all + epsilon).rsqrt()]
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
    // From the last part on, which the cache still has.
    ct::fold(group.parts().rev(), (), |(), part| {
        let [weight, bias] = [weight, bias].map(|vector| group.of_channels(vector, part));
        y.store(group.at(part), ((group.load(x, part) - mean) * scale).fma(weight, bias).cast::<T>());
    });
}

/// Stores the gradients, and the sums over the positions of a part of dy · normal and dy, of shape
/// (images · parts, groups, channels).
fn backward<T: Number>(
    [x, dy]: [Array<T, 4>; 2],
    weight: Array<T, 2>,
    (dx, sums): (ArrayMut<T, 4>, [ArrayMut<f32, 3>; 2]),
    epsilon: Scalar<f32>,
    form: Form,
) {
    let group = Group::new(x, form);
    let [mean, scale] = group.statistics(x, epsilon);
    let zeros = || ct::zeros::<f32, 4>([1, 1, form.tile[0], 1]);
    let [along, level] = ct::fold(group.parts(), [zeros(), zeros()], |[along, level], part| {
        let [x, dy] = [x, dy].map(|array| group.load(array, part));
        let [image, of_groups, i, j] = group.at(part);
        let of_part = [(x - mean) * scale * dy, dy].map(|tile| tile.sum(3));
        for (array, sum) in sums.into_iter().zip(of_part) {
            array.store((image * form.parts[1] as i32 + j, of_groups, i), sum.reshape([1, 1, form.tile[0]]));
        }
        // Weights outside of the group are zeros.
        let weight = group.of_channels(weight, part);
        [of_part[0].fma(weight, along), of_part[1].fma(weight, level)]
    });
    let all = (group.extents[0] * group.extents[1]).cast::<f32>();
    let [along, level] = [along, level].map(|sum| group.sum(sum) / all);
    // From the last part on, which the cache still has.
    ct::fold(group.parts().rev(), (), |(), part| {
        let [x, dy] = [x, dy].map(|array| group.load(array, part));
        let normal = (x - mean) * scale;
        let weighted = dy * group.of_channels(weight, part);
        dx.store(group.at(part), ((weighted - level - normal * along) * scale).cast::<T>());
    });
}

/// Shape of an array with an axis of groups, and the form.
#[track_caller]
fn form<const R: usize>(
    stream: &Stream,
    shape: [usize; R],
    groups: usize,
    vectors: &[usize],
) -> ct::Result<([usize; 4], Form)> {
    const { assert!(R >= 2, "images have an axis of channels") };
    let [images, channels] = [shape[0], shape[1]];
    require(groups > 0 && channels.is_multiple_of(groups), || format!("{channels} channels in {groups} groups"))?;
    require(vectors.iter().all(|&len| len == channels), || {
        format!("{channels} channels, and a weight, bias or gradients of {vectors:?} elements")
    })?;
    let shape = [images, groups, channels / groups, shape[2..].iter().product()];
    Ok((shape, Form::new(shape.map(|extent| extent.max(1)), stream)))
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
    let (shape, form) = form(stream, x.shape(), groups, &[weight.len(), bias.len()])?;
    if x.is_empty() {
        return Ok(());
    }
    let (x, y) = (x.reshape(shape)?, y.reshape(shape)?);
    let of_group = [groups, shape[2]];
    let vectors = [weight.reshape(of_group)?, bias.reshape(of_group)?];
    form.launch(shape, stream).run(forward::<T>, (x, vectors, y, epsilon, ct::Constant(form)))
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
    let (shape, form) = form(stream, x.shape(), groups, &vectors)?;
    if shape[2] == 0 {
        return Ok(());
    }
    let device = stream.device();
    let of_parts = [shape[0] * form.parts[1], groups, shape[2]];
    // Without positions, no block stores sums.
    let sums = || if x.is_empty() { device.zeros::<f32, 3>(of_parts) } else { device.unspecified(of_parts) };
    let (mut of_weight, mut of_bias) = (sums()?, sums()?);
    if !x.is_empty() {
        let (x, dy, dx) = (x.reshape(shape)?, dy.reshape(shape)?, dx.reshape(shape)?);
        let weight = weight.reshape([groups, shape[2]])?;
        let results = (dx, [of_weight.view_mut(), of_bias.view_mut()]);
        let arguments = ([x, dy], weight, results, epsilon, ct::Constant(form));
        form.launch(shape, stream).run(backward::<T>, arguments)?;
    }
    let rows = [shape[0] * form.parts[1], groups * shape[2]];
    sum_rows(stream, of_weight.view().reshape(rows)?, dweight)?;
    sum_rows(stream, of_bias.view().reshape(rows)?, dbias)
}
