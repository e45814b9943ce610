"""Inputs of the rows, and what is right: random numbers, references in f64, errors relative to magnitudes."""

import math

import torch

from rows import GROUP, INTEGERS, STATISTICS


def fill(row, tensors, seed):
    """Random normal inputs, and what the row asks for; `tensors` are by name."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    for array in row.arrays:
        tensor = tensors[array.name]
        if array.use in ("in", "inout") and array.element not in INTEGERS:
            flat = tensor.view(-1)
            # In pieces: not every type has a generator, and a copy in f32 may be large.
            for start in range(0, flat.numel(), 1 << 26):
                piece = flat[start:start + (1 << 26)]
                piece.copy_(torch.randn(piece.numel(), device="cuda", generator=generator))
        elif array.use != "theirs":
            tensor.zero_()
    special = globals().get(f"_fill_{row.kernel}")
    if special:
        special(row, tensors, generator)


def _fill_layernorm_backward(row, t, generator):
    x = t["x"].double()
    t["mean"].copy_(x.mean(1))
    t["rstd"].copy_((x.var(1, unbiased=False) + 1e-5).rsqrt())


def _fill_gather(row, t, generator):
    t["at"].random_(0, row.numbers[1], generator=generator)
    t["at64"].copy_(t["at"])


def _fill_scatter(row, t, generator):
    """Every place once, so that the result does not depend on who comes last."""
    t["at64"].copy_(torch.randperm(row.numbers[0], device="cuda", generator=generator))
    t["at"].copy_(t["at64"])


def _fill_prefix_sum(row, t, generator):
    if row.element in INTEGERS:
        t["x"].random_(-1000, 1001, generator=generator)
    else:
        # Whole numbers: every sum of them stays far below 2^24.
        t["x"].mul_(4).round_()


def _fill_histogram(row, t, generator):
    t["x"].random_(0, 256, generator=generator)


def _fill_embedding(row, t, generator):
    t["ids"].random_(0, row.numbers[0], generator=generator)


def _fill_argmax(row, t, generator):
    """Rounded, so that rows have their largest element several times."""
    t["x"].mul_(8).round_()


def _fill_welford(row, t, generator):
    """Far from zero, where a plain sum of squares would lose the variance."""
    t["x"].add_(1000)


def _fill_quantized_matmul(row, t, generator):
    t["weights"].random_(0, 256, generator=generator)
    t["scales"].abs_().add_(0.5).mul_(2.0**-6)
    t["numbers"].copy_(_unpacked(row, t))


def _fill_attention_backward(row, t, generator):
    """What the forward pass keeps: its result, and log2 of the sums of exponentials."""
    batch, heads, sequence, d = row.numbers
    for b in range(batch):
        for h in range(heads):
            for first in range(0, sequence, 1024):
                rows = slice(first, first + 1024)
                scores = t["q"][b, h, rows].float() @ t["k"][b, h].float().t() / math.sqrt(d)
                if row.causal:
                    scores.masked_fill_(_behind(sequence, rows), -math.inf)
                t["logs"][b, h, rows] = torch.logsumexp(scores, -1) * math.log2(math.e)
                t["o"][b, h, rows] = (torch.softmax(scores, -1) @ t["v"][b, h].float()).to(t["o"].dtype)


def _behind(sequence, rows):
    """Keys that queries do not see."""
    at = torch.arange(sequence, device="cuda")
    return at[None, :] > at[rows][:, None]


def _fill_scaled_matmul(row, t, generator):
    for name in ("rows", "columns"):
        t[name].abs_().add_(0.5).mul_(2.0**-6)
    t["turned"].copy_(t["columns"].t())


def _unpacked(row, t):
    """The weights in f64."""
    codes = torch.stack((t["weights"] & 15, t["weights"] >> 4), -1).flatten(1)
    return (codes.double() - 7.5) * t["scales"].double().repeat_interleave(GROUP, 0)


class Check:
    """Compares outputs with a reference in f64 that is computed once, from one set of tensors.

    Where there is not one right result (random numbers, the order of equal elements), `_judge_...` of the row looks at
    the outputs themselves.
    """

    def __init__(self, row, tensors):
        self.row, self.tensors = row, tensors
        self.restored = {a.name: tensors[a.name].clone() for a in row.arrays if a.use == "inout"}
        self.judge = globals().get(f"_judge_{row.kernel}")
        self.expected = None if self.judge else globals()[f"_expect_{row.kernel}"](row, tensors)

    def reset(self):
        """Poisons the outputs, so that what is not written shows."""
        for array in self.row.arrays:
            if array.use == "out":
                poison(self.tensors[array.name])
        for name, value in self.restored.items():
            self.tensors[name].copy_(value)

    def error(self, results=None):
        """The largest error of results (by name; default: the set's outputs), relative to the magnitudes."""
        if self.judge:
            error = float(self.judge(self.row, {**self.tensors, **(results or {})}))
            return math.inf if math.isnan(error) else error
        worst = 0.0
        for name, (at, want, scale) in self.expected.items():
            got = (results or {}).get(name, self.tensors[name])
            got = (got[at] if at is not None else got).double()
            error = ((got - want).abs() / scale.clamp(min=torch.finfo(torch.float64).tiny)).max().item()
            worst = math.inf if math.isnan(error) else max(worst, error)
        return worst


def poison(tensor):
    tensor.fill_(float("nan") if tensor.dtype.is_floating_point else -77777)


def sample(extent, most=64):
    """Rows that are compared: all, or `most` spread over the extent, the last among them."""
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
    rows = sample(row.numbers[0], 4096)
    want = torch.softmax(t["x"][rows].double(), 1)
    return {"y": (rows, want, want)}


def _expect_column_sums(row, t):
    x = t["x"].double()
    return {"sums": (None, x.sum(0), x.abs().sum(0))}


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


def _expect_scaled_matmul(row, t):
    rows = sample(row.numbers[0])
    a = t["a"][rows].double() * t["rows"][:, rows].t().double().repeat_interleave(GROUP, 1)
    b = t["b"].double() * t["columns"].t().double().repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)
    return {"c": (rows, a @ b.t(), a.abs() @ b.t().abs())}


