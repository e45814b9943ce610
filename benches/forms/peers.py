"""Times of torch (cuBLAS, cuDNN, cuSOLVER, flash attention) at the sizes of families of forms.

    python3 benches/forms/peers.py [FAMILY]...

Words are parts of names of families; none: all of them. The forms are run before or after it on the
same machine: `cargo bench --bench forms -- FAMILY`. Long products run at the power limit, so only a
run of both in turns gives ratios within 3 percent.
"""

import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compare"))
import measure  # noqa: E402

PEERS = []


def peer(family, library, flops=0.0, bytes_=0.0):
    """Registers a function that makes the arrays and returns a launch."""

    def register(make):
        PEERS.append((family, library, flops, bytes_, make))
        return make

    return register


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


@peer("convolution 3x3 f16 32x56x56x256 to 256", "cuDNN", flops=2.0 * 32 * 56 * 56 * 9 * 256 * 256)
def convolution():
    torch.backends.cudnn.benchmark = True
    x = normal(32, 256, 56, 56, dtype=torch.float16).to(memory_format=torch.channels_last)
    w = normal(256, 256, 3, 3, dtype=torch.float16).to(memory_format=torch.channels_last)
    return lambda: torch.nn.functional.conv2d(x, w, padding=1)


def product(family, dtype, m, n, k, library="cuBLAS", tf32=False):
    def make():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
        y = torch.empty(m, n, device="cuda", dtype=dtype)
        return lambda: torch.matmul(a, b, out=y)

    peer(family, library, flops=2.0 * m * n * k)(make)


for n in (2048, 4096):
    product(f"numbers f64 {n}x{n}x{n}", torch.float64, n, n, n)
    product(f"numbers f32 {n}x{n}x{n}", torch.float32, n, n, n)
product("product f16 4096x4096x4096", torch.float16, 4096, 4096, 4096)
product("conversion, u4 x f16 4096x4096x4096", torch.float16, 4096, 4096, 4096, "cuBLAS with f16 weights")
product("conversion, u4 x f16 16x8192x8192", torch.float16, 16, 8192, 8192, "cuBLAS with f16 weights")
product("conversion, i8 x f16 16x4096x4096", torch.float16, 16, 4096, 4096, "cuBLAS with f16 weights")
product("short k product bf16 65536x1024x1024", torch.bfloat16, 65536, 1024, 1024)


@peer("grouped product bf16 8192x4096x4096 in 8 groups", "torch", flops=2.0 * 8192 * 4096 * 4096)
def grouped():
    lengths = [1717, 305, 911, 2050, 64, 1403, 0, 1742]
    a, b = normal(8192, 4096, dtype=torch.bfloat16), normal(8, 4096, 4096, dtype=torch.bfloat16)
    offsets = torch.tensor(lengths, device="cuda").cumsum(0).to(torch.int32)
    return lambda: torch._grouped_mm(a, b, offs=offsets)


@peer("cholesky f32 10000 of 32x32", "cuSOLVER", bytes_=2.0 * 4 * 10000 * 32 * 32)
def cholesky():
    a = normal(10000, 32, 32)
    a = a @ a.transpose(1, 2) + 32 * torch.eye(32, device="cuda")
    return lambda: torch.linalg.cholesky_ex(a)


@peer("softmax f32 1024x131072", "torch", bytes_=8.0 * 1024 * 131072)
def softmax():
    x = normal(1024, 131072)
    return lambda: torch.softmax(x, 1)


@peer("softmax f32 1024x131072", "copy", bytes_=8.0 * 1024 * 131072)
def copy():
    x, y = normal(1024, 131072), torch.empty(1024, 131072, device="cuda")
    return lambda: y.copy_(x)


@peer("numbers sinkhorn f32 8192x8192", "torch logsumexp", bytes_=4.0 * 8192 * 8194)
def logsumexp():
    x = normal(8192, 8192)
    return lambda: torch.logsumexp(x, 0)


@peer("group norm bf16", "torch", bytes_=4.0 * 32 * 512 * 64 * 64)
def group_norm():
    x, w, b = normal(32, 512, 64, 64, dtype=torch.bfloat16), *(normal(512, dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.nn.functional.group_norm(x, 32, w, b)


@peer("top-k 8 of 128, 65536 rows", "torch", bytes_=4.0 * 65536 * (128 + 8 + 8))
def top_k():
    x = normal(65536, 128)
    return lambda: torch.topk(x, 8, 1)


@peer("attention bf16 4x32x4096x128 full", "torch", flops=4.0 * 4 * 32 * 4096 * 4096 * 128)
def attention():
    q, k, v = (normal(4, 32, 4096, 128, dtype=torch.bfloat16) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


@peer("order of keys u32 67108864", "torch sort", bytes_=8.0 * 67108864)
def sort():
    x = torch.randint(-(2**31), 2**31 - 1, (67108864,), device="cuda", dtype=torch.int32)
    return lambda: torch.sort(x)


def main():
    words = sys.argv[1:]
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for family, library, flops, bytes_, make in PEERS:
        if words and not any(word in family for word in words):
            continue
        try:
            launch = make()
            candidate = measure.Candidate(library, family, lambda _: launch())
            launch()
            torch.cuda.synchronize()
            measure.screen(candidate, 1)
            measure.finals([candidate], 1, 3, 20e-3)
        except (RuntimeError, AttributeError) as error:
            print(f"{family}: {library}: {str(error).splitlines()[0]}")
            continue
        seconds = statistics.median(candidate.times)
        rates = [f"{flops / seconds / 1e12:.1f} TFLOP/s"] * bool(flops) + [f"{bytes_ / seconds / 1e12:.2f} TB/s"] * bool(bytes_)
        print(f"{family}: {library}: {seconds * 1e6:.1f} us, {', '.join(rates)}", flush=True)
        del launch, candidate
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
