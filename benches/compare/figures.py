"""Tables and charts of the documents, rendered from measured.tsv.

    python3 figures.py add GPU comparison.json ...   rows of runs of compare.py replace those of this GPU
    python3 figures.py write                         README.md, docs/benchmarks.md, docs/examples.md and the charts of docs/
    python3 figures.py check                         fails if a document differs from the file

`add` also renews the name, driver and date of the GPU by `--driver` and `--date`. With `--columns NAME ...` it adds these columns alone to the rows
that there are, and leaves what is known of the GPU.
"""

import argparse
import datetime
import json
import math
import sys
from html import escape
from pathlib import Path

import report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FILE = HERE / "measured.tsv"
HEAD = """\
# Results of compare.py. `figures.py` renders README.md, docs/benchmarks.md and the charts of docs/ from this file.
# gpu: short name, full name, driver, date.
# row: GPU, row of rows.txt, unit, cutlet (ptx), cutlet (tileir), cuTile Python, Triton, best library, its name, cutlet over the best of the others.
"""

# Title of each row of rows.txt, in the order of the tables and charts.
TITLES = {
    "vadd f32 134217728": "vector addition, f32, 2^27",
    "saxpy f32 134217728": "saxpy, f32, 2^27",
    "transpose f32 8192 8192": "transpose, f32, 8192²",
    "softmax f32 4096 4096": "softmax, f32, 4096²",
    "softmax f32 32768 4096": "softmax, f32, 32768 x 4096",
    "layernorm f32 4096 4096": "layer normalization, f32, 4096²",
    "layernorm f32 32768 4096": "layer normalization, f32, 32768 x 4096",
    "layernorm_backward f32 4096 4096": "layer normalization, gradients, f32, 4096²",
    "vadd_gather f32 134217728": "vector addition by gather and scatter, f32, 2^27",
    "gather f32 67108864 67108864": "random gather, f32, 2^26 of 2^26",
    "scatter f32 67108864": "random scatter, f32, 2^26",
    "embedding f16 131072 4096 32768": "embedding, f16, 32768 of 131072 x 4096",
    "stencil f32 8192 8192": "five-point stencil, f32, 8192²",
    "cumsum f32 32768 4096": "prefix sums of rows, f32, 32768 x 4096",
    "prefix_sum i32 268435456": "prefix sum, i32, 2^28",
    "prefix_sum f32 268435456": "prefix sum, f32, 2^28",
    "histogram u8 268435456": "histogram, u8, 2^28",
    "argmax f32 32768 4096": "argmax of rows, f32, 32768 x 4096",
    "welford f32 32768 4096": "mean and variance of rows, f32, 32768 x 4096",
    "random_normal f32 134217728": "random numbers, normal, f32, 2^27",
    "random_uniform f32 134217728": "random numbers, uniform, f32, 2^27",
    "dropout f32 67108864": "dropout with gradient, f32, 2^26",
    "sum f32 134217728": "sum, f32, 2^27",
    "sort f32 32768 4096": "sort of rows, f32, 32768 x 4096",
    "top_k f32 65536 128 8": "top 8 of 128, f32, 65536 rows",
    "top_k f32 256 131072 50": "top 50 of 2^17, f32, 256 rows",
    "fft c64 4096 256": "FFT, c64, 4096 of 256 points",
    "matmul f16 4096 4096 4096": "matmul, f16, 4096³",
    "matmul f16 8192 8192 8192": "matmul, f16, 8192³",
    "matmul bf16 8192 8192 8192": "matmul, bf16, 8192³",
    "matmul tf32 4096 4096 4096": "matmul, tf32, 4096³",
    "matmul e4m3 4096 4096 4096": "matmul, e4m3, 4096³",
    "matmul e4m3 8192 8192 8192": "matmul, e4m3, 8192³",
    "scaled_matmul e4m3 8192 8192 8192": "matmul, e4m3, block scales, 8192³",
    "quantized_matmul u4 16 4096 4096": "matmul, 4-bit weights, 16 x 4096 x 4096",
    "quantized_matmul u4 4096 4096 4096": "matmul, 4-bit weights, 4096³",
    "batched_matmul f16 8 1024 2048 512": "batched matmul, f16, 8 of 1024 x 512 x 2048",
    "batched_matmul tf32 8 1024 2048 512": "batched matmul, tf32, 8 of 1024 x 512 x 2048",
    "attention f16 8 16 1024 64 causal": "attention, f16, 8 x 16 x 1024 x 64, causal",
    "attention f16 8 16 1024 64 full": "attention, f16, 8 x 16 x 1024 x 64, full",
    "attention bf16 4 32 4096 128 causal": "attention, bf16, 4 x 32 x 4096 x 128, causal",
    "attention bf16 4 32 4096 128 full": "attention, bf16, 4 x 32 x 4096 x 128, full",
    "attention bf16 2 16 16384 128 causal": "attention, bf16, 2 x 16 x 16384 x 128, causal",
    "attention bf16 2 16 16384 128 full": "attention, bf16, 2 x 16 x 16384 x 128, full",
    "attention bf16 4 32 4096 64 causal": "attention, bf16, 4 x 32 x 4096 x 64, causal",
    "attention bf16 4 32 4096 64 full": "attention, bf16, 4 x 32 x 4096 x 64, full",
    "attention bf16 2 16 8192 256 causal": "attention, bf16, 2 x 16 x 8192 x 256, causal",
    "attention bf16 2 16 8192 256 full": "attention, bf16, 2 x 16 x 8192 x 256, full",
    "attention e4m3 4 32 4096 128 causal": "attention, e4m3, 4 x 32 x 4096 x 128, causal",
    "attention e4m3 4 32 4096 128 full": "attention, e4m3, 4 x 32 x 4096 x 128, full",
    "attention_backward bf16 4 32 4096 128 causal": "attention, gradients, bf16, 4 x 32 x 4096 x 128, causal",
    "attention_backward bf16 4 32 4096 128 full": "attention, gradients, bf16, 4 x 32 x 4096 x 128, full",
    "tutorial vadd f32 134217728": "tutorial: vector addition, f32, 2^27",
    "tutorial transpose f32 8192 8192": "tutorial: transpose, f32, 8192²",
    "tutorial softmax f32 32768 4096": "tutorial: softmax, f32, 32768 x 4096",
    "tutorial column_sums f32 16384 8192": "tutorial: sums of columns, f32, 16384 x 8192",
    "tutorial embedding f16 131072 4096 32768": "tutorial: embedding, f16, 32768 of 131072 x 4096",
    "tutorial matmul f16 8192 8192 8192": "tutorial: matmul, f16, 8192³",
    "tutorial attention f16 8 16 1024 64 full": "tutorial: attention, f16, 8 x 16 x 1024 x 64, full",
}
# The rows of the README, and their titles in its chart.
HEADLINE = {
    "vadd f32 134217728": "vector addition, f32",
    "softmax f32 32768 4096": "softmax, f32",
    "layernorm f32 32768 4096": "layer norm, f32",
    "histogram u8 268435456": "histogram, u8",
    "sort f32 32768 4096": "sort of rows, f32",
    "matmul f16 8192 8192 8192": "matmul, f16",
    "matmul e4m3 8192 8192 8192": "matmul, e4m3",
    "attention bf16 4 32 4096 128 full": "attention, bf16",
}
# Examples by topic: what each shows, and its row.
GALLERY = {
    "First steps": {
        "hello": ("every tile block prints", None),
        "vadd": ("vector addition: one tile per block", "vadd f32 134217728"),
        "saxpy": ("y = a x + y, in place", "saxpy f32 134217728"),
        "transpose": ("tiles of two axes", "transpose f32 8192 8192"),
        "stencil": ("neighbors by `ct::at`", "stencil f32 8192 8192"),
        "padding": ("tiles of 576 columns, or padded to 1024", None),
        "doctor": ("state of the machine: driver, GPUs, back ends, cache; attach it to bug reports", None),
    },
    "Reductions and scans": {
        "softmax": ("a row per block", "softmax f32 32768 4096"),
        "layernorm": ("layer normalization of rows", "layernorm f32 32768 4096"),
        "layernorm_backward": ("its gradients; sums over rows by two kernels", "layernorm_backward f32 4096 4096"),
        "argmax": ("index of the largest element of each row", "argmax f32 32768 4096"),
        "welford": ("mean and variance in one pass", "welford f32 32768 4096"),
        "vocabulary": ("the most probable words of a large vocabulary", "top_k f32 256 131072 50"),
        "prefix_sum": ("a scan of a whole array in one pass; blocks wait for each other", "prefix_sum f32 268435456"),
        "histogram": ("atomics in scratch memory", "histogram u8 268435456"),
    },
    "Matrix multiplication": {
        "matmul": ("all element types of tensor cores; persistent blocks", "matmul f16 8192 8192 8192"),
        "matmul_steps": ("from a naive kernel to the speed of cuBLAS ([page][page])", None),
        "batched_matmul": ("many pairs of matrices", "batched_matmul f16 8 1024 2048 512"),
        "quantized_matmul": ("packed weights of 1 to 8 bits", "quantized_matmul u4 16 4096 4096"),
        "scaled_matmul": ("8-bit floats with block scales", "scaled_matmul e4m3 8192 8192 8192"),
        "experts": ("selection of experts for tokens: top-k and softmax", "top_k f32 65536 128 8"),
    },
    "Attention": {
        "attention": ("forward; causal masks, shared heads", "attention bf16 4 32 4096 128 full"),
        "attention_backward": ("gradients by two kernels", "attention_backward bf16 4 32 4096 128 full"),
        "attention_queries": ("gradient of the queries in a fixed order", None),
        "attention_f8": ("8-bit floats", "attention e4m3 4 32 4096 128 full"),
    },
    "Other kernels": {
        "embedding": ("rows of a table by `gather`", "embedding f16 131072 4096 32768"),
        "fft": ("Fourier transforms of complex rows", "fft c64 4096 256"),
        "dropout": ("random masks that are computed twice instead of stored", "dropout f32 67108864"),
        "mutex": ("a lock by compare-and-swap", None),
        "checks": ("time of kernels without and with each check", None),
        "races": ("races between tile blocks, found on the device", None),
    },
    "Host side": {
        "graph": ("a CUDA graph of launches, replayed with other numbers", None),
        "future": ("`await` on a stream, with an executor of a few lines", None),
        "ahead": ("compilation on all cores before the first launch", None),
        "tune": ("search for the fastest tile, with a record file", None),
        "ndarray": ("arrays and views of ndarray, with their strides (`--features ndarray`)", None),
        "safetensors": ("tensors of a file as arrays (`--features safetensors`)", None),
        "bundle": ("kernels compiled by a build script (`cd examples/bundle && cargo run`)", None),
        "dlpack": ("a library for Python: softmax of torch tensors (`examples/dlpack/softmax.py`)", None),
    },
}
# Examples that are folders.
FOLDERS = ("bundle", "dlpack")
# Figures of examples that are no benchmarks: what each does.
COUNTS = {
    "hello": "8 blocks", "padding": "1.8 times fewer elements", "doctor": "1 report", "matmul_steps": "7 steps", "attention_queries": "bit-identical runs",
    "mutex": "100 blocks, 0 wrong sums", "races": "2 of 2 races", "checks": "6 kernels, 4 checks", "graph": "400 launches by 200 calls", "future": "0 blocked threads", "ahead": "7 kernels compiled", "tune": "0 measurements in the second run",
    "ndarray": "2 directions", "safetensors": "0 copies of aligned tensors", "bundle": "0 kernels traced", "dlpack": "0 copies",
}
# Rows that have no dot in docs/comparison.svg: kernels as the tutorial shows them, in the tables alone.
UNCHARTED = "tutorial "
MOST_HEIGHT = 700  # of a chart, in pixels
COLUMNS = ("unit", "cutlet", "cutlet, Tile IR", "cuTile Python", "Triton", "library", "library name", "ratio")

