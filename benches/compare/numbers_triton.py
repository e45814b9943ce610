"""Triton kernels of the rows of random numbers, sums, order and packed weights."""

import torch
import triton
import triton.language as tl


@triton.jit
def random(y, seed, normal: tl.constexpr, tile: tl.constexpr):
    """One number for each offset."""
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    tl.store(y + at, tl.randn(seed, at) if normal else tl.rand(seed, at))


@triton.jit
def random4(y, seed, normal: tl.constexpr, tile: tl.constexpr):
    """All four numbers of each offset, in four runs."""
    i = tl.program_id(0)
    offsets = i * tile + tl.arange(0, tile)
    if normal:
        a, b, c, d = tl.randn4x(seed, offsets)
    else:
        a, b, c, d = tl.rand4x(seed, offsets)
    to = y + i * 4 * tile + tl.arange(0, tile)
    tl.store(to, a)
    tl.store(to + tile, b)
    tl.store(to + 2 * tile, c)
    tl.store(to + 3 * tile, d)


@triton.jit
def dropout(x, y, seed, keep, tile: tl.constexpr):
    """One number for each element; the gradient is by the same kernel."""
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    tl.store(y + at, tl.where(tl.rand(seed, at) < keep, tl.load(x + at) / keep, 0.0))


@triton.jit
def dropout4(x, y, seed, keep, tile: tl.constexpr):
    """Four numbers for each offset, for four runs."""
    i = tl.program_id(0)
    a, b, c, d = tl.rand4x(seed, i * tile + tl.arange(0, tile))
    at = i * 4 * tile + tl.arange(0, tile)
    scale = 1 / keep
    tl.store(y + at, tl.where(a < keep, tl.load(x + at) * scale, 0.0))
    tl.store(y + at + tile, tl.where(b < keep, tl.load(x + at + tile) * scale, 0.0))
    tl.store(y + at + 2 * tile, tl.where(c < keep, tl.load(x + at + 2 * tile) * scale, 0.0))
    tl.store(y + at + 3 * tile, tl.where(d < keep, tl.load(x + at + 3 * tile) * scale, 0.0))


@triton.jit
def sum_part(x, n, tile: tl.constexpr):
    sums = tl.zeros((tile,), tl.float32)
    for i in range(tl.program_id(0), tl.cdiv(n, tile), tl.num_programs(0)):
        at = i * tile + tl.arange(0, tile)
        sums += tl.load(x + at, at < n, 0.0)
    return tl.sum(sums)


@triton.jit
def sum_atomic(x, total, n, tile: tl.constexpr):
    tl.atomic_add(total, sum_part(x, n, tile), sem="relaxed")


@triton.jit
def sum_parts(x, parts, n, tile: tl.constexpr):
    tl.store(parts + tl.program_id(0), sum_part(x, n, tile))


@triton.jit
def sum_of_parts(parts, total, count, tile: tl.constexpr):
    at = tl.arange(0, tile)
    tl.store(total, tl.sum(tl.load(parts + at, at < count, 0.0)))


