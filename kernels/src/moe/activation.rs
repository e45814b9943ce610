//! Gradients of the gated activations of experts, in the product with the second weights.
//!
//! The gradients of tokens are multiplied with the second weights of an expert. Up to the weights
//! of the pairs, the result is the gradient of the activation times its value. The epilogue
//! computes from it:
//!
//! * the gradients of both operands of the gate;
//! * the results of the gate, for the gradients of the second weights;
//! * the gradients of the weights of the pairs.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::Alignment;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};
use crate::norms::Gate;
use crate::norms::rows::mode;

/// Columns that the epilogue computes at a time.
const STRIP: usize = 32;

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    gate: Gate,
    tile: [usize; 3],
}

/// Gradients of both operands of the gate, results of the gate, and gradients of the weights of
/// pairs.
type Results<T> = ([ArrayMut<T, 2>; 2], ArrayMut<T, 2>, ArrayMut<f32, 1>);

fn kernel<T: Number>(
    (dy, w): (Array<T, 2>, Array<T, 3>),
    (operands, weights): ([Array<T, 2>; 2], Array<f32, 1>),
    (pairs, of_tile, starts): (Array<i32, 1>, Array<i32, 1>, Array<i32, 1>),
    ([da, db], h, dweights): Results<T>,
    taken: Scalar<i32>,
    Form { gate, tile: [tm, tn, tk] }: Form,
) {
    let (columns, steps) = (h.num_tiles(1, [tm, tn]), dy.num_tiles(1, [tm, tk]));
    // Tiles of rows in front of the end of the last expert.
    let rows = starts.load_scalar(starts.extent(0) - 1) / tm as i32;
    ct::for_each(ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0)), |index| {
        let [i, j] = ct::swizzle_2d(index, rows, columns, 8);
        let expert = of_tile.load_scalar(i);
        let pairs = pairs.load(i, [tm]);
        // A free place is after the last token.
        let token = pairs / taken;
        let product = ct::fold(..steps, ct::zeros::<f32, 2>([tm, tn]), |sums, k| {
            let w = w.load((expert, j, k), [1, tn, tk]).reshape([tn, tk]);
            ct::mma(dy.load((ct::at(token), k), [tm, tk]), w.transpose(), sums)
        });
        let weight = weights.gather(pairs).unsqueeze(1);
        let strip = STRIP.min(tn);
        let of_weights = (0..tn / strip).fold(ct::zeros::<f32, 2>([tm, 1]), |sum, part| {
            let at = (i, j * (tn / strip) as i32 + part as i32);
            let gradient = product.extract((0, part as i32), [tm, strip]);
            let [a, b] = operands.map(|x| x.load(at, [tm, strip]).cast::<f32>());
            let [value, slope] = mode::<T, _>(|| gate.with_derivative(a));
            let (result, weighted) = (value * b, gradient * weight);
            da.store(at, (weighted * slope * b).cast::<T>());
            db.store(at, (weighted * value).cast::<T>());
            h.store(at, (result * weight).cast::<T>());
            sum + (gradient * result).sum(1)
        });
        dweights.atomic_add(pairs, of_weights.squeeze(1));
    });
}

/// Inputs of [`activation_gradients`].
#[derive(Clone, Copy, Debug)]
pub struct ActivationInputs<'a, T: Number> {
    /// Gradients of the results of the layer, of shape (tokens, hidden).
    pub dy: DeviceView<'a, T, 2>,
    /// Second weights of the experts, of shape (experts, between, hidden).
    pub second: DeviceView<'a, T, 3>,
    /// Operands of the gate side by side, of shape (places, 2 · between).
    pub operands: DeviceView<'a, T, 2>,
    /// Weights of the pairs, of shape (tokens, experts of a token).
    pub weights: DeviceView<'a, f32, 2>,
}