STYLE = """<style>
svg { --ground: #ffffff; --text: #1f2328; --muted: #59636e; --grid: #d1d9e0; --better: #1a7f37; --worse: #9a3412; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --text: #f0f6fc; --muted: #9198a1; --grid: #3d444d; --better: #3fb950; --worse: #f0883e; }
}
text { fill: var(--text); } .muted { fill: var(--muted); } .grid { stroke: var(--grid); } .one { stroke: var(--muted); stroke-dasharray: 4 3; }
.better { fill: var(--better); stroke: var(--better); } .worse { fill: var(--worse); stroke: var(--worse); } .hollow { fill: var(--ground); stroke-width: 1.6; }
</style>
"""


def read():
    """GPUs by name, and per GPU the rows by name."""
    gpus, rows = {}, {}
    for line in FILE.read_text().splitlines():
        cells = line.split("\t")
        if cells[0] == "gpu":
            gpus[cells[1]] = dict(zip(("name", "driver", "date"), cells[2:], strict=True))
        elif cells[0] == "row":
            rows.setdefault(cells[1], {})[cells[2]] = dict(zip(COLUMNS, cells[3:], strict=True))
    return gpus, rows


def save(gpus, rows):
    lines = ["\t".join(("gpu", gpu, about["name"], about["driver"], about["date"])) for gpu, about in gpus.items()]
    for gpu in gpus:
        lines += ["\t".join(("row", gpu, name, *(rows[gpu][name][column] for column in COLUMNS))) for name in TITLES if name in rows[gpu]]
    FILE.write_text(HEAD + "\n".join(lines) + "\n")


