#!/usr/bin/env bash
# Builds tutti and shows its latency beside MPI's, in one run, every result checked.
set -euo pipefail
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<'TEXT'
usage: scripts/demo.sh

On Debian 12: installs what is missing (with sudo unless root), builds the preset "release" in
build/release, and prints tables beside MPI, each of one run: collectives of 8 B .. 1 MiB for 2
ranks of one node, those of blocks in a table of their own; barrier and allreduce of 8 B .. 16 KiB for 2 ranks that are a node each, over the
software verbs device (or a real one if there is an active port; TUTTI_DEVICE chooses), and for 4
ranks of one node.  Takes three minutes or four.
TEXT
  exit 0
fi
[ $# -eq 0 ] || { echo "demo.sh: unknown argument \"$1\"; it takes none but --help" >&2; exit 2; }
. "$(dirname "$0")/common.sh"

install "${packages_to_build[@]}"
stage "release: building (log: build/release.build.log)"
# Tests need packages that this script does not install: a new tree gets none, and one that has them
# keeps them, as they would have to be built again.
tests=OFF
[ ! -e build/release/tests/CTestTestfile.cmake ] || tests=ON
configure release -D TUTTI_TESTS=$tests
compile release tutti-bench tutti-info tutti_softverbs_shim dot_product dot_product_c \
  matrix_factorization

mpirun=(mpirun.openmpi --oversubscribe)
[ "$(id -u)" -eq 0 ] && mpirun+=(--allow-run-as-root)
sizes=8,64,512,2K,16K

say "2 ranks of one node, and what bounds them"
timeout 300 "${mpirun[@]}" -n 2 build/release/bin/tutti-bench \
  floor,oneway,memcpy,barrier,allreduce,broadcast,reduce --bytes 8,512,16K,256K,1M --against mpi \
  --check
say "2 ranks of one node: blocks for and from each rank, and prefixes"
timeout 300 "${mpirun[@]}" -n 2 build/release/bin/tutti-bench \
  allgather,alltoall,gather,scatter,reduce_scatter,scan --bytes 8,512,16K,256K --against mpi --check
say "2 ranks, each a node of its own, and what bounds them"
timeout 300 "${mpirun[@]}" -n 2 build/release/bin/tutti-bench floor,wimm,barrier,allreduce \
  --bytes "$sizes" --against mpi --check --ranks-per-node 1
say "4 ranks of one node"
timeout 300 "${mpirun[@]}" -n 4 build/release/bin/tutti-bench barrier,allreduce \
  --bytes "$sizes" --against mpi --check
