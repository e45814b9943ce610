"""The ready kernels, with their gradients for torch."""

from . import _native
from ._op import op
from ._quantized import dequantize


def _softmax_backward(grad, y, x):
    product = grad.float() * y.float()
    return (product - y.float() * product.sum(-1, keepdim=True)).to(x.dtype)


def _over_rows(x):
    """All axes but the last one."""
    return tuple(range(x.dim() - 1))


def _rms_norm_backward(grad, y, x, weight, epsilon):
    wide, scaled = x.float(), grad.float() * weight.float()
    scale = (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    normal = wide * scale
    of_x = scale * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    of_weight = grad.float() * normal
    return of_x.to(x.dtype), of_weight.sum(_over_rows(x)).to(weight.dtype) if x.dim() > 1 else of_weight.to(weight.dtype)


def _layer_norm_backward(grad, y, x, weight, bias, epsilon):
    wide, wide_grad = x.float(), grad.float()
    centered = wide - wide.mean(-1, keepdim=True)
    scale = (centered.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    normal, scaled = centered * scale, wide_grad * weight.float()
    of_x = scale * (scaled - scaled.mean(-1, keepdim=True) - normal * (scaled * normal).mean(-1, keepdim=True))
    of_weight, of_bias = wide_grad * normal, wide_grad
    if x.dim() > 1:
        of_weight, of_bias = of_weight.sum(_over_rows(x)), of_bias.sum(_over_rows(x))
    return of_x.to(x.dtype), of_weight.to(weight.dtype), of_bias.to(bias.dtype)


def _rotary_backward(grad, y, x, cos, sin, adjacent):
    # The inverse of a rotation is its transpose. Angles have no gradients.
    return rotary(grad.contiguous(), cos, -sin, adjacent), None, None


def _attention_backward(grad, y, q, k, v, scale, causal):
    import torch

    group, (queries, keys) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    wide_q, wide_k, wide_v = (t.float() for t in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = wide_q @ wide_k.transpose(-1, -2) * scale
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        scores = scores.masked_fill(~seen, float("-inf"))
    weights, wide = scores.softmax(-1), grad.float()
    of_weights = wide @ wide_v.transpose(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    shared = lambda t: t.unflatten(1, (k.shape[1], group)).sum(2)
    of_k, of_v = of_scores.transpose(-1, -2) @ wide_q, weights.transpose(-1, -2) @ wide
    return (of_scores @ wide_k).to(q.dtype), shared(of_k).to(k.dtype), shared(of_v).to(v.dtype)


def _gguf_backward(grad, y, x, weight, form):
    import torch

    weights, block = (32, 34) if form == "q8_0" else (256, 144)
    unit = torch.eye(weight.shape[1] // block * weights, dtype=x.dtype, device=x.device)
    return grad @ gguf_matmul(unit, weight, form).T, None


def _quantized_backward(grad, y, x, codes, scales, outputs, bits, group):
    return grad @ dequantize(codes, scales, outputs, bits, group).T, None, None


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
quantized_matmul = op(
    "quantized_matmul",
    _native.quantized_matmul,
    tensors=("x", "codes", "scales"),
    numbers={"outputs": int, "bits": 4, "group": 32},
    shape=lambda x, codes, scales, outputs, bits, group: (*x.shape[:-1], outputs),
    backward=_quantized_backward,
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
