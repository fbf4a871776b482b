#!/usr/bin/env python3
"""Draws the error over time from a run of matrix_factorization, as SVG: a line for each slack.

usage: matrix_factorization > RUN.csv; matrix_factorization.py OUT.svg RUN.csv
"""
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 260, 56, 30, 46
COLOURS = ["#b03060", "#1f6fb4", "#4d8b31"]


def read(path):
    """{slack: [(milliseconds, error)]} and {slack: iterations per second}."""
    lines, speeds = {}, {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith("# slack"):
                    words = line.replace(":", "").split()
                    speeds[int(words[2])] = words[3]
                elif line[0].isdigit():
                    slack, _, time, error, _ = line.split(",")
                    lines.setdefault(int(slack), []).append((float(time), float(error)))
    except (OSError, ValueError) as error:
        sys.exit(f"matrix_factorization.py: {path}: expected the output of the program: {error}")
    if not lines:
        sys.exit(f"matrix_factorization.py: {path}: has no line of a run")
    return lines, speeds


def main(arguments):
    if len(arguments) != 2 or arguments[0].startswith("-"):
        sys.exit(__doc__)
    lines, speeds = read(arguments[1])
    points = [point for line in lines.values() for point in line]
    last = max(time for time, _ in points)
    low = math.floor(math.log10(min(error for _, error in points)) * 5) / 5
    high = math.ceil(math.log10(max(error for _, error in points)) * 5) / 5

    def x_of(time):
        return LEFT + time / last * WIDTH

    def y_of(error):
        return TOP + HEIGHT - (math.log10(error) - low) / (high - low) * HEIGHT

    width, height = LEFT + WIDTH + 20, TOP + HEIGHT + BOTTOM
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-weight="bold">error over time, one rank slow at a time'
           '</text>']
    for error in (0.05, 0.1, 0.2, 0.5, 1, 2):
        if low <= math.log10(error) <= high:
            y = y_of(error)
            svg.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
                       'stroke="#ddd"/>')
            svg.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{error}</text>')
    for part in range(5):
        time = last * part / 4
        svg.append(f'<text x="{x_of(time):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
                   f"{time:.0f}</text>")
    svg.append(f'<text x="{LEFT}" y="{height - 10}">milliseconds</text>')
    for number, (slack, line) in enumerate(lines.items()):
        path = " ".join(f"{x_of(time):.1f},{y_of(error):.1f}" for time, error in line)
        colour = COLOURS[number % len(COLOURS)]
        svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        svg.append(f'<text x="{LEFT + WIDTH - 230}" y="{TOP + 16 + 16 * number}" fill="{colour}">'
                   f"slack {slack}: {speeds.get(slack, '?')} iterations per second</text>")
    svg.append("</svg>")
    with open(arguments[0], "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


main(sys.argv[1:])