/// Results of [`activation_gradients`].
pub struct ActivationGradients<'a, T> {
    /// Gradients of the operands of the gate, of shape (places, 2 · between).
    pub operands: DeviceViewMut<'a, T, 2>,
    /// Results of the gate times the weights of the pairs, of shape (places, between).
    pub weighted: DeviceViewMut<'a, T, 2>,
    /// Gradients of the weights of the pairs, which are added to this array of shape (tokens,
    /// experts of a token).
    pub weights: DeviceViewMut<'a, f32, 2>,
}

/// Queues the gradients of the gated activations gate(a) · b of experts, in the order of an
/// alignment. Rows of free places are zero.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{ActivationGradients, ActivationInputs, Alignment, activation_gradients};
/// use cutlet_kernels::norms::Gate;
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let mut alignment = Alignment::new(&stream, [1, 1], 1, 1)?;
/// alignment.launch(&stream, device.zeros([1, 1])?.view())?;
/// let (dy, second) = (device.array(&[2.0f32], [1, 1])?, device.array(&[3.0f32], [1, 1, 1])?);
/// let (operands, weights) = (device.array(&[1e3f32, 5.0], [1, 2])?, device.full([1, 1], 0.5f32)?);
/// let (mut da, mut h, mut dw) = (device.zeros([1, 2])?, device.zeros([1, 1])?, device.zeros([1, 1])?);
/// let (dy, second) = (dy.view(), second.view());
/// let inputs = ActivationInputs { dy, second, operands: operands.view(), weights: weights.view() };
/// let results = ActivationGradients { operands: da.view_mut(), weighted: h.view_mut(), weights: dw.view_mut() };
/// activation_gradients(&stream, inputs, &alignment, Gate::Silu, results)?;
/// assert_eq!((da.to_vec()?, h.to_vec()?, dw.to_vec()?), (vec![15.0, 3e3], vec![2.5e3], vec![3e4]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn activation_gradients<T: Number>(
    stream: &Stream,
    ActivationInputs { dy, second, operands, weights }: ActivationInputs<T>,
    alignment: &Alignment,
    gate: Gate,
    results: ActivationGradients<T>,
) -> ct::Result<()> {
    let ([experts, between, hidden], [tokens, taken]) = (second.shape(), alignment.tokens());
    let places = alignment.num_places();
    require(dy.shape() == [tokens, hidden] && experts == alignment.experts(), || {
        format!(
            "{tokens} tokens, {} experts; dy of {:?}, weights of {:?}",
            alignment.experts(),
            dy.shape(),
            second.shape()
        )
    })?;
    let shapes = [operands.shape(), results.operands.shape(), results.weighted.shape()];
    require(shapes == [[places, 2 * between], [places, 2 * between], [places, between]], || {
        format!("{places} places of {between} numbers; operands, their gradients and results of {shapes:?}")
    })?;
    let shapes = [weights.shape(), results.weights.shape()];
    require(shapes == [[tokens, taken]; 2], || format!("weights of {shapes:?}, not of {:?}", [tokens, taken]))?;
    if results.weighted.is_empty() {
        return Ok(());
    }
    let extent = |extent: usize, most: usize| extent.next_power_of_two().clamp(16, most);
    let form = Form { gate, tile: [alignment.tile(), extent(between, 128), extent(hidden, 64)] };
    let tiles = alignment.of_tile().len() * between.div_ceil(form.tile[1]);
    let (a, b) = operands.split_at(1, between)?;
    let ((da, db), pairs) = (results.operands.split_at_mut(1, between)?, tokens * taken);
    let lists = (alignment.pairs(), alignment.of_tile(), alignment.starts());
    let outputs = ([da, db], results.weighted, results.weights.reshape([pairs])?);
    let inputs = ((dy, second), ([a, b], weights.reshape([pairs])?));
    let arguments = (inputs.0, inputs.1, lists, outputs, taken as i32, ct::Constant(form));
    ct::Launch::new(num_multiprocessors(stream).min(tiles)).stream(stream).run(kernel::<T>, arguments)
}
