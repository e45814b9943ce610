"""The table of the README, from one or several runs: python3 readme.py [--out FOLDER] comparison.json ...

Of a row that several files have, the last counts. `--out` also gets what `compare.py` writes, of all the rows together;
its comparison.svg is docs/comparison.svg.
"""

import argparse
import json
from pathlib import Path

import report

# In the order of the table; rows that stand in one line are separated by semicolons there.
TITLES = {
    "sum of vectors, f32, 2^27": ["vadd f32 134217728"],
    "saxpy, f32, 2^27": ["saxpy f32 134217728"],
    "transpose, f32, 8192²": ["transpose f32 8192 8192"],
    "softmax of rows, f32, 4096²": ["softmax f32 4096 4096"],
    "softmax of rows, f32, 32768 x 4096": ["softmax f32 32768 4096"],
    "layer normalisation, f32, 4096²": ["layernorm f32 4096 4096"],
    "layer normalisation, f32, 32768 x 4096": ["layernorm f32 32768 4096"],
    "its gradients, f32, 4096²": ["layernorm_backward f32 4096 4096"],
    "sum of vectors by gather and scatter, f32, 2^27": ["vadd_gather f32 134217728"],
    "gather at random, f32, 2^26 of 2^26": ["gather f32 67108864 67108864"],
    "scatter at random, f32, 2^26": ["scatter f32 67108864"],
    "rows of a table, f16, 32768 of 131072 x 4096": ["embedding f16 131072 4096 32768"],
    "five-point stencil, f32, 8192²": ["stencil f32 8192 8192"],
    "prefix sums of rows, f32, 32768 x 4096": ["cumsum f32 32768 4096"],
    "prefix sum, i32; f32, 2^28": ["prefix_sum i32 268435456", "prefix_sum f32 268435456"],
    "histogram of bytes, 2^28": ["histogram u8 268435456"],
    "argmax of rows, f32, 32768 x 4096": ["argmax f32 32768 4096"],
    "mean and variance of rows, f32, 32768 x 4096": ["welford f32 32768 4096"],
    "random numbers, f32, 2^27, normal; uniform": ["random_normal f32 134217728", "random_uniform f32 134217728"],
    "dropout and its gradient, f32, 2^26": ["dropout f32 67108864"],
    "sum, f32, 2^27": ["sum f32 134217728"],
    "rows sorted, f32, 32768 x 4096": ["sort f32 32768 4096"],
    "8 largest of 128, f32, 65536 rows": ["top_k f32 65536 128 8"],
    "50 largest of 2^17, f32, 256 rows": ["top_k f32 256 131072 50"],
    "Fourier transforms, c64, 4096 of 256": ["fft c64 4096 256"],
    "matrix product, f16, 4096³": ["matmul f16 4096 4096 4096"],
    "matrix product, f16, 8192³": ["matmul f16 8192 8192 8192"],
    "matrix product, bf16, 8192³": ["matmul bf16 8192 8192 8192"],
    "matrix product, tf32, 4096³": ["matmul tf32 4096 4096 4096"],
    "matrix product, e4m3, 4096³, result f16": ["matmul e4m3 4096 4096 4096"],
    "matrix product, e4m3, 8192³, result f16": ["matmul e4m3 8192 8192 8192"],
    "matrix product, e4m3, 8192³, scales of 1 x 128 and 128 x 128, result bf16": ["scaled_matmul e4m3 8192 8192 8192"],
    "product with 4-bit weights, f16, 16 x 4096 x 4096": ["quantized_matmul u4 16 4096 4096"],
    "product with 4-bit weights, f16, 4096³": ["quantized_matmul u4 4096 4096 4096"],
    "8 matrix products, f16, 1024 x 512 x 2048": ["batched_matmul f16 8 1024 2048 512"],
    "8 matrix products, tf32, 1024 x 512 x 2048": ["batched_matmul tf32 8 1024 2048 512"],
    "attention, f16, 8 x 16 x 1024 x 64, causal; full": ["attention f16 8 16 1024 64 causal", "attention f16 8 16 1024 64 full"],
    "attention, bf16, 4 x 32 x 4096 x 128, causal; full": ["attention bf16 4 32 4096 128 causal", "attention bf16 4 32 4096 128 full"],
    "attention, bf16, 2 x 16 x 16384 x 128, causal; full": ["attention bf16 2 16 16384 128 causal", "attention bf16 2 16 16384 128 full"],
    "attention, bf16, 4 x 32 x 4096 x 64, causal; full": ["attention bf16 4 32 4096 64 causal", "attention bf16 4 32 4096 64 full"],
    "attention, bf16, 2 x 16 x 8192 x 256, causal; full": ["attention bf16 2 16 8192 256 causal", "attention bf16 2 16 8192 256 full"],
    "attention, e4m3, result bf16, 4 x 32 x 4096 x 128, causal; full": ["attention e4m3 4 32 4096 128 causal", "attention e4m3 4 32 4096 128 full"],
    "gradients of attention, bf16, 4 x 32 x 4096 x 128, causal; full": ["attention_backward bf16 4 32 4096 128 causal", "attention_backward bf16 4 32 4096 128 full"],
}
# Libraries that go without saying.
USUAL = ("torch", "cuBLAS", "cuDNN")


def cells(entry):
    """What stands in the columns for one row: ours, cuTile Python, Triton, the best library, ours over the best of the others."""
    contenders = entry["contenders"]
    rate = lambda name: f"{contenders[name]['rate']:.0f}" if name in contenders else "-"
    libraries = [name for name in contenders if name not in report.COLOURS]
    best = max(libraries, key=lambda name: contenders[name]["rate"], default=None)
    library = rate(best) + ("" if best is None or best.startswith(USUAL) else f" ({best})")
    ratio = contenders.get("cutlet ptx", {}).get("to_best_peer")
    return [rate("cutlet ptx"), rate("cuTile Python"), rate("Triton"), library, f"{ratio:.3f}" if ratio is not None else "-"]


def lines(entries):
    """Lines of the table for the rows that there are, by name."""
    yield "| kernel | cutlet | cuTile Python | Triton | library | ratio |"
    yield "|---|---|---|---|---|---|"
    for title, names in TITLES.items():
        columns = zip(*(cells(entries[name]) for name in names if name in entries))
        joined = ["; ".join(column) for column in columns]
        if joined:
            yield "| " + " | ".join([title, *joined]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    entries, about = {}, {}
    for path in options.files:
        read = json.loads(path.read_text())
        about.update(read["about"])
        entries.update({entry["row"]: entry for entry in read["rows"]})
    print("\n".join(lines(entries)))
    if options.out:
        order = [name for names in TITLES.values() for name in names]
        rank = lambda name: order.index(name) if name in order else len(order)
        report.write(options.out, sorted(entries.values(), key=lambda entry: rank(entry["row"])), about)


if __name__ == "__main__":
    main()