def _expect_batched_matmul(row, t):
    rows = sample(row.numbers[1])
    at = (slice(None), rows)
    a, b = t["a"][at].double(), t["b"].double()
    return {"c": (at, a @ b, a.abs() @ b.abs())}


def _expect_attention(row, t):
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


def _expect_attention_backward(row, t):
    """All of the first head and the last one: gradients in f64, and the magnitudes of their terms."""
    batch, heads, sequence, d = row.numbers
    at = (torch.tensor([0, batch - 1], device="cuda"), torch.tensor([0, heads - 1], device="cuda"))
    found = {name: ([], []) for name in ("dq", "dk", "dv")}
    for b, h in zip(*(index.tolist() for index in at)):
        q, k, v, dout = (t[name][b, h].double() for name in ("q", "k", "v", "dout"))
        scores = q @ k.t() / math.sqrt(d)
        if row.causal:
            scores.masked_fill_(_behind(sequence, slice(None)), -math.inf)
        weights = torch.softmax(scores, -1)
        out = weights @ v
        steps = weights * (dout @ v.t() - (dout * out).sum(-1, keepdim=True)) / math.sqrt(d)
        sizes = weights * (dout.abs() @ v.abs().t() + (dout * out).abs().sum(-1, keepdim=True)) / math.sqrt(d)
        for name, value, size in (("dq", steps @ k, sizes @ k.abs()), ("dk", steps.t() @ q, sizes.t() @ q.abs()),
                                  ("dv", weights.t() @ dout, weights.t() @ dout.abs())):
            found[name][0].append(value)
            found[name][1].append(size)
    return {name: (at, torch.stack(values), torch.stack(sizes)) for name, (values, sizes) in found.items()}


def _expect_vadd_gather(row, t):
    return _expect_vadd(row, t)


def _expect_gather(row, t):
    want = t["x"][t["at"].long()].double()
    return {"y": (None, want, want.abs())}


def _expect_scatter(row, t):
    want = torch.empty_like(t["x"])
    want[t["at"].long()] = t["x"]
    return {"y": (None, want.double(), want.double().abs())}


def _expect_cumsum(row, t):
    rows = sample(row.numbers[0], 4096)
    x = t["x"][rows].double()
    return {"y": (rows, x.cumsum(1), x.abs().cumsum(1))}


def _expect_prefix_sum(row, t):
    return {"y": (None, t["x"].long().cumsum(0).double(), torch.ones((), dtype=torch.float64, device="cuda"))}


def _expect_histogram(row, t):
    want = torch.stack([(t["x"] == value).sum() for value in range(256)]).double()
    return {"bins": (None, want, want)}


def _expect_stencil(row, t):
    x = torch.nn.functional.pad(t["x"].double(), (1, 1, 1, 1))
    parts = [x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:], -4 * x[1:-1, 1:-1]]
    return {"y": (None, sum(parts), sum(part.abs() for part in parts))}


def _expect_embedding(row, t):
    want = t["table"][t["ids"].long()].double()
    return {"out": (None, want, want.abs())}


def _expect_argmax(row, t):
    n, one = row.numbers[1], torch.ones((), dtype=torch.float64, device="cuda")
    largest = t["x"].amax(1)
    columns = torch.arange(n, device="cuda")
    first = torch.where(t["x"] == largest[:, None], columns, n).amin(1)
    return {"index": (None, first.double(), one), "value": (None, largest.double(), one)}


