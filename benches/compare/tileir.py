"""Our Tile IR against cuTile Python's for the same kernels: bytecode of both through one tileiras, in turn in one process.

usage: python tileir.py export FOLDER     bytecode and cubins for sm_90; needs cargo, cuda-tile (the package), and
                                          tileiras in CUTLET_TILEIRAS or on PATH; no GPU. Says how many ops each has,
                                          how many instructions (with nvdisasm), and how many of ours differ.
       python tileir.py run FOLDER        on a GPU machine with torch: results against f64, times, ratios

FOLDER also gets the Python files, so it is all that the GPU machine needs. Ours come from the examples
(`--emit tilebc`), theirs from kernels_cutile.py; hints are the same on both sides (none).
"""

import ctypes
import difflib
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import rows as table

TARGET, VERSION = "sm_90", "13.3"
MULTIPROCESSORS = 132  # blocks of persistent kernels
CACHE_BYTES = 32 << 20  # as in benches/kernels/measure/attention_order.rs
LOG2_E = 1.4426950408889634
ROUNDS = 12
TURN_SECONDS = 0.06


@dataclass
class Side:
    """One kernel: how it is exported, and a launch (names of arrays, ("f32", x) and ("i32", x) scalars)."""
    export: tuple
    entry: str
    grid: tuple
    arguments: tuple


@dataclass
class Pair:
    label: str
    row: str
    ours: Side
    theirs: Side