@triton.jit
def sort(x, y, n: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(y + at, tl.sort(tl.load(x + at)))


@triton.jit
def with_place(x, place):
    """Integers in the order of the elements, with their places below: of equal elements the first one is the largest."""
    bits = x.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def top_k(x, value, index, n: tl.constexpr, k: tl.constexpr, rows: tl.constexpr):
    i = (tl.program_id(0) * rows + tl.arange(0, rows))[:, None]
    place = tl.arange(0, n)[None, :]
    best = tl.topk(with_place(tl.load(x + i * n + place), place), k)
    bits = (best >> 32).to(tl.int32)
    at = i * k + tl.arange(0, k)[None, :]
    tl.store(value + at, (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))
    tl.store(index + at, 0x7FFFFFFF - best.to(tl.int32))


@triton.jit
def top_k_parts(x, best, n, k: tl.constexpr, tile: tl.constexpr):
    i, part = tl.program_id(1), tl.program_id(0)
    place = part * tile + tl.arange(0, tile)
    t = tl.load(x + i * n + place, place < n, -float("inf"))
    tl.store(best + (i * tl.num_programs(0) + part) * k + tl.arange(0, k), tl.topk(with_place(t, place), k))


@triton.jit
def top_k_of_parts(best, value, index, count: tl.constexpr, k: tl.constexpr):
    i = tl.program_id(0)
    first = tl.topk(tl.load(best + i * count + tl.arange(0, count)), k)
    bits = (first >> 32).to(tl.int32)
    at = i * k + tl.arange(0, k)
    tl.store(value + at, (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))
    tl.store(index + at, 0x7FFFFFFF - first.to(tl.int32))


@triton.jit
def place_of(index, rows, columns):
    in_group = 8 * columns
    first = index // in_group * 8
    height = min(rows - first, 8)
    return first + (index % in_group) % height, (index % in_group) // height


@triton.jit
def quantized_sum(x, weights, scales, i, j, k, n, start, end, group: tl.constexpr, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr,
                  m, turned: tl.constexpr):
    """Sums of a tile; `turned`: of the transposed one, whose first operand, the weights, can stay in registers."""
    rows, columns, inner = i * tm + tl.arange(0, tm), j * tn + tl.arange(0, tn), tl.arange(0, tk)
    pairs = j * (tn // 2) + tl.arange(0, tn // 2)
    if turned:
        acc = tl.zeros((tn, tm), tl.float32)
    else:
        acc = tl.zeros((tm, tn), tl.float32)
    for step in range(start, end):
        at = step * tk + inner
        t = tl.load(x + rows[:, None] * k + at[None, :], (rows < m)[:, None], 0.0)
        codes = tl.load(weights + at[:, None] * (n // 2) + pairs[None, :])
        w = tl.interleave(codes & 15, codes >> 4).to(tl.float16) - 7.5
        w = w * tl.load(scales + (step * tk // group) * n + columns)[None, :]
        if turned:
            acc = tl.dot(w.T, t.T, acc)
        else:
            acc = tl.dot(t, w, acc)
    if turned:
        acc = acc.T
    return acc


@triton.jit
def quantized_matmul(x, weights, scales, y, m, n, k, group: tl.constexpr, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr,
                     turned: tl.constexpr):
    i, j = place_of(tl.program_id(0), tl.cdiv(m, tm), tl.cdiv(n, tn))
    acc = quantized_sum(x, weights, scales, i, j, k, n, 0, k // tk, group, tm, tn, tk, m, turned)
    rows, columns = i * tm + tl.arange(0, tm), j * tn + tl.arange(0, tn)
    tl.store(y + rows[:, None] * n + columns[None, :], acc.to(tl.float16), (rows < m)[:, None])


@triton.jit
def quantized_parts(x, weights, scales, parts, m, n, k, group: tl.constexpr, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr,
                    turned: tl.constexpr):
    j, part = tl.program_id(0), tl.program_id(1)
    steps = tl.cdiv(k // tk, tl.num_programs(1))
    acc = quantized_sum(x, weights, scales, 0, j, k, n, part * steps, min((part + 1) * steps, k // tk), group, tm, tn, tk, m, turned)
    rows, columns = tl.arange(0, tm), j * tn + tl.arange(0, tn)
    tl.store(parts + part * m * n + rows[:, None] * n + columns[None, :], acc, (rows < m)[:, None])


@triton.jit
def quantized_sum_of_parts(parts, y, size, count: tl.constexpr, tile: tl.constexpr):
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    t = tl.load(parts + tl.arange(0, count)[:, None] * size + at[None, :])
    tl.store(y + at, tl.sum(t, 0).to(tl.float16))


# As in `peers_triton.py`: the launches to try for a row.

def _random(n, normal):
    for label, kernel, each in (("", random, 1), (", four of each offset", random4, 4)):
        for tile, warps in ((256, 4), (512, 4), (1024, 4), (1024, 8), (2048, 8)):
            yield f"tile {tile} {warps} warps{label}", lambda t, kernel=kernel, each=each, tile=tile, warps=warps: lambda: kernel[
                (n // (each * tile),)](t["y"], 42, normal, tile, num_warps=warps)


def _random_normal(row, n):
    yield from _random(n, True)


def _random_uniform(row, n):
    yield from _random(n, False)


def _dropout(row, n):
    for label, kernel, each in (("", dropout, 1), (", four of each offset", dropout4, 4)):
        for tile, warps in ((256, 4), (512, 4), (1024, 4), (1024, 8), (2048, 8)):
            def make(t, kernel=kernel, grid=(n // (each * tile),), tile=tile, warps=warps):
                def launch():
                    kernel[grid](t["x"], t["y"], 42, 0.9, tile, num_warps=warps)
                    kernel[grid](t["dy"], t["dx"], 42, 0.9, tile, num_warps=warps)
                return launch
            yield f"tile {tile} {warps} warps{label}", make


def _sum(row, n):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for tile, each, warps in ((2048, 4, 4), (4096, 4, 4), (4096, 8, 4), (4096, 4, 8), (8192, 4, 8), (8192, 2, 8)):
        blocks = each * multiprocessors
        def atomic(t, blocks=blocks, tile=tile, warps=warps):
            def launch():
                t["total"].zero_()
                sum_atomic[(blocks,)](t["x"], t["total"], n, tile, num_warps=warps)
            return launch
        def two(t, blocks=blocks, tile=tile, warps=warps):
            parts = torch.empty(blocks, device="cuda")
            def launch():
                sum_parts[(blocks,)](t["x"], parts, n, tile, num_warps=warps)
                sum_of_parts[(1,)](parts, t["total"], blocks, triton.next_power_of_2(blocks), num_warps=4)
            return launch
        label = f"tile {tile}, {each} a multiprocessor, {warps} warps"
        yield f"{label}, atomic", atomic
        yield f"{label}, two kernels", two


def _sort(row, m, n):
    for warps in (4, 8, 16, 32):
        yield f"{warps} warps", lambda t, warps=warps: lambda: sort[(m,)](t["x"], t["y"], n, num_warps=warps)


def _top_k(row, m, n, k):
    k = triton.next_power_of_2(k)
    if n <= 1024:
        for rows, warps in ((4, 1), (8, 1), (8, 4), (16, 4), (32, 4), (32, 8), (64, 8)):
            yield f"{rows} rows {warps} warps", lambda t, rows=rows, warps=warps: lambda: top_k[(m // rows,)](
                t["x"], t["value"], t["index"], n, k, rows, num_warps=warps)
        return
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16)):
        parts = triton.cdiv(n, tile)
        if parts * k > 16384:
            continue
        def make(t, tile=tile, parts=parts, warps=warps):
            best = torch.empty((m, parts * k), dtype=torch.int64, device="cuda")
            def launch():
                top_k_parts[(parts, m)](t["x"], best, n, k, tile, num_warps=warps)
                top_k_of_parts[(m,)](best, t["value"], t["index"], parts * k, k, num_warps=warps)
            return launch
        yield f"tile {tile} {warps} warps", make


def _quantized_matmul(row, m, n, k):
    from rows import GROUP
    if m <= 64:
        tm = max(16, triton.next_power_of_2(m))
        for tn, tk, count, warps, stages in ((32, 128, 4, 4, 4), (64, 128, 1, 4, 5), (64, 128, 4, 4, 4), (64, 128, 8, 4, 4), (128, 64, 4, 4, 4),
                                             (128, 128, 8, 4, 3), (128, 128, 16, 8, 3)):
            for turned in (False, True):
                def make(t, tn=tn, tk=tk, count=count, warps=warps, stages=stages, turned=turned):
                    parts = torch.empty((count, m, n), device="cuda")
                    def launch():
                        quantized_parts[(n // tn, count)](t["x"], t["weights"], t["scales"], parts, m, n, k, GROUP, tm, tn, tk, turned,
                                                          num_warps=warps, num_stages=stages)
                        quantized_sum_of_parts[(m * n // 512,)](parts, t["y"], m * n, count, 512, num_warps=4)
                    return launch
                yield f"{tm}x{tn}x{tk} in {count} parts, {warps} warps {stages} stages{', turned' if turned else ''}", make
        return
    for tm, tn, tk, warps, stages in ((128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (128, 256, 64, 8, 3), (256, 128, 64, 8, 3),
                                      (64, 128, 64, 4, 4), (128, 64, 64, 4, 4)):
        for turned in (False, True):
            def make(t, tm=tm, tn=tn, tk=tk, warps=warps, stages=stages, turned=turned):
                grid = (triton.cdiv(m, tm) * (n // tn),)
                return lambda: quantized_matmul[grid](t["x"], t["weights"], t["scales"], t["y"], m, n, k, GROUP, tm, tn, tk, turned,
                                                      num_warps=warps, num_stages=stages)
            yield f"{tm}x{tn}x{tk} {warps} warps {stages} stages{', turned' if turned else ''}", make
