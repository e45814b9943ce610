#!/usr/bin/env python3
"""Where the warps of a kernel spend a round of its hottest loop, instruction by instruction.

    ncu --section SourceCounters --page source --csv --warp-sampling-interval 2 -k regex:NAME -c 1 PROGRAM > samples.csv
    scripts/cycles.py samples.csv [--least 4]

Nsight Compute looks at each warp every so often: at which instruction it is, and why it does not go on. An instruction is
issued in one cycle, so the looks that find it issued are the measure of a cycle. Printed are, for each instruction of the loop, the
cycles from the one before, of one warp in one round, their sum, and what else than issuing it they went to; those of
fewer cycles than `--least` are put together. Reasons are Nsight Compute's: `wait` is a fixed number of cycles that the
assembler has set, `short_sb` and `long_sb` are results that take longer, `barrier` is also a product of a warpgroup, `dispatch` a unit or port
that others use, `not_selected` the other warps of the scheduler, `no_inst` code that was not there yet.
"""

import argparse
import collections
import csv
import pathlib
import statistics

# Loops of one kernel run about as often: a part of the rounds may be others.
ALIKE = 0.3


def number(text):
    """A number of ncu's.

    >>> number("1,024"), number("0"), number("")
    (1024, 0, 0)
    """
    return int(text.replace(",", "") or 0) if text else 0


def instructions(lines):
    """The rows of the page of the first kernel, and the columns that say why a warp waits.

    >>> lines = ['==PROF== x', '"Address","Source","stall_wait","stall_wait (Not Issued)"', '"0","MOV","2","1"', '==PROF== y']
    >>> rows, reasons = instructions(lines)
    >>> [row["Source"] for row in rows], reasons
    (['MOV'], ['stall_wait'])
    >>> instructions(["no page"])
    Traceback (most recent call last):
    SystemExit: this is no source page of ncu: it has no line that begins with "Address"
    """
    head = next((at for at, line in enumerate(lines) if line.startswith('"Address"')), None)
    if head is None:
        raise SystemExit('this is no source page of ncu: it has no line that begins with "Address"')
    end = next((at for at in range(head + 1, len(lines)) if not lines[at].startswith('"')), len(lines))
    rows = list(csv.DictReader(lines[head:end]))
    return rows, [name for name in rows[0] if name.startswith("stall_") and "Not Issued" not in name]


def hottest(rows):
    """The instructions that run as often as those at which warps are found most.

    >>> row = lambda often, samples: {"Instructions Executed": often, "# Samples": samples}
    >>> [one["# Samples"] for one in hottest([row("1", "50"), row("1,000", "30"), row("900", "5"), row("1,000", "40")])]
    ['30', '5', '40']
    """
    found = collections.Counter()
    for row in rows:
        found[number(row["Instructions Executed"])] += number(row["# Samples"])
    often = max(found, key=found.get)
    return [row for row in rows if abs(number(row["Instructions Executed"]) - often) <= ALIKE * often]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=pathlib.Path, help="what ncu has printed")
    parser.add_argument("--least", type=float, default=4, help="cycles from which an instruction is printed alone")
    options = parser.parse_args()
    rows, reasons = instructions(options.samples.read_text().splitlines())
    loop = hottest(rows)
    issued = [number(row["stall_selected"]) for row in loop]
    cycle = statistics.median(issued)
    if cycle == 0:
        raise SystemExit("too few samples: a smaller --warp-sampling-interval, or a longer kernel")
    cycles = [number(row["# Samples"]) / cycle for row in loop]
    print(f"a round of {sum(cycles):.0f} cycles, {len(loop)} instructions")
    total, few, count = 0.0, 0.0, 0
    for row, spent in zip(loop, cycles):
        total += spent
        if spent < options.least:
            few, count = few + spent, count + 1
            continue
        if count:
            print(f"{few:7.1f}          {count} others")
            few, count = 0.0, 0
        why = {name.removeprefix("stall_"): number(row[name]) / cycle for name in reasons if name != "stall_selected"}
        why = sorted(((part, name) for name, part in why.items() if part >= 1), reverse=True)
        why = ", ".join(f"{name} {part:.0f}" for part, name in why)
        print(f"{spent:7.1f} {total:8.1f} {' '.join(row['Source'].split())[:64]:64} {why}")
    if count:
        print(f"{few:7.1f}          {count} others")
    shares = {name.removeprefix("stall_"): sum(number(row[name]) for row in loop) / cycle for name in reasons}
    named = sorted(shares.items(), key=lambda one: -one[1])
    print("of these: " + ", ".join(f"{name} {part:.0f}" for name, part in named if part >= 1))


if __name__ == "__main__":
    main()
