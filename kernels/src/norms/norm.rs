//! Kernels of RMS norm and layer norm over rows.
//!
//! A row is in registers from its load to its store. The variance is the mean of the squared
//! differences from the mean. Longer rows are read once for each sum and once for the result.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{Form, collapses, four};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Least elements of a tile of short rows, which share the loads of weight and bias.
const ELEMENTS: usize = 8192;

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Constants {
    form: Form,
    /// The mean is subtracted (layer norm).
    centered: bool,
}

/// Operands of a norm.
type Inputs<T> = (Array<T, 4>, Option<Array<T, 4>>, Array<T, 1>, Option<Array<T, 1>>);

/// `sum`: the result of `x + residual`, whose norm is `y`.
fn kernel<T: Number>(
    (x, residual, weight, bias): Inputs<T>,
    (sum, y): (Option<ArrayMut<T, 4>>, ArrayMut<T, 4>),
    epsilon: Scalar<f32>,
    Constants { form, centered }: Constants,
) {
    form.promise(&[Some(weight), bias].into_iter().flatten().collect::<Vec<_>>());
    let rows = form.here();
    let columns = x.extent(3);
    let count = columns.cast::<f32>();
    let load = |at: [Scalar<i32>; 4]| {
        let x = x.load(at, form.shape()).cast::<f32>();
        // The norm is that of the sum as it is stored.
        residual.map_or(x, |r| (x + r.load(at, form.shape()).cast::<f32>()).cast::<T>().cast::<f32>())
    };
    let vectors = |j: Scalar<i32>| (weight.load(j, [form.tile]), bias.map(|bias| bias.load(j, [form.tile])));
    let scaled = |normal: Tile<f32, 4>, (weight, bias): (Tile<T, 1>, Option<Tile<T, 1>>)| {
        let wide = |v: Tile<T, 1>| v.cast::<f32>().reshape([1, 1, 1, form.tile]);
        match bias {
            Some(bias) => normal.fma(wide(weight), wide(bias)).cast::<T>(),
            None => (normal * wide(weight)).cast::<T>(),
        }
    };
    if form.by_chunks {
        let zeros = || ct::zeros::<f32, 4>(form.shape());
        let sum_of = || rows.fold(columns, zeros(), |sum, j, _| sum + load(rows.chunk(j))).sum(3);
        let mean = centered.then(|| sum_of() / count);
        let centered = |j: Scalar<i32>| mean.map_or(load(rows.chunk(j)), |mean| load(rows.chunk(j)) - mean);
        let squares = rows.fold(columns, zeros(), |sum, j, padded| {
            let x = if padded { rows.inside(centered(j), j, columns) } else { centered(j) };
            x.fma(x, sum)
        });
        let scale = (squares.sum(3) / count + epsilon).rsqrt();
        rows.each_back(columns, |j, _| {
            if let Some(sum) = sum {
                sum.store(rows.chunk(j), load(rows.chunk(j)).cast::<T>());
            }
            y.store(rows.chunk(j), scaled(centered(j) * scale, vectors(j)));
        });
        return;
    }
    // In flight at the same time as the row, if registers have room for both: layer norm of 8192
    // rows of 8192 columns of bf16 takes 93 us on an H100 without them, 105 us with them.
    let early = (form.tile <= 4096).then(|| vectors(rows.part()));
    let x = load(rows.at());
    if let Some(sum) = sum {
        sum.store(rows.at(), x.cast::<T>());
    }
    let x = if centered { rows.inside(x - rows.sum(x) / count, rows.part(), columns) } else { x };
    let scale = (rows.sum(x * x) / count + epsilon).rsqrt();
    y.store(rows.at(), scaled(x * scale, early.unwrap_or_else(|| vectors(rows.part()))));
}

/// Operand of a norm and its residual, with the result of their sum.
pub struct Residual<'a, T, const R: usize> {
    /// Array that is added to the operand.
    pub residual: DeviceView<'a, T, R>,
    /// Sum of both.
    pub sum: DeviceViewMut<'a, T, R>,
}

/// Queues a norm. `bias`: layer norm.
#[track_caller]
pub fn launch<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    residual: Option<Residual<T, R>>,
    (weight, bias): (DeviceView<T, 1>, Option<DeviceView<T, 1>>),
    y: DeviceViewMut<T, R>,
    epsilon: f32,
) -> ct::Result<()> {
    let shape = x.shape();
    require(y.shape() == shape, || format!("norm of an array of {shape:?} into one of {:?}", y.shape()))?;
    if let Some(Residual { residual, sum }) = &residual {
        require(residual.shape() == shape && sum.shape() == shape, || {
            format!("an array of {shape:?}, a residual of {:?} and a sum of {:?}", residual.shape(), sum.shape())
        })?;
    }
    let four_axes = four(shape, false);
    let lengths = [Some(weight), bias].map(|v| v.map_or(four_axes[3], |v| v.len()));
    require(lengths == [four_axes[3]; 2], || {
        format!("rows of an array of {shape:?}, and a weight (and bias) of {lengths:?} elements")
    })?;
    if x.is_empty() {
        return Ok(());
    }
    let of_residual = residual.as_ref().is_none_or(|r| collapses(r.residual) && collapses(r.sum.as_view()));
    let shape = four(shape, collapses(x) && collapses(y.as_view()) && of_residual);
    let bytes = size_of::<T>() * if residual.is_some() { 2 } else { 1 };
    let form = Form::of_bytes(shape, ELEMENTS, bytes, stream).sized::<T>(shape);
    let constants = Constants { form, centered: bias.is_some() };
    let (residual, sum) = residual.map_or((None, None), |r| (Some(r.residual), Some(r.sum)));
    let residual = residual.map(|r| r.reshape(shape)).transpose()?;
    let sum = sum.map(|s| s.reshape(shape)).transpose()?;
    let inputs = (x.reshape(shape)?, residual, weight, bias);
    let arguments = (inputs, (sum, y.reshape(shape)?), epsilon, ct::Constant(constants));
    form.launch(shape, stream).run(kernel::<T>, arguments)
}
