"""The rows of the comparison: what is computed, on which arrays, with how much work, and what is right.

A row's name is kernel, element type and numbers, as in `ours/rows.rs`, after `tutorial` for a kernel that the tutorial shows; `rows.txt` has them all. The table needs nothing but Python; inputs and
references are in `references.py`.
"""

import math
from dataclasses import dataclass
from pathlib import Path

F32_SUMS = 4e-6
# Terms of a sum that share a scale.
GROUP = 128


@dataclass(frozen=True)
class Array:
    """`element` is a key of ELEMENTS; `use` is "in", "out" or "inout" ("scratch": written, not compared).

    "theirs" is an input that only some libraries take, such as indices of 64 bits; such arrays come last.
    """
    name: str
    element: str
    shape: tuple
    use: str = "in"


# Bytes, and the name in torch.
ELEMENTS = {"f32": (4, "float32"), "tf32": (4, "float32"), "f16": (2, "float16"), "bf16": (2, "bfloat16"), "e4m3": (1, "float8_e4m3fn"),
            "u8": (1, "uint8"), "i32": (4, "int32"), "i64": (8, "int64")}
INTEGERS = ("u8", "i32", "i64")
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
    # The kernel of the tutorial has the arrays, the reference and the peers of the other row.
    words = name.removeprefix("tutorial ").split()
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


def _column_sums(element, _, m, n):
    return [Array("x", element, (m, n)), Array("sums", element, (n,), "out")], 4 * m * n + 4 * n, 0, F32_SUMS


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