def _expect_welford(row, t):
    x = t["x"].double()
    mean, variance = x.mean(1), x.var(1, unbiased=False)
    # A thousandth of the variance: the mean is a thousand deviations from zero.
    return {"mean": (None, mean, mean.abs()), "variance": (None, variance, 250 * variance)}


def _mean(function, *tensors):
    """The mean of a function of the elements, in f64, in pieces."""
    count, total = tensors[0].numel(), 0.0
    for start in range(0, count, 1 << 25):
        total += function(*(tensor[start:start + (1 << 25)].double() for tensor in tensors)).sum().item()
    return total / count


def _moments(x, expected):
    """The largest distance of a mean from what is expected, in standard errors; of (function, mean, deviation of one element)."""
    worst = max((abs(_mean(function, x) - mean) / deviation for function, mean, deviation in expected), key=lambda z: (math.isnan(z), z))
    return worst * math.sqrt(x.numel())


def _beside(x, mean, variance):
    """Neighbours, and elements at larger distances, have nothing to do with each other: in standard errors."""
    count = x.numel()
    distances = [distance for distance in (1, 2, 4, 32, 1024, 4096, 1 << 20, count // 2) if distance <= count // 2]
    return max(abs(_mean(lambda a, b: (a - mean) * (b - mean), x[:-distance], x[distance:])) / variance * math.sqrt(count - distance)
               for distance in distances)


def _judge_random_normal(row, t):
    """Four moments; NaN and infinities show in them."""
    y = t["y"]
    moments = ((lambda x: x, 0, 1), (lambda x: x**2, 1, math.sqrt(2)), (lambda x: x**3, 0, math.sqrt(15)), (lambda x: x**4, 3, math.sqrt(96)))
    return max(_moments(y, moments), _beside(y, 0, 1)) if y.isfinite().all() else math.inf


def _judge_random_uniform(row, t):
    y = t["y"]
    if not (y.isfinite().all() and y.min() >= 0 and y.max() <= 1):
        return math.inf
    moments = ((lambda x: x, 1 / 2, 1 / math.sqrt(12)), (lambda x: (x - 0.5)**2, 1 / 12, 1 / math.sqrt(180)), (lambda x: (x - 0.5)**4, 1 / 80, 1 / 60))
    return max(_moments(y, moments), _beside(y, 0.5, 1 / 12))


def _judge_dropout(row, t):
    """A tenth is dropped, at random, and the same in both passes; the others are scaled."""
    keep = 0.9
    forward, backward = t["y"] != 0, t["dx"] != 0
    # A zero may have been kept or not; the other pass says which.
    unclear = (t["x"] == 0) | (t["dy"] == 0)
    if ((forward != backward) & ~unclear).any():
        return math.inf
    kept = forward | backward
    if max(_moments(kept, ((lambda x: x, keep, math.sqrt(keep * (1 - keep))),)), _beside(kept, keep, keep * (1 - keep))) > STATISTICS:
        return math.inf
    worst = 0.0
    for to, of in (("y", "x"), ("dx", "dy")):
        for start in range(0, kept.numel(), 1 << 25):
            part = slice(start, start + (1 << 25))
            want = t[of][part].double() / keep * kept[part]
            error = ((t[to][part].double() - want).abs() / want.abs().clamp(min=1e-30)).max().item()
            worst = math.inf if math.isnan(error) else max(worst, error)
    return worst


def _expect_sum(row, t):
    x = t["x"].double()
    return {"total": (None, x.sum().view(1), x.abs().sum().view(1))}


def _expect_sort(row, t):
    rows = sample(row.numbers[0], 4096)
    want = t["x"][rows].sort(1).values.double()
    return {"y": (rows, want, torch.ones((), dtype=torch.float64, device="cuda"))}


def _judge_top_k(row, t):
    """The largest in order, and for each a place of its own that has it: of equal ones any may come first."""
    k = row.numbers[2]
    value, index = t["value"][:, :k], t["index"][:, :k].long()
    if ((index < 0) | (index >= row.numbers[1])).any():
        return math.inf
    right = (value == t["x"].topk(k, 1).values).all() and (t["x"].gather(1, index) == value).all()
    distinct = (index.sort(1).values.diff(dim=1) > 0).all()
    return 0.0 if right and distinct else math.inf


def _expect_quantized_matmul(row, t):
    rows = sample(row.numbers[0])
    x, weights = t["x"][rows].double(), _unpacked(row, t)
    return {"y": (rows, x @ weights, x.abs() @ weights.abs())}


def _expect_fft(row, t):
    want = torch.view_as_real(torch.fft.fft(torch.view_as_complex(t["x"].double()), dim=1))
    return {"y": (None, want, want.square().mean().sqrt())}
