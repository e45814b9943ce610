"""The comparison: our kernels, cuTile Python, Triton and the libraries on one GPU, in turn, checked.

usage: python3 compare.py [--folder FOLDER] [--rows PATTERN ...] [--quick] [--only CONTENDER ...] [--out FOLDER]

FOLDER is what `prepare` made: libcompare.so, launch, cutile/, libpeers.so and tileir-cache.tar.xz; exported/ is `export_peers.py`'s. Whatever is missing is left out.
"""

import argparse
import atexit
import os
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path

# All of our tile sizes of these stand in the finals, since none should be slow; of sums also both ways.
ELEMENTWISE = ("vadd", "saxpy", "vadd_gather", "sum")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent, help="what `prepare` made (default: where this file is)")
    parser.add_argument("--rows", nargs="*", default=[], help="rows whose name contains one of these; a full name of another size makes a row; `launch`: host times of launches")
    parser.add_argument("--only", nargs="*", default=[], help="contenders whose name contains one of these, such as cutlet or cuBLAS")
    parser.add_argument("--configurations", nargs="*", default=[], help="of ours only those whose label contains one of these")
    parser.add_argument("--recorded", type=Path, help="of ours only the winners in this file of the crate's own tuner, where a row has one (and the first configuration)")
    parser.add_argument("--backends", nargs="*", default=["ptx", "tileir"], choices=["ptx", "tileir"], help="ours")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--reports", action="store_true", help="print registers and remarks of each of our configurations")
    parser.add_argument("--all", action="store_true", help="print every configuration, not only the best")
    parser.add_argument("--live-cutile", action="store_true", help="compile with cuTile Python here instead of launching exported cubins")
    parser.add_argument("--out", type=Path, help="folder for comparison.json, .md and .svg (default: $OUT, else nothing is written)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    return parser.parse_args()


def tensors_of(row, address_list):
    """The row's arrays as tensors: over our memory where we have the kernel, else torch's own."""
    import torch
    from device import tensor_at
    from rows import ELEMENTS
    out = {}
    addresses = list(address_list)
    for array in row.arrays:
        dtype = getattr(torch, ELEMENTS[array.element][1])
        own = addresses.pop(0) if addresses else None
        out[array.name] = tensor_at(own, array.shape, dtype) if own else torch.empty(array.shape, dtype=dtype, device="cuda")
    return out


def contenders_of(row, options, library, handle):
    import peers_cuda
    import peers_cutile
    import peers_exported
    import peers_library
    import peers_triton
    from ours import Ours, recorded
    found = []
    if handle:
        winners = recorded(options.recorded) if options.recorded else {}
        found += [Ours(library, backend, row, handle, winners) for backend in options.backends]
    found.append(peers_cutile.Live(row) if options.live_cutile else peers_cutile.Exported(options.folder / "cutile", row))
    found += peers_triton.contenders(row) + peers_library.contenders(row) + peers_cuda.contenders(row, options.folder)
    found += peers_exported.contenders(row, options.folder)
    return [c for c in found if not options.only or any(word in c.name for word in options.only)]


def try_out(row, contender, sets, check, options):
    """Every configuration of a contender: launched once and compared, then timed shortly."""
    import torch
    import measure
    found = []
    for label, launch in contender.configurations(sets):
        if contender.name.startswith("cutlet") and options.configurations and not any(w in label for w in options.configurations):
            continue
        try:
            check.reset()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            results = launch(0)
            torch.cuda.synchronize()
            candidate = measure.Candidate(contender.name, label, launch, first_seconds=time.perf_counter() - begin)
            candidate.error = check.error(results)
            measure.screen(candidate, len(sets))
            found.append(candidate)
        except Exception as error:
            contender.failures[label] = f"{type(error).__name__}: {error}"
            if "illegal" in str(error) or "unspecified launch failure" in str(error):
                raise
    return found


def finalists(row, candidates, options, sets):
    """The three best of each contender; of elementwise rows all of ours.

    The six best of the first short look have a longer one, in turn, before three of them are left.
    """
    import measure
    names = list(dict.fromkeys(c.contender for c in candidates))
    right = {name: [c for c in candidates if c.contender == name and c.error <= row.tolerance] for name in names}
    every = [name for name in names if options.all or (row.kernel in ELEMENTWISE and name.startswith("cutlet"))]
    best = lambda name, count: sorted(right[name], key=lambda c: c.screened)[:count]
    longer = [c for name in names if name not in every and len(right[name]) > 3 for c in best(name, 6)]
    if longer:
        measure.look_longer(longer, sets)
        for name in names:
            right[name] = [c for c in right[name] if name in every or c in longer or len(right[name]) <= 3]
    return [c for name in names for c in (right[name] if name in every else best(name, 3))]


def compare(row, options, library, device):
    import torch
    import measure
    import references
    import report
    count = measure.number_of_sets(row.set_bytes())
    handle = library.open(row.name, count) if library else None
    try:
        sets = [tensors_of(row, library.addresses(handle, i) if handle else []) for i in range(count)]
        for index, tensors in enumerate(sets):
            references.fill(row, tensors, seed=index + 1)
        check = references.Check(row, sets[0])
        contenders = contenders_of(row, options, library, handle)
        if library and not handle:
            print(f"    ours: {library.message()}", flush=True)
        candidates = []
        for contender in contenders:
            candidates += try_out(row, contender, sets, check, options)
        del check
        chosen = finalists(row, candidates, options, count)
        if chosen:
            measure.finals(chosen, count, 3 if options.quick else 6, 8e-3 if options.quick else 50e-3)
        entry = report.result(row, candidates, {c.name: c.failures for c in contenders if c.failures}, device)
        print("\n".join(report.lines(entry)), flush=True)
        if options.all or row.kernel in ELEMENTWISE:
            for c in candidates:
                if options.all or c.contender.startswith("cutlet"):
                    rate, unit = row.rate(c.seconds)
                    print(f"        {c.contender:18} {c.label:40} {c.seconds * 1e6:10.1f} us {rate:8.1f} {unit}", flush=True)
        if options.reports:
            for contender in contenders:
                for label, text in getattr(contender, "reports", {}).items():
                    print(f"        {contender.name} {label}: {text}", flush=True)
        return entry
    finally:
        torch.cuda.synchronize()
        sets = tensors = candidates = chosen = check = None
        if handle:
            library.close(handle)
        torch.cuda.empty_cache()


def environment(options):
    """Set before anything reads it: first launches find nothing, the tileir back end finds its cubins."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    cubins = options.folder / "tileir-cache.tar.xz"
    if cubins.exists() and "tileir" in options.backends:
        # In a new folder, which later runs do not see.
        unpacked = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
        with tarfile.open(cubins) as archive:
            archive.extractall(unpacked, filter="data")
        os.environ["CUTLET_CACHE_DIR"] = str(Path(unpacked) / "tileir-cache")
    else:
        os.environ["CUTLET_CACHE"] = "off"
        options.backends = [backend for backend in options.backends if backend != "tileir"]


def main():
    options = arguments()
    import rows
    if options.list:
        print("\n".join(rows.NAMES))
        return
    environment(options)
    import torch
    import launches
    import report
    from ours import Library
    torch.backends.cuda.matmul.allow_tf32 = True
    path = options.folder / "libcompare.so"
    library = Library(path) if path.exists() else None
    device = torch.cuda.get_device_name(0)
    torch.zeros(1, device="cuda")
    about = {"device": device, "torch": torch.__version__, "cuda": torch.version.cuda, "rows": options.rows, "quick": options.quick}
    print(f"{device}, torch {torch.__version__}; median microseconds; `peers` and `roofline` are ratios of rates", flush=True)
    stream = torch.cuda.ExternalStream(library.stream()) if library else torch.cuda.current_stream()
    results = []
    out = options.out or (Path(os.environ["OUT"]) if os.environ.get("OUT") else None)
    with torch.cuda.stream(stream), torch.no_grad():
        for row in rows.select([p for p in options.rows if p != "launch"]) if options.rows != ["launch"] else []:
            begin = time.perf_counter()
            try:
                results.append(compare(row, options, library, device))
            except Exception:  # a row that cannot be measured is no reason to lose the others
                print(f"{row.name}\n    {traceback.format_exc()}", flush=True)
                continue
            results[-1]["seconds"] = time.perf_counter() - begin
            if out:
                report.write(out, results, about)
    timed = []
    if not options.only and (not options.rows or "launch" in options.rows):
        timed = launches.measure(options.folder, options.live_cutile)
        print("\n".join(launches.lines(timed)), flush=True)
        if out:
            report.write(out, results, {**about, "launches": timed})
    print(report.table(results))
    wrong = [c for entry in results for c in entry["all"] if not c["right"] and report.ours(c["contender"])]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