def pairs():
    """Each kernel once; `softmax` pads with -inf on both sides, `softmax, no padding` only on ours."""
    def attention(causal):
        batch, heads, sequence, d = 4, 32, 4096, 128
        name = f"attention bf16 {batch} {heads} {sequence} {d} {'causal' if causal else 'full'}"
        arrays, scale = ("q", "k", "v", "o"), 1 / math.sqrt(d)
        sizes = f"--type bf16 --batch {batch} --heads {heads} --seq {sequence} --dim {d} --tile 128 128".split()
        # How many heads are gone through at a time: see benches/kernels/measure/attention_order.rs.
        section = max(1, CACHE_BYTES // (2 * sequence * d * 2)) if causal else 1
        blocks = min(batch * heads * sequence // 128, MULTIPROCESSORS)
        ours = Side(("attention", *sizes, *(["--causal"] if causal else [])), "attention", (blocks,),
                    (*arrays, ("f32", scale * LOG2_E), ("i32", section)))
        theirs = Side(("attention", (*arrays, ("f32", scale), d, heads, 128, 128, causal)), "kernel", (sequence // 128, batch * heads),
                      (*arrays, ("f32", scale)))
        return Pair(name.removesuffix(" full"), name, ours, theirs)

    n, abc, xy = 1 << 27, ("a", "b", "c"), ("x", "y")
    tiles = "--type f16 --tile 128 128 64".split()
    product = "matmul f16 4096 4096 4096"
    softmax = Side(("softmax", "--m", "4096", "--n", "4096"), "softmax", (4096,), xy)
    return [
        Pair("vadd f32 2^27, tile 1024", f"vadd f32 {n}", Side(("vadd", "--n", str(n), "--tile", "1024"), "vadd", (n // 1024,), abc),
             Side(("vadd", (*abc, 1024)), "kernel", (n // 1024,), abc)),
        Pair("softmax f32 4096x4096", "softmax f32 4096 4096", softmax, Side(("softmax_padded", (*xy, 4096)), "kernel", (4096,), xy)),
        Pair("softmax, no padding", "softmax f32 4096 4096", softmax, Side(("softmax", (*xy, 1, 4096, True)), "kernel", (4096,), xy)),
        Pair("matmul f16 4096^3, 128x128x64", product, Side(("matmul", *tiles), "matmul", (1024,), abc),
             Side(("matmul", (*abc, 128, 128, 64)), "kernel", (1024,), abc)),
        Pair("matmul, persistent", product, Side(("matmul", *tiles, "--persistent"), "matmul", (MULTIPROCESSORS,), abc),
             Side(("matmul_persistent", (*abc, 128, 128, 64)), "kernel", (MULTIPROCESSORS,), abc)),
        attention(False),
        attention(True),
    ]


def slug(pair):
    return re.sub(r"[^a-z0-9]+", "_", pair.label.lower()).strip("_")


# Exporting.

def export_ours(side, path):
    command = ["cargo", "bench", "--quiet", "--locked", "--bench", "kernels", "--", *side.export]
    subprocess.run([*command, "--emit", "tilebc", "--target", TARGET, "--bytecode-version", VERSION, "--output", str(path)], check=True)


def export_theirs(pair, path):
    import cuda.tile as ct
    from cuda.tile.compilation import export_kernel
    import export_cutile
    import kernels_cutile

    @ct.kernel
    def softmax_padded(x, y, n: ct.Constant[int]):
        i = ct.bid(0)
        t = ct.load(x, index=(i, 0), shape=(1, n), padding_mode=ct.PaddingMode.NEG_INF)
        e = ct.exp(t - ct.max(t, axis=1, keepdims=True))
        ct.store(y, index=(i, 0), tile=e / ct.sum(e, axis=1, keepdims=True))

    name, arguments = pair.theirs.export
    kernel = softmax_padded if name == "softmax_padded" else getattr(kernels_cutile, name)
    signature = export_cutile.signature(table.row(pair.row), arguments)
    export_kernel(kernel, [signature], path, gpu_code=TARGET, output_format="tileir_bytecode", bytecode_version=VERSION)


def assembler():
    named = os.environ.get("CUTLET_TILEIRAS") or shutil.which("tileiras")
    # The real file: it looks for ptxas and libnvvm beside itself.
    return Path(named).resolve() if named else sys.exit("no tileiras: name one in CUTLET_TILEIRAS")


def disassembly(bytecode):
    command = [assembler().with_name("tileirdisasm"), bytecode]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def num_ops(text):
    """Ops of the disassembly: its lines but heads of regions and braces."""
    return sum(line.startswith(" ") and line.lstrip()[0] not in "}(" for line in text.splitlines())


def parameter_types(text):
    """Types of the entry's parameters, by the disassembly."""
    head = re.search(r"entry @\w+\((.*?)\) *(?:\w.*)?{$", text, re.MULTILINE).group(1)
    return re.findall(r"%[\w.]+: tile<(\w+)", head)


def argument_types(side, row):
    """Types of what the launch passes."""
    ranks = {array.name: len(array.shape) for array in row.arrays}
    types = []
    for argument in side.arguments:
        types += ["ptr"] + 2 * ranks[argument] * ["i32"] if isinstance(argument, str) else [argument[0]]
    return types


def instructions(cubin):
    """Machine code without addresses, if nvdisasm is beside tileiras."""
    tool = assembler().with_name("nvdisasm")
    if not tool.exists():
        return None
    text = subprocess.run([tool, "-c", cubin], check=True, capture_output=True, text=True).stdout
    return re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s*([^;]*?)\s*;", text, re.MULTILINE)


def differing(ours, theirs):
    """How many of our instructions are no part of the longest common sequence."""
    same = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return len(ours) - sum(block.size for block in same)


def export(folder):
    folder.mkdir(parents=True, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")}
    print(f"{'':38}{'ops: ours':>10}{'theirs':>8}{'instructions: ours':>20}{'theirs':>8}{'differing':>11}")
    for pair in pairs():
        ops, code = [], []
        for who in ("ours", "theirs"):
            bytecode = folder / f"{slug(pair)}.{who}.tilebc"
            export_ours(pair.ours, bytecode) if who == "ours" else export_theirs(pair, bytecode)
            command = [assembler(), f"--gpu-name={TARGET}", "-o", bytecode.with_suffix(".cubin"), bytecode]
            subprocess.run(command, check=True, env=environment)
            text = disassembly(bytecode)
            taken, passed = parameter_types(text), argument_types(getattr(pair, who), table.row(pair.row))
            if taken != passed:
                sys.exit(f"{pair.label}: {who} takes {taken}, the launch passes {passed}")
            ops.append(num_ops(text))
            code.append(instructions(bytecode.with_suffix(".cubin")))
        machine = "" if None in code else f"{len(code[0]):20}{len(code[1]):8}{differing(*code):11}"
        print(f"{pair.label:38}{ops[0]:10}{ops[1]:8}{machine}", flush=True)
    for name in ("tileir.py", "rows.py", "rows.txt", "references.py", "measure.py", "device.py"):
        shutil.copy(Path(__file__).with_name(name), folder)


# Running.

def bind(folder, pair, who, tensors):
    from device import Kernel
    side = getattr(pair, who)
    values = []
    for argument in side.arguments:
        if isinstance(argument, str):
            tensor = tensors[argument]
            values += [ctypes.c_uint64(tensor.data_ptr()), *map(ctypes.c_int32, tensor.shape), *map(ctypes.c_int32, tensor.stride())]
        else:
            values.append({"f32": ctypes.c_float, "i32": ctypes.c_int32}[argument[0]](argument[1]))
    return Kernel(folder / f"{slug(pair)}.{who}.cubin", side.entry).bind(side.grid, values)


def compare(folder, pair):
    import torch
    import measure
    import references
    row = table.row(pair.row)
    number = measure.number_of_sets(row.set_bytes())
    sets = []
    for index in range(number):
        tensors = {a.name: torch.empty(a.shape, dtype=getattr(torch, table.ELEMENTS[a.element][1]), device="cuda") for a in row.arrays}
        references.fill(row, tensors, index + 1)
        sets.append(tensors)
    check, candidates = references.Check(row, sets[0]), []
    for who in ("ours", "theirs"):
        queues = [bind(folder, pair, who, tensors) for tensors in sets]
        launch = lambda index, queues=queues: queues[index](torch.cuda.current_stream().cuda_stream)
        check.reset()
        launch(0)
        torch.cuda.synchronize()
        candidate = measure.Candidate(who, pair.label, launch, error=check.error())
        if not candidate.error <= row.tolerance:
            return f"{pair.label:38}{who} WRONG: error {candidate.error:.2e}, allowed {row.tolerance:.2e}", False
        candidates.append(candidate)
    for candidate in candidates:
        measure.screen(candidate, number)
    measure.finals(candidates, number, ROUNDS, TURN_SECONDS)
    ours, theirs = (c.seconds for c in candidates)
    (rate, unit), (their_rate, _) = row.rate(ours), row.rate(theirs)
    return f"{pair.label:38}{rate:9.1f}{their_rate:9.1f} {unit:8}{theirs / ours:8.3f}   {candidates[0].error:.1e}", True


def run(folder):
    import torch
    print(torch.cuda.get_device_name(), "theirs and ours through the same tileiras, medians")
    print(f"{'':38}{'ours':>9}{'theirs':>9} {'':8}{'ratio':>8}   error")
    good = True
    for pair in pairs():
        line, right = compare(folder, pair)
        print(line, flush=True)
        good &= right
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("export", "run"):
        sys.exit(__doc__)
    {"export": export, "run": run}[sys.argv[1]](Path(sys.argv[2]))
