#!/usr/bin/env python3
"""Draws residuals over time as SVG: a line for each solver and communication.

usage: poisson_mpi --history RUN; residuals.py OUT.svg RUN.0.csv
"""
import csv
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 280, 64, 34, 46
COLOURS = {"tutti": "#b03060", "MPI": "#1f6fb4", "preloaded": "#2e8b57"}
DASHES = {"cg": "", "pipelined": "6 3"}


def read(path):
    """{(solver, communication): [(milliseconds, residual)]}"""
    lines = {}
    try:
        with open(path, encoding="utf-8") as file:
            for row in csv.DictReader(file):
                line = lines.setdefault((row["solver"], row["communication"]), [])
                if float(row["residual"]) > 0:
                    line.append((float(row["milliseconds"]), float(row["residual"])))
    except (OSError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"residuals.py: {path}: expected what --history writes: {error!r}")
    lines = {key: line for key, line in lines.items() if line}
    if not lines:
        sys.exit(f"residuals.py: {path}: has no residual")
    return lines


def step_of(last):
    """A round number, of which four to ten fit."""
    power = 10.0**math.floor(math.log10(last / 4))
    return next(power * digit for digit in (5, 2, 1) if last / (power * digit) >= 4)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    lines = read(arguments[1])
    last = max(max(line[-1][0] for line in lines.values()), 1e-6)
    residuals = [residual for line in lines.values() for _, residual in line]
    low, high = math.floor(math.log10(min(residuals))), math.ceil(math.log10(max(residuals)))
    high = max(high, low + 1)

    def x_of(time):
        return LEFT + time / last * WIDTH

    def y_of(residual):
        return TOP + HEIGHT - (math.log10(residual) - low) / (high - low) * HEIGHT

    width, height = LEFT + WIDTH + 20, TOP + HEIGHT + BOTTOM
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-weight="bold">residual over time</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        svg.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        svg.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
    step = step_of(last)
    for i in range(int(last / step) + 1):
        svg.append(f'<text x="{x_of(i * step):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
                   f"{i * step:g}</text>")
    svg.append(f'<text x="{LEFT}" y="{height - 10}">milliseconds</text>')
    for number, ((solver, communication), line) in enumerate(lines.items()):
        look = (f'stroke="{COLOURS.get(communication, "#888")}" stroke-width="1.6" '
                f'stroke-dasharray="{DASHES.get(solver, "2 2")}"')
        path = " ".join(f"{x_of(time):.1f},{y_of(residual):.1f}" for time, residual in line)
        svg.append(f'<polyline points="{path}" fill="none" {look}/>')
        x, y = LEFT + WIDTH - 300, TOP + 14 + 16 * number
        svg.append(f'<line x1="{x}" x2="{x + 28}" y1="{y - 4}" y2="{y - 4}" {look}/>')
        svg.append(f'<text x="{x + 36}" y="{y}">{solver}, {communication}: {len(line) - 1} iterations in '
                   f"{line[-1][0]:.3g} ms</text>")
    svg.append("</svg>")
    with open(arguments[0], "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


main(sys.argv[1:])