def _scaled_matmul(element, _, m, n, k):
    # Scales of each row of `a` and of 128 rows of `b`, for each 128 terms of the sums; `turned` is `columns` as torch takes it.
    blocks = k // GROUP
    arrays = [Array("a", element, (m, k)), Array("b", element, (n, k)), Array("rows", "f32", (blocks, m)),
              Array("columns", "f32", (blocks, n // GROUP)), Array("c", "bf16", (m, n), "out"), Array("turned", "f32", (n // GROUP, blocks), "theirs")]
    size = m * k + n * k + 4 * blocks * (m + n // GROUP) + 2 * m * n
    return arrays, size, 2 * m * n * k, ROUNDING["bf16"] + _product_tolerance(element, "bf16")


def _batched_matmul(element, _, batch, m, n, k):
    arrays = [Array("a", element, (batch, m, k)), Array("b", element, (batch, k, n)), Array("c", element, (batch, m, n), "out")]
    size = ELEMENTS[element][0] * batch * (m * k + k * n + m * n)
    return arrays, size, 2 * batch * m * n * k, _product_tolerance(element, element)


def _attention(element, causal, batch, heads, sequence, d):
    shape = (batch, heads, sequence, d)
    narrow = element == "e4m3"
    out = "bf16" if narrow else element
    arrays = [Array(name, element, shape) for name in "qkv"] + [Array("o", out, shape, "out")]
    arrays += [Array("turned", element, (batch, heads, d, sequence), "scratch")] if narrow else []
    flops = 4 * batch * heads * sequence * sequence * d * (0.5 if causal else 1)
    # Weights are rounded before they are multiplied, the result once more; tensor cores keep 13 bits of sums of 8-bit floats.
    tolerance = ROUNDING[element] + ROUNDING[out] + 2.0**-9 if narrow else 3 * ROUNDING[element]
    return arrays, (3 * ELEMENTS[element][0] + ELEMENTS[out][0]) * math.prod(shape), flops, tolerance


def _attention_backward(element, causal, batch, heads, sequence, d):
    shape = (batch, heads, sequence, d)
    arrays = [Array(name, element, shape) for name in ("q", "k", "v", "o", "dout")] + [Array("logs", "f32", shape[:3])]
    arrays += [Array(name, element, shape, "out") for name in ("dq", "dk", "dv")]
    arrays += [Array("sums", "f32", shape[:3], "scratch"), Array("all", "f32", shape, "scratch")]
    # Five products.
    flops = 10 * batch * heads * sequence * sequence * d * (0.5 if causal else 1)
    # Weights and their gradients are rounded, the result of the forward pass was, and the gradients are.
    return arrays, 8 * ELEMENTS[element][0] * math.prod(shape), flops, 4 * ROUNDING[element]


def _vadd_gather(element, _, n):
    return _vadd(element, _, n)


def _gather(element, _, n, extent):
    arrays = [Array("x", element, (extent,)), Array("at", "i32", (n,)), Array("y", element, (n,), "out"), Array("at64", "i64", (n,), "theirs")]
    return arrays, 12 * n, 0, 0.0


def _scatter(element, _, n):
    return _gather(element, _, n, n)


def _cumsum(element, _, m, n):
    return [Array("x", element, (m, n)), Array("y", element, (m, n), "out")], 8 * m * n, 0, F32_SUMS


def _prefix_sum(element, _, n):
    # Of numbers whose sums are exact in any order.
    return [Array("x", element, (n,)), Array("y", element, (n,), "out")], 8 * n, 0, 0.0


def _histogram(element, _, n):
    return [Array("x", element, (n,)), Array("bins", "i32", (256,), "out")], n, 0, 0.0


def _stencil(element, _, m, n):
    return [Array("x", element, (m, n)), Array("y", element, (m, n), "out")], 8 * m * n, 0, 1e-6


def _embedding(element, _, extent, columns, ids):
    arrays = [Array("table", element, (extent, columns)), Array("ids", "i32", (ids,)), Array("out", element, (ids, columns), "out")]
    return arrays, 2 * ELEMENTS[element][0] * ids * columns + 4 * ids, 0, 0.0


def _argmax(element, _, m, n):
    return [Array("x", element, (m, n)), Array("index", "i32", (m,), "out"), Array("value", element, (m,), "out")], 4 * m * n + 8 * m, 0, 0.0


def _welford(element, _, m, n):
    return [Array("x", element, (m, n)), Array("mean", element, (m,), "out"), Array("variance", element, (m,), "out")], 4 * m * n + 8 * m, 0, F32_SUMS


# Standard errors that statistics of random numbers may be off by.
STATISTICS = 6.0


def _random_normal(element, _, n):
    return [Array("y", element, (n,), "out")], 4 * n, 0, STATISTICS


def _random_uniform(element, _, n):
    return _random_normal(element, _, n)


def _dropout(element, _, n):
    return [Array("x", element, (n,)), Array("dy", element, (n,)), Array("y", element, (n,), "out"), Array("dx", element, (n,), "out")], 16 * n, 0, 2.0**-22


def _sum(element, _, n):
    return [Array("x", element, (n,)), Array("total", element, (1,), "out")], 4 * n, 0, F32_SUMS


def _sort(element, _, m, n):
    return [Array("x", element, (m, n)), Array("y", element, (m, n), "out")], 8 * m * n, 0, 0.0


def _top_k(element, _, m, n, k):
    # Of results with more places than k only these count.
    places = 1 << (k - 1).bit_length()
    arrays = [Array("x", element, (m, n)), Array("value", element, (m, places), "out"), Array("index", "i32", (m, places), "out")]
    return arrays, 4 * m * n + 8 * m * k, 0, 0.0


def _quantized_matmul(element, _, m, n, k):
    # Two codes a byte, the first in the low half, counted from 7.5.
    arrays = [Array("x", "f16", (m, k)), Array("weights", "u8", (k, n // 2)), Array("scales", "f16", (k // GROUP, n)), Array("y", "f16", (m, n), "out"),
              Array("numbers", "f16", (k, n), "theirs")]
    size = 2 * m * k + k * n // 2 + 2 * k // GROUP * n + 2 * m * n
    # Weights are rounded when they are unpacked, and the result.
    return arrays, size, 2 * m * n * k, 2 * ROUNDING["f16"] + F32_SUMS


def _fft(element, _, m, n):
    # Real and imaginary parts beside each other.
    return [Array("x", "f32", (m, n, 2)), Array("y", "f32", (m, n, 2), "out")], 16 * m * n, 0, 2e-6


NAMES = [line.partition(":")[0] for line in Path(__file__).with_name("rows.txt").read_text().splitlines() if line[:1] not in ("", "#")]


def select(patterns):
    """The rows whose name contains one of the patterns; all without patterns. A whole name is its row alone; another name makes a row, too."""
    if not patterns:
        return [row(name) for name in NAMES]
    chosen = [name for name in NAMES if any(p == name or p not in NAMES and p in name for p in patterns)]
    own = [p for p in patterns if p not in chosen and not any(p in name for name in NAMES)]
    return [row(name) for name in chosen + own]
