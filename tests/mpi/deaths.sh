#!/bin/sh
# Promise: over MPI, which has no side channel, every rank of a host hears which rank was killed, gave
# up or left, within twice the bound, and takes none that is stopped for dead.  The launcher has to let
# the others go on: --enable-recovery of Open MPI, -disable-auto-cleanup of MPICH.
#
# usage: deaths.sh kill|stop|abort|leave RUNS RANKS RANKS_PER_NODE PROGRAM LAUNCHER ARGUMENT...
what=$1 runs=$2 ranks=$3 ranks_per_node=$4 program=$5
shift 5
case $("$1" --version 2>&1) in
  *"Open MPI"* | *OpenRTE*) recovery=--enable-recovery ;;
  *) recovery=-disable-auto-cleanup ;;
esac
expected=$((ranks - 1))
[ "$what" = stop ] && expected=$ranks
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
first=${SEED:-1}
seed=$first
while [ $seed -lt $((first + runs)) ]; do
  rm -f "$folder/board"
  output=$(timeout -k 1 60 "$@" $recovery -n "$ranks" "$program" "$folder" $seed "$what" \
    "$ranks_per_node" 2>&1)
  if [ "$(printf '%s\n' "$output" | grep -c '^fine$')" -ne $expected ]; then
    printf 'seed %s: expected %s ranks to be fine:\n%s\n' "$seed" "$expected" "$output"
    exit 1
  fi
  seed=$((seed + 1))
done
echo "$runs runs from seed $first on: $expected ranks were fine in each"
