"""Renders outputs of the benchmark `ports` as a table of Markdown, with the geometric mean of the ratios.

    table.py OUTPUT... [--manifest MANIFEST]... [--page PAGE]

Rows of later outputs replace those of earlier ones. Lines of originals are those of manifests, if these have the row. With a page, its
part from `<!-- table -->` to `<!-- end -->` is replaced.
"""
import argparse
import re
from math import exp, log
from pathlib import Path

from lines import our_lines
from notes import note


def measured(paths):
    """Device and fields of each row."""
    device, names, rows = "", [], {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            fields = line.split("\t")
            if fields[0] == "row":
                names = fields
            elif len(fields) == len(names):
                rows[fields[0]] = dict(zip(names, fields))
            elif "NVIDIA" in line and "\t" not in line:
                device = line
    return device, rows


def lines_of_originals(manifests):
    """Lines of the original by row."""
    fields = [line.split("\t") for path in manifests for line in Path(path).read_text().splitlines()]
    return {of[1]: of[3] for of in fields if of[0] == "launch"} | {of[1]: of[4] for of in fields if of[0] == "stage"}


def table(device, rows, originals):
    text = [f"{device}.", "", "| row | kernel | lines | lines of the original | time | time of the original | ratio | rate | needs |",
            "|---|---|---|---|---|---|---|---|---|"]
    ratios, shorter, kernels = [], [], set()
    for row, of in rows.items():
        kernel, needs, functions = note(row)
        kernels.add(kernel)
        ours, theirs = our_lines(functions), originals.get(row, of["lines of the original"])
        time, other, ratio = of["cutlet"], of["original"], of["ratio"]
        text.append(f"| `{row}` | {kernel} | {ours} | {theirs} | {time} | {other} | {ratio} | {of['rates']} | {needs} |")
        if ratio != "-":
            ratios.append(float(ratio))
            shorter.append((ours, int(theirs)))
    mean = exp(sum(map(log, ratios)) / len(ratios))
    short = sum(a / b for a, b in shorter) / len(shorter)
    whole = sum(a for a, _ in shorter) / sum(b for _, b in shorter)
    text += ["", f"{len(kernels)} kernels in {len(rows)} rows, {len(ratios)} of them with a time of the original. Geometric mean of the "
             f"ratios: {mean:.2f}; {sum(ratio < 1 for ratio in ratios)} ratios are below 1. Lines of cutlet over those of the original: "
             f"{short:.2f} on average, {whole:.2f} in total."]
    return "\n".join(text) + "\n"


def main():
    words = argparse.ArgumentParser(usage=__doc__)
    words.add_argument("outputs", nargs="+")
    words.add_argument("--manifest", action="append", default=[])
    words.add_argument("--page", type=Path)
    words = words.parse_args()
    text = table(*measured(words.outputs), lines_of_originals(words.manifest))
    if words.page is None:
        return print(text, end="")
    before, after = re.split(r"(?<=<!-- table -->\n).*(?=<!-- end -->)", words.page.read_text(), flags=re.DOTALL)
    words.page.write_text(before + text + after)


if __name__ == "__main__":
    main()
