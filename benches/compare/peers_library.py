"""What the libraries offer for a row, through torch (cuBLAS, cuDNN, flash attention) and CuPy."""

import atexit
import ctypes
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten


class Library:
    """Functions of a row's tensors, one or by label (each gives results by name where it does not write the row's arrays)."""

    def __init__(self, name, calls):
        self.name, self.calls, self.failures = name, calls if isinstance(calls, dict) else {"": calls}, {}

    def configurations(self, sets):
        for label, call in self.calls.items():
            yield label, lambda set_, call=call: call(sets[set_])


def _none(_):
    """For calls whose results are in the row's arrays."""


def contenders(row):
    make = globals().get(f"_{row.kernel}")
    return make(row) if make else []


def _cupy(call):
    """A call with CuPy's module and arrays over the tensors, on torch's stream; none where there is no CuPy."""
    try:
        import cupy
    except ImportError:
        return None
    def on_tensors(t):
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            results = call(cupy, {name: cupy.from_dlpack(tensor) for name, tensor in t.items()})
            return results and {name: torch.from_dlpack(array) for name, array in results.items()}
    return on_tensors


def _with_cupy(list_, calls):
    found = {label: made for label, made in ((label, _cupy(call)) for label, call in calls.items()) if made}
    return list_ + ([Library("CuPy", found)] if found else [])


def _vadd(row):
    return [Library("torch", lambda t: _none(torch.add(t["a"], t["b"], out=t["c"])))]


def _vadd_gather(row):
    return _vadd(row)


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


def _column_sums(row):
    list_ = [Library("torch", lambda t: _none(torch.sum(t["x"], 0, out=t["sums"])))]
    return _with_cupy(list_, {"sum": lambda cupy, t: _none(cupy.sum(t["x"], axis=0, out=t["sums"]))})


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


def _scaled_matmul(row):
    def scaled(t):
        # Both scales are contiguous along the rows that they belong to, or along the sums.
        return {"c": torch._scaled_mm(t["a"], t["b"].t(), t["rows"].t(), t["turned"].t(), out_dtype=torch.bfloat16)}
    def by_recipe(t):
        functional = torch.nn.functional
        kinds = functional.ScalingType.BlockWise1x128, functional.ScalingType.BlockWise128x128
        return {"c": functional.scaled_mm(t["a"], t["b"].t(), t["rows"].t(), kinds[0], t["turned"].t(), kinds[1], output_dtype=torch.bfloat16)}
    list_ = [Library("cuBLAS", {"_scaled_mm": scaled, "scaled_mm": by_recipe})]
    try:
        import deep_gemm
    except ImportError:
        return list_
    def deep(t):
        deep_gemm.fp8_gemm_nt((t["a"], t["rows"].t()), (t["b"], t["turned"]), t["c"])
    return list_ + [Library("DeepGEMM", deep)]


def _batched_matmul(row):
    return [Library("cuBLAS", lambda t: _none(torch.bmm(t["a"], t["b"], out=t["c"])))]


def _attention(row):
    def through(backend):
        def call(t):
            with sdpa_kernel(backend):
                return {"o": torch.nn.functional.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=row.causal)}
        return call
    # Torch has no attention of 8-bit floats.
    list_ = [] if row.element == "e4m3" else [Library("cuDNN", through(SDPBackend.CUDNN_ATTENTION)),
                                              Library("flash attention 2", through(SDPBackend.FLASH_ATTENTION))]
    try:
        import fa3_fwd_interface as fa3
    except ImportError:
        return list_
    def three(t):
        # Its arrays are batch x sequence x heads x numbers, of any strides.
        out = fa3.flash_attn_func(*(t[name].transpose(1, 2) for name in "qkv"), causal=row.causal)
        return {"o": (out[0] if isinstance(out, tuple) else out).transpose(1, 2)}
    # The published wheel has no f16.
    return list_ + ([Library("flash attention 3", three)] if row.element in ("bf16", "e4m3") else [])


