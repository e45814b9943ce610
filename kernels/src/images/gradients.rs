//! Gradients of convolutions.
//!
//! * Of the image: element h is in the window of result p at tap r where p · stride = h + padding -
//!   r · dilation. For each remainder of h by the stride this is a convolution of the gradient of
//!   the results, with some of the taps.
//! * Of the weights: for each tap a product of the image, transposed, and of the gradient of the
//!   results, over all places. The places are split among tile blocks, whose sums another kernel
//!   adds in order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Stream, Target};

use super::convolution::Convolution;
use super::depthwise;
use super::grouped::{expanded, merged};
use super::implicit_gemm::{Form, queue};
use super::taps::{Geometry, Taps, fitting_box, splits};
use crate::Number;
use crate::launch::{Run, num_multiprocessors, target};

/// Constants of the kernel of the gradient of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sum {
    /// Images, rows and columns of a box.
    boxed: [usize; 3],
    /// Input and output channels of a tile.
    tile: [usize; 2],
    taps: Taps,
    width: usize,
    /// Tile blocks that share the places.
    splits: usize,
    /// Taps of a tile block.
    each: usize,
}

/// Images and results are (batch, rows, columns, group, channel), sums (split, tap, input, group,
/// output).
fn products<T: Number>(x: Array<T, 5>, dy: Array<T, 5>, sums: ArrayMut<f32, 5>, form: Sum) {
    let ([i, high, wide], [inputs, outputs]) = (form.boxed, form.tile);
    let places = i * high * wide;
    let shape = [1, 1, inputs, 1, outputs];
    let (rows, columns) = (sums.num_tiles(2, shape), sums.num_tiles(4, shape));
    let (tile, split) = (ct::bid(0), ct::bid(2));
    let (j, tile) = (tile % columns, tile / columns);
    let (k, group) = (tile % rows, tile / rows);

    let boxes = [i, high, wide, 1, outputs];
    let [images, highs, wides] = [0, 1, 2].map(|axis| dy.num_tiles(axis, boxes));
    let all = ct::range(split, images * highs * wides).step(form.splits as i32);
    let each = form.each;
    let taps: Vec<_> = (0..each as i32).map(|at| form.taps.tap(ct::bid(1) * each as i32 + at)).collect();
    let sum = ct::fold(all, vec![ct::zeros::<f32, 2>([inputs, outputs]); each], |sums, at| {
        let (c, place) = (at % wides, at / wides);
        let (r, n) = (place % highs, place / highs);
        let dy = dy.load((n, r, c, group, j), boxes).reshape([places, outputs]);
        let sums = taps.iter().zip(sums).map(|(tap, sum)| {
            let from = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), group, k);
            let x = x.load(from, [i, high, wide, 1, inputs]).reshape([places, inputs]);
            ct::mma(x.transpose(), dy, sum)
        });
        sums.collect::<Vec<_>>()
    });
    for (tap, sum) in taps.iter().zip(sum) {
        let number = tap.number[0] * form.width as i32 + tap.number[1];
        sums.store((split, number, k, group, j), sum.reshape(shape));
    }
}

/// Adds the sums of all splits, some at a time.
fn add<T: Number>(sums: Array<f32, 2>, dw: ArrayMut<T, 1>, [splits, tile]: [usize; 2]) {
    let sum = ct::fold(..sums.num_tiles(0, [splits, tile]), ct::zeros([splits, tile]), |sum: Tile<f32, 2>, split| {
        sum + sums.load((split, ct::bid(0)), [splits, tile])
    });
    dw.store(ct::bid(0), sum.sum(0).cast::<T>().reshape([tile]));
}

