"""The rows of the comparison: what is computed, on which arrays, with how much work, and what is right.

A row's name is kernel, element type and numbers, as in `ours/rows.rs`. The table itself needs nothing
but Python; inputs and references need torch.
"""

import math
from dataclasses import dataclass

F32_SUMS = 4e-6


@dataclass(frozen=True)
class Array:
    """`element` is a key of ELEMENTS; `use` is "in", "out" or "inout" ("scratch": written, not compared)."""
    name: str
    element: str
    shape: tuple
    use: str = "in"


# Bytes, and the name in torch.
ELEMENTS = {"f32": (4, "float32"), "tf32": (4, "float32"), "f16": (2, "float16"), "bf16": (2, "bfloat16"), "e4m3": (1, "float8_e4m3fn")}
# Half a unit in the last place.
ROUNDING = {"f32": 2.0**-24, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8, "e4m3": 2.0**-4}


@dataclass(frozen=True)
class Row:
    name: str
    kernel: str
    element: str
    numbers: tuple
    causal: bool
    arrays: tuple
    bytes: float
    flops: float
    # The largest right error, relative to the magnitude that the reference states.
    tolerance: float

    @property
    def memory_bound(self):
        return self.flops == 0

    def rate(self, seconds):
        return (self.bytes / seconds / 1e9, "GB/s") if self.memory_bound else (self.flops / seconds / 1e12, "TFLOP/s")

    def set_bytes(self):
        return sum(ELEMENTS[a.element][0] * math.prod(a.shape) for a in self.arrays)


def row(name):
    words = name.split()
    causal = words[-1] == "causal"
    kernel, element, *numbers = words[:-1] if words[-1] in ("causal", "full") else words
    numbers = tuple(map(int, numbers))
    arrays, count, flops, tolerance = globals()[f"_{kernel}"](element, causal, *numbers)
    return Row(name, kernel, element, numbers, causal, tuple(arrays), count, flops, tolerance)


def _vadd(element, _, n):
    return [Array("a", element, (n,)), Array("b", element, (n,)), Array("c", element, (n,), "out")], 12 * n, 0, 2.0**-24


def _saxpy(element, _, n):
    return [Array("x", element, (n,)), Array("y", element, (n,), "inout")], 12 * n, 0, 2.0**-23


def _transpose(element, _, m, n):
    return [Array("x", element, (m, n)), Array("y", element, (n, m), "out")], 8 * m * n, 0, 0.0


def _softmax(element, _, m, n):
    return [Array("x", element, (m, n)), Array("y", element, (m, n), "out")], 8 * m * n, 0, F32_SUMS


def _layernorm(element, _, m, n):
    arrays = [Array("x", element, (m, n)), Array("w", element, (n,)), Array("b", element, (n,)), Array("y", element, (m, n), "out")]
    return arrays, 8 * m * n, 0, F32_SUMS


def _layernorm_backward(element, _, m, n):
    arrays = [Array("dy", element, (m, n)), Array("x", element, (m, n)), Array("w", element, (n,)), Array("mean", element, (m,)),
              Array("rstd", element, (m,)), Array("dx", element, (m, n), "out"), Array("dw", element, (n,), "out"),
              Array("db", element, (n,), "out"), Array("partial_dw", element, (528, n), "scratch"),
              Array("partial_db", element, (528, n), "scratch")]
    return arrays, 12 * m * n, 0, 1e-5


def _product_tolerance(element, out):
    # Inputs of tf32 are rounded; tensor cores keep about 13 bits of a sum of products of 8-bit floats.
    return {"tf32": 2 * ROUNDING["tf32"] + F32_SUMS, "e4m3": 2.0**-9}.get(element, ROUNDING[out] + F32_SUMS)


