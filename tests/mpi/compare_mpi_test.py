#!/usr/bin/env python3
"""Promise: microbench/compare_mpi.py says which setting of an MPI each figure stands beside, leaves out
nothing without a word, and ends in time with a reason when something is wrong.

usage: compare_mpi_test.py compare_mpi.py [BUILD]

The launchers are scripts that print the rows of tutti-bench with a ratio that depends on the
parameters they get.  With a build, whose MPI is Open MPI, all settings of that are launched, too.
"""
import os
import subprocess
import sys
import tempfile
import time

SCRIPT, *BUILD = sys.argv[1:]

ROW = ('{"collective":"%s","bytes":%d,"nodes":1,"median_ns":%d,"oversubscribed":false,"against":'
       '%s}')
LAUNCHER = """#!/bin/sh
case "$*" in  # as tutti-bench, which has that probe for two ranks alone
  *"-n 4 "*floor,*) echo "tutti-bench: floor needs exactly 2 ranks" >&2; exit 2 ;;
esac
case "$*" in
  *"--mca btl_vader_single_copy_mechanism none"*) ratio=0.25 ;;
  *"--mca coll_sm_priority 100"*) ratio=1.5 ;;
  *) ratio=0.5 ;;
esac
cat <<ROWS
{floor}
{row}
ROWS
"""
KNOWN = ("mca:btl:vader:param:btl_vader_eager_limit:value:4096\n"
         "mca:btl:vader:param:btl_vader_max_send_size:value:32768\n"
         "mca:btl:vader:param:btl_vader_single_copy_mechanism:value:cma\n")
KNOWN_SM = ("mca:coll:sm:param:coll_sm_priority:value:0\n"
            "mca:coll:sm:param:coll_sm_fragment_size:value:8192\n")


def rows(mpi):
    return {"floor": ROW % ("floor", 8, 70, "null"),
            "row": ROW % ("broadcast", 1024, 200,
                          '{"mpi":{"name":"%s","ratio":$ratio}}' % mpi)}


def program(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(folder, *arguments):
    path = f"{folder}/path:{os.environ['PATH']}" if folder else os.environ["PATH"]
    return subprocess.run([SCRIPT, *arguments], env=dict(os.environ, PATH=path), timeout=100,
                          capture_output=True, text=True, check=False)


def expect(status, text, folder, *arguments):
    ended = run(folder, *arguments)
    said = ended.stdout + ended.stderr
    if ended.returncode != status or text not in said:
        sys.exit(f"compare_mpi_test.py: {' '.join(arguments)}: expected status {status} and "
                 f"\"{text}\", got status {ended.returncode} and:\n{said}")
    return ended.stdout


def main():
    expect(0, "--mca coll_sm_priority 100 --mca coll_sm_fragment_size 65536", None, "--help")
    expect(2, '"fast" is no setting: expected some of defaults,vader,coll_sm,mpich,eager', None,
           "--settings", "fast")
    expect(2, '"0": expected a number from 1 on', None, "--rounds", "0")
    expect(2, '"1": expected 2 ranks or more', None, "--ranks", "1")
    expect(1, "/bin/tutti-bench is not there: cmake --preset release", None, "--settings",
           "defaults", "--build", "/nonexistent")
    with tempfile.TemporaryDirectory() as folder:
        build = ["--build", folder, "--mpich-build", folder]
        program(folder, "bin/tutti-bench", "")
        program(folder, "path/ompi_info", f"#!/bin/sh\ncat <<'TEXT'\n{KNOWN}{KNOWN_SM}TEXT\n")
        program(folder, "path/mpirun.openmpi", LAUNCHER.format(**rows("Open MPI 4.1.4")))
        program(folder, "path/mpirun.mpich", LAUNCHER.format(**rows("MPICH 4.0.2")))
        table = expect(0, "tutti is faster in 4 of 5 figures.", folder, *build)
        for line in ("Open MPI 4.1.4, defaults | 0.50", "Open MPI 4.1.4, vader    | 0.25",
                     "Open MPI 4.1.4, coll_sm  | 1.50", "MPICH 4.0.2              | 0.50",
                     "MPICH 4.0.2, eager       | 0.50", "eager: -genv UCX_RNDV_THRESH inf",
                     "coll_sm: --mca coll_sm_priority 100 --mca coll_sm_fragment_size 65536"):
            if line not in table:
                sys.exit(f"compare_mpi_test.py: expected \"{line}\" in:\n{table}")
        expect(0, "0.25 (0.25 to 0.25)", folder, *build, "--rounds", "2", "--settings", "vader")
        expect(0, "tutti is faster in", folder, *build, "--settings", "defaults", "--ranks", "4")
        # The wrong MPI, one that lacks a parameter, one that fails, one that never ends.
        program(folder, "path/mpirun.mpich", LAUNCHER.format(**rows("Open MPI 4.1.4")))
        expect(1, "stands beside Open MPI 4.1.4: expected a build with MPICH", folder, *build,
               "--settings", "mpich")
        program(folder, "path/ompi_info", f"#!/bin/sh\ncat <<'TEXT'\n{KNOWN}TEXT\n")
        expect(0, "left out: coll_sm: this Open MPI has no parameter coll_sm_priority", folder,
               *build, "--mpich-build", "/nonexistent")
        expect(1, "coll_sm: this Open MPI has no parameter coll_sm_priority", folder, *build,
               "--settings", "coll_sm")
        program(folder, "path/mpirun.openmpi", "#!/bin/sh\necho 'tutti-bench: no' >&2\nexit 2\n")
        expect(1, "tutti-bench: no", folder, *build)
        program(folder, "path/mpirun.openmpi", "#!/bin/sh\nexec sleep 60\n")
        begin = time.monotonic()
        expect(1, "has not ended within 1 s (--timeout)", folder, *build, "--settings",
               "defaults", "--timeout", "1")
        if time.monotonic() - begin > 30:
            sys.exit("compare_mpi_test.py: a launch that never ends is waited for")
    if BUILD:
        table = expect(0, " figures.", None, "--smoke", "--settings", "defaults,vader,coll_sm",
                       "--build", *BUILD)
        for name in ("defaults", "vader", "coll_sm"):
            if f", {name} " not in table and f"left out: {name}: this Open MPI has no" not in table:
                sys.exit(f"compare_mpi_test.py: no line of {name} in:\n{table}")


if __name__ == "__main__":
    main()
