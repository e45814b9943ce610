"""Exports the kernels of kernels_cutile.py as cubins for sm_90, with a manifest of their launches.

usage: python export_cutile.py FOLDER [ROW ...]     (needs cuda-tile, and tileiras on PATH; no GPU)

Files are named by what they are made from; those that exist are not made again.
"""

import hashlib
import inspect
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature, ScalarConstraint, export_kernel

import kernels_cutile
import movement_cutile
import rows as table

TARGET = "sm_90"
ENTRY = "kernel"
TYPES = {"f32": ct.float32, "tf32": ct.float32, "f16": ct.float16, "bf16": ct.bfloat16, "e4m3": ct.float8_e4m3fn,
         "u8": ct.uint8, "i32": ct.int32}


def constraint(array, every_height=False):
    """What cuTile Python assumes of a contiguous torch tensor of these sizes, compiling just in time.

    With `every_height` nothing is assumed of the number of rows.
    """
    rank = len(array.shape)
    divisors = (1 if every_height else 16,) + (16,) * (rank - 1)
    return ArrayConstraint(TYPES[array.element], rank, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(),
                           may_alias_internally=False, stride_constant=(None,) * (rank - 1) + (1,),
                           stride_divisible_by=(16,) * (rank - 1) + (1,), shape_divisible_by=divisors, base_addr_divisible_by=16)


def signature(row, arguments):
    arrays = {a.name: a for a in row.arrays}
    def one(argument):
        if isinstance(argument, str):
            return constraint(arrays[argument])
        if isinstance(argument, tuple) and argument[0] == "rows":
            return constraint(arrays[argument[1]], every_height=True)
        return ScalarConstraint(ct.float32) if isinstance(argument, tuple) else argument
    return KernelSignature([one(a) for a in arguments], CallingConvention.cutile_python_v1(), symbol=ENTRY)


def helpers(function):
    """What a kernel may call, so that its cubin is made again when that changes."""
    return movement_cutile if function.__module__ == movement_cutile.__name__ else kernels_cutile.place


def export(folder, row, launch):
    """Makes the cubin of a launch if it is not there; gives its name and the seconds that it took."""
    sign = signature(row, launch.arguments)
    source = inspect.getsource(launch.kernel._pyfunc) + inspect.getsource(helpers(launch.kernel._pyfunc))
    identity = hashlib.sha256(repr((ct.__version__, source, sign.parameters, sorted(launch.hints.items()), TARGET)).encode()).hexdigest()
    path = folder / f"{launch.kernel._pyfunc.__name__}-{identity[:16]}.cubin"
    start = time.perf_counter()
    if not path.exists():
        part = path.with_suffix(f".part{os.getpid()}")
        kernel = launch.kernel.replace_hints(**launch.hints) if launch.hints else launch.kernel
        export_kernel(kernel, [sign], part, gpu_code=TARGET, output_format="cubin")
        part.rename(path)
        return path.name, time.perf_counter() - start
    return path.name, None


def describe(folder, row, configuration):
    launches, seconds = [], []
    for launch in configuration.launches:
        cubin, took = export(folder, row, launch)
        seconds.append(took)
        # Constants are compiled in and not passed.
        arguments = [a for a in launch.arguments if isinstance(a, (str, tuple))]
        launches.append({"cubin": cubin, "entry": ENTRY, "grid": launch.grid, "arguments": arguments})
    return {"label": configuration.label, "launches": launches, "seconds": None if None in seconds else sum(seconds)}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    manifest["cuda-tile"], manifest["target"] = ct.__version__, TARGET
    for row in table.select(sys.argv[2:]):
        before = {c["label"]: c for c in manifest["rows"].get(row.name, [])}
        done = []
        def one(configuration):
            try:
                entry = describe(folder, row, configuration)
            except Exception as error:  # a configuration that the assembler refuses is left out, and said so
                print(f"{row.name}, {configuration.label}: {str(error)[:300]}", file=sys.stderr, flush=True)
                return None
            if entry["seconds"] is None:
                entry["seconds"] = before.get(entry["label"], {}).get("seconds")
            return entry
        with ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
            done = [entry for entry in pool.map(one, kernels_cutile.configurations(row)) if entry]
        manifest["rows"][row.name] = done
        path.write_text(json.dumps(manifest, indent=1))
        print(f"{row.name}: {len(done)} configurations", flush=True)
    used = {launch["cubin"] for entries in manifest["rows"].values() for entry in entries for launch in entry["launches"]}
    for cubin in folder.glob("*.cubin"):
        if cubin.name not in used:
            cubin.unlink()


if __name__ == "__main__":
    main()