def _matmul(element, _, m, n, k):
    out = "f16" if element == "e4m3" else element
    # Both operands of 8-bit products lie along the sums.
    b = Array("b", element, (n, k) if element == "e4m3" else (k, n))
    arrays = [Array("a", element, (m, k)), b, Array("c", out, (m, n), "out")]
    size = ELEMENTS[element][0] * (m * k + k * n) + ELEMENTS[out][0] * m * n
    return arrays, size, 2 * m * n * k, _product_tolerance(element, out)


def _batched_matmul(element, _, batch, m, n, k):
    arrays = [Array("a", element, (batch, m, k)), Array("b", element, (batch, k, n)), Array("c", element, (batch, m, n), "out")]
    size = ELEMENTS[element][0] * batch * (m * k + k * n + m * n)
    return arrays, size, 2 * batch * m * n * k, _product_tolerance(element, element)


def _attention(element, causal, batch, heads, sequence, d):
    shape = (batch, heads, sequence, d)
    arrays = [Array(name, element, shape) for name in "qkv"] + [Array("o", element, shape, "out")]
    flops = 4 * batch * heads * sequence * sequence * d * (0.5 if causal else 1)
    # Weights are rounded before they are multiplied, the result once more.
    return arrays, 4 * ELEMENTS[element][0] * math.prod(shape), flops, 3 * ROUNDING[element]


NAMES = [
    "vadd f32 134217728",
    "saxpy f32 134217728",
    "transpose f32 8192 8192",
    "softmax f32 4096 4096",
    "softmax f32 32768 4096",
    "layernorm f32 4096 4096",
    "layernorm f32 32768 4096",
    "layernorm_backward f32 4096 4096",
    "matmul f16 4096 4096 4096",
    "matmul f16 8192 8192 8192",
    "matmul bf16 8192 8192 8192",
    "matmul tf32 4096 4096 4096",
    "matmul e4m3 8192 8192 8192",
    "batched_matmul f16 8 1024 2048 512",
    "batched_matmul tf32 8 1024 2048 512",
    "attention f16 8 16 1024 64 causal",
    "attention f16 8 16 1024 64 full",
    "attention bf16 4 32 4096 128 causal",
    "attention bf16 4 32 4096 128 full",
    "attention bf16 2 16 16384 128 causal",
    "attention bf16 2 16 16384 128 full",
]


def select(patterns):
    """The rows whose name contains one of the patterns; all without patterns. A name of its own makes a row, too."""
    if not patterns:
        return [row(name) for name in NAMES]
    chosen = [name for name in NAMES if any(p in name for p in patterns)]
    own = [p for p in patterns if p not in chosen and not any(p in name for name in NAMES)]
    return [row(name) for name in chosen + own]


# Inputs and references.

def fill(row, tensors, seed):
    """Random normal inputs; `tensors` are by name."""
    import torch
    generator = torch.Generator(device="cuda").manual_seed(seed)
    for array in row.arrays:
        tensor = tensors[array.name]
        if array.use in ("in", "inout"):
            flat = tensor.view(-1)
            # In pieces: not every type has a generator, and a copy in f32 may be large.
            for start in range(0, flat.numel(), 1 << 26):
                piece = flat[start:start + (1 << 26)]
                piece.copy_(torch.randn(piece.numel(), device="cuda", generator=generator))
        else:
            tensor.zero_()
    if row.kernel == "layernorm_backward":
        x = tensors["x"].double()
        tensors["mean"].copy_(x.mean(1))
        tensors["rstd"].copy_((x.var(1, unbiased=False) + 1e-5).rsqrt())


