"""The compared kernels in cuTile Python, each with the tile sizes and hints that can win.

Needs the package cuda-tile, but neither a GPU nor torch: `export_cutile.py` makes cubins from this on
any machine, and `peers_cutile.py` launches them, or runs the same kernels through cuTile Python itself.
"""

import math

import cuda.tile as ct

import movement_cutile
from configuration_cutile import C, Configuration, Launch

LOG2_E = 1.4426950408889634


# Elementwise.

@ct.kernel
def vadd(a, b, c, tile: C):
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(tile,)) + ct.load(b, index=(i,), shape=(tile,)))


@ct.kernel
def saxpy(alpha: float, x, y, tile: C):
    i = ct.bid(0)
    ct.store(y, index=(i,), tile=alpha * ct.load(x, index=(i,), shape=(tile,)) + ct.load(y, index=(i,), shape=(tile,)))


@ct.kernel
def transpose(x, y, rows: C, columns: C):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(y, index=(j, i), tile=ct.transpose(ct.load(x, index=(i, j), shape=(rows, columns))))


# Rows of a matrix.

@ct.kernel
def softmax(x, y, height: C, n: C, tma: ct.Constant[bool]):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(height, n), allow_tma=tma)
    e = ct.exp(t - ct.max(t, axis=1, keepdims=True))
    ct.store(y, index=(i, 0), tile=e / ct.sum(e, axis=1, keepdims=True), allow_tma=tma)


@ct.kernel
def softmax_gather(x, y, n: C):
    i = ct.bid(0)
    columns = ct.arange(n, dtype=ct.int32)
    t = ct.gather(x, (i, columns), check_bounds=False)
    e = ct.exp(t - ct.max(t, axis=0, keepdims=True))
    ct.scatter(y, (i, columns), e / ct.sum(e, axis=0, keepdims=True), check_bounds=False)