/// Adds the sums of all splits, of the blocks on the diagonal of merged groups.
fn add_blocks<T: Number>(sums: Array<f32, 7>, dw: ArrayMut<T, 5>, [splits, inputs, outputs]: [usize; 3]) {
    let (tap, own, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let shape = [splits, 1, 1, inputs, 1, 1, outputs];
    let sum = ct::fold(..sums.num_tiles(0, shape), ct::zeros(shape), |sum: Tile<f32, 7>, split| {
        sum + sums.load((split, tap, own, 0, group, own, 0), shape)
    });
    dw.store((tap, 0, group, own, 0), sum.sum(0).cast::<T>().reshape([1, inputs, 1, 1, outputs]));
}

/// Queues the sums of the gradient of the weights: (split, tap, input, group, output). Returns
/// them.
#[track_caller]
fn weight_sums<T: Number>(
    stream: &Stream,
    geometry: Geometry,
    x: DeviceView<T, 5>,
    dy: DeviceView<T, 5>,
) -> ct::Result<DeviceArray<f32, 5>> {
    let phases = geometry.views(x)?;
    let ([images, rows, columns, groups, outputs], inputs) = (dy.shape(), x.shape()[4]);
    let all = geometry.taps[0] * geometry.taps[1];

    let (places, most) = match (target(stream), size_of::<T>()) {
        (None, _) => (16, [32, 32]),
        (Some(Target::SM_90A), 2) => (64, [128, 256]),
        (Some(_), 2) => (32, [128, 128]),
        (Some(_), _) => (32, [64, 64]),
    };
    let power = |extent: usize| extent.next_power_of_two().max(16);
    let mut tile = [most[0].min(power(inputs)), most[1].min(power(outputs))];
    let (mut places, mut each, mut wanted, mut occupancy) = (places, 1, 0, 0);
    if let Ok(text) = std::env::var("WGRAD") {
        let v: Vec<usize> = text.split(',').filter_map(|x| x.parse().ok()).collect();
        places = v[0];
        tile = [v[1], v[2]];
        wanted = v[3];
        each = v[4];
        occupancy = v[5] as u32;
    }
    let boxed = fitting_box(places, [images, rows, columns]);
    let boxes = images.div_ceil(boxed[0]) * rows.div_ceil(boxed[1]) * columns.div_ceil(boxed[2]);
    let tiles = inputs.div_ceil(tile[0]) * outputs.div_ceil(tile[1]) * groups;
    let of_phases: Vec<(Taps, usize)> = geometry
        .of_results()
        .into_iter()
        .map(|taps| (taps, splits(tiles * taps.count(), boxes, num_multiprocessors(stream))))
        .collect();
    // Phases with fewer splits leave zeros.
    let mut most = of_phases.iter().map(|&(_, splits)| splits).max().unwrap_or(1);
    if wanted > 0 {
        most = wanted;
    }
    let mut sums = stream.device().unspecified::<f32, 5>([most, all, inputs, groups, outputs])?;
    for (taps, _) in of_phases {
        let splits = most;
        let each = match each {
            1 => 1,
            3 => taps.columns.count,
            _ => taps.count(),
        };
        let form = Sum { boxed, tile, taps, width: geometry.taps[1], splits, each };
        let mut hints = cutlet::Hints::new();
        if occupancy > 0 {
            hints = hints.occupancy(occupancy);
        }
        let launch = ct::Launch::new([tiles, taps.count() / each, splits]).hints(hints).stream(stream);
        launch.run(products::<T>, (phases[taps.phase], dy, &mut sums, ct::Constant(form)))?;
    }
    Ok(sums)
}

/// Writes zeros.
fn clear<T: Number>(dx: ArrayMut<T, 5>, tile: [usize; 5]) {
    let columns = dx.num_tiles(2, tile);
    let tiles = dx.num_tiles(4, tile);
    let (group, j) = (ct::bid(0) / tiles, ct::bid(0) % tiles);
    dx.store((ct::bid(2), ct::bid(1) / columns, ct::bid(1) % columns, group, j), ct::zeros::<T, 5>(tile));
}

impl Convolution {
    /// Queues the gradient of the images: `dx` of the shape of the images, from `dy` of the shape
    /// of the results.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::images::Convolution;
    ///
    /// let device = ct::Device::cpu();
    /// let (dy, w) = (device.full([1, 2, 2, 1], 1.0f32)?, device.full([2, 2, 1, 1], 0.5f32)?);
    /// let mut dx = device.zeros([1, 3, 3, 1])?;
    /// Convolution::default().input_gradient(&device.default_stream(), dy.view(), w.view(), dx.view_mut())?;
    /// assert_eq!(dx.to_vec()?, [0.5, 1.0, 0.5, 1.0, 2.0, 1.0, 0.5, 1.0, 0.5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if the shapes do not fit, and those of the launch.
    #[track_caller]
    pub fn input_gradient<T: Number>(
        &self,
        stream: &Stream,
        dy: DeviceView<T, 4>,
        w: DeviceView<T, 4>,
        dx: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        self.check(dx.shape(), w.shape(), dy.shape())?;
        if dx.is_empty() {
            return Ok(());
        }
        let (geometry, groups) = (self.geometry(w.shape()), self.groups);
        let [_, _, inputs, outputs] = w.shape();
        if inputs == 1 && groups > 1 {
            return depthwise::input_gradient(stream, geometry, dy, w, dx);
        }
        let w = w.reshape([geometry.taps[0] * geometry.taps[1], inputs, groups, outputs / groups])?;
        let count = merged(groups, inputs, outputs / groups);
        let blocks = if count > 1 { Some(expanded(stream, w, count)?) } else { None };
        let (w, groups) = (blocks.as_ref().map_or(w, |blocks| blocks.view()), groups / count);
        let split = |[a, b, c, d]: [usize; 4]| [a, b, c, groups, d / groups];
        let dy = dy.reshape(split(dy.shape()))?;
        let shape = split(dx.shape());
        let mut dx = dx.reshape(shape)?;
        for (phase, taps) in geometry.of_image().into_iter().enumerate() {
            let part = geometry.view_mut(dx.reborrow(), phase)?;
            let shape = part.shape();
            if part.is_empty() {
                continue;
            }
            let form = Form::new::<T>(shape, outputs / groups, stream, vec![taps], geometry.taps[1]);
            if taps.count() == 0 || dy.is_empty() {
                let ([i, high, wide], launch) = (form.boxed, ct::Launch::new(form.grid(shape)).stream(stream));
                launch.run(clear::<T>, (part, ct::Constant([i, high, wide, 1, form.outputs])))?;
                continue;
            }
            let form = Form { is_transposed: true, ..form };
            queue(stream, vec![dy], w, (None, None), |sum| sum, part, form)?;
        }
        Ok(())
    }

    /// Queues the gradient of the weights: `dw` of the shape of the weights, from images and `dy`
    /// of the shape of the results. `dw` is contiguous.
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::images::Convolution;
    ///
    /// let device = ct::Device::cpu();
    /// let (x, dy) = (device.full([1, 3, 3, 1], 2.0f32)?, device.full([1, 2, 2, 1], 1.0f32)?);
    /// let mut dw = device.zeros([2, 2, 1, 1])?;
    /// Convolution::default().weight_gradient(&device.default_stream(), x.view(), dy.view(), dw.view_mut())?;
    /// assert_eq!(dw.to_vec()?, [8.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if the shapes do not fit, and those of the launches.
    #[track_caller]
    pub fn weight_gradient<T: Number>(
        &self,
        stream: &Stream,
        x: DeviceView<T, 4>,
        dy: DeviceView<T, 4>,
        dw: DeviceViewMut<T, 4>,
    ) -> ct::Result<()> {
        self.check(x.shape(), dw.shape(), dy.shape())?;
        if dw.is_empty() {
            return Ok(());
        }
        let geometry = self.geometry(dw.shape());
        let [_, _, inputs, outputs] = dw.shape();
        let count = merged(self.groups, inputs, outputs / self.groups);
        let groups = self.groups / count;
        let split = |[a, b, c, d]: [usize; 4]| [a, b, c, groups, d / groups];
        let elements = geometry.taps[0] * geometry.taps[1] * inputs * outputs;
        let sums = if inputs == 1 && self.groups > 1 {
            depthwise::weight_sums(stream, geometry, x, dy)?
        } else {
            weight_sums(stream, geometry, x.reshape(split(x.shape()))?, dy.reshape(split(dy.shape()))?)?
        };
        let splits = sums.shape()[0];
        if count > 1 && inputs > 1 {
            let all = geometry.taps[0] * geometry.taps[1];
            let outs = outputs / self.groups;
            let tile = [splits.next_power_of_two().min(16), inputs.next_power_of_two(), outs.next_power_of_two()];
            let sums = sums.view().reshape([splits, all, count, inputs, groups, count, outs])?;
            let dw = dw.reshape([all, inputs, groups, count, outs])?;
            let launch = ct::Launch::new([all, count, groups]).stream(stream);
            return launch.run(add_blocks::<T>, (sums, dw, ct::Constant(tile)));
        }
        let sums = sums.view().reshape([splits, elements])?;
        let v: Vec<usize> = std::env::var("ADD").unwrap_or("16,64".into()).split(',').filter_map(|x| x.parse().ok()).collect();
        let tile = [splits.next_power_of_two().min(v[0]), v[1]];
        let launch = ct::Launch::new(elements.div_ceil(tile[1])).stream(stream);
        launch.run(add::<T>, (sums, dw.reshape([elements])?, ct::Constant(tile)))
    }
}
