"""What the libraries offer for a row, through torch (cuBLAS, cuDNN, flash attention) and CuPy."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten


class Library:
    """A function of a row's tensors (`call` gives results by name where it does not write the row's arrays)."""

    def __init__(self, name, call):
        self.name, self.call, self.failures = name, call, {}

    def configurations(self, sets):
        yield "", lambda set_: self.call(sets[set_])


def _none(_):
    """For calls whose results are in the row's arrays."""


def contenders(row):
    make = globals().get(f"_{row.kernel}")
    return make(row) if make else []


def _vadd(row):
    return [Library("torch", lambda t: _none(torch.add(t["a"], t["b"], out=t["c"])))]


def _saxpy(row):
    return [Library("torch", lambda t: _none(t["y"].add_(t["x"], alpha=0.75)))]


def _transpose(row):
    m, n = row.numbers
    list_ = [Library("torch", lambda t: _none(t["y"].copy_(t["x"].t())))]
    try:
        import cupy
        from cupy import cublas
    except ImportError:
        return list_
    def geam(t):
        # Both are row-major, so for cuBLAS they are their own transposes.
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            x, y = (cupy.from_dlpack(t[name].t()) for name in "xy")
            cublas.geam("T", "N", 1.0, x, 0.0, y, out=y)
    return list_ + [Library("cuBLAS geam", geam)]


def _softmax(row):
    return [Library("torch", lambda t: _none(torch.softmax(t["x"], 1, out=t["y"])))]


def _layernorm(row):
    n = row.numbers[1]
    return [Library("torch", lambda t: {"y": aten.native_layer_norm(t["x"], (n,), t["w"], t["b"], 1e-5)[0]})]


def _layernorm_backward(row):
    m, n = row.numbers
    def call(t):
        mean, rstd = t["mean"].view(m, 1), t["rstd"].view(m, 1)
        dx, dw, db = aten.native_layer_norm_backward(t["dy"], t["x"], (n,), mean, rstd, t["w"], t["w"], (True, True, True))
        return {"dx": dx, "dw": dw, "db": db}
    return [Library("torch", call)]


def _matmul(row):
    if row.element == "e4m3":
        one = torch.ones((), device="cuda")
        def scaled(fast):
            return lambda t: {"c": torch._scaled_mm(t["a"], t["b"].t(), one, one, out_dtype=torch.float16, use_fast_accum=fast)}
        return [Library("cuBLAS", scaled(True)), Library("cuBLAS exact sums", scaled(False))]
    return [Library("cuBLAS", lambda t: _none(torch.mm(t["a"], t["b"], out=t["c"])))]


def _batched_matmul(row):
    return [Library("cuBLAS", lambda t: _none(torch.bmm(t["a"], t["b"], out=t["c"])))]


def _attention(row):
    def through(backend):
        def call(t):
            with sdpa_kernel(backend):
                return {"o": torch.nn.functional.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=row.causal)}
        return call
    return [Library("cuDNN", through(SDPBackend.CUDNN_ATTENTION)), Library("flash attention 2", through(SDPBackend.FLASH_ATTENTION))]
