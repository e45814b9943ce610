//! The ready kernels.

use cutlet::element::f16;
use cutlet::{Device, DeviceArray, Stream};
use cutlet_kernels::gguf::{Blocks, product_with};
use cutlet_kernels::quantized::{Bits, Product};
use cutlet_kernels::{Attention, Number, Pairs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::by_number;
use crate::tensor::{Tensor, failed, stream_of};

/// Adds the functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(softmax, module)?)?;
    module.add_function(wrap_pyfunction!(rms_norm, module)?)?;
    module.add_function(wrap_pyfunction!(layer_norm, module)?)?;
    module.add_function(wrap_pyfunction!(rotary, module)?)?;
    module.add_function(wrap_pyfunction!(attention, module)?)?;
    module.add_function(wrap_pyfunction!(quantized_words, module)?)?;
    module.add_function(wrap_pyfunction!(quantized_scratch, module)?)?;
    module.add_function(wrap_pyfunction!(quantized_matmul, module)?)?;
    module.add_function(wrap_pyfunction!(dequantize, module)?)?;
    module.add_function(wrap_pyfunction!(gguf_matmul, module)?)?;
    module.add_function(wrap_pyfunction!(stream, module)?)?;
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(num_gpus, module)?)
}

fn same_shape(what: &str, x: &Tensor, y: &Tensor) -> PyResult<()> {
    match x.shape() == y.shape() {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!("{what}: {:?} and {:?} are not one shape", x.shape(), y.shape()))),
    }
}

fn of_row(what: &str, x: &Tensor, weight: &Tensor) -> PyResult<()> {
    match x.shape().last() {
        Some(&row) if weight.shape() == [row] => Ok(()),
        _ => Err(PyValueError::new_err(format!(
            "{what} of shape {:?} for rows of a tensor of {:?}",
            weight.shape(),
            x.shape()
        ))),
    }
}

/// Returns a stream of a GPU for libraries whose own stream is unknown.
#[pyfunction]
fn stream(gpu: usize) -> PyResult<usize> {
    Ok(Device::gpu(gpu).map_err(failed)?.default_stream().raw().expose_provenance())
}

/// Waits for the work of `stream`.
#[pyfunction]
fn synchronize(py: Python<'_>, gpu: usize) -> PyResult<()> {
    let stream = Device::gpu(gpu).map_err(failed)?.default_stream();
    py.detach(|| stream.synchronize()).map_err(failed)
}

/// Returns the number of GPUs that cutlet can use.
#[pyfunction]
fn num_gpus() -> usize {
    Device::num_gpus()
}

#[pyfunction]
#[pyo3(signature = (x, y, stream=None))]
fn softmax(py: Python<'_>, x: Tensor, y: Tensor, stream: Option<usize>) -> PyResult<()> {
    same_shape("softmax", &x, &y)?;
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, mut y) = (x.rows::<T>(&stream)?, y.rows::<T>(&stream)?);
        let y = y.view_mut().reshape(x.shape()).map_err(failed)?;
        py.detach(|| cutlet_kernels::softmax(&stream, x.view(), y)).map_err(failed)
    })
}

#[pyfunction]
#[pyo3(signature = (x, weight, y, epsilon, stream=None))]
fn rms_norm(py: Python<'_>, x: Tensor, weight: Tensor, y: Tensor, epsilon: f32, stream: Option<usize>) -> PyResult<()> {
    same_shape("rms_norm", &x, &y)?;
    of_row("rms_norm: a weight", &x, &weight)?;
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, weight, mut y) = (x.rows::<T>(&stream)?, weight.array::<T, 1>(&stream)?, y.rows::<T>(&stream)?);
        let y = y.view_mut().reshape(x.shape()).map_err(failed)?;
        py.detach(|| cutlet_kernels::rms_norm(&stream, x.view(), weight.view(), y, epsilon)).map_err(failed)
    })
}

#[pyfunction]
#[pyo3(signature = (x, weight, bias, y, epsilon, stream=None))]
fn layer_norm(
    py: Python<'_>,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    y: Tensor,
    epsilon: f32,
    stream: Option<usize>,
) -> PyResult<()> {
    same_shape("layer_norm", &x, &y)?;
    of_row("layer_norm: a weight", &x, &weight)?;
    of_row("layer_norm: a bias", &x, &bias)?;
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, mut y) = (x.rows::<T>(&stream)?, y.rows::<T>(&stream)?);
        let (weight, bias) = (weight.array::<T, 1>(&stream)?, bias.array::<T, 1>(&stream)?);
        let y = y.view_mut().reshape(x.shape()).map_err(failed)?;
        let given = [weight.view(), bias.view()];
        py.detach(|| cutlet_kernels::layer_norm(&stream, x.view(), given, y, epsilon)).map_err(failed)
    })
}

