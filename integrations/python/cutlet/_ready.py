"""The ready kernels, with their gradients for torch."""

import math

from . import _native
from ._op import op
from ._quantized import dequantize


def _elements(*tensors):
    return sum(math.prod(x.shape) for x in tensors)


def _parts(gradients, *tensors):
    """Gradients of these tensors, which follow one another in a vector."""
    parts = gradients.split([math.prod(x.shape) for x in tensors])
    return tuple(part.reshape(x.shape) for part, x in zip(parts, tensors))


_softmax_gradient = op("softmax_backward", _native.softmax_backward, tensors=("y", "grad"))
_rms_norm_gradients = op(
    "rms_norm_backward",
    _native.rms_norm_backward,
    tensors=("x", "grad", "weight"),
    numbers={"epsilon": float},
    shape=lambda x, grad, weight, epsilon: (_elements(x, weight),),
)
_layer_norm_gradients = op(
    "layer_norm_backward",
    _native.layer_norm_backward,
    tensors=("x", "grad", "weight"),
    numbers={"epsilon": float},
    shape=lambda x, grad, weight, epsilon: (_elements(x, weight, weight),),
)
_attention_gradients = op(
    "attention_backward",
    _native.attention_backward,
    tensors=("q", "k", "v", "grad"),
    numbers={"scale": float, "causal": bool},
    shape=lambda q, k, v, grad, scale, causal: (_elements(q, k, v),),
)


def _softmax_backward(grad, y, x):
    return _softmax_gradient(y, grad.contiguous())


def _rms_norm_backward(grad, y, x, weight, epsilon):
    return _parts(_rms_norm_gradients(x, grad.contiguous(), weight, epsilon), x, weight)


def _layer_norm_backward(grad, y, x, weight, bias, epsilon):
    return _parts(_layer_norm_gradients(x, grad.contiguous(), weight, epsilon), x, weight, bias)


def _rotary_backward(grad, y, x, cos, sin, adjacent):
    # The inverse of a rotation is its transpose. Angles have no gradients.
    return rotary(grad.contiguous(), cos, -sin, adjacent), None, None


def _attention_backward(grad, y, q, k, v, scale, causal):
    return _parts(_attention_gradients(q, k, v, grad.contiguous(), scale, causal), q, k, v)


def _gguf_backward(grad, y, x, weight, form):
    import torch

    weights, block = (32, 34) if form == "q8_0" else (256, 144)
    unit = torch.eye(weight.shape[1] // block * weights, dtype=x.dtype, device=x.device)
    return grad @ gguf_matmul(unit, weight, form).T, None


def _quantized_backward(grad, y, x, codes, scales, outputs, bits, group):
    return grad @ dequantize(scales, codes, bits, group).T, None, None


softmax = op("softmax", _native.softmax, backward=_softmax_backward, doc="Softmax over the last axis.")
rms_norm = op(
    "rms_norm", _native.rms_norm, tensors=("x", "weight"), numbers={"epsilon": 1e-6}, backward=_rms_norm_backward,
    doc="x / sqrt(mean of x² + epsilon) · weight, over the last axis.",
)
layer_norm = op(
    "layer_norm",
    _native.layer_norm,
    tensors=("x", "weight", "bias"),
    numbers={"epsilon": 1e-5},
    backward=_layer_norm_backward,
    doc="(x - mean) / sqrt(variance + epsilon) · weight + bias, over the last axis.",
)
rotary = op(
    "rotary",
    _native.rotary,
    tensors=("x", "cos", "sin"),
    numbers={"adjacent": False},
    backward=_rotary_backward,
    doc="Rotary embedding of (batch, heads, tokens, dim) by cos and sin of (tokens, dim / 2): halves, or adjacent pairs.",
)
attention = op(
    "attention",
    _native.attention,
    tensors=("q", "k", "v"),
    numbers={"scale": float, "causal": False},
    backward=_attention_backward,
    doc="softmax(scale · q kᵀ) v of (batch, heads, tokens, dim); heads of k and v divide those of q.",
)
def _quantized_scratch(gpu, x, codes, scales, outputs, bits, group):
    rows, inputs = math.prod(x.shape[:-1]), math.prod(x.shape[-1:])
    return _native.quantized_scratch([rows, outputs, inputs], (bits, group), x.dtype.itemsize, gpu)


quantized_matmul = op(
    "quantized_matmul",
    _native.quantized_matmul,
    tensors=("x", "codes", "scales"),
    numbers={"outputs": int, "bits": 4, "group": 32},
    shape=lambda x, codes, scales, outputs, bits, group: (*x.shape[:-1], outputs),
    backward=_quantized_backward,
    scratch=_quantized_scratch,
    doc="x times weights of 4 or 8 bits: see `quantize`.",
)
gguf_matmul = op(
    "gguf_matmul",
    _native.gguf_matmul,
    tensors=("x", "weight"),
    numbers={"form": str},
    shape=lambda x, weight, form: (*x.shape[:-1], weight.shape[0]),
    backward=_gguf_backward,
    doc="x times the transpose of a weight of a GGUF file: its bytes, of shape (outputs, bytes of a row), q8_0 or q4_K.",
)