def measured(entry):
    """The columns of one row of comparison.json."""
    contenders = entry["contenders"]
    rate = lambda name: f"{contenders[name]['rate']:.0f}" if name in contenders else "-"
    libraries = [name for name in contenders if name not in report.COLOURS]
    best = max(libraries, key=lambda name: contenders[name]["rate"], default=None)
    own = contenders.get("cutlet ptx", {})
    ratio = own.get("to_best_peer")
    unit = next((c["unit"] for c in contenders.values() if "unit" in c), "-")
    return dict(zip(COLUMNS, (unit, rate("cutlet ptx"), rate("cutlet tileir"), rate("cuTile Python"), rate("Triton"), rate(best), best or "-", f"{ratio:.3f}" if ratio is not None else "-"), strict=True))


def best_other(row):
    """Rate and name of the best of the others."""
    names = {"cuTile Python": row["cuTile Python"], "Triton": row["Triton"], row["library name"]: row["library"]}
    rates = {name: rate for name, rate in names.items() if rate != "-"}
    name = max(rates, key=lambda name: float(rates[name]), default="-")
    return rates.get(name, "-"), name


def about_gpus(gpus):
    return "; ".join(f"NVIDIA {about['name']}, driver {about['driver']}, {about['date']}" for about in gpus.values())