def _attention_backward(row):
    """The backward pass alone: what the forward pass keeps is made once for each set of arrays."""
    def through(backend):
        graphs = {}
        def graph(t):
            with torch.enable_grad(), sdpa_kernel(backend):
                inputs = [t[name].detach().requires_grad_() for name in "qkv"]
                return inputs, torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=row.causal)
        def call(t):
            key = t["q"].data_ptr()
            inputs, out = graphs.get(key) or graphs.setdefault(key, graph(t))
            return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(out, inputs, t["dout"], retain_graph=True)))
        return call
    list_ = [Library("cuDNN", through(SDPBackend.CUDNN_ATTENTION)), Library("flash attention 2", through(SDPBackend.FLASH_ATTENTION))]
    try:
        import flash_attn_interface as fa3
    except ImportError:
        return list_
    # The wheel fa3-fwd has no backward pass; where the whole package is built, it has.
    graphs = {}
    def graph_of_three(t):
        with torch.enable_grad():
            inputs = [t[name].transpose(1, 2).detach().requires_grad_() for name in "qkv"]
            out = fa3.flash_attn_func(*inputs, causal=row.causal)
            return inputs, out[0] if isinstance(out, tuple) else out
    def three(t):
        key = t["q"].data_ptr()
        inputs, out = graphs.get(key) or graphs.setdefault(key, graph_of_three(t))
        gradients = torch.autograd.grad(out, inputs, t["dout"].transpose(1, 2), retain_graph=True)
        return {name: gradient.transpose(1, 2) for name, gradient in zip(("dq", "dk", "dv"), gradients)}
    return list_ + [Library("flash attention 3", three)]


def _gather(row):
    torch_ = {"index_select": lambda t: _none(torch.index_select(t["x"], 0, t["at"], out=t["y"])),
              "take, 64 bits": lambda t: _none(torch.take(t["x"], t["at64"], out=t["y"])),
              "gather, 64 bits": lambda t: _none(torch.gather(t["x"], 0, t["at64"], out=t["y"]))}
    return _with_cupy([Library("torch", torch_)], {"take": lambda cupy, t: _none(cupy.take(t["x"], t["at"], out=t["y"]))})


def _scatter(row):
    torch_ = {"scatter_, 64 bits": lambda t: _none(t["y"].scatter_(0, t["at64"], t["x"])),
              "index_copy_, 64 bits": lambda t: _none(t["y"].index_copy_(0, t["at64"], t["x"])),
              "put_, 64 bits": lambda t: _none(t["y"].put_(t["at64"], t["x"]))}
    return _with_cupy([Library("torch", torch_)], {"y[at] = x": lambda cupy, t: _none(t["y"].__setitem__(t["at"], t["x"]))})


def _cumsum(row):
    list_ = [Library("torch", lambda t: _none(torch.cumsum(t["x"], 1, out=t["y"])))]
    return _with_cupy(list_, {"cumsum": lambda cupy, t: _none(cupy.cumsum(t["x"], axis=1, out=t["y"]))})


def _prefix_sum(row):
    """Both call CUB; CuPy copies first and then works in place."""
    list_ = [Library("torch", lambda t: _none(torch.cumsum(t["x"], 0, dtype=t["y"].dtype, out=t["y"])))]
    return _with_cupy(list_, {"cumsum": lambda cupy, t: _none(cupy.cumsum(t["x"], out=t["y"]))})


def _histogram(row):
    """`bincount` of both looks for the largest value first, and the host waits for it; CuPy's way to CUB alone is `device_histogram`."""
    def direct(cupy, t):
        bins = cupy.empty(256, cupy.int64)
        return {"bins": cupy.cuda.cub.device_histogram(t["x"], bins, 257)}
    list_ = [Library("torch", lambda t: {"bins": torch.bincount(t["x"], minlength=256)})]
    return _with_cupy(list_, {"device_histogram": direct, "bincount": lambda cupy, t: {"bins": cupy.bincount(t["x"], minlength=256)}})


def _stencil(row):
    weights = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]], device="cuda").view(1, 1, 3, 3)
    def convolution(t):
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False):
            return {"y": torch.nn.functional.conv2d(t["x"][None, None], weights, padding=1)[0, 0]}
    def slices(t):
        x, y = t["x"], t["y"]
        torch.mul(x, -4, out=y)
        for to, of in ((y[1:], x[:-1]), (y[:-1], x[1:]), (y[:, 1:], x[:, :-1]), (y[:, :-1], x[:, 1:])):
            to.add_(of)
    return [Library("torch", {"conv2d": convolution, "slices": slices})]