#[pyfunction]
#[pyo3(signature = (x, cos, sin, y, adjacent, stream=None))]
fn rotary(
    py: Python<'_>,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    y: Tensor,
    adjacent: bool,
    stream: Option<usize>,
) -> PyResult<()> {
    same_shape("rotary", &x, &y)?;
    same_shape("rotary: cos and sin", &cos, &sin)?;
    match *x.shape() {
        [_, _, tokens, dim] if dim % 2 == 0 && *cos.shape() == [tokens, dim / 2] => {}
        _ => {
            let (x, cos) = (x.shape(), cos.shape());
            return Err(PyValueError::new_err(format!(
                "rotary: x of shape {x:?}, cos and sin of {cos:?}: (batch, heads, tokens, dim) and (tokens, dim / 2)"
            )));
        }
    }
    let stream = stream_of(&x, stream)?;
    let pairs = if adjacent { Pairs::Adjacent } else { Pairs::Halves };
    by_number!(x.dtype(), T => {
        let (x, mut y) = (x.array::<T, 4>(&stream)?, y.array::<T, 4>(&stream)?);
        let (cos, sin) = (cos.array::<T, 2>(&stream)?, sin.array::<T, 2>(&stream)?);
        let angles = [cos.view(), sin.view()];
        py.detach(|| cutlet_kernels::rotary(&stream, x.view(), angles, y.view_mut(), pairs)).map_err(failed)
    })
}

/// `y` is of shape (batch, heads, queries, dim), with any strides.
#[pyfunction]
#[pyo3(signature = (q, k, v, y, scale, causal, stream=None))]
#[allow(clippy::too_many_arguments)]
fn attention(
    py: Python<'_>,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    scale: f32,
    causal: bool,
    stream: Option<usize>,
) -> PyResult<()> {
    same_shape("attention: q and the result", &q, &y)?;
    same_shape("attention: k and v", &k, &v)?;
    let fits = match (q.shape(), k.shape()) {
        (&[batch, heads, queries, dim], &[key_batch, key_heads, keys, key_dim]) => {
            batch == key_batch
                && dim == key_dim
                && dim <= 512
                && key_heads > 0
                && heads % key_heads == 0
                && keys > 0
                && !(causal && queries > keys)
        }
        _ => false,
    };
    if !(fits && scale > 0.0 && scale.is_finite()) {
        return Err(PyValueError::new_err(format!(
            "attention: q of shape {:?}, k and v of {:?}, scale {scale}, causal {causal}: q is (batch, heads, queries, dim), k and v \
             are (batch, key heads, keys, dim); key heads divide heads, dim is at most 512, every query sees a key, and the \
             scale is above 0",
            q.shape(),
            k.shape()
        )));
    }
    let stream = stream_of(&q, stream)?;
    by_number!(q.dtype(), T => {
        let (q, k) = (q.array::<T, 4>(&stream)?, k.array::<T, 4>(&stream)?);
        let (v, mut y) = (v.array::<T, 4>(&stream)?, y.array::<T, 4>(&stream)?);
        let given = [q.view(), k.view(), v.view()];
        py.detach(|| Attention { scale, causal }.launch(&stream, given, y.view_mut())).map_err(failed)
    })
}

fn bits_of(bits: u32) -> PyResult<Bits> {
    match bits {
        4 => Ok(Bits::Four),
        8 => Ok(Bits::Eight),
        _ => Err(PyValueError::new_err(format!("weights of {bits} bits: 4 and 8 are possible"))),
    }
}

/// Returns the number of words of a row of codes for `outputs` outputs.
#[pyfunction]
fn quantized_words(outputs: usize, bits: u32) -> PyResult<usize> {
    Ok(bits_of(bits)?.words(outputs))
}

/// Returns the words of codes. torch and CuPy have them signed.
fn words(codes: Tensor, stream: &Stream) -> PyResult<DeviceArray<u32, 2>> {
    match codes.dtype().code == 0 {
        true => codes.bits_of_i32(stream),
        false => codes.array::<u32, 2>(stream),
    }
}

/// `scales` is the first tensor: the result has its type.
#[pyfunction]
#[pyo3(signature = (scales, codes, y, bits, group, stream=None))]
fn dequantize(
    py: Python<'_>,
    scales: Tensor,
    codes: Tensor,
    y: Tensor,
    bits: u32,
    group: usize,
    stream: Option<usize>,
) -> PyResult<()> {
    let (product, stream) = (Product { bits: bits_of(bits)?, group }, stream_of(&scales, stream)?);
    by_number!(scales.dtype(), T => {
        let (scales, mut y) = (scales.array::<T, 2>(&stream)?, y.array::<T, 2>(&stream)?);
        let codes = words(codes, &stream)?;
        py.detach(|| product.dequantize::<T>(&stream, codes.view(), scales.view(), y.view_mut())).map_err(failed)
    })
}

