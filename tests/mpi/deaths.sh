#!/bin/sh
# Promise: over MPI, every rank hears which rank was killed, gave up or left, within twice the bound,
# and takes none that is stopped for dead.  The launcher has to let the
# others go on: --enable-recovery of Open MPI, -disable-auto-cleanup of MPICH.
#
# With APART set, each rank has its own namespace of process ids, so that it sees no other process, as
# on hosts of their own.
#
# With shrink, one rank is killed, and the others go on in a communicator of their own.
#
# usage: deaths.sh kill|stop|abort|leave|shrink RUNS RANKS RANKS_PER_NODE PROGRAM LAUNCHER ARGUMENT...
what=$1 runs=$2 ranks=$3 ranks_per_node=$4 program=$5
shift 5
case $("$1" --version 2>&1) in
  *"Open MPI"* | *OpenRTE*) recovery=--enable-recovery ;;
  *) recovery=-disable-auto-cleanup ;;
esac
set -- "$@" $recovery -n "$ranks"
# MPICH 4.0 ends the job all the same if a process that it has started is killed by a signal, but not
# if a shell around it only says so.  By SIGUSR1 it tells the others.
if [ -z "$APART" ] && [ $recovery = -disable-auto-cleanup ]; then
  set -- "$@" sh -c 'trap "" USR1; "$@"; exit $?' sh
elif [ -n "$APART" ]; then
  unshare --pid --fork --mount-proc true || exit 77  # not permitted here
  # Open MPI's shared memory takes ranks of equal process ids for one.  A first process of a namespace
  # would not be killed by itself.
  export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
  set -- "$@" sh -c 'trap "" USR1; exec unshare --pid --fork --mount-proc sh -c "$0" sh "$@"' '"$@"; exit $?'
fi
expected=$((ranks - 1))
[ "$what" = stop ] && expected=$ranks
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
first=${SEED:-1}
seed=$first
while [ $seed -lt $((first + runs)) ]; do
  rm -f "$folder"/*
  output=$(timeout -k 1 60 "$@" "$program" "$folder" $seed "$what" "$ranks_per_node" 2>&1)
  if [ "$(cat "$folder"/heard.* 2>/dev/null | grep -c '^fine$')" -ne $expected ]; then
    printf 'seed %s: expected %s ranks to be fine:\n%s\n' "$seed" "$expected" "$output"
    tail -n +1 "$folder"/heard.*
    exit 1
  fi
  seed=$((seed + 1))
done
echo "$runs runs from seed $first on: $expected ranks were fine in each"
