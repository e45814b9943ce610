//! Gradients of the ready kernels. Several gradients are parts of one vector, in the order of the
//! operands.

use cutlet::{DeviceArray, DeviceViewMut, Stream};
use cutlet_kernels::attention::{Gradients, Prefill};
use cutlet_kernels::{Number, norms};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::by_number;
use crate::tensor::{Tensor, failed, stream_of};

/// Adds the functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(softmax_backward, module)?)?;
    module.add_function(wrap_pyfunction!(rms_norm_backward, module)?)?;
    module.add_function(wrap_pyfunction!(layer_norm_backward, module)?)?;
    module.add_function(wrap_pyfunction!(attention_backward, module)?)
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Checks the shapes of an operand, of the gradient of its result, and of the vector of gradients.
fn require_fit(what: &str, (x, grad, all): (&Tensor, &Tensor, &Tensor), wanted: usize) -> PyResult<()> {
    match x.shape() == grad.shape() && *all.shape() == [wanted] {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!(
            "{what}: an operand of shape {:?}, a gradient of {:?}, and a vector of gradients of {:?}, not [{wanted}]",
            x.shape(),
            grad.shape(),
            all.shape()
        ))),
    }
}

#[pyfunction]
#[pyo3(signature = (y, grad, result, stream=None))]
fn softmax_backward(py: Python<'_>, y: Tensor, grad: Tensor, result: Tensor, stream: Option<usize>) -> PyResult<()> {
    if y.shape() != grad.shape() || y.shape() != result.shape() {
        let (y, grad) = (y.shape(), grad.shape());
        return Err(PyValueError::new_err(format!("softmax_backward: {y:?} and {grad:?} are not one shape")));
    }
    let stream = stream_of(&y, stream)?;
    by_number!(y.dtype(), T => {
        let (y, grad, mut dx) = (y.rows::<T>(&stream)?, grad.rows::<T>(&stream)?, result.rows::<T>(&stream)?);
        let grad = grad.view().reshape(y.shape()).map_err(failed)?;
        let dx = dx.view_mut().reshape(y.shape()).map_err(failed)?;
        py.detach(|| norms::softmax_backward(&stream, [y.view(), grad], dx)).map_err(failed)
    })
}

/// Returns the parts of the vector of gradients: that of the rows, and `N` vectors of the columns.
fn parts<T: Number, const N: usize>(
    all: &mut DeviceArray<T, 1>,
    shape: [usize; 4],
) -> cutlet::Result<(DeviceViewMut<'_, T, 4>, [DeviceViewMut<'_, T, 1>; N])> {
    let (dx, mut rest) = all.view_mut().split_at_mut(0, elements(&shape))?;
    let mut vectors = Vec::new();
    for _ in 0..N {
        let (vector, others) = rest.split_at_mut(0, shape[3])?;
        vectors.push(vector);
        rest = others;
    }
    Ok((dx.reshape(shape)?, vectors.try_into().unwrap_or_else(|_| unreachable!("a vector for each round"))))
}

#[pyfunction]
#[pyo3(signature = (x, grad, weight, result, epsilon, stream=None))]
fn rms_norm_backward(
    py: Python<'_>,
    x: Tensor,
    grad: Tensor,
    weight: Tensor,
    result: Tensor,
    epsilon: f32,
    stream: Option<usize>,
) -> PyResult<()> {
    let wanted = elements(x.shape()) + elements(weight.shape());
    require_fit("rms_norm_backward", (&x, &grad, &result), wanted)?;
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, grad, mut all) = (x.rows::<T>(&stream)?, grad.rows::<T>(&stream)?, result.array::<T, 1>(&stream)?);
        let weight = weight.array::<T, 1>(&stream)?;
        let inputs = [x.view(), grad.view().reshape(x.shape()).map_err(failed)?];
        let (dx, [dweight]) = parts(&mut all, x.shape()).map_err(failed)?;
        py.detach(|| norms::rms_norm_backward(&stream, inputs, None, weight.view(), (dx, dweight), epsilon))
            .map_err(failed)
    })
}

#[pyfunction]
#[pyo3(signature = (x, grad, weight, result, epsilon, stream=None))]
fn layer_norm_backward(
    py: Python<'_>,
    x: Tensor,
    grad: Tensor,
    weight: Tensor,
    result: Tensor,
    epsilon: f32,
    stream: Option<usize>,
) -> PyResult<()> {
    let wanted = elements(x.shape()) + 2 * elements(weight.shape());
    require_fit("layer_norm_backward", (&x, &grad, &result), wanted)?;
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, grad, mut all) = (x.rows::<T>(&stream)?, grad.rows::<T>(&stream)?, result.array::<T, 1>(&stream)?);
        let weight = weight.array::<T, 1>(&stream)?;
        let inputs = [x.view(), grad.view().reshape(x.shape()).map_err(failed)?];
        let results = parts(&mut all, x.shape()).map_err(failed)?;
        py.detach(|| norms::layer_norm_backward(&stream, inputs, None, weight.view(), results, epsilon))
            .map_err(failed)
    })
}

/// Queues the forward pass, for the result and the logarithms of its sums, and the gradients.
fn of_attention<T: Number>(
    stream: &Stream,
    [q, k, v, grad]: [&DeviceArray<T, 4>; 4],
    all: &mut DeviceArray<T, 1>,
    (scale, causal): (f32, bool),
) -> cutlet::Result<()> {
    let [batch, heads, queries, _] = q.shape();
    let mut y = stream.device().unspecified::<T, 4>(q.shape())?;
    let mut logs = stream.device().unspecified::<f32, 3>([batch, heads, queries])?;
    let qkv = [q.view(), k.view(), v.view()];
    Prefill::new(scale).causal(causal).launch(stream, qkv, y.view_mut(), Some(logs.view_mut()))?;
    let (dq, rest) = all.view_mut().split_at_mut(0, q.len())?;
    let (dk, dv) = rest.split_at_mut(0, k.len())?;
    let gradients = [dq.reshape(q.shape())?, dk.reshape(k.shape())?, dv.reshape(v.shape())?];
    let inputs = [q.view(), k.view(), v.view(), y.view(), grad.view()];
    Gradients::new(scale).causal(causal).launch(stream, inputs, logs.view(), gradients)
}

#[pyfunction]
#[pyo3(signature = (q, k, v, grad, result, scale, causal, stream=None))]
#[allow(clippy::too_many_arguments)]
fn attention_backward(
    py: Python<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    result: Tensor,
    scale: f32,
    causal: bool,
    stream: Option<usize>,
) -> PyResult<()> {
    let wanted = [&q, &k, &v].map(|x| elements(x.shape())).iter().sum();
    require_fit("attention_backward", (&q, &grad, &result), wanted)?;
    let stream = stream_of(&q, stream)?;
    by_number!(q.dtype(), T => {
        let (q, k) = (q.array::<T, 4>(&stream)?, k.array::<T, 4>(&stream)?);
        let (v, grad, mut all) = (v.array::<T, 4>(&stream)?, grad.array::<T, 4>(&stream)?, result.array::<T, 1>(&stream)?);
        py.detach(|| of_attention(&stream, [&q, &k, &v, &grad], &mut all, (scale, causal))).map_err(failed)
    })
}
