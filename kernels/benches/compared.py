"""The kernels and their peers in torch on one GPU, as a table.

    cargo bench -p cutlet-kernels --bench kernels --no-run     # prints the path of the program
    python3 kernels/benches/compared.py PROGRAM [ROW]...       # words are parts of names of rows
    python3 kernels/benches/compared.py PROGRAM --page docs/kernels-library.md [ROW]...

The program measures all rows first, the peers follow. Long products run at the power limit, so that
small differences of a ratio have no meaning. A peer is the fastest of the functions listed for its row.
A run on a GPU that heat or its host slows down does not change the page.
"""

import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches/compare"))
import measure  # noqa: E402
import slowdown  # noqa: E402

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "tf32": torch.float32}
PEERS = []


def peer(pattern, library="torch"):
    """Registers a function from the groups of a pattern to a launch with arrays of its own."""

    def register(make):
        PEERS.append((re.compile(pattern + "$"), library, make))
        return make

    return register


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def whole(*words):
    return [int(word) for word in words]


@peer(r"matmul (f16|bf16|f32|f64|tf32) (\d+) (\d+) (\d+)", "cuBLAS")
def matmul(name, *extents):
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    m, n, k = whole(*extents)
    a, b = normal(m, k, dtype=TYPES[name]), normal(k, n, dtype=TYPES[name])
    y = torch.empty(m, n, device="cuda", dtype=TYPES[name])
    return lambda: torch.matmul(a, b, out=y)


@peer(r"(?:split|stream)\w* (?:\w+ )*?f16 (\d+) (\d+) (\d+)", "cuBLAS")
def shared(*extents):
    return matmul("f16", *extents)


@peer(r"matmul_bias_gelu_residual f16 (\d+) (\d+) (\d+)", "cuBLAS and torch")
def fused(*extents):
    m, n, k = whole(*extents)
    a, b, r, bias = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (k, n), (m, n), (n,)))
    return lambda: nn.gelu(torch.addmm(bias, a, b)) + r


@peer(r"batched_matmul f16 (\d+) (\d+) (\d+) (\d+)", "cuBLAS")
def batched(*extents):
    count, m, n, k = whole(*extents)
    a, b = normal(count, m, k, dtype=torch.float16), normal(count, k, n, dtype=torch.float16)
    return lambda: torch.bmm(a, b)


@peer(r"grouped_matmul bf16 (\d+) (\d+) (\d+) (\d+)", "torch._grouped_mm")
def grouped(*extents):
    groups, m, n, k = whole(*extents)
    a, b = normal(m, k, dtype=torch.bfloat16), normal(groups, k, n, dtype=torch.bfloat16)
    ends = torch.sort(torch.randint(0, m, (groups - 1,), device="cuda")).values
    ends = torch.cat([ends, torch.tensor([m], device="cuda")]).to(torch.int32)
    return lambda: torch._grouped_mm(a, b, offs=ends)


@peer(r"packed_matmul \w+ f16 (\d+) (\d+) (\d+)(?: .*)?", "cuBLAS with f16 weights")
def packed(*extents):
    return matmul("f16", *extents)


@peer(r"prefill bf16 (\d+)x(\d+)(?:/(\d+))?x(\d+)x(\d+) (causal|full)(.*)", "torch SDPA")
def prefill(batch, heads, key_heads, tokens, dim, kind, rest):
    if rest:
        raise RuntimeError("SDPA has no such form")
    b, h, t, d = whole(batch, heads, tokens, dim)
    g = int(key_heads or heads)
    q, k, v = (normal(b, count, t, d, dtype=torch.bfloat16) for count in (h, g, g))
    return lambda: nn.scaled_dot_product_attention(q, k, v, is_causal=kind == "causal", enable_gqa=g != h)


