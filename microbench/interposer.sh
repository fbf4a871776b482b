#!/bin/sh
# What the interposer costs and brings, for each MPI of which there is a build: two ranks, each on a CPU
# of its own, in one launch for each MPI (mpi_interposed.c).
#
# usage: microbench/interposer.sh [BUILD...]     builds of the presets release and release-mpich
#
# Exit status 1 if none could be measured.
root=$(dirname "$(dirname "$(readlink -f "$0")")")
[ $# -gt 0 ] || set -- "$root/build/release" "$root/build/release-mpich"
status=1
for build in "$@"; do
  program=$build/bin/interposed
  [ -x "$program" ] || continue
  if ldd "$program" | grep -q libmpich; then
    echo "MPICH"
    mpirun.mpich -n 2 -bind-to core -genv LD_PRELOAD "$build/lib/tutti/mpich/libtutti-mpi.so" \
      "$program" && status=0
  else
    echo "Open MPI"
    mpirun.openmpi --allow-run-as-root -n 2 --bind-to core \
      -x LD_PRELOAD="$build/lib/tutti/openmpi/libtutti-mpi.so" "$program" && status=0
  fi
done
[ $status -eq 0 ] || echo "interposer.sh: nothing was measured; build interposed of the preset release" >&2
exit $status
