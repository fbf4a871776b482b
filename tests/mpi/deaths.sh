#!/bin/sh
# Promise: over MPI and over PMIx, every rank hears which rank was killed, gave up or left, within twice
# the bound, and takes none that is stopped for dead.  The launcher has to let the others go on:
# --enable-recovery of Open MPI, -disable-auto-cleanup of MPICH.
#
# any: the seed of a run decides what happens, and between how many ranks and nodes.
#
# With APART set, each rank has its own namespace of process ids, so that it sees no other process, as
# on hosts of their own.
#
# With shrink, one rank is killed, and the others go on in a communicator of their own.
#
# usage: deaths.sh kill|stop|abort|leave|shrink|any RUNS RANKS RANKS_PER_NODE PROGRAM LAUNCHER ARGUMENT...
what=$1 runs=$2 ranks=$3 ranks_per_node=$4 program=$5
shift 5
case $("$1" --version 2>&1) in
  *"Open MPI"* | *OpenRTE*) recovery=--enable-recovery ;;
  *) recovery=-disable-auto-cleanup ;;
esac
set -- "$@" $recovery
# MPICH 4.0 ends the job all the same if a process that it has started is killed by a signal, but not
# if a shell around it only says so.  By SIGUSR1 it tells the others.
shell= apart=
if [ -z "$APART" ] && [ $recovery = -disable-auto-cleanup ]; then
  shell='trap "" USR1; "$@"; exit $?'
elif [ -n "$APART" ]; then
  unshare --pid --fork --mount-proc true || exit 77  # not permitted here
  # Open MPI's shared memory takes ranks of equal process ids for one.  A first process of a namespace
  # would not be killed by itself.
  export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
  shell='trap "" USR1; exec unshare --pid --fork --mount-proc sh -c "$0" sh "$@"'
  apart='"$@"; exit $?'
fi
# play SEED WHAT RANKS RANKS_PER_NODE LAUNCHER ARGUMENT...: one run, whose output is printed.
play() {
  seed=$1 what=$2 ranks=$3 ranks_per_node=$4
  shift 4
  set -- "$@" -n "$ranks"
  [ -z "$shell" ] || set -- "$@" sh -c "$shell" "${apart:-sh}"
  timeout -k 1 60 "$@" "$program" "$folder" "$seed" "$what" "$ranks_per_node" 2>&1
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
first=${SEED:-1}
seed=$first
runs_of=$what ranks_of=$ranks
while [ $seed -lt $((first + runs)) ]; do
  rm -f "$folder"/*
  if [ "$runs_of" = any ]; then
    case $((seed % 4)) in 0) what=kill ;; 1) what=stop ;; 2) what=abort ;; *) what=leave ;; esac
    ranks=$((2 + seed * 5 % (ranks_of - 1))) ranks_per_node=$((seed * 3 % 4))
  fi
  expected=$((ranks - 1))
  [ "$what" = stop ] && expected=$ranks
  output=$(play $seed "$what" "$ranks" "$ranks_per_node" "$@")
  if [ "$(cat "$folder"/heard.* 2>/dev/null | grep -c '^fine$')" -ne $expected ]; then
    printf 'seed %s (%s of %s ranks, %s a node): expected %s ranks to be fine:\n%s\n' "$seed" "$what" \
      "$ranks" "$ranks_per_node" "$expected" "$output"
    tail -n +1 "$folder"/heard.*
    exit 1
  fi
  seed=$((seed + 1))
done
echo "$runs runs from seed $first on ($runs_of, $ranks_of ranks): all survivors were fine in each"
