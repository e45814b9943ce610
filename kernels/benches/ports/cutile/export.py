"""Compiles kernels in cuTile Python to cubins of sm_90, with a manifest of their launches. No GPU is needed.

    export.py TILEGYM CUTILE FLASHINFER FOLDER [ROW]...

TILEGYM is a folder with the package `tilegym`; CUTILE and FLASHINFER are checkouts of https://github.com/NVIDIA/cutile-python and
https://github.com/flashinfer-ai/flashinfer. Their code stays there. The packages that their modules import beside `cuda.tile` are
replaced by stubs, because the kernels themselves use none. `tileiras` is on PATH. Cubins that exist are kept.

Lines of `FOLDER/manifest.tsv`:

    row    ROW
    launch ROW  configuration  lines of kernel code of the original  cubin  grid  arguments

The word `clear` in place of a cubin stands for zeros in an array.
"""
import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

sys.path.append(str(Path(__file__).resolve().parents[1]))
import more  # noqa: E402
from launches import A, Clear, F, I, L, Launch, MULTIPROCESSORS, Row, power, up  # noqa: E402
from lines import original_lines, our_lines  # noqa: E402
from originals import Finder  # noqa: E402

TARGET, ENTRY = "sm_90", "kernel"


def rows():
    for element, m, n in (("bf16", 8192, 8192), ("bf16", 32768, 1024), ("f32", 4096, 32768)):
        x, y = A("x", element, (m, n)), A("y", element, (m, n))
        tile = power(n)
        configurations = {
            **{f"persistent, {warps} warps": [Launch("_softmax_kernel", (min(MULTIPROCESSORS * 4, m),), (y, x, m, tile, n),
                                                     {"num_worker_warps": warps} if warps else {})] for warps in (None, 4, 8)},
            **{f"persistent, TMA, occupancy {occupancy}":
               [Launch("_softmax_kernel_tma", (min(MULTIPROCESSORS * occupancy, m),), (y, x, m, n, tile), {"occupancy": occupancy})]
               for occupancy in (2, 4, 6, 8)},
            "row a block": [Launch("_softmax_kernel_multi_wave_full_row_reg_cached_ldg", (m,), (y, x, n, tile))],
            "chunks": [Launch("_softmax_kernel_chunked", (min(MULTIPROCESSORS * 4, m),), (y, x, m, n, min(8192, tile)))],
        }
        yield Row(f"softmax {element} {m} {n}", "ops/cutile/softmax", configurations)
    for m, n in ((8192, 8192), (32768, 2048)):
        x, y, w, r = A("x", "bf16", (m, n)), A("y", "bf16", (m, n)), A("w", "bf16", (n,)), A("rstd", "f32", (m,))
        tile = power(n)
        rows_of_tile = 16 if tile <= 1024 else 2 if tile >= 16384 else 4
        configurations = {
            "persistent": [Launch("_rms_norm_kernel_static_persistent", (min(MULTIPROCESSORS, up(m, rows_of_tile)),),
                                  (x, y, w, r, rows_of_tile, tile, 1e-5, 0.0))],
            "row a block": [Launch("_rms_norm_kernel_multi_wave_cached", (m,), (x, w, y, r, n, 1e-5, 0.0, tile))],
            "reload": [Launch("_rms_norm_kernel_gather", (m,), (x, w, y, r, n, 1e-5, 0.0, min(2048, tile)))],
        }
        yield Row(f"rms_norm bf16 {m} {n}", "ops/cutile/rms_norm", configurations)
        b, mean = A("b", "bf16", (n,)), A("mean", "f32", (m,))
        configurations = {
            f"{block} rows, {warps} warps":
                [Launch("_persistent_layer_norm_fwd_kernel", (min(MULTIPROCESSORS, up(m, block)),),
                        (x, y, w, b, mean, r, m, n, 1e-5, n, n, 0, 1, block, tile, 1, min(MULTIPROCESSORS, up(m, block))),
                        {"num_worker_warps": warps})]
            for block in (1, 2, 4, 8) for warps in (4, 8) if block * tile <= 65536
        }
        configurations["row a block"] = [Launch("_layer_norm_fwd_kernel", (m,), (x, y, w, b, mean, r, n, 1e-5, 0.0, tile))]
        yield Row(f"layer_norm bf16 {m} {n}", "ops/cutile/layer_norm_legacy", configurations)
    batch, heads, key_heads, length, dim = 4, 32, 8, 4096, 128
    q, k = (A(name, "bf16", (batch, h, length, dim)) for name, h in (("q", heads), ("k", key_heads)))
    cos, sin = A("cos", "bf16", (1, length, dim)), A("sin", "bf16", (1, length, dim))
    yield Row(f"rope bf16 {batch} {heads}+{key_heads} {length} {dim}", "ops/cutile/rope", {"in place": [Launch("_rope_kernel", (batch * length,), (q, k, cos, sin, 1, length, heads, key_heads, dim // 2))]})
    for m, n in ((8192, 14336), (4096, 8192)):
        a, b, y = (A(name, "bf16", (m, n)) for name in "aby")
        yield Row(f"swiglu bf16 {m} {n}", "ops/cutile/swiglu", {"row a block": [Launch("_swiglu_forward_kernel", (m,), (a, b, y, power(n), power(n) != n))]})
    for element, m, n, k in (("f16", 4096, 4096, 4096), ("bf16", 8192, 8192, 8192)):
        a, b, c = A("a", element, (m, k)), A("b", element, (k, n)), A("y", element, (m, n))
        configurations = {}
        # Its own lists of configurations, and tiles that suit Hopper.
        for tm, tn, tk, ctas, occupancy in ((128, 128, 32, 1, 1), (256, 256, 64, 2, 1), (128, 256, 64, 1, 1), (128, 128, 64, 1, 1),
                                            (128, 128, 64, 1, 2), (256, 128, 64, 1, 1)):
            blocks = up(m, tm) * up(n, tn)
            hints = {"num_ctas": ctas, "occupancy": occupancy}
            label = f"{tm} x {tn} x {tk}, {ctas} CTAs, occupancy {occupancy}"
            configurations[label] = [Launch("_matmul_kernel", (blocks,), (a, b, c, tm, tn, tk), hints)]
            configurations[label + ", persistent"] = [
                Launch("_static_persistent_matmul_kernel", (min(MULTIPROCESSORS // ctas, blocks) * occupancy,),
                       (a, b, c, I(m), I(n), I(k), tm, tn, tk, False, False, 8, -1), hints)]
        yield Row(f"matmul {element} {m} {n} {k}", "ops/cutile/matmul", configurations)
    batch, heads, length, dim = 4, 32, 4096, 128
    q, k, v, y = (A(name, "bf16", (batch, heads, length, dim)) for name in "qkvy")
    tiles = ((256, 128, 1, 1), (128, 128, 1, 2), (256, 128, 1, 2), (128, 128, 1, 1), (128, 64, 1, 2))
    for causal in (True, False):
        configurations = {
            f"{tm} x {tn}, occupancy {occupancy}":
                [Launch("_fmha_kernel", (up(length, tm), batch * heads, 1),
                        (q, k, v, y, F(dim ** -0.5), I(0), dim, heads, tm, tn, 1, causal, length % tn == 0),
                        {"num_ctas": ctas, "occupancy": occupancy})]
            for tm, tn, ctas, occupancy in tiles
        }
        yield Row(f"attention {'causal' if causal else 'full'} bf16 {batch} {heads} {length} {dim}", "ops/cutile/attention", configurations)
    batch, heads, key_heads, length, dim, window, cap = 2, 16, 8, 8192, 128, 1024, 50.0
    q, y = (A(name, "bf16", (batch, heads, length, dim)) for name in "qy")
    k, v = (A(name, "bf16", (batch, key_heads, length, dim)) for name in "kv")
    for window in (0, 1024):
        configurations = {
            f"{tm} x {tn}, occupancy {occupancy}":
                [Launch("_gemma_fmha_kernel", (up(length, tm), batch * heads, 1),
                        (q, k, v, y, F(dim ** -0.5), batch, heads, length, length, dim, tm, tn, heads // key_heads, 3, window, cap, True,
                         length % tn == 0), {"num_ctas": 1, "occupancy": occupancy})]
            for tm, tn, occupancy in ((128, 128, 2), (256, 128, 1), (64, 32, 2), (64, 64, 2), (128, 64, 2))
        }
        yield Row(f"attention softcap {f'window {window} ' if window else ''}bf16 {batch} {heads}+{key_heads} {length} {dim}",
                  "ops/cutile/gemma_attention", configurations)


def more_rows():
    """Kernels of section "ports" in docs, beside those of `rows`."""
    m, n = 4096, 8192
    x, s, y = (A(name, "f32", (m, n)) for name in ("x", "sorted", "y"))
    yield Row(f"sparsemax f32 {m} {n}", "suites/liger/cutile/sparsemax", {
        f"{warps} warps, occupancy {occupancy}":
            [Launch("_sparsemax_fwd_kernel", (m,), (y, x, s, n, power(n)), {"num_worker_warps": warps, "occupancy": occupancy})]
        for occupancy in (2, 4, 8) for warps in (4, 8)
    })
    batch, heads, value_heads, dim = 64, 16, 32, 128
    q, k = (A(name, "bf16", (batch, 1, heads, dim)) for name in "qk")
    v, y = (A(name, "bf16", (batch, 1, value_heads, dim)) for name in "vy")
    gates, rates = (A(name, "f32", (batch, 1, value_heads)) for name in ("gates", "rates"))
    state, after = (A(name, "f32", (batch, value_heads, dim, dim)) for name in ("state", "after"))
    common = (q, k, v, gates, rates, y, state, after, F(dim ** -0.5), True, True, False, dim)
    configurations = {}
    for columns in (16, 32, 64, 128):
        for occupancy in (1, 2, 4):
            grid, hints = (batch * value_heads, dim // columns, 1), {"occupancy": occupancy}
            configurations[f"{columns} columns, occupancy {occupancy}"] = [
                Launch("_recurrent_gated_delta_rule_fwd_kernel", grid, (*common, columns, True, True, 1), hints)]
            if occupancy == 2:
                for part in (8, 16, 32):
                    if 2 * part <= columns:
                        configurations[f"{columns} columns, {part} at a time"] = [
                            Launch("_recurrent_gated_delta_rule_fwd_kernel_decode_vstream", grid, (*common, columns, True, True, part), hints)]
        configurations[f"{columns} columns, persistent"] = [
            Launch("_recurrent_gated_delta_rule_fwd_kernel_persistent", (MULTIPROCESSORS,), (*common, columns, True, True, 1), {"occupancy": 2})]
    yield Row(f"gated delta step bf16 {batch} {heads}+{value_heads} {dim}", "ops/cutile/recurrent_gated_delta_rule", configurations)
    for tokens, taken, experts, tile in ((8192, 8, 128, 64), (512, 8, 256, 16)):
        pairs = tokens * taken
        places = pairs + experts * (tile - 1)
        chosen, order = A("chosen", "i32", (pairs,)), A("order", "i32", (places,))
        programs = max(experts, up(pairs, 128))
        each = up(pairs, programs)
        part, wide = min(power(each), 256), power(experts)
        of_tile, counts = A("of_tile", "i32", (up(places, tile),)), A("counts", "i32", ((programs + 1) * experts,))
        starts, total, most = A("starts", "i32", (experts + 1,)), A("total", "i32", (1,)), A("most", "i32", (1,))
        names = [f"_moe_align_block_size_stage{i}_kernel" for i in ("1", "2", "3", "4b_scatter")]
        yield Row(f"moe alignment {tokens} {taken} {experts} {tile}", "ops/cutile/moe_align_block", {"four launches": [
                      Clear(counts), Clear(starts),
                      Launch(names[0], (programs,), (chosen, counts, experts, pairs, each, part, wide)),
                      Launch(names[1], (experts,), (counts, experts, power(programs))),
                      Launch(names[2], (1,), (total, most, counts, starts, experts, tile, programs)),
                      Launch(names[3], (programs,), (chosen, order, of_tile, counts, starts, experts, tile, pairs, each, part, wide))]})


def attention():
    """Attention of other forms."""
    batch, heads, length, dim, window = 4, 16, 8192, 64, 255
    q, k, v, y = (A(name, "bf16", (batch, heads, length, dim)) for name in "qkvy")
    configurations = {}
    for tm, tn, occupancy in ((64, 64, 1), (64, 64, 2), (128, 64, 1), (128, 64, 2), (128, 128, 1), (128, 128, 2), (64, 128, 2)):
        logs = A("logs", "f32", (batch * heads * length,))
        configurations[f"{tm} x {tn}, occupancy {occupancy}"] = [
            Launch("_fna_fused_forward_kernel", (batch * heads, up(length, tm), 1),
                   (q, k, v, y, logs, F(dim ** -0.5), I(heads), I(length), dim, window, 1, tm, tn, I(length)), {"occupancy": occupancy})]
    yield Row(f"neighborhood attention {window} bf16 {batch} {heads} {length} {dim}", "suites/liger/cutile/fused_neighborhood_attention", configurations)
    for batch, heads, length in ((64, 128, 8192), (16, 16, 16384)):
        latent, rotated, tile = 512, 64, 128
        each = max(tile, power(length // max(1, MULTIPROCESSORS // batch)))
        splits = up(length, each)
        q, y = (A(name, "bf16", (batch, heads, latent)) for name in ("q", "y"))
        of_place, vectors, places = A("qpe", "bf16", (batch, heads, rotated)), A("kv", "bf16", (batch, length, latent)), A(
            "kpe", "bf16", (batch, length, rotated))
        parts, logs = A("parts", "bf16", (batch, heads, splits, latent)), A("logs", "f32", (batch, heads, splits))
        first = Launch("_naive_absorb_mla_transpose_kernel", (up(heads, 16), batch, splits),
                       (q, of_place, vectors, vectors, places, parts, logs, F((latent + rotated) ** -0.5), I(batch), I(heads), I(length),
                        splits, each, latent, 16, tile, rotated, length % tile == 0))
        second = Launch("_splitk_reduce_kernel", (batch, heads, latent // 128),
                        (parts, logs, y, batch, length, heads, latent, splits, power(splits), 128, power(splits) >= 16),
                        module="ops/cutile/splitk_reduce")
        yield Row(f"latent decode bf16 {batch} {heads} {length} {latent}+{rotated}", "ops/cutile/mla_decoding_split_kv", {"split": [first, second]})


def sparse():
    """Latent attention with chosen keys: those of a query are at or before its position."""
    queries, heads, taken, latent, rotated = 2048, 128, 1024, 512, 64
    q, y = (A(name, "bf16", (1, heads, queries, latent)) for name in ("by_heads", "y"))
    of_place = A("qpe", "bf16", (1, heads, queries, rotated))
    vectors, places = A("kv", "bf16", (1, 1, queries, latent)), A("kpe", "bf16", (1, 1, queries, rotated))
    chosen = A("chosen", "i32", (1, queries, 1, taken))
    yield Row(f"sparse latent attention bf16 {queries} {heads} {taken} {latent}+{rotated}", "ops/cutile/experimental/sparse_mla", {
        f"{th} heads, {tn} keys": [Launch("_sparse_mla_fwd_kernel", (queries, heads // th),
                                          (q, vectors, vectors, chosen, of_place, places, y, F((latent + rotated) ** -0.5), latent, rotated,
                                           heads, tn, I(taken // tn), heads, th, heads // th))]
        for th, tn in ((16, 16), (16, 32), (16, 64), (32, 16), (32, 32), (32, 64), (64, 16))})


def groups():
    """Products of groups of rows."""
    experts, each, n, k, tile = 32, 512, 2048, 4096, 128
    m = experts * each
    x, w, y = A("x", "bf16", (m, k)), A("w", "bf16", (experts * n, k)), A("y", "bf16", (m, n))
    sizes, order = A("sizes", "i32", (experts,)), A("order", "i32", (m,))
    yield Row(f"grouped product bf16 {experts} {m} {n} {k}", "suites/unsloth/cutile/grouped_gemm", {
        f"{tn} x {tk}, {hints}": [Launch("_grouped_gemm_fwd_kernel_ct", (MULTIPROCESSORS,),
                                         (x, w, y, sizes, order, n, k, m, experts, MULTIPROCESSORS, tile, tn, tk, 0, 0, 1), hints)]
        for tn, tk in ((128, 128), (128, 64)) for hints in ({}, {"occupancy": 1}, {"occupancy": 2}, {"num_worker_warps": 8})})


def experts():
    """Products of tokens with the weights of their experts. Each expert has as many tokens."""
    tokens, taken, count, n, k = 4096, 8, 64, 2816, 2048
    pairs = tokens * taken
    x, w, y = A("x", "bf16", (tokens, k)), A("w", "bf16", (count, n, k)), A("y", "bf16", (pairs, n))
    weights, order = A("weights", "f32", (pairs,)), A("order", "i32", (pairs,))
    yield Row(f"experts bf16 {tokens} {taken} {count} {n} {k}", "samples/MoE", {
        f"{tm} x {tn} x {tk}, {hints}": [Launch("fused_moe_kernel", (up(pairs, tm) * up(n, tn),),
                                                (x, w, y, weights, order, A("of_tile", "i32", (pairs // tm,)), I(taken), False, tm, tn, tk), hints)]
        for tm, tn, tk in ((128, 128, 64), (128, 256, 64)) for hints in ({}, {"occupancy": 1}, {"occupancy": 2})})


def recurrences():
    """Recurrences by chunks."""
    batch, tokens, heads, dim = 2, 4096, 32, 128
    q, k, v = (A(name, "bf16", (batch, tokens, heads, dim)) for name in "qkv")
    gates, rates = (A(name, "f32", (batch, tokens, heads)) for name in ("gates", "rates"))
    none, last = A("none", "f32", (1, 1, 1, 1)), A("last", "f32", (batch, heads, dim, dim))
    configurations = {}
    # 64 steps are the default of its host code.
    for steps in (64, 32, 16):
        chunks = tokens // steps
        parts = [A(name, "bf16", (batch, heads, chunks, steps, dim)) for name in ("of_q", "of_k", "of_v", "decayed")]
        sums, out = A("sums", "f32", (batch, heads, chunks, steps)), A("out", "f32", (batch, heads, chunks, steps, dim))
        first = Launch("_intra_chunk_prepare_kernel", (batch * heads, chunks, 1), (
            q, k, v, rates, gates, *parts, sums, I(tokens), I(dim), I(dim), F(dim ** -0.5), heads, False, steps, dim,
            (steps - 1).bit_length(), True))
        for columns in (128, 64):
            second = Launch("_chunk_inter_recurrence_kernel", (batch * heads, dim // columns, 1),
                            (*parts, sums, out, none, last, I(chunks), I(dim), I(dim), heads, False, True, steps, dim, columns))
            configurations[f"{steps} steps, {columns} columns"] = [first, second]
    yield Row(f"gated delta chunks bf16 {batch} {tokens} {heads} {dim}", "ops/cutile/chunk_gated_delta_rule", configurations)


def losses():
    """Losses of language models."""
    batch, tokens, columns = 4, 1024, 128256
    x, dx = (A(name, "bf16", (batch * (tokens + 1), columns)) for name in "xy")
    old, reference, loss, logs, kl, clipped, dloss = (
        A(name, "f32", (batch, tokens)) for name in ("old", "reference", "loss", "logs", "kl", "clipped", "dloss"))
    chosen, mask = (A(name, "i32", (batch, tokens)) for name in ("chosen", "mask"))
    advantages, none = A("advantages", "f32", (batch,)), A("none", "f32", (1,))
    tile = min(8192, columns)
    sizes = (batch, tokens, columns, tile, F(1.0), 0.04, F(0.2), F(0.2), 0, F(1.0), F(1.0), F(0.0), 0, 1, 1, 0, I(1))
    hints = [{"num_worker_warps": warps, "occupancy": occupancy} for occupancy in (1, 2, 4) for warps in (4, 8)] + [{}]
    yield Row(f"grpo bf16 {batch} {tokens} {columns}", "suites/liger/cutile/grpo_loss", {
        str(of): [Launch("_grpo_loss_fwd_ct", (batch, tokens), (x, old, reference, chosen, mask, advantages, none, none, loss, logs, kl,
                                                               clipped, *sizes), of)] for of in hints})
    yield Row(f"grpo backward bf16 {batch} {tokens} {columns}", "suites/liger/cutile/grpo_loss", {
        str(of): [Launch("_grpo_loss_bwd_ct", (batch, tokens), (dloss, dx, x, old, reference, chosen, advantages, mask, logs, none, none,
                                                               *sizes), of)] for of in hints})


def export(folder, module, launch):
    if isinstance(launch, Clear):
        return "clear", "1,1,1", launch.array.text()
    signature = KernelSignature([a.constraint() if isinstance(a, (A, F, I, L)) else a for a in launch.arguments],
                                CallingConvention.cutile_python_v1(), symbol=ENTRY)
    source = Path(module.__file__).read_text()
    identity = hashlib.sha256(repr((ct.__version__, source, launch.kernel, signature.parameters, sorted(launch.hints.items()),
                                    TARGET)).encode()).hexdigest()
    path = folder / f"{launch.kernel.strip('_')}-{identity[:16]}.cubin"
    if not path.exists():
        part = path.with_suffix(f".part{os.getpid()}")
        kernel = getattr(module, launch.kernel)
        kernel = kernel.replace_hints(**launch.hints) if launch.hints else kernel
        export_kernel(kernel, [signature], part, gpu_code=TARGET, output_format="cubin")
        part.rename(path)
    grid = ",".join(map(str, (*launch.grid, 1, 1)[:3]))
    return path.name, grid, " ".join(a.text() for a in launch.arguments if isinstance(a, (A, F, I, L)))


def main():
    *roots, folder = map(Path, sys.argv[1:5])
    words = sys.argv[5:]
    folder.mkdir(parents=True, exist_ok=True)
    finder = Finder(dict(zip(("tilegym", "samples", "flashinfer"), roots)), ("torch", "triton", "numpy"))

    def load(path):
        """The module of a file, such as ops/cutile/softmax or samples/MoE."""
        return finder.load(("" if path.partition("/")[0] in finder.roots else "tilegym.") + path.replace("/", "."))

    path = folder / "manifest.tsv"
    kept = path.read_text().splitlines() if path.exists() else []
    for row in (*rows(), *more_rows(), *attention(), *sparse(), *groups(), *experts(), *recurrences(), *losses(), *more.rows()):
        if words and not any(word in row.name for word in words):
            continue
        start, lines, names = time.perf_counter(), [("row", row.name)], {}
        # Kernels from which the original selects one by shapes and GPU; our kernel has these cases in it.
        for launch in (launch for launches in row.configurations.values() for launch in launches if launch.kernel):
            names.setdefault(load(launch.module or row.module).__file__, set()).add(launch.kernel)
        count = str(original_lines(names))
        for label, launches in row.configurations.items():
            try:
                made = [export(folder, load(launch.module or row.module), launch) for launch in launches]
            except Exception as fault:  # the assembler refuses it
                print(f"{row.name}, {label}: {' '.join(str(fault).split())[:300]}", file=sys.stderr, flush=True)
                continue
            lines += [("launch", row.name, label, count, *one) for one in made]
        kept = [line for line in kept if line.split("\t")[1] != row.name] + ["\t".join(line) for line in lines]
        path.write_text("\n".join(kept) + "\n")
        print(f"{row.name}: {len(lines) - 1} launches, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
