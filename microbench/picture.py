#!/usr/bin/env python3
"""Draws latency over size from runs of tutti-bench, as SVG: tutti and the MPIs beside it.

usage: picture.py [--note TEXT] OUT.svg RUN.json...

Each RUN is the output of `tutti-bench allreduce,broadcast,reduce --against mpi --format json`, one
for each MPI.  A panel for each collective; both axes are logarithmic.  tutti is drawn once for each
run, for it was measured anew beside each MPI.  The note is printed below the panels.
"""
import html
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 240, 52, 34, 46
COLOURS = ["#b03060", "#1f6fb4", "#d08a1d", "#4d8b31"]


def rows_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.startswith("{")]
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"picture.py: {path}: expected the JSON of tutti-bench: {error}")
    rows = [row for row in rows if row.get("against") and row["bytes"] > 0]
    if not rows:
        sys.exit(f"picture.py: {path}: has no row with an MPI beside it; run with --against mpi")
    return rows


def series_of(paths):
    """{collective: {label: [(bytes, microseconds)]}}, in the order of the runs."""
    panels = {}
    for path in paths:
        for row in rows_of(path):
            # "Open MPI 4.1.4" without what follows.
            mpi = row["against"]["mpi"]
            name = " ".join(mpi["name"].split()[:3])
            panel = panels.setdefault(row["collective"], {})
            label = "tutti" if len(paths) == 1 else f"tutti (beside {name.rsplit(' ', 1)[0]})"
            panel.setdefault(label, []).append((row["bytes"], row["median_ns"] / 1000))
            panel.setdefault(name, []).append((row["bytes"], mpi["median_ns"] / 1000))
    return panels


def text_of_bytes(count):
    for unit, power in (("M", 20), ("K", 10)):
        if count >= 1 << power:
            return f"{count >> power}{unit}"
    return str(count)


def panel_svg(title, lines, left):
    sizes = [size for points in lines.values() for size, _ in points]
    times = [time for points in lines.values() for _, time in points]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(min(sizes)), math.log2(max(sizes))

    def x_of(size):
        return left + LEFT + (math.log2(size) - first) / max(last - first, 1) * WIDTH

    def y_of(time):
        return TOP + HEIGHT - (math.log10(time) - low) / max(high - low, 1) * HEIGHT

    svg = [f'<text x="{left + LEFT}" y="{TOP - 12}" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        svg.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
        svg.append(f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                   f"{10.0**power:g}</text>")
    for size in sorted(set(sizes))[::3]:
        svg.append(f'<text x="{x_of(size):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
                   f"{text_of_bytes(size)}</text>")
    for number, (label, points) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], "" if label.startswith("tutti") else "5 3"
        path = " ".join(f"{x_of(size):.1f},{y_of(time):.1f}" for size, time in sorted(points))
        svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dash}"/>')
        y = TOP + 14 + 15 * number
        svg.append(f'<text x="{left + LEFT + 8}" y="{y}" fill="{colour}">{label}</text>')
    return svg


def main(arguments):
    note = ""
    if arguments[:1] == ["--note"] and len(arguments) > 1:
        note = "; " + html.escape(arguments[1])
        arguments = arguments[2:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    panels = series_of(arguments[1:])
    step = LEFT + WIDTH + 16
    width, height = step * len(panels), TOP + HEIGHT + BOTTOM
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, (title, lines) in enumerate(panels.items()):
        svg += panel_svg(f"{title}, microseconds", lines, step * number)
    sizes = "bytes of each rank"
    if "alltoall" in panels:
        sizes += " (alltoall: of each block)"
    svg.append(f'<text x="{LEFT}" y="{height - 8}">{sizes}{note}</text></svg>')
    with open(arguments[0], "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


main(sys.argv[1:])
