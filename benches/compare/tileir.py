"""Our Tile IR against cuTile Python's for the same kernels: bytecode of both through one tileiras, in turn in one process.

usage: python tileir.py export FOLDER [ROW ...]   bytecode and cubins for sm_90; needs the library of our kernels
                                                  (cargo build --example compare, or CUTLET_COMPARE), cuda-tile (the
                                                  package), and tileiras in CUTLET_TILEIRAS or on PATH; no GPU. Prints
                                                  ops, and what the machine code has, of each configuration.
       python tileir.py run FOLDER [ROW ...]      on a GPU machine with torch: results against f64, times, ratios

FOLDER also gets the Python files, so it is all that the GPU machine needs. Configurations are those of the comparison:
`ours/rows.rs` and `kernels_cutile.py`. Those with equal tile and hints make a pair.
"""

import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rows as table

TARGET, VERSION = "sm_90", "13.3"
ROWS = ("vadd f32 134217728", "transpose f32 8192 8192", "softmax f32 4096 4096", "layernorm f32 4096 4096", "matmul f16 4096 4096 4096",
        "batched_matmul f16 8 1024 2048 512", "attention bf16 4 32 4096 128 full", "attention bf16 4 32 4096 128 causal")
LOG2_E = 1.4426950408889634
ROUNDS = 8
TURN_SECONDS = 0.04
# Configurations of each side that are measured in turns beside those of pairs.
FASTEST = 2


def twin(label, element=""):
    """The label of cuTile Python's configuration with the tile and hints of one of ours."""
    if element == "e4m3":
        label = label.replace(", fast sums", "") if "fast sums" in label else f"{label} exact sums"
    for ours, theirs in (("grid ", ""), ("2 blocks a cluster", "2 CTAs"), ("no hints", "defaults")):
        label = label.replace(ours, theirs)
    return label


def tile_of(label):
    """What the grid follows from: the tile, and whether blocks are persistent."""
    found = re.search(r"\d+(x\d+)+|tile \d+|\d+ rows|\d+$", twin(label))
    return found.group(0).removeprefix("tile ") if found else "", "persistent" in label


def our_arguments(row, label):
    """Arguments of our kernel: names of arrays (transposed with .T), ("f32", x) scalars."""
    names = tuple(array.name for array in row.arrays if array.name != "at64")
    if row.kernel == "saxpy":
        return (("f32", 0.75), *names)
    if row.kernel == "layernorm":
        return (*names, ("f32", 1e-5))
    if row.element == "e4m3":
        return ("a", "b.T", "c")
    if row.kernel == "attention":
        return (*names, ("f32", LOG2_E / math.sqrt(row.numbers[-1])))
    return names


def slug(who, row, label):
    return re.sub(r"[^A-Za-z0-9.]+", "_", f"{who} {row.name} {label}").strip("_")


# Exporting.

def assembler():
    named = os.environ.get("CUTLET_TILEIRAS") or shutil.which("tileiras")
    # The real file: it looks for ptxas and libnvvm beside itself.
    return Path(named).resolve() if named else sys.exit("no tileiras: name one in CUTLET_TILEIRAS")


def library():
    from ours import Library
    built = Path(__file__).resolve().parents[2] / "target" / "debug" / "examples" / "libcompare.so"
    return Library(Path(os.environ.get("CUTLET_COMPARE") or built))


def export_ours(lib, row, folder, labels=None):
    """Bytecode of our configurations (with these labels) that take the arguments of the row; gives entries of the manifest."""
    handle, entries = lib.open(row.name, 0), []
    for index in lib.serving(handle, "tileir"):
        label = lib.label(handle, index)
        if labels and label not in labels:
            continue
        path = folder / f"{slug('ours', row, label)}.tilebc"
        problem = lib.export(handle, index, TARGET, "tilebc", path)
        if problem:
            print(f"{row.name}, {label}: {problem}", file=sys.stderr)
            continue
        entries.append({"who": "ours", "label": label, "code": path.stem, "arguments": our_arguments(row, label)})
    lib.close(handle)
    return entries


