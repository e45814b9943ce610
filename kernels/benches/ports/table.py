"""Renders outputs of the benchmark `ports` as a table of Markdown, with the geometric mean of the ratios.

    table.py OUTPUT... [--page PAGE]

Rows of later outputs replace those of earlier ones. With a page, its part from `<!-- table -->` to `<!-- end -->` is replaced.
"""
import re
import sys
from math import exp, log
from pathlib import Path

GYM, LIGER, FLASHINFER = "TileGym `ops/", "TileGym `suites/liger/", "TileGym `suites/flashinfer/"
# Begin of a row: kernel, and what the port needs.
NOTES = {
    "softmax": (GYM + "softmax.py`", "rows in registers, or by chunks with an online sum"),
    "rms_norm": (GYM + "rms_norm.py`", "rows in registers"),
    "layer_norm": (GYM + "layer_norm_legacy.py`", "rows in registers"),
    "rope": (GYM + "rope.py`", "halves of rows"),
    "swiglu": (GYM + "swiglu.py`", "fast exponentials"),
    "matmul": (GYM + "matmul.py`", "TMA, wgmma, persistent blocks"),
    "attention causal": (GYM + "attention.py`", "online softmax, rotated loop"),
    "attention full": (GYM + "attention.py`", "online softmax, rotated loop"),
    "attention softcap": (GYM + "gemma_attention.py`", "approximate tangent, two ranges of keys"),
    "attention slopes": (GYM + "attention_variant.py`", "closures in kernels"),
    "attention bias": (GYM + "attention_variant.py`", "closures in kernels, arrays as their arguments"),
    "packed attention": (GYM + "attention_varlen.py`", "slices at offsets of a table by TMA"),
    "neighborhood": (LIGER + "fused_neighborhood_attention.py`", "window of keys"),
    "latent decode": (GYM + "mla_decoding_split_kv.py`", "512 columns of sums in blocks, last block adds parts"),
    "sparse latent": (GYM + "experimental/sparse_mla.py`", "gathered rows as operand"),
    "paged decode": (FLASHINFER + "fmha_decode_bsr.py`", "rows of pages as operand"),
    "sink decode": (GYM + "attention_sink_decode.py`", "sinks of heads, last block adds parts"),
    "grouped product": ("TileGym `suites/unsloth/grouped_gemm.py`", "groups of rows that begin anywhere, by TMA"),
    "experts": ("cuTile Python `samples/MoE.py`", "gathered rows as operand"),
    "expert activation": (GYM + "moe_actgrad_bwd.py`", "gathered rows as operand, epilogue in strips, atomics"),
    "moe alignment": (GYM + "moe_align_block.py`", "histogram, prefix sums, scatter"),
    "sparsemax": (LIGER + "sparsemax.py`", "loop with a condition on a tile; no sort"),
    "gated delta step": (GYM + "recurrent_gated_delta_rule.py`", "state in registers"),
    "gated delta chunks": (GYM + "chunk_gated_delta_rule.py`", "inverse of unit lower triangles, carried state"),
    "mamba2": (GYM + "mamba2.py`", "prefix sums, carried state"),
    "grpo": (LIGER + "grpo_loss.py`", "online sums of groups of columns"),
    "FlashInfer's scaled": ("FlashInfer `gemm_fp8_nt_groupwise_cutile.py`", "e4m3, copied scales"),
    "scaled products of groups": (FLASHINFER + "gemm/ragged_block_scaled_bmm.py`", "groups that begin anywhere, e4m3 with scales"),
    "scaled product": (GYM + "fp8_quantization_matmul.py`", "e4m3, copied scales"),
    "hyper-connection": (GYM + "experimental/mhc.py`", "split product in one launch, squares of its operand"),
    "product of a list": ("cuTile Python `samples/AllGatherMatmul.py`", "arrays by run-time index"),
    "inverse of unit lower": ("flash-linear-attention `ops/utils/solve_tril.py`", "triangular inverse of a tile"),
    "kimi delta": ("flash-linear-attention `ops/kda/chunk_intra.py` and its chunks", "triangular inverse, carried state"),
    "log-linear": ("flash-linear-attention `ops/log_linear_attn/chunk.py`", "levels by bits of positions"),
    "sort": ("FlagGems `ops/sort.py`", "device-wide prefix sums by look-back"),
    "top-k selector": ("TileLang `examples/deepseek_v32/topk_selector.py`", "histograms of digits"),
    "top-k": ("FlagGems `ops/topk.py`", "histograms of digits"),
    "triangular system": ("FlagGems `ops/linalg_solve_triangular.py`", "flags between blocks, f64 products"),
    "convolution": ("TileLang `examples/convolution`", "im2col by TMA"),
    "sinkhorn": ("TileKernels `mhc/sinkhorn_kernel.py`", "loops on small tiles"),
    "quantize e5m6": ("TileKernels `quant/per_token_cast_to_e5m6_kernel.py`", "floats of 12 bits in bytes"),
    "fft": ("cuTile.jl `examples/fft.jl`", "complex pairs, DFT matrices"),
}


def measured(paths):
    """Device and fields of each row."""
    device, rows = "", {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            fields = line.split("\t")
            if len(fields) == 10 and fields[0] != "row":
                rows[fields[0]] = fields
            elif "NVIDIA" in line and "\t" not in line:
                device = line
    return device, rows


def table(device, rows):
    text = [f"{device}.", "", "| row | kernel | lines | lines of the original | time | time of the original | ratio | rate | needs |",
            "|---|---|---|---|---|---|---|---|---|"]
    ratios, shorter, kernels = [], [], set()
    for row, ours, theirs, ratio, our_lines, their_lines, rate, *_ in rows.values():
        kernel, needs = next((note for begin, note in NOTES.items() if row.startswith(begin)), ("", ""))
        kernels.add(kernel)
        text.append(f"| `{row}` | {kernel} | {our_lines} | {their_lines} | {ours} | {theirs} | {ratio} | {rate} | {needs} |")
        if ratio != "-":
            ratios.append(float(ratio))
            shorter.append((int(our_lines), int(their_lines)))
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        short = sum(a / b for a, b in shorter) / len(shorter)
        whole = sum(a for a, _ in shorter) / sum(b for _, b in shorter)
        text += ["", f"{len(kernels)} kernels in {len(rows)} rows, {len(ratios)} of them with a time of the original. Geometric mean of the "
                 f"ratios: {mean:.2f}; {sum(ratio < 1 for ratio in ratios)} ratios are below 1. Lines of cutlet over those of the original: "
                 f"{short:.2f} on average, {whole:.2f} in total."]
    return "\n".join(text) + "\n"


def main():
    words = sys.argv[1:]
    page = words[words.index("--page") + 1] if "--page" in words else None
    text = table(*measured(word for word in words if word not in ("--page", page)))
    if page is None:
        return print(text, end="")
    before, after = re.split(r"(?<=<!-- table -->\n).*(?=<!-- end -->)", Path(page).read_text(), flags=re.DOTALL)
    Path(page).write_text(before + text + after)


if __name__ == "__main__":
    main()
