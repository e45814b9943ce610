"""Triton kernels of the rows that are by index, scans, counts, neighbours and rows of a matrix."""

import torch
import triton
import triton.language as tl


@triton.jit
def gather(x, at, y, n, tile: tl.constexpr):
    i = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = i < n
    tl.store(y + i, tl.load(x + tl.load(at + i, inside, 0), inside), inside)


@triton.jit
def scatter(x, at, y, n, tile: tl.constexpr):
    i = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = i < n
    tl.store(y + tl.load(at + i, inside, 0), tl.load(x + i, inside), inside)


@triton.jit
def cumsum(x, y, n: tl.constexpr, rows: tl.constexpr):
    at = (tl.program_id(0) * rows + tl.arange(0, rows))[:, None] * n + tl.arange(0, n)[None, :]
    tl.store(y + at, tl.cumsum(tl.load(x + at), 1))


@triton.jit
def histogram(x, bins, n, tile: tl.constexpr):
    counts = tl.zeros((256,), tl.int32)
    for i in range(tl.program_id(0), tl.cdiv(n, tile), tl.num_programs(0)):
        at = i * tile + tl.arange(0, tile)
        counts += tl.histogram(tl.load(x + at, at < n).to(tl.int32), 256, at < n)
    tl.atomic_add(bins + tl.arange(0, 256), counts, sem="relaxed")


@triton.jit
def stencil(x, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    """Blocks go along rows, so that neighbours run together."""
    i = (tl.program_id(1) * rows + tl.arange(0, rows))[:, None]
    j = (tl.program_id(0) * columns + tl.arange(0, columns))[None, :]
    at = i * n + j
    inside = (i < m) & (j < n)
    up = tl.load(x + at - n, inside & (i > 0), 0.0)
    down = tl.load(x + at + n, (i < m - 1) & (j < n), 0.0)
    left = tl.load(x + at - 1, inside & (j > 0), 0.0)
    right = tl.load(x + at + 1, (i < m) & (j < n - 1), 0.0)
    tl.store(y + at, up + down + left + right - 4 * tl.load(x + at, inside), inside)


@triton.jit
def column_sums(x, sums, m, n, rows: tl.constexpr, columns: tl.constexpr):
    j = tl.program_id(0) * columns + tl.arange(0, columns)
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(0, m, rows):
        total += tl.load(x + (start + tl.arange(0, rows))[:, None] * n + j[None, :])
    tl.store(sums + j, tl.sum(total, 0))


@triton.jit
def embedding(table, ids, out, columns, tile: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + i).to(tl.int64)
    j = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = j < columns
    tl.store(out + i * columns + j, tl.load(table + row * columns + j, inside), inside)


@triton.jit
def argmax(x, index, value, n: tl.constexpr, rows: tl.constexpr):
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    largest, first = tl.max(tl.load(x + i[:, None] * n + tl.arange(0, n)[None, :]), 1, return_indices=True)
    tl.store(index + i, first)
    tl.store(value + i, largest)


@triton.jit
def moments(x, mean, variance, n: tl.constexpr):
    """Two passes, the second over what the first has loaded."""
    i = tl.program_id(0)
    t = tl.load(x + i * n + tl.arange(0, n))
    m = tl.sum(t) / n
    tl.store(mean + i, m)
    tl.store(variance + i, tl.sum((t - m) * (t - m)) / n)


@triton.jit
def together(mean_a, squares_a, a, mean_b, squares_b, b):
    n = a + b
    step, share = mean_b - mean_a, b / n
    return mean_a + step * share, squares_a + squares_b + step * step * a * share, n


@triton.jit
def welford(x, mean, variance, n: tl.constexpr):
    i = tl.program_id(0)
    t = tl.load(x + i * n + tl.arange(0, n))
    m, squares, count = tl.reduce((t, tl.zeros((n,), tl.float32), tl.full((n,), 1.0, tl.float32)), 0, together)
    tl.store(mean + i, m)
    tl.store(variance + i, squares / count)


# As in `peers_triton.py`: the launches to try for a row.

def _by_index(kernel, n):
    for tile, warps in ((256, 4), (512, 4), (1024, 4), (1024, 8), (2048, 8), (4096, 8)):
        yield f"tile {tile} {warps} warps", lambda t, tile=tile, warps=warps: lambda: kernel[(triton.cdiv(n, tile),)](
            t["x"], t["at"], t["y"], n, tile, num_warps=warps)


def _gather(row, n, _):
    yield from _by_index(gather, n)


def _scatter(row, n):
    yield from _by_index(scatter, n)


def _cumsum(row, m, n):
    for rows, warps in ((1, 4), (1, 8), (1, 16), (2, 8)):
        yield f"{rows} rows {warps} warps", lambda t, rows=rows, warps=warps: lambda: cumsum[(m // rows,)](t["x"], t["y"], n, rows, num_warps=warps)


def _histogram(row, n):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for tile, each, warps in ((4096, 8, 4), (8192, 4, 8), (8192, 8, 8), (16384, 4, 8), (32768, 2, 16)):
        def make(t, tile=tile, each=each, warps=warps):
            def launch():
                t["bins"].zero_()
                histogram[(each * multiprocessors,)](t["x"], t["bins"], n, tile, num_warps=warps)
            return launch
        yield f"tile {tile}, {each} a multiprocessor, {warps} warps", make


def _stencil(row, m, n):
    for rows, columns, warps in ((8, 128, 4), (16, 128, 4), (4, 256, 4), (8, 256, 8), (1, 1024, 4), (32, 128, 8)):
        grid = (triton.cdiv(n, columns), triton.cdiv(m, rows))
        yield f"tile {rows}x{columns} {warps} warps", lambda t, grid=grid, rows=rows, columns=columns, warps=warps: lambda: stencil[grid](
            t["x"], t["y"], m, n, rows, columns, num_warps=warps)


def _column_sums(row, m, n):
    for rows, columns, warps in ((64, 64, 8), (64, 32, 4), (128, 32, 8), (32, 64, 4), (128, 64, 8)):
        yield f"tile {rows}x{columns} {warps} warps", lambda t, rows=rows, columns=columns, warps=warps: lambda: column_sums[(n // columns,)](
            t["x"], t["sums"], m, n, rows, columns, num_warps=warps)


def _embedding(row, extent, columns, ids):
    for tile, warps in ((4096, 4), (4096, 8), (2048, 4), (1024, 4)):
        yield f"tile {tile} {warps} warps", lambda t, tile=tile, warps=warps: lambda: embedding[(ids, triton.cdiv(columns, tile))](
            t["table"], t["ids"], t["out"], columns, tile, num_warps=warps)


def _argmax(row, m, n):
    for rows, warps in ((1, 4), (1, 8), (1, 16), (4, 8)):
        yield f"{rows} rows {warps} warps", lambda t, rows=rows, warps=warps: lambda: argmax[(m // rows,)](
            t["x"], t["index"], t["value"], n, rows, num_warps=warps)


def _welford(row, m, n):
    for label, kernel in (("two passes", moments), ("pairs", welford)):
        for warps in (4, 8, 16):
            yield f"{label} {warps} warps", lambda t, kernel=kernel, warps=warps: lambda: kernel[(m,)](
                t["x"], t["mean"], t["variance"], n, num_warps=warps)
