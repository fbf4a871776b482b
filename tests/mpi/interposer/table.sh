#!/usr/bin/env bash
# table.sh TUTTI_MPIRUN PROGRAM LAUNCHER [OPTION...]: what libtutti-mpi says of a program at its end.
# Promises: nothing unless it is asked for; then the sums of all ranks, once, also where MPI was never seen;
# and in any case the results and the exit status of the program are its own.
set -euo pipefail
wrapper=$1 program=$2 launcher=$3
shift 3
options=("$@")
. "$(dirname "$0")/../../support/scratch.sh"
unset LD_PRELOAD "${!TUTTI_@}"

# run RANKS ARGUMENT...: the program by the wrapper, whose own options are in $own.
own=() expected=0
run() {
  local ranks=$1 status=0
  shift
  timeout 60 "$wrapper" --launcher "$launcher" "${own[@]}" "${options[@]}" -n "$ranks" "$program" "$@" \
    >"$scratch/out" 2>"$scratch/all" || status=$?
  [ $status = $expected ] || { cat "$scratch/all"; fail "$*: exit status $status"; }
  grep '^tutti' "$scratch/all" >"$scratch/said" || true
}
says() {
  tr -s ' ' <"$scratch/said" | grep -qE -- "$1" || { cat "$scratch/said"; fail "no line is like \"$1\""; }
}
says_nothing() {
  [ ! -s "$scratch/said" ] || { cat "$scratch/said"; fail "it speaks: $*"; }
}

run 2
says_nothing "without being asked"
grep -q '^sum 5$' "$scratch/out" || fail "the program's own output"

own=(--table)
run 2
says '^tutti: calls of 2 ranks of (Open MPI|MPICH), TUTTI_MPI=on$'
says '^tutti: MPI_Allreduce 14 4 64 2 one rank; 6 first calls of their kind; 2 no elements$'
says '^tutti: MPI_Barrier 10 4 0 6 first calls of their kind$'
says '^tutti: MPI_Bcast 2 0 0 2 above TUTTI_MPI_BYTES$'
[ "$(wc -l <"$scratch/said")" = 5 ] || { cat "$scratch/said"; fail "more than five lines"; }
own=(--off --table)
expected=5 run 1 fails
says '^tutti: MPI_Allreduce 7 0 0 7 switched off, or ranks have other settings$'
# One rank alone asks for it, or has other settings.
own=()
run 1 : -n 1 env TUTTI_MPI_TABLE=1 "$program"
says '^tutti: MPI_Barrier 10 4 0'
run 1 : -n 1 env TUTTI_MPI_AFTER=9 TUTTI_MPI_TABLE=1 "$program"
says 'every call is left to MPI: the ranks have different settings'
says '^tutti: MPI_Barrier 10 0 0 10 switched off, or ranks'

# MPI that is not seen, and programs that have none, of which shells are some.
own=(--table)
run 2 hidden
says '^tutti: 0 calls seen: this process has loaded MPI, and MPI_Init was not called'
[ "$(wc -l <"$scratch/said")" = 1 ] || { cat "$scratch/said"; fail "more than one rank says so"; }