@peer(r"decode bf16 4-bit cache (\d+)x(\d+)/(\d+)x(\d+)x(\d+) page \d+ groups of (\d+)", "torch SDPA of dequantised codes")
def packed_decode(*extents):
    b, h, g, t, d, group = whole(*extents)
    q = normal(b, h, 1, d, dtype=torch.bfloat16)
    shape = (b, g, t, d // group)
    cache = [
        (torch.randint(0, 256, (*shape, group // 2), device="cuda", dtype=torch.uint8), torch.rand(shape, device="cuda"))
        for _ in range(2)
    ]

    @torch.compile
    def numbers(codes, scales):
        both = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).to(torch.float32) - 8.0
        return (both * scales.unsqueeze(-1)).flatten(-2).to(torch.bfloat16)

    def launch():
        return nn.scaled_dot_product_attention(q, numbers(*cache[0]), numbers(*cache[1]), enable_gqa=g != h)

    return launch


@peer(r"backward bf16 (\d+)x(\d+)(?:/(\d+))?x(\d+)x(\d+) (causal|full)(?: deterministic)?", "torch SDPA")
def backward(batch, heads, key_heads, tokens, dim, kind):
    b, h, t, d = whole(batch, heads, tokens, dim)
    g = int(key_heads or heads)
    q, k, v = (normal(b, count, t, d, dtype=torch.bfloat16).requires_grad_() for count in (h, g, g))
    y = nn.scaled_dot_product_attention(q, k, v, is_causal=kind == "causal", enable_gqa=g != h)
    dy = torch.ones_like(y)
    return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)


@peer(r"(?:log_)?softmax (\w+) (\d+) (\d+)")
def softmax(name, rows, columns):
    x = normal(*whole(rows, columns), dtype=TYPES[name])
    return lambda: torch.softmax(x, 1)


@peer(r"rms_norm (\w+) (\d+) (\d+)")
def rms_norm(name, rows, columns):
    x, w = normal(*whole(rows, columns), dtype=TYPES[name]), normal(int(columns), dtype=TYPES[name])
    return lambda: nn.rms_norm(x, (int(columns),), w)


@peer(r"layer_norm (\w+) (\d+) (\d+)")
def layer_norm(name, rows, columns):
    x = normal(*whole(rows, columns), dtype=TYPES[name])
    w, b = (normal(int(columns), dtype=TYPES[name]) for _ in range(2))
    return lambda: nn.layer_norm(x, (int(columns),), w, b)


@peer(r"group_norm f16 (\d+) (\d+) (\d+) (\d+) 32")
def group_norm(*extents):
    x = normal(*whole(*extents), dtype=torch.float16)
    w, b = (normal(int(extents[1]), dtype=torch.float16) for _ in range(2))
    return lambda: nn.group_norm(x, 32, w, b)


@peer(r"cross_entropy (\w+) (\d+) (\d+)")
def cross_entropy(name, rows, columns):
    x = normal(*whole(rows, columns), dtype=TYPES[name])
    y = torch.randint(0, int(columns), (int(rows),), device="cuda")
    return lambda: nn.cross_entropy(x, y, reduction="none")


@peer(r"sort u32 2\^(\d+)", "torch (CUB pairs)")
def sort(log):
    x = torch.randint(-(2**31), 2**31 - 1, (1 << int(log),), device="cuda", dtype=torch.int32)
    return lambda: torch.sort(x)


@peer(r"sort u32 with u32 2\^(\d+)", "torch (CUB, 64-bit places)")
def sort_pairs(log):
    return sort(log)


@peer(r"prefix sum (i32|f64) 2\^(\d+)", "torch (CUB)")
def prefix_sum(name, log):
    dtype = torch.int32 if name == "i32" else torch.float64
    x = torch.ones(1 << int(log), device="cuda", dtype=dtype)
    y = torch.empty_like(x)
    return lambda: torch.cumsum(x, 0, dtype=dtype, out=y)


@peer(r"compact u32 2\^(\d+)")
def compact(log):
    x = torch.randint(-(2**31), 2**31 - 1, (1 << int(log),), device="cuda", dtype=torch.int32)
    return lambda: torch.masked_select(x, x > 0)


@peer(r"top-k f32 (\d+) (\d+) (\d+)")
def top_k(rows, columns, count):
    x = normal(*whole(rows, columns))
    return lambda: torch.topk(x, int(count), 1)


@peer(r"greedy f32 (\d+) (\d+)")
def greedy(rows, columns):
    x = normal(*whole(rows, columns))
    return lambda: torch.argmax(x, 1)


@peer(r"sample f32 (\d+) (\d+)")
def sample(rows, columns):
    x = normal(*whole(rows, columns))
    return lambda: torch.multinomial(torch.softmax(x, 1), 1)


@peer(r"fft c64 (\d+) 2\^(\d+)", "cuFFT")
def fft(rows, log):
    # With `out`, torch copies the result.
    x = torch.randn(int(rows), 1 << int(log), device="cuda", dtype=torch.complex64)
    return lambda: torch.fft.fft(x)


@peer(r"fill (uniform|normal) f32 2\^(\d+)")
def fill(kind, log):
    x = torch.empty(1 << int(log), device="cuda")
    return (lambda: x.uniform_()) if kind == "uniform" else (lambda: x.normal_())


CONVOLUTION = r" f16 (\d+) (\d+) (\d+) (\d+) to (\d+) by (\d+)x\d+/(\d+) groups (\d+)"


def convolution_arrays(batch, height, width, inputs, outputs, window, stride, groups):
    torch.backends.cudnn.benchmark = True
    b, h, w, c, n, f, s, g = whole(batch, height, width, inputs, outputs, window, stride, groups)
    layout = torch.channels_last
    x = normal(b, c, h, w, dtype=torch.float16).to(memory_format=layout)
    weights = normal(n, c // g, f, f, dtype=torch.float16).to(memory_format=layout)
    return x, weights, {"stride": s, "padding": f // 2, "groups": g}


@peer("convolution" + CONVOLUTION, "cuDNN")
def convolution(*extents):
    x, weights, how = convolution_arrays(*extents)
    return lambda: nn.conv2d(x, weights, **how)


def convolution_gradient(extents, mask):
    x, weights, how = convolution_arrays(*extents)
    dy = torch.ones_like(nn.conv2d(x, weights, **how))
    s, p, g = how["stride"], how["padding"], how["groups"]
    call = torch.ops.aten.convolution_backward
    return lambda: call(dy, x, weights, None, [s, s], [p, p], [1, 1], False, [0, 0], g, mask)


@peer("convolution input gradient" + CONVOLUTION, "cuDNN")
def input_gradient(*extents):
    return convolution_gradient(extents, [True, False, False])


@peer("convolution weight gradient" + CONVOLUTION, "cuDNN")
def weight_gradient(*extents):
    return convolution_gradient(extents, [False, True, False])


def matrices(count, n):
    a = normal(*whole(count, n, n))
    return a @ a.transpose(1, 2) + int(n) * torch.eye(int(n), device="cuda")


@peer(r"cholesky f32 (\d+) (\d+)", "cuSOLVER, MAGMA")
def cholesky(count, n):
    a = matrices(count, n)
    return lambda: torch.linalg.cholesky_ex(a)


@peer(r"lu f32 (\d+) (\d+)", "cuSOLVER, MAGMA")
def lu(count, n):
    a = matrices(count, n)
    return lambda: torch.linalg.lu_factor_ex(a)


@peer(r"qr f32 (\d+) (\d+)", "cuSOLVER, MAGMA")
def qr(count, n):
    a = matrices(count, n)
    return lambda: torch.geqrf(a)


@peer(r"solve f32 (\d+) (\d+) (\d+)", "cuSOLVER, MAGMA")
def solve(count, n, columns):
    a, b = matrices(count, n), normal(*whole(count, n, columns))
    return lambda: torch.linalg.solve_ex(a, b)


def time_of(launch):
    candidate = measure.Candidate("", "", lambda _: launch())
    launch()
    torch.cuda.synchronize()
    measure.screen(candidate, 1)
    measure.finals([candidate], 1, 3, 10e-3)
    return statistics.median(candidate.times)


def best_peer(name):
    """Returns the library and the microseconds of the fastest peer of a row."""
    best = None
    for pattern, library, make in PEERS:
        found = pattern.match(name)
        if not found:
            continue
        try:
            launch = make(*found.groups())
            micros = time_of(launch) * 1e6
        except (RuntimeError, AttributeError, TypeError) as error:
            print(f"{name}: {library}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        finally:
            launch = None
            torch.cuda.empty_cache()
        if best is None or micros < best[1]:
            best = (library, micros)
    return best


def table(program, words):
    """Yields the lines of the table, and ends with the status of the program."""
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    yield f"{torch.cuda.get_device_name()}, torch {torch.__version__}.\n"
    yield "| row | us | GB/s | TFLOP/s | roofline | peer | us | ratio |\n|---|---|---|---|---|---|---|---|"
    for line in done.stdout.splitlines():
        name, *cells = line.split("\t")
        if len(cells) < 4:
            print(line, file=sys.stderr)
            continue
        time, *rates = (cell.split()[0] for cell in cells)
        found = best_peer(name)
        theirs = ["", "", ""] if found is None else [found[0], f"{found[1]:.1f}", f"{found[1] / float(time):.2f}"]
        yield f"| {' | '.join([name, time, *rates, *theirs])} |"
    print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def main():
    program, *words = sys.argv[1:]
    page = None
    if "--page" in words:
        at = words.index("--page")
        page, words = Path(words[at + 1]), words[:at] + words[at + 2 :]
    clocks = slowdown.Slowdown()
    lines, rows = [], table(program, words)
    while True:
        try:
            lines.append(next(rows))
        except StopIteration as end:
            status = end.value
            break
        print(lines[-1], flush=True)
    share, *range_of_clocks = clocks.share()
    print(f"The GPU was {slowdown.told(share, *range_of_clocks)}", file=sys.stderr)
    if page is not None and share > slowdown.LIMIT:
        sys.exit("these times are not those of the kernels: the page stays as it was")
    if page is not None:
        before, after = re.split(r"(?<=<!-- table -->\n).*(?=<!-- end -->)", page.read_text(), flags=re.DOTALL)
        page.write_text(before + "\n".join(lines) + "\n" + after)
    sys.exit(status)


if __name__ == "__main__":
    main()
