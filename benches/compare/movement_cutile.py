"""Kernels in cuTile Python of the rows that are by index, scans, counts, neighbours and rows of a matrix."""

import cuda.tile as ct

from configuration_cutile import C, Configuration, Launch


@ct.kernel
def vadd_gather(a, b, c, tile: C, checked: ct.Constant[bool]):
    at = ct.bid(0) * tile + ct.arange(tile, dtype=ct.int32)
    ct.scatter(c, at, ct.gather(a, at, check_bounds=checked) + ct.gather(b, at, check_bounds=checked), check_bounds=checked)


@ct.kernel
def gather(x, at, y, tile: C, checked: ct.Constant[bool]):
    i = ct.bid(0)
    ct.store(y, index=(i,), tile=ct.gather(x, ct.load(at, index=(i,), shape=(tile,)), check_bounds=checked))


@ct.kernel
def scatter(x, at, y, tile: C, checked: ct.Constant[bool]):
    i = ct.bid(0)
    ct.scatter(y, ct.load(at, index=(i,), shape=(tile,)), ct.load(x, index=(i,), shape=(tile,)), check_bounds=checked)


@ct.kernel
def cumsum(x, y, rows: C, n: C):
    i = ct.bid(0)
    ct.store(y, index=(i, 0), tile=ct.cumsum(ct.load(x, index=(i, 0), shape=(rows, n)), 1))


@ct.kernel
def zero(counts, n: C):
    ct.store(counts, index=(ct.bid(0),), tile=ct.full((n,), 0, dtype=ct.int32))


@ct.kernel
def histogram(x, bins, tile: C):
    for i in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(tile,)), ct.num_blocks(0)):
        values = ct.load(x, index=(i,), shape=(tile,)).astype(ct.int32)
        ct.atomic_add(bins, values, 1, check_bounds=False, memory_order=ct.MemoryOrder.RELAXED)


@ct.kernel
def stencil(x, y, rows: C, columns: C):
    """Blocks go along rows, so that neighbours run together."""
    across, along = ct.bid(1), ct.bid(0)
    i = (across * rows + ct.arange(rows, dtype=ct.int32))[:, None]
    j = (along * columns + ct.arange(columns, dtype=ct.int32))[None, :]
    vertical = ct.gather(x, (i - 1, j)) + ct.gather(x, (i + 1, j))
    horizontal = ct.gather(x, (i, j - 1)) + ct.gather(x, (i, j + 1))
    here = ct.load(x, index=(across, along), shape=(rows, columns))
    ct.store(y, index=(across, along), tile=vertical + horizontal - 4 * here)


@ct.kernel
def column_sums(x, sums, height: C, width: C):
    j = ct.bid(0)
    total = ct.full((height, width), 0.0, dtype=ct.float32)
    for i in range(ct.num_tiles(x, axis=0, shape=(height, width))):
        total += ct.load(x, index=(i, j), shape=(height, width), padding_mode=ct.PaddingMode.ZERO)
    ct.store(sums, index=(j,), tile=ct.sum(total, axis=0))


@ct.kernel
def embedding(table, ids, out, tile: C):
    i, part = ct.bid(0), ct.bid(1)
    row = ct.load(ids, index=(i,), shape=(1,)).item()
    ct.store(out, index=(i, part), tile=ct.load(table, index=(row, part), shape=(1, tile)))


@ct.kernel
def embedding_gather(table, ids, out, tile: C):
    i, part = ct.bid(0), ct.bid(1)
    row = ct.load(ids, index=(i,), shape=(1,)).item()
    columns = part * tile + ct.arange(tile, dtype=ct.int32)
    ct.scatter(out, (i, columns), ct.gather(table, (row, columns), check_bounds=False), check_bounds=False)


@ct.kernel
def argmax(x, index, value, n: C):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(1, n))
    ct.store(index, index=(i,), tile=ct.argmax(t, axis=1).astype(ct.int32))
    ct.store(value, index=(i,), tile=ct.max(t, axis=1))