def _embedding(row):
    torch_ = {"embedding": lambda t: {"out": torch.nn.functional.embedding(t["ids"], t["table"])},
              "index_select": lambda t: _none(torch.index_select(t["table"], 0, t["ids"], out=t["out"]))}
    return _with_cupy([Library("torch", torch_)], {"take": lambda cupy, t: _none(cupy.take(t["table"], t["ids"], axis=0, out=t["out"]))})


def _argmax(row):
    def both(t):
        value, index = torch.max(t["x"], 1)
        return {"index": index, "value": value}
    return [Library("torch", both)]


def _welford(row):
    def moments(t):
        variance, mean = torch.var_mean(t["x"], 1, correction=0)
        return {"mean": mean, "variance": variance}
    return [Library("torch", moments)]


class Curand:
    """cuRAND's host interface, in the library that torch brings along or the toolkit has."""

    KINDS = {"Philox": 161, "XORWOW": 101}

    def __init__(self, kind):
        self.library, self.generator = self.opened(), ctypes.c_void_p()
        self._call("curandCreateGenerator", ctypes.byref(self.generator), ctypes.c_int(self.KINDS[kind]))
        atexit.register(self.library.curandDestroyGenerator, self.generator)
        self._call("curandSetPseudoRandomGeneratorSeed", self.generator, ctypes.c_ulonglong(42))

    @staticmethod
    def opened():
        beside = Path(torch.__file__).parent.parent.glob("nvidia/*/lib/libcurand.so.10")
        for path in ("libcurand.so.10", *map(str, beside), "/usr/local/cuda/lib64/libcurand.so.10"):
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
        raise OSError("no libcurand.so.10")

    def _call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: status {status}")

    def fill(self, name, y, *parameters):
        self._call("curandSetStream", self.generator, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        self._call(name, self.generator, ctypes.c_void_p(y.data_ptr()), ctypes.c_size_t(y.numel()), *map(ctypes.c_float, parameters))


def _random(torch_, name, *parameters):
    list_ = [Library("torch", torch_)]
    try:
        generators = {kind: Curand(kind) for kind in Curand.KINDS}
    except (OSError, AttributeError, RuntimeError):
        return list_
    return list_ + [Library("cuRAND", {kind: lambda t, made=made: made.fill(name, t["y"], *parameters) for kind, made in generators.items()})]


def _random_normal(row):
    return _random(lambda t: _none(t["y"].normal_()), "curandGenerateNormal", 0.0, 1.0)


def _random_uniform(row):
    return _random(lambda t: _none(t["y"].uniform_()), "curandGenerateUniform")


def _dropout(row):
    """The mask is kept from the first pass to the second."""
    def both(t):
        y, mask = aten.native_dropout(t["x"], 0.1, True)
        return {"y": y, "dx": aten.native_dropout_backward(t["dy"], mask, 1 / 0.9)}
    return [Library("torch", both)]


def _sum(row):
    list_ = [Library("torch", lambda t: {"total": torch.sum(t["x"]).view(1)})]
    return _with_cupy(list_, {"sum": lambda cupy, t: _none(cupy.sum(t["x"], keepdims=True, out=t["total"]))})


def _sort(row):
    """Torch has no order without places."""
    return [Library("torch", lambda t: {"y": torch.sort(t["x"], 1).values})]


def _top_k(row):
    def both(t):
        value, index = torch.topk(t["x"], row.numbers[2], 1)
        return {"value": value, "index": index}
    return [Library("torch", both)]


def _quantized_matmul(row):
    """Weights that were unpacked before: what a product without unpacking would take."""
    return [Library("cuBLAS, f16 weights", lambda t: _none(torch.mm(t["x"], t["numbers"], out=t["y"])))]


def _fft(row):
    """Both call cuFFT; CuPy with a plan that is made once."""
    m, n = row.numbers
    plans = {}
    def planned(cupy, t):
        from cupy.cuda import cufft
        plan = plans.get("c2c") or plans.setdefault("c2c", cufft.Plan1d(n, cufft.CUFFT_C2C, m))
        x, y = (t[name].view(cupy.complex64).reshape(m, n) for name in "xy")
        plan.fft(x, y, cufft.CUFFT_FORWARD)
    whole = lambda t: _none(torch.fft.fft(torch.view_as_complex(t["x"]), dim=1, out=torch.view_as_complex(t["y"])))
    return _with_cupy([Library("torch (cuFFT)", whole)], {"cuFFT, Plan1d": planned})