def export_theirs(row, folder, labels=None):
    """The same of cuTile Python's configurations of one launch."""
    from cuda.tile.compilation import export_kernel
    import export_cutile
    import kernels_cutile
    entries = []
    for configuration in kernels_cutile.configurations(row):
        if len(configuration.launches) != 1 or labels and configuration.label not in labels:
            continue
        launch = configuration.launches[0]
        kernel = launch.kernel.replace_hints(**launch.hints) if launch.hints else launch.kernel
        path = folder / f"{slug('theirs', row, configuration.label)}.tilebc"
        signature = export_cutile.signature(row, launch.arguments)
        export_kernel(kernel, [signature], path, gpu_code=TARGET, output_format="tileir_bytecode", bytecode_version=VERSION)
        # Constants are compiled in and not passed.
        arguments = [a for a in launch.arguments if isinstance(a, (str, tuple))]
        entries.append({"who": "theirs", "label": configuration.label, "code": path.stem, "arguments": arguments, "grid": launch.grid})
    return entries


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


def argument_types(arguments, row):
    """Types of what the launch passes."""
    ranks = {array.name: len(array.shape) for array in row.arrays}
    types = []
    for argument in arguments:
        types += ["ptr"] + 2 * ranks[argument.removesuffix(".T")] * ["i32"] if isinstance(argument, str) else [argument[0]]
    return types


def assemble(path):
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")}
    command = [assembler(), f"--gpu-name={TARGET}", "-o", path.with_suffix(".cubin"), path]
    subprocess.run(command, check=True, env=environment)


def export(folder, patterns):
    import sass
    folder.mkdir(parents=True, exist_ok=True)
    lib, manifest = library(), {}
    print(f"{'':58}{'ops':>5}{sass.HEAD}")
    for row in table.select(patterns or ROWS):
        theirs = export_theirs(row, folder)
        grids = {}
        for entry in theirs:
            grids.setdefault(tile_of(entry["label"]), entry["grid"])
        ours = []
        for entry in export_ours(lib, row, folder):
            # Equal tiles have equal grids; ours of attention has an axis for heads and one for sequences.
            grid = grids.get(tile_of(entry["label"]))
            if grid and row.kernel == "attention" and not entry["label"].startswith("grid "):
                grid = (grid[0], row.numbers[1], row.numbers[0])
            ours += [{**entry, "grid": grid}] if grid else []
        print(row.name)
        manifest[row.name] = []
        for entry in ours + theirs:
            path = folder / f"{entry['code']}.tilebc"
            text = disassembly(path)
            taken, passed = parameter_types(text), argument_types(entry["arguments"], row)
            if taken != passed:
                print(f"{row.name}, {entry['who']}, {entry['label']}: takes {taken}, the launch passes {passed}", file=sys.stderr)
                continue
            entry["entry"] = re.search(r"entry @(\w+)", text).group(1)
            try:
                assemble(path)
            except subprocess.CalledProcessError as error:
                print(f"{row.name}, {entry['label']}: {error}", file=sys.stderr)
                continue
            manifest[row.name].append(entry)
            print(f"  {entry['who']:7}{entry['label']:49}{num_ops(text):5}{sass.line(assembler(), path.with_suffix('.cubin'))}", flush=True)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for name in ("tileir.py", "rows.py", "rows.txt", "references.py", "measure.py", "device.py"):
        shutil.copy(Path(__file__).with_name(name), folder)


# Running.

def grid_of(grid, multiprocessors):
    def one(extent):
        return min(multiprocessors * extent[1], extent[2]) if isinstance(extent, (list, tuple)) else extent
    return tuple(one(extent) for extent in grid)


