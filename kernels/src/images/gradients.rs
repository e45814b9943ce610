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
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream, Target};

use super::convolution::Convolution;
use super::depthwise;
use super::grouped::{expanded, merged};
use super::implicit_gemm::{Form, queue, queue_phases};
use super::taps::{Geometry, Taps, Work, fitting_box};
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
    /// Tile blocks of a multiprocessor.
    occupancy: usize,
}

/// Images and results are (batch, rows, columns, group, channel), sums (split, tap, input, group,
/// output).
fn products<T: Number, O: Number>(x: Array<T, 5>, dy: Array<T, 5>, sums: ArrayMut<O, 5>, form: Sum) {
    let ([i, high, wide], [inputs, outputs]) = (form.boxed, form.tile);
    let places = i * high * wide;
    let shape = [1, 1, inputs, 1, outputs];
    let (rows, columns) = (sums.num_tiles(2, shape), sums.num_tiles(4, shape));
    let (tile, split) = (ct::bid(0), ct::bid(2));
    let (j, tile) = (tile % columns, tile / columns);
    let (k, group) = (tile % rows, tile / rows);
    let tap = form.taps.tap(ct::bid(1));

    let boxes = [i, high, wide, 1, outputs];
    let [images, highs, wides] = [0, 1, 2].map(|axis| dy.num_tiles(axis, boxes));
    let all = ct::range(split, images * highs * wides).step(form.splits as i32);
    let sum = ct::fold(all, ct::zeros::<f32, 2>([inputs, outputs]), |sum, at| {
        let (c, place) = (at % wides, at / wides);
        let (r, n) = (place % highs, place / highs);
        let from = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), group, k);
        let x = x.load(from, [i, high, wide, 1, inputs]).reshape([places, inputs]);
        let dy = dy.load((n, r, c, group, j), boxes).reshape([places, outputs]);
        ct::mma(x.transpose(), dy, sum)
    });
    let number = tap.number[0] * form.width as i32 + tap.number[1];
    sums.store((split, number, k, group, j), sum.cast::<O>().reshape(shape));
}

/// Adds the sums of all splits, some at a time.
fn add<T: Number>(sums: Array<f32, 2>, dw: ArrayMut<T, 1>, [splits, tile]: [usize; 2]) {
    let sum = ct::fold(..sums.num_tiles(0, [splits, tile]), ct::zeros([splits, tile]), |sum: Tile<f32, 2>, split| {
        sum + sums.load((split, ct::bid(0)), [splits, tile])
    });
    dw.store(ct::bid(0), sum.sum(0).cast::<T>().reshape([tile]));
}