@ct.kernel
def moments(x, mean, variance, n: C):
    """Two passes, the second over what the first has loaded."""
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(1, n))
    m = ct.sum(t, axis=1, keepdims=True) / n
    d = t - m
    ct.store(mean, index=(i,), tile=m.reshape((1,)))
    ct.store(variance, index=(i,), tile=(ct.sum(d * d, axis=1) / n))


def together(mean_a, squares_a, a, mean_b, squares_b, b):
    n = a + b
    step, share = mean_b - mean_a, b / ct.maximum(n, 1.0)
    return mean_a + step * share, squares_a + squares_b + step * step * a * share, n


@ct.kernel
def welford(x, mean, variance, n: C):
    i = ct.bid(0)
    t = ct.load(x, index=(i, 0), shape=(1, n))
    zeros, ones = ct.full((1, n), 0.0, dtype=ct.float32), ct.full((1, n), 1.0, dtype=ct.float32)
    m, squares, count = ct.reduce((t, zeros, ones), 1, together, (0.0, 0.0, 0.0))
    ct.store(mean, index=(i,), tile=m)
    ct.store(variance, index=(i,), tile=squares / count)


# As in `kernels_cutile.py`: what to try for a row.

def _hints():
    return [("defaults", {}), ("4 warps", {"num_worker_warps": 4}), ("8 warps", {"num_worker_warps": 8})]


def _vadd_gather(row, n):
    choices = ((512, True), (1024, True), (2048, True), (1024, False), (4096, False))
    return [Configuration(f"tile {tile}{'' if checked else ' unchecked'}", [Launch(vadd_gather, (n // tile,), ("a", "b", "c", tile, checked))])
            for tile, checked in choices]


def _by_index(kernel, n):
    choices = ((256, True), (512, True), (1024, True), (2048, True), (512, False), (1024, False), (2048, False))
    return [Configuration(f"tile {tile}{'' if checked else ' unchecked'}", [Launch(kernel, (n // tile,), ("x", "at", "y", tile, checked))])
            for tile, checked in choices]


def _gather(row, n, _):
    return _by_index(gather, n)


def _scatter(row, n):
    return _by_index(scatter, n)


def _cumsum(row, m, n):
    list_ = [Configuration(label, [Launch(cumsum, (m,), ("x", "y", 1, n), hints)]) for label, hints in _hints()]
    return list_ + [Configuration("2 rows 8 warps", [Launch(cumsum, (m // 2,), ("x", "y", 2, n), {"num_worker_warps": 8})])]


def _histogram(row, n):
    list_ = []
    for tile, each in ((2048, 8), (4096, 4), (4096, 8), (8192, 4)):
        grid = (("multiprocessors", each, n // tile),)
        launches = [Launch(zero, (1,), ("bins", 256)), Launch(histogram, grid, ("x", "bins", tile), {"occupancy": each})]
        list_.append(Configuration(f"tile {tile}, {each} a multiprocessor", launches))
    return list_


def _stencil(row, m, n):
    return [Configuration(f"tile {a}x{b}", [Launch(stencil, (n // b, m // a), ("x", "y", a, b))])
            for a, b in ((8, 128), (16, 128), (4, 256), (8, 256), (1, 1024), (4, 512))]


def _column_sums(row, m, n):
    tiles = ((64, 64), (64, 32), (128, 64), (32, 64), (128, 32))
    return [Configuration(f"tile {a}x{b}", [Launch(column_sums, (n // b,), ("x", "sums", a, b))]) for a, b in tiles]


def _embedding(row, extent, columns, ids):
    list_ = []
    for kernel in (embedding, embedding_gather):
        for tile in (1024, 2048, 4096):
            label = f"{'gather' if kernel is embedding_gather else 'tiles'} of {tile}"
            list_.append(Configuration(label, [Launch(kernel, (ids, columns // tile), ("table", "ids", "out", tile))]))
    return list_


def _argmax(row, m, n):
    return [Configuration(label, [Launch(argmax, (m,), ("x", "index", "value", n), hints)]) for label, hints in _hints()]


def _welford(row, m, n):
    return [Configuration(f"{name} {label}", [Launch(kernel, (m,), ("x", "mean", "variance", n), hints)])
            for name, kernel in (("two passes", moments), ("pairs", welford)) for label, hints in _hints()]