class Check:
    """Compares outputs with a reference in f64 that is computed once, from one set of tensors."""

    def __init__(self, row, tensors):
        self.row, self.tensors = row, tensors
        self.restored = {a.name: tensors[a.name].clone() for a in row.arrays if a.use == "inout"}
        self.expected = globals()[f"_expect_{row.kernel}"](row, tensors)

    def reset(self):
        """Poisons the outputs, so that what is not written shows."""
        for array in self.row.arrays:
            if array.use == "out":
                poison(self.tensors[array.name])
        for name, value in self.restored.items():
            self.tensors[name].copy_(value)

    def error(self, results=None):
        """The largest error of results (by name; default: the set's outputs), relative to the magnitudes."""
        import torch
        worst = 0.0
        for name, (at, want, scale) in self.expected.items():
            got = (results or {}).get(name, self.tensors[name])
            got = (got[at] if at is not None else got).double()
            error = ((got - want).abs() / scale.clamp(min=torch.finfo(torch.float64).tiny)).max().item()
            worst = math.inf if math.isnan(error) else max(worst, error)
        return worst


def poison(tensor):
    tensor.fill_(float("nan"))


def sample(extent, most=64):
    """Rows that are compared: all, or `most` spread over the extent, the last among them."""
    import torch
    if extent <= most:
        return torch.arange(extent, device="cuda")
    return torch.linspace(0, extent - 1, most, device="cuda").long()


def _expect_vadd(row, t):
    want = t["a"].double() + t["b"].double()
    return {"c": (None, want, want.abs())}


def _expect_saxpy(row, t):
    x, y = 0.75 * t["x"].double(), t["y"].double()
    return {"y": (None, x + y, x.abs() + y.abs())}


def _expect_transpose(row, t):
    want = t["x"].t().double()
    return {"y": (None, want, want.abs())}


def _expect_softmax(row, t):
    import torch
    rows = sample(row.numbers[0], 4096)
    want = torch.softmax(t["x"][rows].double(), 1)
    return {"y": (rows, want, want)}


def _expect_layernorm(row, t):
    rows = sample(row.numbers[0], 4096)
    x, w, b = t["x"][rows].double(), t["w"].double(), t["b"].double()
    rstd = (x.var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    want = (x - x.mean(1, keepdim=True)) * rstd * w + b
    return {"y": (rows, want, (1 + (x * rstd).abs()) * w.abs() + b.abs())}


def _expect_layernorm_backward(row, t):
    m, n = row.numbers
    dy, x, w = t["dy"].double(), t["x"].double(), t["w"].double()
    mean, rstd = t["mean"].double()[:, None], t["rstd"].double()[:, None]
    h, wg = (x - mean) * rstd, w * dy
    dx = (wg - h * (h * wg).mean(1, keepdim=True) - wg.mean(1, keepdim=True)) * rstd
    size = (wg.abs() + h.abs() * (h * wg).abs().mean(1, keepdim=True) + wg.abs().mean(1, keepdim=True)) * rstd
    return {"dx": (None, dx, size), "dw": (None, (dy * h).sum(0), (dy * h).abs().sum(0)), "db": (None, dy.sum(0), dy.abs().sum(0))}


def _expect_matmul(row, t):
    rows = sample(row.numbers[0])
    a, b = t["a"][rows].double(), t["b"].double()
    b = b.t() if row.element == "e4m3" else b
    return {"c": (rows, a @ b, a.abs() @ b.abs())}


def _expect_batched_matmul(row, t):
    rows = sample(row.numbers[1])
    at = (slice(None), rows)
    a, b = t["a"][at].double(), t["b"].double()
    return {"c": (at, a @ b, a.abs() @ b.abs())}


def _expect_attention(row, t):
    import torch
    batch, heads, sequence, d = row.numbers
    rows = sample(sequence)
    # All heads at a few places: the first and the last of the batch.
    at_batch = sample(batch, 2)
    at = (at_batch[:, None, None], sample(heads, 4)[None, :, None], rows[None, None, :])
    q = t["q"][at].double()
    k, v = (t[name][at[0][:, :, 0], at[1][:, :, 0]].double() for name in "kv")
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    if row.causal:
        scores = scores.masked_fill(torch.arange(sequence, device="cuda")[None, :] > rows[:, None], -math.inf)
    weights = torch.softmax(scores, -1)
    return {"o": (at, weights @ v, weights @ v.abs())}
