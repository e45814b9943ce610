//! Gradients of RMS norm and layer norm over rows.
//!
//! With the normalised row n and g = dy · weight, the gradient of a row is s · (g - n · mean(g n)),
//! and s · (g - mean(g) - n · mean(g n)) where the mean is subtracted; s is the inverse deviation.
//! A tile block, or a cluster with parts of a longer row, iterates over rows and keeps the sums of
//! dy · n and dy for each column. A second kernel adds the sums of all blocks, always in one order.
//! Rows have up to 2^18 columns on Hopper, and 16384 elsewhere.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{Form, collapses, four, is_hopper};
use super::sums::sum_rows;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Constants {
    form: Form,
    centered: bool,
}

/// Operand, gradient of the result, gradient of the sum with the residual, and weight.
type Inputs<T> = (Array<T, 4>, Array<T, 4>, Option<Array<T, 4>>, Array<T, 1>);

fn kernel<T: Number>(
    (x, dy, dsum, weight): Inputs<T>,
    dx: ArrayMut<T, 4>,
    (dweight, dbias): (ArrayMut<f32, 2>, Option<ArrayMut<f32, 2>>),
    epsilon: Scalar<f32>,
    Constants { form, centered }: Constants,
) {
    let rows = form.here();
    let (shape, part, columns) = (form.shape(), rows.part(), x.extent(3));
    let count = columns.cast::<f32>();
    let weight = weight.load(part, [form.tile]).cast::<f32>().reshape([1, 1, 1, form.tile]);
    let [outer, middle, inner] = [0, 1, 2].map(|axis| x.num_tiles(axis, shape));
    let zeros = || ct::zeros::<f32, 4>(shape);
    let all = ct::range(rows.row, outer * middle * inner).step(ct::num_blocks(0) / form.parts as i32);
    let (of_weight, of_bias) = ct::fold(all, (zeros(), zeros()), |(of_weight, of_bias), index| {
        let at = [index / inner / middle, index / inner % middle, index % inner, part];
        let [x, dy] = [x, dy].map(|array| array.load(at, shape).cast::<f32>());
        let x = if centered { rows.inside(x - rows.sum(x) / count, part, columns) } else { x };
        // Rows behind the last one are zeros, whose scale is finite for every epsilon.
        let scale = (rows.sum(x * x) / count + epsilon).max(f32::MIN_POSITIVE).rsqrt();
        let (normal, weighted) = (x * scale, dy * weight);
        let along = rows.sum(weighted * normal) / count;
        let level = if centered { weighted - rows.sum(weighted) / count } else { weighted };
        let result = (level - normal * along) * scale;
        let result = dsum.map_or(result, |dsum| result + dsum.load(at, shape).cast::<f32>());
        dx.store(at, result.cast::<T>());
        (dy.fma(normal, of_weight), if centered { of_bias + dy } else { of_bias })
    });
    let store = |array: ArrayMut<f32, 2>, sums: Tile<f32, 4>| {
        array.store((rows.row, part), sums.sum(2).reshape([1, form.tile]));
    };
    store(dweight, of_weight);
    if let Some(dbias) = dbias {
        store(dbias, of_bias);
    }
}

/// Arrays of a gradient.
pub struct Gradient<'a, T, const R: usize> {
    /// Operand of the norm: the sum, where there is a residual.
    pub x: DeviceView<'a, T, R>,
    pub weight: DeviceView<'a, T, 1>,
    pub dy: DeviceView<'a, T, R>,
    /// Gradient of the sum with the residual from its other uses.
    pub dsum: Option<DeviceView<'a, T, R>>,
    pub dx: DeviceViewMut<'a, T, R>,
    pub dweight: DeviceViewMut<'a, T, 1>,
    /// Layer norm.
    pub dbias: Option<DeviceViewMut<'a, T, 1>>,
}

/// Queues the gradients.
#[track_caller]
pub fn launch<T: Number, const R: usize>(stream: &Stream, gradient: Gradient<T, R>, epsilon: f32) -> ct::Result<()> {
    let Gradient { x, weight, dy, dsum, dx, dweight, dbias } = gradient;
    let shape = x.shape();
    require(dy.shape() == shape && dx.shape() == shape && dsum.is_none_or(|dsum| dsum.shape() == shape), || {
        format!("gradient of a norm of an array of {shape:?}, dy of {:?}, dx of {:?}", dy.shape(), dx.shape())
    })?;
    let columns = four(shape, false)[3];
    let lengths = [weight.len(), dweight.len(), dbias.as_ref().map_or(columns, |d| d.len())];
    require(lengths == [columns; 3], || {
        format!("rows of {columns} columns, and a weight and its gradients of {lengths:?} elements")
    })?;
    if columns == 0 {
        return Ok(());
    }
    let all = collapses(x) && collapses(dy) && collapses(dx.as_view()) && dsum.is_none_or(collapses);
    let shape = four(shape, all);
    // Several tiles are live: operand, gradient, weight and two sums.
    let (longest, largest) = if is_hopper(target(stream)) { (8192, 16) } else { (16384, 1) };
    let elements = if size_of::<T>() == 2 { 4096 } else { 2048 };
    let form = Form::with_clusters(shape, elements, longest, largest);
    require(!form.by_chunks, || {
        format!("gradient of a norm of rows of {columns} columns, which exceed the registers")
    })?;
    let tiles = shape[0] * shape[1] * shape[2].div_ceil(form.rows);
    // Wide rows fill the registers of a multiprocessor.
    let for_each = (8192 / form.tile).clamp(1, 4);
    let blocks = (num_multiprocessors(stream) * for_each / form.parts).min(tiles).max(1);
    let device = stream.device();
    let mut of_weight = device.zeros::<f32, 2>([blocks, columns])?;
    let mut of_bias = dbias.as_ref().map(|_| device.zeros::<f32, 2>([blocks, columns])).transpose()?;
    if tiles > 0 {
        let dsum = dsum.map(|dsum| dsum.reshape(shape)).transpose()?;
        let inputs = (x.reshape(shape)?, dy.reshape(shape)?, dsum, weight);
        let sums = (of_weight.view_mut(), of_bias.as_mut().map(|sums| sums.view_mut()));
        let constants = Constants { form, centered: dbias.is_some() };
        let arguments = (inputs, dx.reshape(shape)?, sums, epsilon, ct::Constant(constants));
        ct::Launch::new(blocks * form.parts).stream(stream).run(kernel::<T>, arguments)?;
    }
    sum_rows(stream, of_weight.view(), dweight)?;
    match (of_bias, dbias) {
        (Some(sums), Some(dbias)) => sum_rows(stream, sums.view(), dbias),
        _ => Ok(()),
    }
}
