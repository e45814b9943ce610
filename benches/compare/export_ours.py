"""Writes the code of our configurations, without a GPU.

usage: python3 export_ours.py LIBRARY FOLDER [--format ptx|tilebc|cubin] [--target sm_90a] [--ptxas] [ROW ...]

`tilebc` is the bytecode of the tileir back end. `cubin` goes through the tileir back end and tileiras, and leaves the machine code in CUTLET_CACHE_DIR as well,
where a machine without tileiras finds it. `--ptxas` assembles each PTX and prints registers, spills and warnings.

A configuration without code is printed with its reason. The exit status is 1 if a row has no code at all.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rows
from ours import Library, export_all


def assembled(path, target):
    """What ptxas says of a file, in one line."""
    ptxas = os.environ.get("CUTLET_PTXAS") or shutil.which("ptxas") or shutil.which(".tools/bin/ptxas")
    if not ptxas:
        sys.exit("no ptxas: run scripts/tools, or name one in CUTLET_PTXAS")
    done = subprocess.run([ptxas, f"-arch={target}", "-v", "-o", os.devnull, str(path)], capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode:
        return "REFUSED: " + " ".join(text.split())[:300]
    registers = re.search(r"Used (\d+) registers", text)
    spills = re.search(r"(\d+) bytes spill stores", text)
    warnings = sorted(set(re.findall(r"\(C75\d\d\)[^\n]*", text)))
    return f"{registers.group(1) if registers else '?'} registers, {spills.group(1) if spills else '?'} B spilled {' '.join(warnings)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", choices=["ptx", "tilebc", "cubin"], default="ptx")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--ptxas", action="store_true")
    parser.add_argument("rows", nargs="*")
    # Rows may follow options.
    options = parser.parse_intermixed_args()
    library, empty = Library(options.library.resolve()), []
    for row in rows.select(options.rows):
        before = set(options.folder.glob("*"))
        failures = export_all(library, row.name, options.target, options.format, options.folder)
        for label, problem in failures.items():
            print(f"{row.name}, {label}: {problem}", file=sys.stderr)
        made = sorted(set(options.folder.glob("*")) - before)
        print(f"{row.name}: {len(made)} files, {len(failures)} configurations without code", flush=True)
        if failures and not made:
            empty.append(row.name)
        for path in made if options.ptxas and options.format == "ptx" else []:
            print(f"    {path.stem}: {assembled(path, options.target)}", flush=True)
    if empty:
        sys.exit(f"rows without code: {', '.join(empty)}")


if __name__ == "__main__":
    main()
