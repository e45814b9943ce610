"""Ready GPU kernels of cutlet, and your own in Rust, for tensors of torch, CuPy, JAX and NumPy.

Tensors are exchanged by DLPack, without copies. Work is queued on the current stream of the caller. With torch each function
is a custom operator (``torch.ops.cutlet.softmax``), which ``torch.compile`` keeps, with gradients.

Tensors of the host are computed by the interpreter of cutlet, which is exact and slow: for tests.
"""

from ._native import __version__, num_gpus
from ._op import Op, op
from ._quantized import QuantizedWeight, quantize
from ._ready import attention, gguf_matmul, layer_norm, quantized_matmul, rms_norm, rotary, softmax

__all__ = [
    "Op",
    "QuantizedWeight",
    "__version__",
    "attention",
    "gguf_matmul",
    "layer_norm",
    "num_gpus",
    "op",
    "quantize",
    "quantized_matmul",
    "rms_norm",
    "rotary",
    "softmax",
]