def bind(folder, row, entry, tensors, multiprocessors):
    import torch
    from device import Kernel
    values = []
    for argument in entry["arguments"]:
        if isinstance(argument, str):
            name = argument.removesuffix(".T")
            tensor = tensors[name] if name == argument else tensors[name].t()
            values += [ctypes.c_uint64(tensor.data_ptr()), *map(ctypes.c_int32, tensor.shape), *map(ctypes.c_int32, tensor.stride())]
        else:
            values.append({"f32": ctypes.c_float, "i32": ctypes.c_int32}[argument[0]](argument[1]))
    return Kernel(folder / f"{entry['code']}.cubin", entry["entry"]).bind(grid_of(entry["grid"], multiprocessors), values)


def compare(folder, row, entries):
    """Prints pairs and the best of both sides; gives whether all results were right."""
    import torch
    import measure
    import references
    number = measure.number_of_sets(row.set_bytes())
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    sets = []
    for index in range(number):
        tensors = {a.name: torch.empty(a.shape, dtype=getattr(torch, table.ELEMENTS[a.element][1]), device="cuda") for a in row.arrays}
        references.fill(row, tensors, index + 1)
        sets.append(tensors)
    check, candidates, good = references.Check(row, sets[0]), [], True
    for entry in entries:
        queues = [bind(folder, row, entry, tensors, multiprocessors) for tensors in sets]
        launch = lambda index, queues=queues: queues[index](torch.cuda.current_stream().cuda_stream)
        check.reset()
        launch(0)
        torch.cuda.synchronize()
        candidate = measure.Candidate(entry["who"], entry["label"], launch, error=check.error())
        if not candidate.error <= row.tolerance:
            print(f"{row.name}: {entry['who']} {entry['label']} WRONG: error {candidate.error:.2e}, allowed {row.tolerance:.2e}", flush=True)
            good = False
            continue
        candidates.append(candidate)
    for candidate in candidates:
        measure.screen(candidate, number)
    sides = {who: sorted((c for c in candidates if c.contender == who), key=lambda c: c.screened) for who in ("ours", "theirs")}
    by_label = {c.label: c for c in sides["theirs"]}
    twins = [(c, by_label.get(twin(c.label, row.element))) for c in sides["ours"]]
    pairs = [(ours, theirs) for ours, theirs in twins if theirs]
    last = {id(c): c for pair in pairs for c in pair} | {id(c): c for side in sides.values() for c in side[:FASTEST]}
    measure.finals(list(last.values()), number, ROUNDS, TURN_SECONDS)
    rate = lambda c: row.rate(c.seconds)
    print(row.name, f"({rate(candidates[0])[1]}; microseconds)")
    for ours, theirs in pairs:
        print(f"  {ours.label:52}{rate(ours)[0]:9.1f}{rate(theirs)[0]:9.1f}{ours.seconds * 1e6:10.1f}{theirs.seconds * 1e6:10.1f}{theirs.seconds / ours.seconds:8.3f}")
    best = {who: min((c for c in side if c.times), key=lambda c: c.seconds) for who, side in sides.items()}
    ours, theirs = best["ours"], best["theirs"]
    print(f"  best: {ours.label} / {theirs.label}")
    print(f"  {'':52}{rate(ours)[0]:9.1f}{rate(theirs)[0]:9.1f}{ours.seconds * 1e6:10.1f}{theirs.seconds * 1e6:10.1f}{theirs.seconds / ours.seconds:8.3f}")
    alone = [c for c in sides["ours"] if not any(c is pair[0] for pair in pairs)]
    print("  ours alone: " + ", ".join(f"{c.label} {c.seconds * 1e6:.1f}" for c in alone), flush=True)
    return good


def run(folder, patterns):
    import torch
    manifest = json.loads((folder / "manifest.json").read_text())
    print(torch.cuda.get_device_name(), "ours and theirs through the same tileiras, medians")
    print(f"{'':54}{'ours':>9}{'theirs':>9}{'ours':>10}{'theirs':>10}{'ratio':>8}")
    good = True
    for name, entries in manifest.items():
        if not patterns or any(pattern in name for pattern in patterns):
            good &= compare(folder, table.row(name), entries)
            torch.cuda.empty_cache()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("export", "run"):
        sys.exit(__doc__)
    {"export": export, "run": run}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:])