def has_tile_ir(rows):
    """Has a row of these a figure of the tileir back end?"""
    return any(row["cutlet, Tile IR"] != "-" for row in rows)


def headline_table(gpus, rows):
    """The rows of the README, the GPUs beside each other."""
    shown = {gpu: has_tile_ir(rows[gpu][name] for name in HEADLINE) for gpu in gpus}
    heads = {gpu: f"{gpu}: cutlet | {'cutlet, Tile IR | ' if shown[gpu] else ''}best other | ratio" for gpu in gpus}
    yield "| kernel | unit | " + " | ".join(heads.values()) + " |"
    yield "|---|---|" + "---|" * (3 * len(gpus) + sum(shown.values()))
    for name in HEADLINE:
        cells = [TITLES[name], rows[next(iter(gpus))][name]["unit"]]
        for gpu in gpus:
            row = rows[gpu][name]
            cells += [row["cutlet"], *([row["cutlet, Tile IR"]] if shown[gpu] else []), "{} ({})".format(*best_other(row)), row["ratio"]]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield f"Measured on {about_gpus(gpus)}."


def full_tables(gpus, rows):
    """All rows, a table for each GPU."""
    for gpu, about in gpus.items():
        yield f"### {gpu}"
        yield ""
        yield f"NVIDIA {about['name']}, driver {about['driver']}, {about['date']}."
        yield ""
        columns = ["cutlet", *(["cutlet, Tile IR"] if has_tile_ir(rows[gpu].values()) else []), "cuTile Python", "Triton"]
        yield f"| kernel | unit | {' | '.join(columns)} | library | ratio |"
        yield "|---|---|---|---|---|" + "---|" * (len(columns) - 1)
        for name, title in TITLES.items():
            if row := rows[gpu].get(name):
                library = row["library"] if row["library"] == "-" else f"{row['library']} ({row['library name']})"
                yield "| " + " | ".join((title, row["unit"], *(row[column] for column in columns), library, row["ratio"])) + " |"
        yield ""


