#!/usr/bin/env python3
"""How fast is tutti beside an MPI with its defaults, and beside one that is tuned for the ranks of a node?

Launches tutti-bench --against mpi once for each setting of an MPI, under the launcher of that MPI,
and prints a table for each collective: a line for each setting, and for each size tutti's time over
that MPI's.  Below 1 tutti is faster.  tutti and the MPI alternate in the blocks of one launch, and a
figure is the median of the blocks' ratios; with --rounds the settings take turns, and a figure is
the median of the launches, with the least and the greatest of them behind it.

The settings:
{settings}

Those of Open MPI need a build with Open MPI (preset "release"), those of MPICH one with MPICH
(preset "release-mpich").  A setting that cannot be had here is left out, with the reason, unless it is named
by --settings.  The settings are for Open MPI 4; ompi_info says whether it knows their parameters.

Exit status 0 if all has been measured, 1 if something could not be, 2 for wrong arguments.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPEN_MPI, MPICH = "Open MPI", "MPICH"
PRESETS = {OPEN_MPI: "release", MPICH: "release-mpich"}
LAUNCHERS = {OPEN_MPI: "mpirun.openmpi", MPICH: "mpirun.mpich"}

# Name, MPI, and the parameters that the launcher passes on: of Open MPI its own, of MPICH variables.
OPTIONS = {OPEN_MPI: "--mca", MPICH: "-genv"}
SETTINGS = {
    "defaults": (OPEN_MPI, {}),
    "vader": (OPEN_MPI, {"btl_vader_eager_limit": "131072",
                         "btl_vader_max_send_size": "262144",
                         "btl_vader_single_copy_mechanism": "none"}),
    "coll_sm": (OPEN_MPI, {"coll_sm_priority": "100",
                           "coll_sm_fragment_size": "65536"}),
    "mpich": (MPICH, {}),
    "eager": (MPICH, {"UCX_RNDV_THRESH": "inf"})}
COLLECTIVES = "broadcast,reduce,allreduce,allgather,alltoall,gather,scatter"
SIZES = "8,1K,4K,64K,256K,1M"
SMOKE = {"collectives": "broadcast", "bytes": "8,1K", "iterations": 20}


class Missing(Exception):
    """Why a setting cannot be measured here."""


def fail(text):
    sys.exit(f"compare_mpi.py: {text}")


def arguments_of(name):
    """The parameters of a setting, as the launcher takes them."""
    mpi, parameters = SETTINGS[name]
    return [word for parameter, value in parameters.items()
            for word in (OPTIONS[mpi], parameter, value)]


def described(name):
    mpi, parameters = SETTINGS[name]
    return f"{mpi}, {' '.join(arguments_of(name)) if parameters else 'its defaults'}"


def name_in_table(name, version):
    return version if name == "mpich" else f"{version}, {name}"


def run(command, timeout, environment=None):
    """Runs a command, and returns what it prints.  If it does not end in time, it is ended with all
    processes that it has started."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except KeyboardInterrupt:  # the interrupt does not reach another session
        process.terminate()
        raise
    except subprocess.TimeoutExpired:
        # The launcher ends its ranks when it is asked to end.
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        fail(f"has not ended within {timeout:g} s (--timeout): {' '.join(command)}")
    if process.returncode != 0:
        reasons = [line for line in errors.splitlines() if line.startswith("tutti-bench:")]
        fail(f"exit status {process.returncode}: {' '.join(command)}\n"
             f"{reasons[0] if reasons else errors.strip() or output.strip()}")
    return output


