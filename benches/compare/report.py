"""The table, the JSON and the bar chart of a comparison. Knows results, nothing of how they came about."""

import json
from html import escape

# Datasheet ceilings by device name: bytes a second, operations a second by element type (dense; packed weights are
# multiplied as f16).
ROOFLINES = {
    "H200": (4.8e12, {"u4": 989e12, "f16": 989e12, "bf16": 989e12, "tf32": 495e12, "e4m3": 1979e12}),
    "H100": (3.35e12, {"u4": 989e12, "f16": 989e12, "bf16": 989e12, "tf32": 495e12, "e4m3": 1979e12}),
    "A100": (2.0e12, {"u4": 312e12, "f16": 312e12, "bf16": 312e12, "tf32": 156e12}),
}
COLOURS = {"cutlet ptx": "#c2410c", "cutlet tileir": "#f59e0b", "cuTile Python": "#15803d", "Triton": "#7c3aed"}
LIBRARY_COLOURS = ["#1d4ed8", "#60a5fa", "#94a3b8"]


def floor_seconds(row, device):
    """The least time that the datasheet allows; None for a GPU that is not in the table."""
    for name, (bandwidth, rates) in ROOFLINES.items():
        if name in device:
            rate = rates.get(row.element)
            return max(row.bytes / bandwidth, row.flops / rate if row.flops and rate else 0)
    return None


def ours(contender):
    return contender.startswith("cutlet")


def result(row, candidates, failures, device):
    """One row of the report, as plain data."""
    best = {}
    for candidate in candidates:
        held = best.get(candidate.contender)
        # Only what was right counts, and of that what stood in the finals.
        if candidate.error <= row.tolerance and candidate.times and (held is None or candidate.seconds < held.seconds):
            best[candidate.contender] = candidate
    floor = floor_seconds(row, device)
    peers = [c.seconds for name, c in best.items() if not ours(name)]
    out = {"row": row.name, "tolerance": row.tolerance, "contenders": {}, "all": [], "failures": failures}
    for name, candidate in best.items():
        rate, unit = row.rate(candidate.seconds)
        times = sorted(candidate.times)
        out["contenders"][name] = {
            "configuration": candidate.label, "microseconds": candidate.seconds * 1e6, "rate": rate, "unit": unit, "error": candidate.error,
            "least": times[0] * 1e6, "tenth": times[len(times) // 10] * 1e6, "ninetieth": times[len(times) * 9 // 10] * 1e6,
            "launches": len(times), "to_best_peer": min(peers) / candidate.seconds if peers else None,
            "to_roofline": floor / candidate.seconds if floor else None}
    for c in candidates:
        out["all"].append({"contender": c.contender, "configuration": c.label, "microseconds": c.seconds * 1e6 if c.seconds else None,
                           "final": bool(c.times), "error": c.error, "right": c.error <= row.tolerance, "first_launch_ms": c.first_seconds * 1e3})
    return out


def lines(entry):
    """A result as text."""
    def text(value, form):
        return format(value, form) if value is not None else "-"
    yield entry["row"]
    order = sorted(entry["contenders"].items(), key=lambda item: item[1]["microseconds"])
    for name, c in order:
        yield (f"    {name:18} {c['microseconds']:10.1f} us {c['rate']:8.1f} {c['unit']:8} peers {text(c['to_best_peer'], '6.3f')}"
               f"  roofline {text(c['to_roofline'], '5.3f')}  error {c['error']:.1e}  {c['configuration']}")
    for candidate in entry["all"]:
        if not candidate["right"]:
            yield f"    WRONG: {candidate['contender']} {candidate['configuration']}: error {candidate['error']:.2e}, at most {entry['tolerance']:.1e}"
    for contender, failures in entry["failures"].items():
        label, text_ = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        yield f"    failed: {contender} {label}: {' '.join(text_.split())[:300]}{more}"


def table(results):
    """One line a row: ours beside the best of each kind of peer."""
    head = ["row", "cutlet ptx", "cutlet tileir", "cuTile Python", "Triton", "library", "unit", "ptx / peers", "roofline"]
    body = []
    for entry in results:
        c = entry["contenders"]
        rate = lambda name: f"{c[name]['rate']:.0f}" if name in c else "-"
        library = {n: v for n, v in c.items() if n not in COLOURS}
        best = max(library, key=lambda n: library[n]["rate"]) if library else None
        own = c.get("cutlet ptx")
        ratio = lambda key: f"{own[key]:.3f}" if own and own[key] is not None else "-"
        unit = next(iter(c.values()))["unit"] if c else "-"
        body.append([entry["row"], rate("cutlet ptx"), rate("cutlet tileir"), rate("cuTile Python"), rate("Triton"),
                     f"{library[best]['rate']:.0f} {best}" if best else "-", unit, ratio("to_best_peer"), ratio("to_roofline")])
    return markdown(head, body)


def markdown(head, body):
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    line = lambda cells: "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, body)])


def chart(results, title):
    """Horizontal bars, one group a row, as parts of the best peer."""
    bar, gap, left, width = 14, 16, 300, 520
    groups, y = [], 64
    colours = dict(COLOURS)
    for entry in results:
        c = entry["contenders"]
        if not c:
            continue
        reference = max((v["rate"] for n, v in c.items() if not ours(n)), default=None) or max(v["rate"] for v in c.values())
        groups.append(f'<text x="{left - 10}" y="{y + bar * len(c) / 2 + 4}" text-anchor="end">{escape(entry["row"])}</text>')
        libraries = iter(LIBRARY_COLOURS)
        for name in sorted(c, key=lambda n: (list(COLOURS).index(n) if n in COLOURS else 99, n)):
            colour = colours.get(name) or next(libraries, "#94a3b8")
            length = min(1.4, c[name]["rate"] / reference) * width / 1.4
            groups.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" fill="{colour}"/>'
                          f'<text x="{left + length + 5:.1f}" y="{y + bar - 4}" class="s">{c[name]["rate"]:.0f} {c[name]["unit"]}, {escape(name)}</text>')
            y += bar
        y += gap
    line = left + width / 1.4
    legend, x = [], left
    for name, colour in [*COLOURS.items(), ("libraries", LIBRARY_COLOURS[0])]:
        legend.append(f'<rect x="{x}" y="36" width="11" height="11" fill="{colour}"/><text x="{x + 16}" y="46">{name}</text>')
        x += 120
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 190}" height="{y + 10}" font-family="sans-serif" font-size="12">'
            f'<style>.s{{font-size:10px;paint-order:stroke;stroke:white;stroke-width:3px}}</style><rect width="100%" height="100%" fill="white"/><text x="{left}" y="20" font-size="15">{escape(title)}</text>'
            f'{"".join(legend)}<line x1="{line:.1f}" x2="{line:.1f}" y1="56" y2="{y - gap + 4}" stroke="#555" stroke-dasharray="4 3"/>'
            f'{"".join(groups)}</svg>\n')


def write(folder, results, about):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps({"about": about, "rows": results}, indent=1))
    (folder / "comparison.md").write_text(table(results) + "\n")
    (folder / "comparison.svg").write_text(chart(results, f"Rates on one {about['device']}; dashed: the best peer"))