def examples():
    """Names of the examples that there are."""
    return {path.stem for path in (ROOT / "examples").glob("*.rs")} | set(FOLDERS)


def gallery(gpus, rows):
    """Every example with one line and one figure, of the first GPU."""
    gpu = next(iter(gpus))
    there = examples()
    for topic, names in GALLERY.items():
        yield f"## {topic}"
        yield ""
        yield f"| example | shows | figure ({gpu}) |"
        yield "|---|---|---|"
        for name, (line, row) in names.items():
            if name not in there:
                continue
            figure = COUNTS[name] if row is None else f"{rows[gpu][row]['cutlet']} {rows[gpu][row]['unit']}, {rows[gpu][row]['ratio']} of {best_other(rows[gpu][row])[1]}"
            yield f"| [`{name}`][{name}] | {line} | {figure} |"
        yield ""
    for name in sorted(there):
        yield f"[{name}]: ../examples/{name}" + ("" if name in FOLDERS else ".rs")


def chart(gpus, rows, titles, left, plot, pitch, font):
    """One line a kernel: a dot for each GPU at the ratio to the best of the others, on a logarithmic axis."""
    low, high = 0.45, 2.4
    across = lambda ratio: left + plot * math.log(min(max(ratio, low), high) / low) / math.log(high / low)
    top, width = 58, left + plot + 20
    height = round(top + pitch * len(titles) + 34)
    assert height <= MOST_HEIGHT, f"a chart of {len(titles)} rows is {height} pixels high, more than {MOST_HEIGHT}"
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="{font}">', STYLE]
    svg.append(f'<rect width="100%" height="100%" fill="var(--ground)"/><text x="12" y="18" font-size="13" font-weight="bold">cutlet over the best other implementation</text>')
    x = 14.0
    for index, (gpu, about) in enumerate(gpus.items()):
        svg.append(f'<circle cx="{x:.1f}" cy="34" r="4" class="better{" hollow" if index else ""}"/><text x="{x + 9:.1f}" y="38" class="muted">{escape(gpu)}, {escape(about["date"])}</text>')
        x += 15 + 6.4 * len(gpu + about["date"]) + 14
    bottom = top + pitch * len(titles)
    for ratio in (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0):
        kind = "one" if ratio == 1.0 else "grid"
        svg.append(f'<line x1="{across(ratio):.1f}" x2="{across(ratio):.1f}" y1="{top - 8}" y2="{bottom:.1f}" class="{kind}"/>')
        if plot >= 300 or ratio in (0.5, 0.7, 1.0, 1.5, 2.0):
            svg.append(f'<text x="{across(ratio):.1f}" y="{bottom + 13:.1f}" text-anchor="middle" class="muted">{ratio:g}</text>')
    svg.append(f'<text x="{left + plot / 2:.1f}" y="{bottom + 28:.1f}" text-anchor="middle" class="muted">ratio, logarithmic; right of 1.0 is faster</text>')
    for index, (name, title) in enumerate(titles.items()):
        y = top + pitch * (index + 0.5)
        svg.append(f'<text x="{left - 10}" y="{y + font * 0.35:.1f}" text-anchor="end">{escape(title)}</text>')
        for order, gpu in reversed(list(enumerate(gpus))):
            row = rows[gpu].get(name)
            if row and row["ratio"] != "-":
                ratio = float(row["ratio"])
                kind = "better" if ratio >= 0.995 else "worse"
                tip = f"{gpu}: {row['cutlet']} {row['unit']}, {row['ratio']} of {best_other(row)[1]}"
                svg.append(f'<circle cx="{across(ratio):.1f}" cy="{y - 1.6 + 3.2 * order:.1f}" r="3.4" class="{kind}{" hollow" if order else ""}"><title>{escape(tip)}</title></circle>')
    return "\n".join(svg) + "\n</svg>\n"


