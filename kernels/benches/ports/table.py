"""Renders the output of the benchmark `ports` as a table of Markdown, with the geometric mean of the ratios.

    table.py OUTPUT
"""
import sys
from math import exp, log
from pathlib import Path


def main():
    lines = Path(sys.argv[1]).read_text().splitlines()
    print("| row | lines | lines of the original | time | time of the original | ratio | rate |")
    print("|---|---|---|---|---|---|---|")
    ratios, shorter = [], []
    for line in lines:
        fields = line.split("\t")
        if len(fields) != 10 or fields[0] == "row":
            continue
        row, ours, theirs, ratio, our_lines, their_lines, rate, *_ = fields
        print(f"| `{row}` | {our_lines} | {their_lines} | {ours} | {theirs} | {ratio} | {rate} |")
        if ratio != "-":
            ratios.append(float(ratio))
            shorter.append(int(our_lines) / int(their_lines))
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        print(f"\n{len(ratios)} rows: geometric mean of the ratios {mean:.2f}, mean of the ratios of lines {sum(shorter) / len(shorter):.2f}")


if __name__ == "__main__":
    main()