def launcher_of(name, options):
    """Returns the command up to the program's own arguments.  Raises Missing."""
    mpi, parameters = SETTINGS[name]
    build = options.mpich_build if mpi == MPICH else options.build
    bench = os.path.join(build, "bin", "tutti-bench")
    if not os.access(bench, os.X_OK):
        preset = PRESETS[mpi]
        raise Missing(f"{bench} is not there: cmake --preset {preset} && "
                      f"cmake --build --preset {preset} --target tutti-bench")
    launcher = shutil.which(LAUNCHERS[mpi])
    if launcher is None:
        raise Missing(f"{LAUNCHERS[mpi]} is not in the PATH: install {'openmpi-bin' if mpi == OPEN_MPI else 'mpich'}")
    command = [launcher]
    if mpi == OPEN_MPI:
        command += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    if mpi == OPEN_MPI and parameters:
        # Open MPI ignores a parameter that it does not know, and says nothing.
        info = os.path.join(os.path.dirname(os.path.realpath(launcher)), "ompi_info")
        info = shutil.which("ompi_info") or info
        if not os.access(info, os.X_OK):
            raise Missing("ompi_info, which tells whether Open MPI knows a parameter, is not there")
        known = run([info, "--parsable", "--all"], options.timeout)
        for parameter in parameters:
            if f":param:{parameter}:value:" not in known:
                raise Missing(f"this Open MPI has no parameter {parameter}; version 4 has")
    return [*command, *arguments_of(name), "-n", str(options.ranks), bench]


def launch(name, launcher, options):
    """Launches one run, and returns its rows; of two ranks, floor among them."""
    cases = options.collectives if options.ranks > 2 else "floor," + options.collectives
    command = [*launcher, cases, "--bytes", options.bytes,
               "--iterations", str(options.iterations), "--against", "mpi", "--format", "json",
               *options.arguments]
    rows = [json.loads(line) for line in run(command, options.timeout).splitlines()
            if line.startswith("{")]
    beside = [row for row in rows if row["against"]]
    if not beside:
        fail(f"has no row with an MPI beside it: {' '.join(command)}")
    version = beside[0]["against"]["mpi"]["name"]
    if not version.startswith(SETTINGS[name][0]):
        fail(f"{launcher[-1]} stands beside {version}: expected a build with {SETTINGS[name][0]}, "
             f"as that of the preset \"{PRESETS[SETTINGS[name][0]]}\"")
    return rows


def text_of_bytes(count):
    for unit, power in (("M", 20), ("K", 10)):
        if count >= 1 << power and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return str(count)


def figure(ratios):
    """The text of a cell, from the ratio of each launch."""
    text = f"{statistics.median(ratios):.2f}"
    return text if len(ratios) == 1 else f"{text} ({min(ratios):.2f} to {max(ratios):.2f})"


