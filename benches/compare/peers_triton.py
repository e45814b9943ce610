"""Triton kernels in the style of its tutorials, with the sizes, warps and stages that can win."""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import movement_triton
import numbers_triton


@triton.jit
def vadd(a, b, c, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = at < n
    tl.store(c + at, tl.load(a + at, inside) + tl.load(b + at, inside), inside)


@triton.jit
def saxpy(alpha, x, y, n, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = at < n
    tl.store(y + at, alpha * tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def transpose(x, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * columns + tl.arange(0, columns)
    t = tl.load(x + i[:, None] * n + j[None, :])
    tl.store(y + j[:, None] * m + i[None, :], tl.trans(t))


@triton.jit
def softmax(x, y, n: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    t = tl.load(x + at)
    e = tl.exp(t - tl.max(t))
    tl.store(y + at, e / tl.sum(e))


@triton.jit
def layernorm(x, w, b, y, epsilon, n: tl.constexpr):
    columns = tl.arange(0, n)
    t = tl.load(x + tl.program_id(0) * n + columns)
    d = t - tl.sum(t) / n
    rstd = 1 / tl.sqrt(tl.sum(d * d) / n + epsilon)
    tl.store(y + tl.program_id(0) * n + columns, d * rstd * tl.load(w + columns) + tl.load(b + columns))


@triton.jit
def layernorm_backward_rows(dy, x, w, mean, rstd, dx, partial_dw, partial_db, m, n: tl.constexpr):
    columns = tl.arange(0, n)
    weight = tl.load(w + columns)
    dw = tl.zeros((n,), tl.float32)
    db = tl.zeros((n,), tl.float32)
    for i in range(tl.program_id(0), m, tl.num_programs(0)):
        g = tl.load(dy + i * n + columns)
        r = tl.load(rstd + i)
        h = (tl.load(x + i * n + columns) - tl.load(mean + i)) * r
        wg = weight * g
        c1 = tl.sum(h * wg) / n
        c2 = tl.sum(wg) / n
        tl.store(dx + i * n + columns, (wg - (h * c1 + c2)) * r)
        dw += g * h
        db += g
    tl.store(partial_dw + tl.program_id(0) * n + columns, dw)
    tl.store(partial_db + tl.program_id(0) * n + columns, db)


@triton.jit
def layernorm_backward_columns(partial_dw, partial_db, dw, db, parts, n, height: tl.constexpr, width: tl.constexpr):
    columns = tl.program_id(0) * width + tl.arange(0, width)
    a = tl.zeros((height, width), tl.float32)
    b = tl.zeros((height, width), tl.float32)
    for start in range(0, parts, height):
        rows = start + tl.arange(0, height)
        at = rows[:, None] * n + columns[None, :]
        inside = (rows < parts)[:, None]
        a += tl.load(partial_dw + at, inside, 0.0)
        b += tl.load(partial_db + at, inside, 0.0)
    tl.store(dw + columns, tl.sum(a, 0))
    tl.store(db + columns, tl.sum(b, 0))


@triton.jit
def place(index, rows, columns):
    in_group = 8 * columns
    first = index // in_group * 8
    height = min(rows - first, 8)
    return first + (index % in_group) % height, (index % in_group) // height


@triton.jit
def matmul(a, b, c, m, n, k, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, columns: tl.constexpr):
    i, j = place(tl.program_id(0), tl.cdiv(m, tm), tl.cdiv(n, tn))
    acc = tl.zeros((tm, tn), tl.float32)
    for step in range(tl.cdiv(k, tk)):
        x = a.load([i * tm, step * tk])
        if columns:
            acc = tl.dot(x, b.load([j * tn, step * tk]).T, acc)
        else:
            acc = tl.dot(x, b.load([step * tk, j * tn]), acc)
    c.store([i * tm, j * tn], acc.to(c.dtype))


@triton.jit
def matmul_persistent(a, b, c, m, n, k, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, columns: tl.constexpr):
    rows_of_tiles, columns_of_tiles = tl.cdiv(m, tm), tl.cdiv(n, tn)
    for index in tl.range(tl.program_id(0), rows_of_tiles * columns_of_tiles, tl.num_programs(0), flatten=True):
        i, j = place(index, rows_of_tiles, columns_of_tiles)
        acc = tl.zeros((tm, tn), tl.float32)
        for step in range(tl.cdiv(k, tk)):
            x = a.load([i * tm, step * tk])
            if columns:
                acc = tl.dot(x, b.load([j * tn, step * tk]).T, acc)
            else:
                acc = tl.dot(x, b.load([step * tk, j * tn]), acc)
        c.store([i * tm, j * tn], acc.to(c.dtype))


@triton.jit
def scaled_matmul(a, b, rows, columns, c, m, n, k, tm: tl.constexpr, tn: tl.constexpr):
    """Scales for each 128 terms: of each row of `a`, and of 128 rows of `b`."""
    rows_of_tiles, columns_of_tiles = tl.cdiv(m, tm), tl.cdiv(n, tn)
    for index in tl.range(tl.program_id(0), rows_of_tiles * columns_of_tiles, tl.num_programs(0), flatten=True):
        i, j = place(index, rows_of_tiles, columns_of_tiles)
        acc = tl.zeros((tm, tn), tl.float32)
        for step in range(tl.cdiv(k, 128)):
            product = tl.dot(a.load([i * tm, step * 128]), b.load([j * tn, step * 128]).T)
            of_rows = tl.load(rows + step * m + i * tm + tl.arange(0, tm))
            of_columns = tl.load(columns + step * (n // 128) + j * tn // 128)
            acc += product * (of_rows * of_columns)[:, None]
        c.store([i * tm, j * tn], acc.to(c.dtype))


@triton.jit
def matmul_pointers(a, b, c, m, n, k, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr):
    """One product of a batch, with plain loads."""
    i, j = place(tl.program_id(0), tl.cdiv(m, tm), tl.cdiv(n, tn))
    batch = tl.program_id(1).to(tl.int64)
    rows, columns, inner = i * tm + tl.arange(0, tm), j * tn + tl.arange(0, tn), tl.arange(0, tk)
    x = a + batch * m * k + rows[:, None] * k + inner[None, :]
    y = b + batch * k * n + inner[:, None] * n + columns[None, :]
    acc = tl.zeros((tm, tn), tl.float32)
    for step in range(tl.cdiv(k, tk)):
        acc = tl.dot(tl.load(x), tl.load(y), acc)
        x += tk
        y += tk * n
    tl.store(c + batch * m * n + rows[:, None] * n + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def attention(q, k, v, o, scale, s, d: tl.constexpr, tm: tl.constexpr, tn: tl.constexpr, causal: tl.constexpr):
    """Arrays as matrices of (batch x heads x sequence) rows."""
    block, head = tl.program_id(0), tl.program_id(1)
    start = head * s + block * tm
    x = q.load([start, 0])
    rows = block * tm + tl.arange(0, tm)
    columns = tl.arange(0, tn)
    largest = tl.full((tm,), -float("inf"), tl.float32)
    total = tl.zeros((tm,), tl.float32)
    acc = tl.zeros((tm, d), tl.float32)
    if causal:
        unmasked = block * tm // tn * tn
    else:
        unmasked = s
    for at in range(0, unmasked, tn):
        scores = tl.dot(x, k.load([head * s + at, 0]).T)
        above = tl.maximum(largest, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - above[:, None])
        fade = tl.exp2(largest - above)
        total = total * fade + tl.sum(weights, 1)
        acc = tl.dot(weights.to(q.dtype), v.load([head * s + at, 0]), acc * fade[:, None])
        largest = above
    if causal:
        for at in range(unmasked, (block + 1) * tm, tn):
            scores = tl.dot(x, k.load([head * s + at, 0]).T)
            scores = tl.where(rows[:, None] >= at + columns[None, :], scores, -float("inf"))
            above = tl.maximum(largest, tl.max(scores, 1) * scale)
            weights = tl.exp2(scores * scale - above[:, None])
            fade = tl.exp2(largest - above)
            total = total * fade + tl.sum(weights, 1)
            acc = tl.dot(weights.to(q.dtype), v.load([head * s + at, 0]), acc * fade[:, None])
            largest = above
    o.store([start, 0], (acc / total[:, None]).to(o.dtype))


class Triton:
    name = "Triton"

    def __init__(self, row, list_):
        self.row, self.list_, self.failures = row, list_, {}

    def configurations(self, sets):
        """Each is `label, make`, where `make(tensors)` gives a launch without arguments."""
        for label, make in self.list_(self.row, *self.row.numbers):
            try:
                launches = [make(tensors) for tensors in sets]
            except Exception as error:
                self.failures[label] = f"{type(error).__name__}: {error}"[:300]
                continue
            def launch(set_, launches=launches):
                launches[set_]()
            yield label, launch


def contenders(row):
    places = (globals(), vars(movement_triton), vars(numbers_triton))
    list_ = next((place[f"_{row.kernel}"] for place in places if f"_{row.kernel}" in place), None)
    return [Triton(row, list_)] if list_ else []


def _vadd(row, n):
    for tile, warps in ((1024, 4), (2048, 4), (4096, 8)):
        yield f"tile {tile}", lambda t, tile=tile, warps=warps: lambda: vadd[(n // tile,)](t["a"], t["b"], t["c"], n, tile, num_warps=warps)


def _vadd_gather(row, n):
    """Every access of Triton's is one by a tile of addresses."""
    yield from _vadd(row, n)


def _saxpy(row, n):
    for tile, warps in ((1024, 4), (2048, 4), (4096, 8)):
        yield f"tile {tile}", lambda t, tile=tile, warps=warps: lambda: saxpy[(n // tile,)](0.75, t["x"], t["y"], n, tile, num_warps=warps)


def _transpose(row, m, n):
    for a, b, warps in ((32, 32, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8)):
        yield f"tile {a}x{b} {warps} warps", lambda t, a=a, b=b, warps=warps: lambda: transpose[(m // a, n // b)](
            t["x"], t["y"], m, n, a, b, num_warps=warps)


def _softmax(row, m, n):
    for warps in (4, 8, 16):
        yield f"{warps} warps", lambda t, warps=warps: lambda: softmax[(m,)](t["x"], t["y"], n, num_warps=warps)


def _layernorm(row, m, n):
    for warps in (4, 8, 16):
        yield f"{warps} warps", lambda t, warps=warps: lambda: layernorm[(m,)](t["x"], t["w"], t["b"], t["y"], 1e-5, n, num_warps=warps)


def _layernorm_backward(row, m, n):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for blocks, warps in ((1, 8), (1, 16), (2, 8), (2, 16), (4, 8)):
        parts = blocks * multiprocessors
        if parts > row.arrays[-1].shape[0]:
            continue
        def make(t, parts=parts, warps=warps):
            def launch():
                layernorm_backward_rows[(parts,)](t["dy"], t["x"], t["w"], t["mean"], t["rstd"], t["dx"], t["partial_dw"], t["partial_db"],
                                                  m, n, num_warps=warps)
                layernorm_backward_columns[(n // 32,)](t["partial_dw"], t["partial_db"], t["dw"], t["db"], parts, n, 64, 32)
            return launch
        yield f"{blocks} a multiprocessor, {warps} warps", make


def _matmul(row, m, n, k):
    element = row.element
    depth = {"f16": 64, "bf16": 64, "tf32": 32, "e4m3": 128}[element]
    columns = element == "e4m3"
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for tm, tn, tk, warps, stages in ((128, 128, depth, 4, 4), (128, 256, depth, 8, 3), (128, 256, depth, 8, 4), (128, 128, depth, 8, 4)):
        for persistent in (False, True):
            kernel = matmul_persistent if persistent else matmul
            tiles = (m // tm) * (n // tn)
            grid = (min(multiprocessors, tiles) if persistent else tiles,)
            def make(t, kernel=kernel, grid=grid, tm=tm, tn=tn, tk=tk, warps=warps, stages=stages):
                a = TensorDescriptor.from_tensor(t["a"], [tm, tk])
                b = TensorDescriptor.from_tensor(t["b"], [tn, tk] if columns else [tk, tn])
                c = TensorDescriptor.from_tensor(t["c"], [tm, tn])
                return lambda: kernel[grid](a, b, c, m, n, k, tm, tn, tk, columns, num_warps=warps, num_stages=stages)
            yield f"{tm}x{tn}x{tk} {warps} warps {stages} stages{' persistent' if persistent else ''}", make
    if element == "tf32":
        yield from _pointers(1, m, n, k, depth)


def _scaled_matmul(row, m, n, k):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for tm, tn, warps, stages in ((128, 128, 8, 4), (128, 128, 8, 3), (128, 128, 4, 4), (64, 128, 4, 4)):
        grid = (min(multiprocessors, (m // tm) * (n // tn)),)
        def make(t, grid=grid, tm=tm, tn=tn, warps=warps, stages=stages):
            a, b = (TensorDescriptor.from_tensor(t[name], [extent, 128]) for name, extent in (("a", tm), ("b", tn)))
            c = TensorDescriptor.from_tensor(t["c"], [tm, tn])
            return lambda: scaled_matmul[grid](a, b, t["rows"], t["columns"], c, m, n, k, tm, tn, num_warps=warps, num_stages=stages)
        yield f"{tm}x{tn} {warps} warps {stages} stages", make


def _pointers(batch, m, n, k, depth):
    for tm, tn, tk, warps, stages in ((128, 128, depth, 4, 4), (128, 128, depth, 8, 4), (128, 256, depth, 8, 3)):
        grid = ((m // tm) * (n // tn), batch)
        def make(t, grid=grid, tm=tm, tn=tn, tk=tk, warps=warps, stages=stages):
            return lambda: matmul_pointers[grid](t["a"], t["b"], t["c"], m, n, k, tm, tn, tk, num_warps=warps, num_stages=stages)
        yield f"{tm}x{tn}x{tk} {warps} warps {stages} stages, plain loads", make


def _batched_matmul(row, batch, m, n, k):
    yield from _pointers(batch, m, n, k, 32 if row.element == "tf32" else 64)


def _attention(row, batch, heads, s, d):
    if row.element == "e4m3":
        return
    scale = math.log2(math.e) / math.sqrt(d)
    sizes = {64: ((128, 128, 8, 3), (128, 64, 4, 3)), 128: ((128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3)),
             256: ((128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2))}
    for tm, tn, warps, stages in sizes[d]:
        def make(t, tm=tm, tn=tn, warps=warps, stages=stages):
            flat = {name: t[name].view(-1, d) for name in "qkvo"}
            q, o = (TensorDescriptor.from_tensor(flat[name], [tm, d]) for name in "qo")
            k, v = (TensorDescriptor.from_tensor(flat[name], [tn, d]) for name in "kv")
            return lambda: attention[(s // tm, batch * heads)](q, k, v, o, scale, s, d, tm, tn, row.causal, num_warps=warps, num_stages=stages)
        yield f"{tm}x{tn} {warps} warps {stages} stages", make