/// Queues the sums over all splits: few splits of many elements at a time, or many of few.
#[track_caller]
fn add_all<T: Number>(stream: &Stream, sums: DeviceView<f32, 5>, dw: DeviceViewMut<T, 1>) -> ct::Result<()> {
    let (splits, elements) = (sums.shape()[0], dw.shape()[0]);
    let each = splits.next_power_of_two().min(32);
    let tile = [each, 1024 / each];
    let launch = ct::Launch::new(elements.div_ceil(tile[1])).stream(stream);
    launch.run(add::<T>, (sums.reshape([splits, elements])?, dw, ct::Constant(tile)))
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

impl Sum {
    /// Returns the tiles for images and results of these shapes, with the taps of one phase.
    fn new<T>(
        stream: &Stream,
        [_, _, _, groups, inputs]: [usize; 5],
        [images, rows, columns, _, outputs]: [usize; 5],
        geometry: Geometry,
        taps: Taps,
    ) -> Sum {
        let (places, most) = match (target(stream), size_of::<T>()) {
            (None, _) => (16, [32, 32]),
            (Some(Target::SM_90A), 2) => (64, [128, 256]),
            (Some(_), 2) => (32, [128, 128]),
            (Some(_), _) => (32, [64, 64]),
        };
        let power = |extent: usize| extent.next_power_of_two().max(16);
        let tile = [most[0].min(power(inputs)), most[1].min(power(outputs))];
        let plan = |tile: [usize; 2]| {
            // Small tiles: two tile blocks of a multiprocessor, with larger boxes.
            let occupancy = if places == 64 && tile == [64, 64] { 2 } else { 1 };
            let boxed = fitting_box(places * occupancy, [images, rows, columns]);
            let boxes = images.div_ceil(boxed[0]) * rows.div_ceil(boxed[1]) * columns.div_ceil(boxed[2]);
            let tiles = inputs.div_ceil(tile[0]) * outputs.div_ceil(tile[1]) * groups * taps.count();
            let blocks = occupancy * num_multiprocessors(stream);
            let work = Work { tiles, tile, products: boxes * occupancy, blocks };
            // The interpreter shares the places of small tests, too.
            let splits = target(stream).map_or(3, |_| work.splits()).min(boxes.max(1));
            (work.time(splits), Sum { boxed, tile, taps, width: geometry.taps[1], splits, occupancy })
        };
        let narrow = [tile[0], if tile[1] > 128 { tile[1] / 2 } else { tile[1] }];
        let (whole, half) = (plan(tile), plan(narrow));
        if half.0 < whole.0 { half.1 } else { whole.1 }
    }
}

/// Queues the sums of the gradient of the weights: (split, tap, input, group, output).
#[track_caller]
fn weight_sums<T: Number, O: Number>(
    stream: &Stream,
    geometry: Geometry,
    x: DeviceView<T, 5>,
    dy: DeviceView<T, 5>,
    mut sums: DeviceViewMut<O, 5>,
    form: Sum,
) -> ct::Result<()> {
    let (phases, [_, _, inputs, groups, outputs]) = (geometry.views(x)?, sums.shape());
    let tiles = inputs.div_ceil(form.tile[0]) * outputs.div_ceil(form.tile[1]) * groups;
    let hints = if form.occupancy > 1 { Hints::new().occupancy(form.occupancy as u32) } else { Hints::new() };
    for taps in geometry.of_results() {
        let launch = ct::Launch::new([tiles, taps.count(), form.splits]).hints(hints).stream(stream);
        let form = Sum { taps, ..form };
        launch.run(products::<T, O>, (phases[taps.phase], dy, sums.reborrow(), ct::Constant(form)))?;
    }
    Ok(())
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
        let phases = geometry.of_image();
        let [batch, rows, columns, _, all] = shape;
        let [high, wide] = self.stride;
        if phases.len() > 1
            && groups == 1
            && rows.is_multiple_of(high)
            && columns.is_multiple_of(wide)
            && !dy.is_empty()
        {
            let one = [batch, rows / high, columns / wide, 1, all];
            let form = Form::new::<T>(one, outputs / self.groups * count, stream, phases.clone(), geometry.taps[1]);
            if all.is_multiple_of(form.outputs) {
                let form = Form { is_transposed: true, splits: 1, ..form };
                let dx = dx.reshape([batch, rows / high, high, columns / wide, wide * all])?;
                return queue_phases(stream, dy, w, dx, (form, wide));
            }
        }
        let mut dx = dx.reshape(shape)?;
        for (phase, taps) in phases.into_iter().enumerate() {
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
        let (all, own) = (geometry.taps[0] * geometry.taps[1], outputs / self.groups);
        if inputs == 1 && self.groups > 1 {
            let sums = depthwise::weight_sums(stream, geometry, x, dy)?;
            return add_all(stream, sums.view(), dw.reshape([all * outputs])?);
        }
        let (x, dy) = (x.reshape(split(x.shape()))?, dy.reshape(split(dy.shape()))?);
        // Phases have as many splits as that with the most taps.
        let taps = geometry.of_results().into_iter().max_by_key(|taps| taps.count());
        let Some(taps) = taps else { return Ok(()) };
        let form = Sum::new::<T>(stream, x.shape(), dy.shape(), geometry, taps);
        if form.splits == 1 && count == 1 {
            let dw = dw.reshape([1, all, inputs, groups, own])?;
            return weight_sums(stream, geometry, x, dy, dw, form);
        }
        let shape = [form.splits, all, count * inputs, groups, count * own];
        let mut sums = stream.device().unspecified::<f32, 5>(shape)?;
        weight_sums(stream, geometry, x, dy, sums.view_mut(), form)?;
        if count == 1 {
            return add_all(stream, sums.view(), dw.reshape([all * inputs * outputs])?);
        }
        let sums = sums.view().reshape([form.splits, all, count, inputs, groups, count, own])?;
        let tile = [form.splits.next_power_of_two().min(16), inputs.next_power_of_two(), own.next_power_of_two()];
        let dw = dw.reshape([all, inputs, groups, count, own])?;
        ct::Launch::new([all, count, groups]).stream(stream).run(add_blocks::<T>, (sums, dw, ct::Constant(tile)))
    }
}