def table(header, lines):
    """Returns the lines of a table in Markdown, with aligned columns."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]

    def joined(cells):
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"
    return [joined(header), "|" + "|".join("-" * (width + 2) for width in widths) + "|",
            *map(joined, lines)]


def report(found, left_out, options):
    """Prints the tables.  `found` has, for each setting, the rows of each launch."""
    versions = {name: next(row["against"]["mpi"]["name"] for row in launches[0] if row["against"])
                for name, launches in found.items()}
    first = next(iter(found.values()))[0]
    faster = cells = 0
    for collective in dict.fromkeys(row["collective"] for row in first if row["against"]):
        sizes = [row["bytes"] for row in first if row["collective"] == collective]
        lines = []
        for name, launches in found.items():
            ratios = [[row["against"]["mpi"]["ratio"] for rows in launches for row in rows
                       if row["collective"] == collective and row["bytes"] == size]
                      for size in sizes]
            faster += sum(statistics.median(of_size) < 1 for of_size in ratios)
            cells += len(ratios)
            lines.append([name_in_table(name, versions[name]), *map(figure, ratios)])
        header = [f"{collective}, tutti / MPI", *map(text_of_bytes, sizes)]
        print("\n".join(table(header, lines)), end="\n\n")
    print("The settings, and the probe floor beside them:" if options.ranks == 2
          else "The settings:")
    for name, launches in found.items():
        floors = [f"{row['median_ns'] / 1000:.3f}" for rows in launches for row in rows
                  if row["collective"] == "floor"]
        print(f"  {name_in_table(name, versions[name])}: "
              f"{' '.join(arguments_of(name)) or 'nothing is set'}"
              f"{'; floor ' + ', '.join(floors) + ' us' if floors else ''}")
    for name, why in left_out.items():
        print(f"  left out: {name}: {why}")
    shared = ["oversubscribed, not latencies"] if first[0]["oversubscribed"] else []
    tutti = [f"{key}={value}" for key, value in sorted(os.environ.items())
             if key.startswith("TUTTI_") and key != "TUTTI_SECRET"] or ["its defaults"]
    print("; ".join([f"{options.ranks} ranks, {first[0]['nodes']} node(s)", *shared,
                     f"launches of each setting: {options.rounds}",
                     f"tutti: {' '.join(tutti)}"]))
    print(f"tutti is faster in {faster} of {cells} figures.")


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"\"{text}\": expected a number from 1 on")
    return int(text)


def ranks_of(text):
    if positive(text) < 2:
        raise argparse.ArgumentTypeError(f"\"{text}\": expected 2 ranks or more")
    return int(text)


def setting_names(text):
    names = text.split(",")
    for name in names:
        if name not in SETTINGS:
            raise argparse.ArgumentTypeError(
                f"\"{name}\" is no setting: expected some of {','.join(SETTINGS)}")
    return list(dict.fromkeys(names))


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__.format(settings="\n".join(
            f"  {name:9} {described(name)}" for name in SETTINGS)),
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--settings", type=setting_names, metavar="LIST",
                        help=f"some of {','.join(SETTINGS)}; default: all that can be had")
    parser.add_argument("--collectives", metavar="LIST", help=f"default {COLLECTIVES}")
    parser.add_argument("--bytes", metavar="LIST", help=f"default {SIZES}")
    parser.add_argument("--iterations", type=positive, metavar="N",
                        help="timed calls of each row in a launch; default 2000")
    parser.add_argument("--ranks", type=ranks_of, default=2, metavar="N", help="default 2")
    parser.add_argument("--rounds", type=positive, default=1, metavar="N",
                        help="launches of each setting; default 1")
    parser.add_argument("--timeout", type=positive, default=300, metavar="SECONDS",
                        help="of one launch; default 300")
    parser.add_argument("--build", default=ROOT + "/build/release", metavar="DIRECTORY",
                        help="of a build with Open MPI; default build/release")
    parser.add_argument("--mpich-build", default=ROOT + "/build/release-mpich",
                        metavar="DIRECTORY", help="default build/release-mpich")
    parser.add_argument("--smoke", action="store_true",
                        help="few calls of two rows: whether all works, in seconds")
    parser.add_argument("arguments", nargs="*", metavar="-- ARGUMENT",
                        help="further ones, for tutti-bench, such as --check")
    options = parser.parse_args()
    usual = {"collectives": COLLECTIVES, "bytes": SIZES, "iterations": 2000}
    for name, value in (SMOKE if options.smoke else usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main():
    options = parsed()
    launchers, left_out = {}, {}
    for name in options.settings or SETTINGS:
        try:
            launchers[name] = launcher_of(name, options)
        except Missing as why:
            if options.settings:
                fail(f"{name}: {why}")
            left_out[name] = str(why)
    if not launchers:
        fail("no setting can be had here: " + "; ".join(
            f"{name}: {why}" for name, why in left_out.items()))
    found = {name: [] for name in launchers}
    for number in range(options.rounds):
        for name, launcher in launchers.items():
            if sys.stderr.isatty():
                print(f"\rround {number + 1} of {options.rounds}: {name:9}", end="",
                      file=sys.stderr, flush=True)
            found[name].append(launch(name, launcher, options))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    report(found, left_out, options)


if __name__ == "__main__":
    main()
