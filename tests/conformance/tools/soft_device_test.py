#!/usr/bin/env python3
"""Promise: microbench/soft_device.py says which bounds are met, and its exit status does, too.

Runs it with invented figures in the place of measurements.
"""
import contextlib
import io
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../microbench"))
import soft_device  # noqa: E402

GOOD = {"floor, us": 0.3, "wimm, us": 0.4, "ib_write_lat 8 B, us": 0.4,
        "floor beside CMA, us": 0.3, "wimm by CMA, us": 1.5,
        "ib_send_lat UD 1 KiB, us": 1.2, "ib_send_lat RC 1 KiB, us": 0.6,
        "ib_write_bw 8 B, million messages/s": 12.0,
        "ib_write_bw 1 MiB, GB/s": 9.0, "memmove 1 MiB, GB/s": 10.0}
RATE = "ib_write_bw 8 B, million messages/s"
LARGE = "ib_write_bw 1 MiB, GB/s"


def run(tries, *options):
    """Status, output and how often it measured; `tries`: the figures of each time."""
    measured = []

    def measure(_build, _blocks):
        measured.append(None)
        return [tries[min(len(measured), len(tries)) - 1]]

    soft_device.measure = measure
    sys.argv = ["soft_device.py", "--build", build, *options]
    output = io.StringIO()
    status = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            soft_device.main()
        except SystemExit as end:
            status = end.code
    return status, output.getvalue(), len(measured)


def expect(condition, what):
    if not condition:
        sys.exit(f"soft_device_test.py: {what}")


build = sys.argv[1]
if len(os.sched_getaffinity(0)) < 2:
    print("needs two CPUs")
    sys.exit(77)

status, output, count = run([GOOD])
expect(status == 0 and count == 1, "all bounds are kept")
expect(output.count(" met") == 6 and "NOT" not in output, "it says so of each")

slow = dict(GOOD, **{RATE: 9.0})
status, output, count = run([slow])
expect(status == 3 and count == 1, "9 of 10 million messages a second are a miss")
expect(output.count("NOT met") == 2, "it says which, and how many")  # the line, and the last one
expect(run([slow], "--tripwire")[::2] == (0, 1), "9 are within the slack of a tripwire")
some = dict(GOOD, **{RATE: 3.6})
expect(run([some], "--tripwire")[::2] == (0, 1), "so are 3.6, on a slow machine")

few = dict(GOOD, **{RATE: 3.4})
status, output, count = run([few], "--tripwire")
expect(status == 3 and count == 3, "3.4 of 10 million are a miss also of the best of three")
expect(run([few, few, GOOD], "--tripwire")[::2] == (0, 3), "the third time counts, too")
other = dict(GOOD, **{LARGE: 4.0})
expect(run([few, other], "--tripwire")[::2] == (0, 2), "each bound has its own best")
expect(run([other], "--tripwire")[0] == 3, "0.4 of memmove is a miss")

for wrong in (["--blocks", "0"], ["--blocks", "x"], ["--unknown"]):
    expect(run([GOOD], *wrong)[0] == 2, f"{wrong} is refused")
build = "/nonexistent"
expect("is not there" in str(run([GOOD])[0]), "without a build it says what to do")
