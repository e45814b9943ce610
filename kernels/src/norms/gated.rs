//! Gated activations of transformers, SwiGLU and GeGLU (Shazeer, 2020), with gradients.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{collapses, four, mode};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// x · sigmoid(x): SwiGLU.
    Silu,
    /// x · (1 + erf(x / √2)) / 2: GeGLU.
    Gelu,
    /// The approximation of GELU by a hyperbolic tangent.
    GeluTanh,
    /// sigmoid(x): GLU.
    Sigmoid,
}

/// √(2/π) and the factor of the cube in the approximation of GELU (Hendrycks and Gimpel, 2016).
const ROOT: f32 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const CUBE: f32 = 0.044715;

impl Gate {
    /// In a kernel: the activation.
    pub fn of<const R: usize>(self, x: Tile<f32, R>) -> Tile<f32, R> {
        match self {
            // 54 registers of a thread; 80 with `silu`, which leave fewer blocks.
            Gate::Silu => x * (1.0 / ((-x).exp() + 1.0)),
            Gate::Gelu => x.gelu(),
            Gate::GeluTanh => x.gelu_tanh(),
            Gate::Sigmoid => x.sigmoid(),
        }
    }

    /// In a kernel: the activation and its derivative.
    pub fn with_derivative<const R: usize>(self, x: Tile<f32, R>) -> [Tile<f32, R>; 2] {
        match self {
            Gate::Silu => {
                let s = 1.0 / ((-x).exp() + 1.0);
                let value = x * s;
                [value, s + value * (1.0 - s)]
            }
            Gate::Gelu => {
                let cumulative = 0.5 * (x * FRAC_1_SQRT_2).erf() + 0.5;
                let density = (x * x * -0.5).exp() * (0.5 * ROOT);
                [x * cumulative, cumulative + x * density]
            }
            Gate::GeluTanh => {
                let square = x * x;
                let t = (x * (square * CUBE + 1.0) * ROOT).tanh();
                let half = 0.5 * t + 0.5;
                let slope = (square * (3.0 * CUBE) + 1.0) * (0.5 * ROOT);
                [x * half, half + x * (1.0 - t * t) * slope]
            }
            Gate::Sigmoid => {
                let s = x.sigmoid();
                [s, s * (1.0 - s)]
            }
        }
    }
}

/// Index of the tile of a block: tiles of a row are adjacent.
fn place<T: Number>(x: Array<T, 4>, shape: [usize; 4]) -> [Scalar<i32>; 4] {
    let along = x.num_tiles(3, shape);
    [ct::bid(2), ct::bid(1), ct::bid(0) / along, ct::bid(0) % along]
}

/// Promises that elements are independent of each other along all axes but the last one.
fn promise() {
    for axis in 0..3 {
        ct::require_rowwise(axis);
    }
}

fn forward<T: Number>([a, b]: [Array<T, 4>; 2], y: ArrayMut<T, 4>, gate: Gate, shape: [usize; 4]) {
    promise();
    let at = place(a, shape);
    mode::<T, _>(|| {
        let [a, b] = [a, b].map(|array| array.load(at, shape).cast::<f32>());
        y.store(at, (gate.of(a) * b).cast::<T>());
    });
}

fn backward<T: Number>([a, b, dy]: [Array<T, 4>; 3], [da, db]: [ArrayMut<T, 4>; 2], gate: Gate, shape: [usize; 4]) {
    promise();
    let at = place(a, shape);
    mode::<T, _>(|| {
        let [a, b, dy] = [a, b, dy].map(|array| array.load(at, shape).cast::<f32>());
        let [value, slope] = gate.with_derivative(a);
        da.store(at, (dy * b * slope).cast::<T>());
        db.store(at, (dy * value).cast::<T>());
    });
}

/// Tile of an array of this shape, and the grid.
fn tiles<T>(shape: [usize; 4]) -> ([usize; 4], [usize; 3]) {
    let elements = if size_of::<T>() == 2 { 4096 } else { 2048 };
    let tile = shape[3].next_power_of_two().min(2048);
    let rows = (elements / tile).min(shape[2].next_power_of_two());
    ([1, 1, rows, tile], [shape[2].div_ceil(rows) * shape[3].div_ceil(tile), shape[1], shape[0]])
}

/// Queues y = gate(a) · b. Arrays have up to four axes, or more if their strides are those of fewer
/// axes; halves of one array are views of it.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::norms::{Gate, gated};
///
/// let device = ct::Device::cpu();
/// let both = device.array(&[0.0f32, 1e3, 5.0, 2.0], [1, 4])?; // a and b of a row
/// let (mut y, (a, b)) = (device.zeros([1, 2])?, both.view().split_at(1, 2)?);
/// gated(&device.default_stream(), [a, b], y.view_mut(), Gate::Silu)?;
/// assert_eq!(y.to_vec()?, [0.0, 2e3]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the shapes differ; those of the launch.
#[track_caller]
pub fn gated<T: Number, const R: usize>(
    stream: &Stream,
    [a, b]: [DeviceView<T, R>; 2],
    y: DeviceViewMut<T, R>,
    gate: Gate,
) -> ct::Result<()> {
    require(a.shape() == b.shape() && a.shape() == y.shape(), || {
        format!("a gate of {:?}, an operand of {:?} and a result of {:?}", a.shape(), b.shape(), y.shape())
    })?;
    if a.is_empty() {
        return Ok(());
    }
    let shape = four(a.shape(), collapses(a) && collapses(b) && collapses(y.as_view()));
    let (tile, grid) = tiles::<T>(shape);
    let inputs = [a.reshape(shape)?, b.reshape(shape)?];
    let arguments = (inputs, y.reshape(shape)?, ct::Constant(gate), ct::Constant(tile));
    ct::Launch::new(grid).stream(stream).run(forward::<T>, arguments)
}

/// Queues the gradients of [`gated`] for `a` and `b`.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::norms::{Gate, gated_backward};
///
/// let device = ct::Device::cpu();
/// let (a, b, dy) = (device.full([2], 0.0f32)?, device.full([2], 6.0)?, device.full([2], 2.0)?);
/// let (mut da, mut db) = (device.zeros([2])?, device.full([2], 1.0)?);
/// let (inputs, gradients) = ([a.view(), b.view(), dy.view()], [da.view_mut(), db.view_mut()]);
/// gated_backward(&device.default_stream(), inputs, gradients, Gate::Silu)?;
/// assert_eq!((da.to_vec()?, db.to_vec()?), (vec![6.0; 2], vec![0.0; 2]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`gated`].
#[track_caller]
pub fn gated_backward<T: Number, const R: usize>(
    stream: &Stream,
    [a, b, dy]: [DeviceView<T, R>; 3],
    [da, db]: [DeviceViewMut<T, R>; 2],
    gate: Gate,
) -> ct::Result<()> {
    let shapes = [b.shape(), dy.shape(), da.shape(), db.shape()];
    require(shapes == [a.shape(); 4], || format!("gradient of a gate of {:?}; other arrays {shapes:?}", a.shape()))?;
    if a.is_empty() {
        return Ok(());
    }
    let all = [a, b, dy, da.as_view(), db.as_view()].into_iter().all(collapses);
    let shape = four(a.shape(), all);
    let (tile, grid) = tiles::<T>(shape);
    let inputs = [a.reshape(shape)?, b.reshape(shape)?, dy.reshape(shape)?];
    let gradients = [da.reshape(shape)?, db.reshape(shape)?];
    let arguments = (inputs, gradients, ct::Constant(gate), ct::Constant(tile));
    ct::Launch::new(grid).stream(stream).run(backward::<T>, arguments)
}
