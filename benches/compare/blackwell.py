"""Machine code of our kernels and of cuTile Python's for Blackwell, by one tileiras: a table for docs/blackwell.md.

usage: python blackwell.py [--check] [--write]     needs what `tileir.py export` needs; no GPU

Both sides of a row have equal tile and hints. `--check` fails where ours has more spills or longer loops than cuTile
Python's; `--write` renews the table in docs/blackwell.md. Without options the table is printed.
"""

import sys
import tempfile
from pathlib import Path

import rows as table
import sass
import tileir

TARGETS = {"sm_100": "B200", "sm_103": "B300", "sm_120": "GeForce RTX 50"}
# Row, our label, and where it is not the twin of ours, the label of cuTile Python's configuration.
PAIRS = (
    ("vadd f32 134217728", "tile 1024"),
    ("softmax f32 4096 4096", "no TMA 8 warps"),
    ("layernorm f32 4096 4096", "8 warps occupancy 4"),
    ("matmul f16 4096 4096 4096", "128x128x64 8 warps"),
    ("matmul f16 4096 4096 4096", "128x256x64 8 warps"),
    ("matmul f16 4096 4096 4096", "128x256x64 8 warps persistent"),
    ("matmul e4m3 4096 4096 4096", "128x256x128 8 warps, fast sums"),
    ("batched_matmul f16 8 1024 2048 512", "128x128x64 8 warps"),
    ("attention bf16 4 32 4096 128 full", "grid 128x64 8 warps"),
    ("attention bf16 4 32 4096 128 full", "grid 128x128 8 warps"),
    ("attention bf16 4 32 4096 128 causal", "grid 128x64 8 warps"),
    ("attention bf16 4 32 4096 128 causal", "grid 128x128 8 warps"),
)
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "blackwell.md"
START, END = "<!-- table -->\n", "<!-- end -->\n"
# Instructions by which loops may be longer: the schedulers of the assemblers break ties by the names of registers.
TIE = 1.01


def codes(lib, target, folder):
    """For each pair: what the machine code of ours and of theirs has."""
    tileir.TARGET = target
    measured = []
    for name, label in PAIRS:
        row, pair = table.row(name), []
        theirs = tileir.twin(label, row.element)
        for side in (tileir.export_ours(lib, row, folder, [label]), tileir.export_theirs(row, folder, [theirs])):
            if len(side) != 1:
                sys.exit(f"{name}, {label}: {len(side)} configurations of one side")
            path = folder / f"{side[0]['code']}.tilebc"
            tileir.assemble(path)
            pair.append(sass.measure(tileir.assembler(), path.with_suffix(".cubin")))
        measured.append((name, label, *pair))
    return measured


def line(name, label, ours, theirs):
    both = lambda field: f"{getattr(ours, field)} / {getattr(theirs, field)}"
    names = ", ".join(ours.mma_names) or "none"
    cells = [name, label.removeprefix("grid "), names, both("tma"), both("loop"), both("registers"), both("spills")]
    return "| " + " | ".join(cells) + " |\n"


def main():
    lib, lines, worse = tileir.library(), [], []
    for target in TARGETS:
        lines += [f"## {target}: {TARGETS[target]}\n\n", "| kernel | tile and hints | tensor cores | TMA | in loops | registers | spills |\n", "|---|---|---|---|---|---|---|\n"]
        with tempfile.TemporaryDirectory() as folder:
            for name, label, ours, theirs in codes(lib, target, Path(folder)):
                lines.append(line(name, label, ours, theirs))
                if ours.spills > theirs.spills or ours.loop > theirs.loop * TIE or ours.mma_names != theirs.mma_names:
                    worse.append(f"{target} {lines[-1]}")
        lines.append("\n")
    text = "".join(lines[:-1])
    print(text, end="")
    if "--write" in sys.argv:
        document = DOCUMENT.read_text()
        before, after = document.index(START) + len(START), document.index(END)
        DOCUMENT.write_text(document[:before] + text + document[after:])
    if worse:
        print("\nmore spills or longer loops than cuTile Python's, or other tensor-core instructions:\n" + "".join(worse), file=sys.stderr)
    sys.exit(1 if worse and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