/// Returns the number of f32 elements of scratch memory that `quantized_matmul` needs on a GPU or
/// the host. `shape` is (rows, outputs, inputs), `packing` is (bits, group), and `bytes` is the
/// size of an element of x.
#[pyfunction]
fn quantized_scratch(shape: [usize; 3], packing: (u32, usize), bytes: usize, gpu: Option<usize>) -> PyResult<usize> {
    let ([rows, outputs, inputs], (bits, group)) = (shape, packing);
    let device = gpu.map_or(Ok(Device::cpu()), Device::gpu).map_err(failed)?;
    let (product, result) = (Product { bits: bits_of(bits)?, group }, [rows, outputs]);
    let tiles = match bytes {
        4 => product.tiles::<f32>(device, result, inputs),
        _ => product.tiles::<f16>(device, result, inputs),
    };
    Ok(tiles.scratch(result).iter().product())
}

fn product<T: Number>(
    py: Python<'_>,
    product: Product,
    stream: &Stream,
    (x, codes, scales, y, scratch): (Tensor, Tensor, Tensor, Tensor, Tensor),
) -> PyResult<()> {
    let (x, scales, mut y) = (x.matrix::<T>(stream)?, scales.array::<T, 2>(stream)?, y.matrix::<T>(stream)?);
    let tiles = product.tiles::<T>(stream.device(), y.shape(), x.shape()[1]);
    let mut scratch = scratch.array::<f32, 1>(stream)?.into_shape(tiles.scratch(y.shape())).map_err(failed)?;
    let codes = words(codes, stream)?;
    let given = (x.view(), codes.view(), scales.view());
    py.detach(|| product.launch::<T>(tiles, stream, given, scratch.view_mut(), y.view_mut())).map_err(failed)
}

#[pyfunction]
#[pyo3(signature = (x, codes, scales, y, scratch, outputs, bits, group, stream=None))]
#[allow(clippy::too_many_arguments)]
fn quantized_matmul(
    py: Python<'_>,
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    y: Tensor,
    scratch: Tensor,
    outputs: usize,
    bits: u32,
    group: usize,
    stream: Option<usize>,
) -> PyResult<()> {
    let bits = bits_of(bits)?;
    let (Some(&inputs), Some(_)) = (x.shape().last(), y.shape().last()) else {
        return Err(PyValueError::new_err("quantized_matmul: a tensor without axes"));
    };
    let wanted = [[inputs, bits.words(outputs)], [inputs.div_ceil(group.max(1)), outputs]];
    let leading = x.shape()[..x.shape().len() - 1] == y.shape()[..y.shape().len() - 1];
    if !group.is_power_of_two()
        || group < 16
        || *codes.shape() != wanted[0]
        || *scales.shape() != wanted[1]
        || !leading
        || y.shape().last() != Some(&outputs)
    {
        return Err(PyValueError::new_err(format!(
            "quantized_matmul: x of shape {:?}, codes of {:?}, scales of {:?}, a result of {:?}, groups of {group}: codes are \
             {:?}, scales {:?}, and a group is a power of two from 16 on",
            x.shape(),
            codes.shape(),
            scales.shape(),
            y.shape(),
            wanted[0],
            wanted[1]
        )));
    }
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => product::<T>(py, Product { bits, group }, &stream, (x, codes, scales, y, scratch)))
}

#[pyfunction]
#[pyo3(signature = (x, weight, y, form, stream=None))]
fn gguf_matmul(
    py: Python<'_>,
    x: Tensor,
    weight: Tensor,
    y: Tensor,
    form: &str,
    stream: Option<usize>,
) -> PyResult<()> {
    let blocks = match form {
        "q8_0" => Blocks::Q8_0,
        "q4_K" => Blocks::Q4K,
        other => return Err(PyValueError::new_err(format!("blocks of {other}: q8_0 and q4_K are possible"))),
    };
    let fits = match (x.shape(), weight.shape(), y.shape()) {
        ([rows @ .., inputs], [outputs, bytes], [of_result @ .., columns]) => {
            rows == of_result
                && columns == outputs
                && inputs % blocks.weights() == 0
                && *bytes == inputs / blocks.weights() * blocks.bytes()
        }
        _ => false,
    };
    if !fits {
        return Err(PyValueError::new_err(format!(
            "gguf_matmul: x of shape {:?}, a weight of {:?} bytes in blocks {form}, a result of {:?}",
            x.shape(),
            weight.shape(),
            y.shape()
        )));
    }
    let stream = stream_of(&x, stream)?;
    by_number!(x.dtype(), T => {
        let (x, mut y) = (x.matrix::<T>(&stream)?, y.matrix::<T>(&stream)?);
        let weight = weight.array::<u8, 2>(&stream)?;
        py.detach(|| product_with(&stream, blocks, x.view(), weight.view(), y.view_mut())).map_err(failed)
    })
}
