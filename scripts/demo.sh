#!/usr/bin/env bash
# Builds tutti and shows its latency beside MPI's, in one run, every result checked.
set -euo pipefail
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  cat <<'TEXT'
usage: scripts/demo.sh

On Debian 12: installs what is missing (with sudo unless root), builds the preset "release" in
build/release, tunes this machine for 2 ranks (ten seconds, into a file of the build tree), shows tuned
beside untuned, and prints five tables beside MPI, each of one run, and a summary of all: collectives
of 8 B .. 1 MiB for 2 ranks of one node, those of blocks in a table of their own; barrier and
allreduce for 2 ranks that are a node each, over the software verbs device (or a real one if there
is an active port; TUTTI_DEVICE chooses), and for 4 ranks, of one node and each a node of its own.
Takes one to five minutes after the build, which takes about eight on 2 cores.
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
compile release tutti-bench tutti-tune tutti-info tutti_softverbs_shim dot_product dot_product_c \
  matrix_factorization

mpirun=(mpirun.openmpi --oversubscribe)
[ "$(id -u)" -eq 0 ] && mpirun+=(--allow-run-as-root)
results=build/demo.json
rm -f "$results"

say "tuning this machine for 2 ranks, ten seconds"
tuning=build/demo.tuning.json
timeout 60 build/release/bin/tutti-tune --local 2 --budget 10 --fresh --out "$tuning"
say "2 ranks of one node, untuned beside tuned, in one run"
timeout 300 build/release/bin/tutti-bench barrier,allreduce,broadcast,allgather --local 2 \
  --bytes 8,1K,32K --tuning "off,$tuning" --check --brief

# beside_mpi RANKS TITLE ARGUMENT...: a table, whose rows are kept for the summary.
beside_mpi() {
  local ranks=$1 title=$2
  shift 2
  say "$title"
  local status=0
  timeout 300 "${mpirun[@]}" -n "$ranks" build/release/bin/tutti-bench "$@" --against mpi --check \
    --brief --record "$results" || status=$?
  if [ $status -eq 124 ]; then
    echo "demo.sh: this table was not finished within 300 s; is the machine busy with other programs?" >&2
  fi
  return $status
}
beside_mpi 2 "2 ranks of one node, and what bounds them" \
  floor,oneway,barrier,allreduce,broadcast,reduce --bytes 8,1K,32K,1M
beside_mpi 2 "2 ranks of one node: blocks for and from each rank, and prefixes" \
  allgather,alltoall,gather,scatter,reduce_scatter,scan --bytes 8,1K,32K
beside_mpi 2 "2 ranks, each a node of its own, and what bounds them" \
  floor,wimm,barrier,allreduce --bytes 8,64,1K,16K --ranks-per-node 1
beside_mpi 4 "4 ranks of one node" barrier,allreduce --bytes 8,1K,16K
beside_mpi 4 "4 ranks, each a node of its own" barrier,allreduce --bytes 8,1K,16K --ranks-per-node 1

say "summary"
build/release/bin/tutti-bench summary "$results"
echo
echo "docs/performance.md says what bounds these times, and which targets are missed."