@ct.kernel
def softmax_persistent(x, y, n: C):
    for i in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        t = ct.load(x, index=(i, 0), shape=(1, n))
        e = ct.exp(t - ct.max(t, axis=1, keepdims=True))
        ct.store(y, index=(i, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


@ct.kernel
def layernorm(x, w, b, y, n: C, epsilon: float, tma: ct.Constant[bool]):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(1, n), allow_tma=tma)
    mean = ct.sum(t, axis=1, keepdims=True) / n
    d = t - mean
    variance = ct.sum(d * d, axis=1, keepdims=True) / n
    weight, bias = ct.load(w, index=(0,), shape=(n,)), ct.load(b, index=(0,), shape=(n,))
    ct.store(y, index=(i, 0), tile=d * ct.rsqrt(variance + epsilon) * weight + bias, allow_tma=tma)


@ct.kernel
def layernorm_persistent(x, w, b, y, n: C, epsilon: float):
    weight, bias = ct.load(w, index=(0,), shape=(n,)), ct.load(b, index=(0,), shape=(n,))
    for i in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        t = ct.load(x, index=(i, 0), shape=(1, n))
        mean = ct.sum(t, axis=1, keepdims=True) / n
        d = t - mean
        variance = ct.sum(d * d, axis=1, keepdims=True) / n
        ct.store(y, index=(i, 0), tile=d * ct.rsqrt(variance + epsilon) * weight + bias)


@ct.kernel
def layernorm_backward_rows(dy, x, w, mean, rstd, dx, partial_dw, partial_db, n: C):
    """dx of every num_blocks-th row, and what these rows add to dw and db."""
    weight = ct.load(w, index=(0,), shape=(n,)).reshape((1, n))
    dw, db = ct.full((1, n), 0.0, dtype=ct.float32), ct.full((1, n), 0.0, dtype=ct.float32)
    for i in range(ct.bid(0), x.shape[0], ct.num_blocks(0)):
        g = ct.load(dy, index=(i, 0), shape=(1, n))
        r = ct.load(rstd, index=(i,), shape=(1,)).reshape((1, 1))
        m = ct.load(mean, index=(i,), shape=(1,)).reshape((1, 1))
        h = (ct.load(x, index=(i, 0), shape=(1, n)) - m) * r
        wg = weight * g
        c1 = ct.sum(h * wg, axis=1, keepdims=True) / n
        c2 = ct.sum(wg, axis=1, keepdims=True) / n
        ct.store(dx, index=(i, 0), tile=(wg - (h * c1 + c2)) * r)
        dw += g * h
        db += g
    ct.store(partial_dw, index=(ct.bid(0), 0), tile=dw)
    ct.store(partial_db, index=(ct.bid(0), 0), tile=db)


@ct.kernel
def layernorm_backward_columns(partial_dw, partial_db, dw, db, height: C, width: C):
    j = ct.bid(0)
    a, b = ct.full((height, width), 0.0, dtype=ct.float32), ct.full((height, width), 0.0, dtype=ct.float32)
    for i in range(ct.num_tiles(partial_dw, axis=0, shape=(height, width))):
        a += ct.load(partial_dw, index=(i, j), shape=(height, width), padding_mode=ct.PaddingMode.ZERO)
        b += ct.load(partial_db, index=(i, j), shape=(height, width), padding_mode=ct.PaddingMode.ZERO)
    ct.store(dw, index=(j,), tile=ct.sum(a, axis=0))
    ct.store(db, index=(j,), tile=ct.sum(b, axis=0))


# Products.

def place(index, rows, columns):
    """The tile that comes index-th: eight rows of tiles column by column, for the second-level cache."""
    in_group = 8 * columns
    first = index // in_group * 8
    height = min(rows - first, 8)
    return first + (index % in_group) % height, (index % in_group) // height


@ct.kernel
def matmul(a, b, c, tm: C, tn: C, tk: C):
    i, j = place(ct.bid(0), ct.cdiv(c.shape[0], tm), ct.cdiv(c.shape[1], tn))
    acc = ct.full((tm, tn), 0, dtype=ct.float32)
    dt = ct.tfloat32 if a.dtype == ct.float32 else a.dtype
    for k in range(ct.num_tiles(a, axis=1, shape=(tm, tk))):
        x = ct.load(a, index=(i, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO).astype(dt)
        y = ct.load(b, index=(k, j), shape=(tk, tn), padding_mode=ct.PaddingMode.ZERO).astype(dt)
        acc = ct.mma(x, y, acc)
    ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


@ct.kernel
def matmul_persistent(a, b, c, tm: C, tn: C, tk: C):
    rows, columns = ct.cdiv(c.shape[0], tm), ct.cdiv(c.shape[1], tn)
    steps = ct.num_tiles(a, axis=1, shape=(tm, tk))
    dt = ct.tfloat32 if a.dtype == ct.float32 else a.dtype
    for index in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        i, j = place(index, rows, columns)
        acc = ct.full((tm, tn), 0, dtype=ct.float32)
        for k in range(steps):
            x = ct.load(a, index=(i, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO).astype(dt)
            y = ct.load(b, index=(k, j), shape=(tk, tn), padding_mode=ct.PaddingMode.ZERO).astype(dt)
            acc = ct.mma(x, y, acc)
        ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


@ct.kernel
def matmul_columns(a, b, c, tm: C, tn: C, tk: C, fast: ct.Constant[bool]):
    """8-bit floats; row j of b is column j of the second matrix."""
    i, j = place(ct.bid(0), ct.cdiv(c.shape[0], tm), ct.cdiv(c.shape[1], tn))
    acc = ct.full((tm, tn), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(tm, tk))):
        x = ct.load(a, index=(i, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, index=(k, j), shape=(tk, tn), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x, y, acc, use_fast_acc=fast)
    ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


@ct.kernel
def matmul_columns_persistent(a, b, c, tm: C, tn: C, tk: C, fast: ct.Constant[bool]):
    rows, columns = ct.cdiv(c.shape[0], tm), ct.cdiv(c.shape[1], tn)
    steps = ct.num_tiles(a, axis=1, shape=(tm, tk))
    for index in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        i, j = place(index, rows, columns)
        acc = ct.full((tm, tn), 0, dtype=ct.float32)
        for k in range(steps):
            x = ct.load(a, index=(i, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO)
            y = ct.load(b, index=(k, j), shape=(tk, tn), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
            acc = ct.mma(x, y, acc, use_fast_acc=fast)
        ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


@ct.kernel
def batched_matmul(a, b, c, tm: C, tn: C, tk: C):
    i, j, batch = ct.bid(0), ct.bid(1), ct.bid(2)
    acc = ct.full((tm, tn), 0, dtype=ct.float32)
    dt = ct.tfloat32 if a.dtype == ct.float32 else a.dtype
    for k in range(ct.num_tiles(a, axis=2, shape=(1, tm, tk))):
        x = ct.load(a, index=(batch, i, k), shape=(1, tm, tk), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, index=(batch, k, j), shape=(1, tk, tn), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x.reshape((tm, tk)).astype(dt), y.reshape((tk, tn)).astype(dt), acc)
    ct.store(c, index=(batch, i, j), tile=acc.astype(c.dtype).reshape((1, tm, tn)))


# Attention.

@ct.kernel(occupancy=1)
def attention(q, k, v, o, scale: float, d: C, heads: C, tm: C, tn: C, causal: ct.Constant[bool]):
    block, batch, head = ct.bid(0), ct.bid(1) // heads, ct.bid(1) % heads
    scale = scale * LOG2_E
    rows = (block * tm + ct.arange(tm, dtype=ct.int32))[:, None]
    columns = ct.arange(tn, dtype=ct.int32)[None, :]
    largest = ct.full((tm, 1), -math.inf, dtype=ct.float32)
    total = ct.full((tm, 1), 0.0, dtype=ct.float32)
    acc = ct.full((tm, d), 0.0, dtype=ct.float32)
    x = ct.load(q, index=(batch, head, block, 0), shape=(1, 1, tm, d)).reshape((tm, d))
    keys = k.shape[2]
    if causal:
        unmasked = (block * tm) // tn
        steps = ct.cdiv(min((block + 1) * tm, keys), tn)
    else:
        unmasked = keys // tn
        steps = ct.cdiv(keys, tn)
    for j in range(0, steps):
        y = ct.load(k, index=(batch, head, 0, j), shape=(1, 1, d, tn), order=(0, 1, 3, 2), latency=2).reshape((d, tn))
        scores = ct.mma(x, y, ct.full((tm, tn), 0.0, dtype=ct.float32))
        if causal and j >= unmasked:
            scores += ct.where(rows >= j * tn + columns, 0.0, -math.inf)
        above = max(largest, ct.max(scores, axis=-1, keepdims=True) * scale)
        weights = ct.exp2(scores * scale - above, flush_to_zero=True)
        fade = ct.exp2(largest - above, flush_to_zero=True)
        total = total * fade + ct.sum(weights, axis=-1, keepdims=True)
        acc = acc * fade
        z = ct.load(v, index=(batch, head, j, 0), shape=(1, 1, tn, d), latency=4).reshape((tn, d))
        acc = ct.mma(weights.astype(q.dtype), z, acc)
        largest = above
    acc = ct.truediv(acc, total, flush_to_zero=True, rounding_mode=ct.RoundingMode.APPROX)
    ct.store(o, index=(batch, head, block, 0), tile=acc.reshape((1, 1, tm, d)).astype(o.dtype))


def configurations(row):
    """What to try for a row of rows.py; an empty list where there is no kernel."""
    make = globals().get(f"_{row.kernel}") or getattr(movement_cutile, f"_{row.kernel}", None)
    return make(row, *row.numbers) if make else []


def _vadd(row, n):
    return [Configuration(f"tile {t}", [Launch(vadd, (n // t,), ("a", "b", "c", t))]) for t in (512, 1024, 2048, 4096, 8192)]


def _saxpy(row, n):
    scalar = ("f32", 0.75)
    return [Configuration(f"tile {t}", [Launch(saxpy, (n // t,), (scalar, "x", "y", t))]) for t in (512, 1024, 2048, 4096, 8192)]


def _transpose(row, m, n):
    tiles = ((32, 32), (64, 32), (32, 64), (64, 64), (128, 64), (64, 128), (128, 128))
    return [Configuration(f"tile {a}x{b}", [Launch(transpose, (m // a, n // b), ("x", "y", a, b))]) for a, b in tiles]


def _row_hints():
    """Hints for a kernel whose tile is a whole row."""
    for warps in (4, 8):
        for occupancy in (None, 4):
            hints = dict(num_worker_warps=warps, **({"occupancy": occupancy} if occupancy else {}))
            yield f"{warps} warps" + (f" occupancy {occupancy}" if occupancy else ""), hints


def _softmax(row, m, n):
    list_ = []
    for label, hints in _row_hints():
        list_.append(Configuration(label, [Launch(softmax, (m,), ("x", "y", 1, n, True), hints)]))
        list_.append(Configuration(f"gather {label}", [Launch(softmax_gather, (m,), ("x", "y", n), hints)]))
    list_.append(Configuration("no TMA 8 warps", [Launch(softmax, (m,), ("x", "y", 1, n, False), {"num_worker_warps": 8})]))
    list_.append(Configuration("2 rows 8 warps", [Launch(softmax, (m // 2,), ("x", "y", 2, n, True), {"num_worker_warps": 8})]))
    grid = (("multiprocessors", 4, m),)
    list_.append(Configuration("persistent", [Launch(softmax_persistent, grid, ("x", "y", n), {"num_worker_warps": 8, "occupancy": 4})]))
    return list_


def _layernorm(row, m, n):
    epsilon = ("f32", 1e-5)
    list_ = []
    for label, hints in _row_hints():
        list_.append(Configuration(label, [Launch(layernorm, (m,), ("x", "w", "b", "y", n, epsilon, True), hints)]))
    list_.append(Configuration("no TMA 8 warps", [Launch(layernorm, (m,), ("x", "w", "b", "y", n, epsilon, False), {"num_worker_warps": 8})]))
    grid = (("multiprocessors", 2, m),)
    hints = {"num_worker_warps": 8, "occupancy": 2}
    list_.append(Configuration("persistent", [Launch(layernorm_persistent, grid, ("x", "w", "b", "y", n, epsilon), hints)]))
    return list_


def _layernorm_backward(row, m, n):
    list_ = []
    for each, warps in ((1, 4), (1, 8), (2, 4), (2, 8), (4, 4)):
        blocks = ("multiprocessors", each, min(m, row.arrays[-1].shape[0]))
        parts = tuple(("rows", name, blocks) for name in ("partial_dw", "partial_db"))
        arguments = ("dy", "x", "w", "mean", "rstd", "dx", *parts, n)
        first = Launch(layernorm_backward_rows, (blocks,), arguments, {"num_worker_warps": warps, "occupancy": each})
        second = Launch(layernorm_backward_columns, (n // 32,), (*parts, "dw", "db", 64, 32))
        list_.append(Configuration(f"{each} a multiprocessor, {warps} warps", [first, second]))
    return list_


def _matmul(row, m, n, k):
    fp8 = row.element == "e4m3"
    depth = {"f16": 64, "bf16": 64, "tf32": 32, "e4m3": 128}[row.element]
    # Tile, worker warps, CTAs of a cluster, persistent. Four warps spill at 128x256.
    choices = [(128, 128, depth, 4, 1, 0), (128, 128, depth, 4, 1, 1), (128, 128, depth, 8, 1, 0), (128, 128, depth, 8, 1, 1),
               (128, 128, depth, 8, 2, 1), (128, 256, depth, 8, 1, 0), (128, 256, depth, 8, 1, 1), (128, 256, depth, 8, 2, 0),
               (128, 256, depth, 8, 2, 1), (256, 128, depth, 8, 1, 0), (256, 128, depth, 8, 1, 1), (128, 128, 2 * depth, 4, 1, 0),
               (128, 128, 2 * depth, 8, 1, 1)]
    list_ = []
    for tm, tn, tk, warps, ctas, persistent in choices:
        for fast in ((True, False) if fp8 and tk == depth and ctas == 1 and warps == 8 else (True,)):
            kernel = globals()[f"matmul{'_columns' if fp8 else ''}{'_persistent' if persistent else ''}"]
            tiles = (m // tm) * (n // tn)
            grid = (("multiprocessors", 1, tiles),) if persistent else (tiles,)
            arguments = ("a", "b", "c", tm, tn, tk) + ((fast,) if fp8 else ())
            label = f"{tm}x{tn}x{tk} {warps} warps" + (f" {ctas} CTAs" if ctas > 1 else "") + (" persistent" if persistent else "")
            label += "" if fast else " exact sums"
            hints = {"num_worker_warps": warps, "num_ctas": ctas}
            list_.append(Configuration(label, [Launch(kernel, grid, arguments, hints)]))
    return list_


def _batched_matmul(row, batch, m, n, k):
    depth = 32 if row.element == "tf32" else 64
    list_ = []
    for tm, tn, tk, warps in ((128, 128, depth, 4), (128, 128, depth, 8), (128, 256, depth, 8), (256, 128, depth, 8), (128, 128, 2 * depth, 4)):
        grid = (m // tm, n // tn, batch)
        list_.append(Configuration(f"{tm}x{tn}x{tk} {warps} warps", [Launch(batched_matmul, grid, ("a", "b", "c", tm, tn, tk), {"num_worker_warps": warps})]))
    return list_


def _attention(row, batch, heads, sequence, d):
    list_ = []
    if row.element == "e4m3":
        return list_
    for tm, tn, warps in ((128, 128, 4), (128, 128, 8), (128, 64, 4), (128, 64, 8), (64, 128, 4), (256, 64, 8), (256, 128, 8)):
        arguments = ("q", "k", "v", "o", ("f32", 1 / math.sqrt(d)), d, heads, tm, tn, row.causal)
        grid = (sequence // tm, batch * heads)
        list_.append(Configuration(f"{tm}x{tn} {warps} warps", [Launch(attention, grid, arguments, {"num_worker_warps": warps})]))
    return list_
