#!/usr/bin/env python3
"""Draws latency over the number of ranks as SVG, on the axes of the papers: what tutti chooses, beside
uniform n of 1 to 7, recursive doubling, binomial trees and the ring.

usage: paper_figures.py [--bench PATH] [--ranks P] [--sample P,P,...] OUT.svg [PRESET...]

A row of panels for each preset (qdr and fdr by default): barrier, allreduce of 1 and of 255 doubles.
The points are those of `tutti-bench curves`, which follow the events of the plans.  For the numbers of
ranks of --sample (5,12,24 by default, none: "") real runs in virtual time (`tutti-bench
--virtual-time`) are held against them; a difference of more than a thousandth ends with status 1.
"""
import csv
import io
import json
import math
import subprocess
import sys
import tempfile

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 250, 48, 34, 40
BEST = "best uniform n of 1 to 7"
STYLES = {
    "tutti": ("#b03060", 2.4, ""), "tutti, relaxed": ("#e08aa8", 1.8, "5 2"), BEST: ("#1f6fb4", 1.8, ""),
    "recursive doubling": ("#4d8b31", 1.4, "6 3"), "reduce + broadcast": ("#d08a1d", 1.4, "6 3"),
    "ring": ("#888888", 1.4, "2 3"),
}


def output_of(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode != 0:
        sys.exit(f"paper_figures.py: {' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def curves_of(bench, fabric, ranks):
    """{(collective, bytes): {curve: {ranks: nanoseconds}}}"""
    panels = {}
    text = output_of([bench, "curves", "--fabric", fabric, "--ranks", str(ranks)])
    for row in csv.DictReader(io.StringIO(text)):
        panel = panels.setdefault((row["collective"], int(row["bytes"])), {})
        panel.setdefault(row["curve"], {})[int(row["ranks"])] = float(row["ns"])
    return panels


def arguments_of(collective, size, curve, ranks):
    """How a run is asked for the schedule of a curve; None: there is no such run."""
    arguments = [collective] + (["--bytes", str(size)] if size else [])
    if curve.startswith("n = "):
        n = int(curve[4:])
        if collective == "barrier":
            rounds = 0
            while (n + 1)**rounds < ranks:
                rounds += 1
            return arguments + ["--per-round", ",".join([str(n)] * rounds)]
        return arguments + ["--algorithm", "nway", "--per-round", str(n)]
    if curve == "recursive doubling":
        rounds = max(1, math.ceil(math.log2(ranks)))
        return arguments + ["--algorithm", "recursive_multiplying", "--per-round", ",".join(["1"] * rounds)]
    if curve == "ring":
        return arguments + ["--algorithm", "ring"]
    if curve == "tutti, relaxed":
        return arguments + ["--agreement", "relaxed"]
    return arguments if curve == "tutti" else None


def check(bench, fabric, panels, ranks):
    """Holds runs in virtual time against the curves; returns how many differ."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        # Combining takes no time on the emulated presets; prices say 10 ns a value and 8 GB/s.
        json.dump({"preset": fabric, "work_us": 0.01, "work_gigabytes_per_second": 8}, file)
        file.flush()
        return compare(bench, file.name, fabric, panels, ranks)


def compare(bench, network, fabric, panels, ranks):
    compared = different = 0
    for (collective, size), panel in panels.items():
        for curve, points in panel.items():
            arguments = arguments_of(collective, size, curve, ranks)
            if arguments is None or ranks not in points:
                continue
            text = output_of([bench, *arguments, "--local", str(ranks), "--ranks-per-node", "1", "--virtual-time",
                              "--fabric", network, "--iterations", "1", "--format", "json"])
            measured = json.loads(text.splitlines()[0])["median_ns"]
            compared += 1
            if abs(measured / points[ranks] - 1) > 0.001:
                different += 1
                print(f"{fabric}, {collective} {size} B, {curve}, {ranks} ranks: "
                      f"{measured:.1f} ns in virtual time, {points[ranks]:.1f} ns drawn")
    print(f"{fabric}, {ranks} ranks: {compared} runs in virtual time, {different} differ")
    return different


def panel_svg(title, panel, left, top):
    lines = {curve: points for curve, points in panel.items() if not curve.startswith("n = ")}
    uniform = [points for curve, points in panel.items() if curve.startswith("n = ")]
    best = {}
    for points in uniform:
        for ranks, time in points.items():
            best[ranks] = min(time, best.get(ranks, time))
    lines[BEST] = best
    times = [time for points in lines.values() for time in points.values()]
    low, high = math.floor(math.log10(min(times)) * 4) / 4, math.ceil(math.log10(max(times)) * 4) / 4
    most = max(ranks for points in lines.values() for ranks in points)

    def point(ranks, time):
        x = left + LEFT + (ranks - 2) / max(most - 2, 1) * WIDTH
        y = top + TOP + HEIGHT - (math.log10(time) - low) / max(high - low, 0.25) * HEIGHT
        return f"{x:.1f},{y:.1f}"

    svg = [f'<text x="{left + LEFT}" y="{top + TOP - 12}" font-weight="bold">{title}</text>']
    for power in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            time = digit * 10.0**power
            if not low <= math.log10(time) <= high:
                continue
            y = float(point(2, time).split(",")[1])
            svg.append(f'<line x1="{left + LEFT}" x2="{left + LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
                       'stroke="#ddd"/>')
            svg.append(f'<text x="{left + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{time / 1000:g}</text>')
    for ranks in [2, *range(16, most + 1, 16)]:
        x = point(ranks, 10**low).split(",")[0]
        svg.append(f'<text x="{x}" y="{top + TOP + HEIGHT + 16}" text-anchor="middle">{ranks}</text>')

    def polyline(points, colour, width, dash):
        path = " ".join(point(ranks, time) for ranks, time in sorted(points.items()))
        svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
                   f'stroke-dasharray="{dash}"/>')

    for points in uniform:
        polyline(points, "#bcd3ea", 0.8, "")
    for curve, points in lines.items():
        polyline(points, *STYLES[curve])
    return svg


def legend_svg(top):
    svg, x = [], LEFT
    for label, (colour, width, dash) in [*STYLES.items(), ("each uniform n", ("#bcd3ea", 0.8, ""))]:
        svg.append(f'<line x1="{x}" x2="{x + 24}" y1="{top}" y2="{top}" stroke="{colour}" '
                   f'stroke-width="{width}" stroke-dasharray="{dash}"/>')
        svg.append(f'<text x="{x + 30}" y="{top + 4}">{label}</text>')
        x += 44 + 7 * len(label)
    return svg


def main(arguments):
    options = {"--bench": "build/release/bin/tutti-bench", "--ranks": "96", "--sample": "5,12,24"}
    while len(arguments) > 1 and arguments[0] in options:
        options[arguments[0]] = arguments[1]
        arguments = arguments[2:]
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    presets = arguments[1:] or ["qdr", "fdr"]
    sample = [int(ranks) for ranks in options["--sample"].split(",") if ranks]
    rows = {preset: curves_of(options["--bench"], preset, int(options["--ranks"])) for preset in presets}
    different = sum(check(options["--bench"], preset, panels, ranks)
                    for preset, panels in rows.items() for ranks in sample)
    step, row_step = LEFT + WIDTH + 16, TOP + HEIGHT + BOTTOM
    width, height = 3 * step, row_step * len(rows) + 60
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for row, (preset, panels) in enumerate(rows.items()):
        for number, ((collective, size), panel) in enumerate(panels.items()):
            what = f" of {size // 8} double{'s' if size > 8 else ''}" if size else ""
            svg += panel_svg(f"{preset}: {collective}{what}", panel, step * number,
                             row_step * row)
    svg += legend_svg(height - 38)
    svg.append(f'<text x="{LEFT}" y="{height - 10}">microseconds over the number of ranks, each a node of its own'
               "</text>")
    svg.append("</svg>")
    with open(arguments[0], "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")
    sys.exit(1 if different else 0)


main(sys.argv[1:])