def between(text, lines, name="figures"):
    """The text with these lines between its markers."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    return before + start + "\n".join(lines).rstrip() + "\n" + end + rest.split(end)[1]


def documents(gpus, rows):
    """Each generated file, and its content."""
    charted = {name: title for name, title in TITLES.items() if not name.startswith(UNCHARTED) and any(name in rows[gpu] for gpu in gpus)}
    readme, benchmarks, gallery_page = ROOT / "README.md", ROOT / "docs/benchmarks.md", ROOT / "docs/examples.md"
    return {
        gallery_page: between(gallery_page.read_text(), gallery(gpus, rows), "gallery"),
        readme: between(readme.read_text(), headline_table(gpus, rows)),
        benchmarks: between(benchmarks.read_text(), full_tables(gpus, rows)),
        ROOT / "docs/comparison.svg": chart(gpus, rows, charted, left=312, plot=420, pitch=11.6, font=10.5),
        ROOT / "docs/headline.svg": chart(gpus, rows, HEADLINE, left=124, plot=220, pitch=19, font=11),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("add", "write", "check"))
    parser.add_argument("gpu", nargs="?")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--driver")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--columns", nargs="+", choices=COLUMNS[1:])
    options = parser.parse_args()
    gpus, rows = read()
    if options.action == "add":
        about = gpus.setdefault(options.gpu, {"name": options.gpu, "driver": "?", "date": "?"})
        if not options.columns:
            about.update(date=options.date, **({"driver": options.driver} if options.driver else {}))
        for path in options.files:
            run = json.loads(path.read_text())
            if not options.columns:
                about["name"] = run["about"]["device"].removeprefix("NVIDIA ")
            for entry in run["rows"]:
                if entry["contenders"]:
                    known = rows.setdefault(options.gpu, {}).get(entry["row"], {})
                    found = measured(entry)
                    chosen = {column: found[column] for column in options.columns} if options.columns else found
                    rows[options.gpu][entry["row"]] = {**(known or found), **chosen}
        save(gpus, rows)
    stale = {path: text for path, text in documents(gpus, rows).items() if not path.exists() or path.read_text() != text}
    if options.action == "check":
        if missing := examples() - {name for names in GALLERY.values() for name in names}:
            print(f"the gallery lacks {', '.join(sorted(missing))}")
            return 1
        for path in stale:
            print(f"{path.relative_to(ROOT)} differs from {FILE.relative_to(ROOT)}: python3 benches/compare/figures.py write")
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
