#!/usr/bin/env python3
"""How fast is the software device, as ratios measured in one run?

Blocks of everything alternate: tutti-bench's probes floor and wimm, wimm by cross-memory attach,
perftest's ib_write_lat and ib_write_bw on the same device, and memmove of 1 MiB in one process.
Prints the medians, and each ratio's median over the blocks beside the bound it is to keep.  Two
processes at a time, pinned to CPUs 0 and 1.  Needs the package perftest and two free CPUs.
"""
import argparse
import ctypes
import json
import mmap
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20


def probes(build, transport):
    """Medians of floor and wimm in us."""
    environment = dict(os.environ)
    environment.pop("TUTTI_SOFT_TRANSPORT", None)
    if transport:
        environment["TUTTI_SOFT_TRANSPORT"] = transport
    lines = subprocess.run(
        [build + "/bin/tutti-bench", "floor,wimm", "--bytes", "8", "--local", "2", "--format",
         "json", "--iterations", "4000"],
        env=environment, check=True, timeout=60, capture_output=True, text=True).stdout
    rows = {row["collective"]: row["median_ns"] / 1000 for row in map(json.loads, lines.splitlines())}
    return rows["floor"], rows["wimm"]


def perftest(build, tool, *options):
    """The last line of numbers that the client prints."""
    environment = dict(os.environ, TUTTI_BUILD_DIRECTORY=build, TUTTI_SOFT_PROMOTE="1",
                       MALLOC_MMAP_THRESHOLD_="1")  # its buffers become shared files
    command = [ROOT + "/scripts/softverbs", tool, "-d", "soft0", "-F", *options]
    port = str(20000 + os.getpid() % 10000)
    server = subprocess.Popen(["taskset", "-c", "0", *command, "-p", port], env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            time.sleep(0.1)
            client = subprocess.run(["taskset", "-c", "1", *command, "-p", port, "localhost"],
                                    env=environment, timeout=60, capture_output=True, text=True)
            if client.returncode == 0:
                break
        else:
            sys.exit(f"soft_device.py: {tool} has failed: {client.stderr or client.stdout}")
        server.wait(60)
    finally:
        server.kill()
    rows = [line.split() for line in client.stdout.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
    return [float(word) for word in rows[-1]]


def copy_rate():
    """GB/s of memmove between two buffers of 1 MiB."""
    buffers = [mmap.mmap(-1, MIB) for _ in range(2)]
    places = [ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in buffers]
    best = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(100):
            ctypes.memmove(places[0], places[1], MIB)
        best.append(100 * MIB / (time.perf_counter() - begin) / 1e9)
    return statistics.median(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--build", default=ROOT + "/build/release", help="directory of a build")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("soft_device.py: needs two CPUs")
    blocks = []
    for number in range(arguments.blocks):
        print(f"\rblock {number + 1} of {arguments.blocks}", end="", file=sys.stderr, flush=True)
        block = {}
        block["floor, us"], block["wimm, us"] = probes(arguments.build, None)
        block["ib_write_lat 8 B, us"] = perftest(
            arguments.build, "ib_write_lat", "-s", "8", "-n", "100000")[4]
        block["floor beside CMA, us"], block["wimm by CMA, us"] = probes(arguments.build, "cma")
        block["ib_write_bw 8 B, million messages/s"] = perftest(
            arguments.build, "ib_write_bw", "-s", "8", "-n", "1000000")[4]
        # MiB/s, as perftest counts.
        block["ib_write_bw 1 MiB, GB/s"] = perftest(
            arguments.build, "ib_write_bw", "-s", str(MIB), "-n", "5000")[3] * MIB / 1e9
        block["memmove 1 MiB, GB/s"] = copy_rate()
        blocks.append(block)
    print(file=sys.stderr)
    for name in blocks[0]:
        values = [block[name] for block in blocks]
        print(f"{name:38} median {statistics.median(values):8.3f}  "
              f"({min(values):.3f} to {max(values):.3f})")
    for one, other, relation, bound in (
            ("wimm, us", "floor, us", "<=", 2.0),
            ("wimm, us", "ib_write_lat 8 B, us", "<=", 1.2),
            ("wimm by CMA, us", "floor beside CMA, us", "<=", 8.0),
            ("ib_write_bw 8 B, million messages/s", None, ">=", 10.0),
            ("ib_write_bw 1 MiB, GB/s", "memmove 1 MiB, GB/s", ">=", 0.8)):
        ratio = statistics.median(block[one] / (block[other] if other else 1) for block in blocks)
        keeps = ratio <= bound if relation == "<=" else ratio >= bound
        print(f"{one + (' / ' + other if other else ''):62} {ratio:6.2f} {relation} {bound:<5} "
              f"{'met' if keeps else 'NOT met'}")


if __name__ == "__main__":
    main()
