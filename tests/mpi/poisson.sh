#!/usr/bin/env bash
# poisson.sh PROGRAM LAUNCHER [OPTION...]: the solver on MPI and on tutti, and on MPI's calls as the libtutti-mpi
# does them that LIBTUTTI_MPI names, if any.
# Promises: all take the same number of iterations, but for one; on tutti the residuals have the same bits
# on all ranks; with --exact they have the same bits on MPI, too, for every number of ranks.
set -euo pipefail
program=$1
shift
launch=("$@") command=("$program")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$@" >&2; exit 1; }

solve() {  # RANKS NAME ARGUMENT...
  local ranks=$1 name=$2
  shift 2
  timeout 60 "${launch[@]}" -n "$ranks" "${command[@]}" --grid 7x6 --history "$work/$name" "$@" \
    >"$work/$name.txt" || fail "$*: status $?" "$(cat "$work/$name.txt")"
}
# bits NAME COMMUNICATION: residuals of each rank, as checksums of which each is there once.
bits() {
  local file
  for file in "$work/$1".*.csv; do grep ",$2," "$file" | cut -d, -f1,3,5 | sha256sum; done | sort -u
}
iterations() {  # NAME SOLVER,COMMUNICATION
  grep "^$2," "$work/$1.0.csv" | tail -n 1 | cut -d, -f3
}
# alike NAME COMMUNICATION: iterations are those with MPI.
alike() {
  local solver difference
  for solver in cg pipelined; do
    difference=$(($(iterations "$1" $solver,MPI) - $(iterations "$1" "$solver,$2")))
    [ "${difference#-}" -le 1 ] || fail "$solver, $2: iterations differ by $difference"
  done
}
# rows NAME NUMBER: waiting for late ranks is part of the time, so what is left of it is less, and more than
# nothing.
rows() {
  awk -v number="$2" '/^(cg|pipelined) / { rows += $9 > 0 && $9 <= $8 && $11 > 0 && $11 <= $10 && ($12 - $8 - $10) ^ 2 < 0.02 ^ 2 } END { exit rows != number }' \
    "$work/$1.txt" || fail "expected times from the last rank on" "$(cat "$work/$1.txt")"
}

solve 3 plain
alike plain tutti
[ "$(iterations plain cg,MPI)" -gt 5 ] || fail "hardly any iterations"
[ "$(bits plain tutti | wc -l)" -eq 1 ] || fail "tutti: the ranks have different residuals"
grep -q '^cg: with MPI, reductions take .* as long as with tutti$' "$work/plain.txt" ||
  fail "expected how they compare"
rows plain 4

# The only solve is the quickest one, too, and so undisturbed.
[ "$(grep -cE '^(cg|pipelined): undisturbed were 1 of 1 pairs of solves: reductions [0-9.]+ and [0-9.]+, ' \
  "$work/plain.txt")" -eq 2 ] || fail "expected an undisturbed pair" "$(cat "$work/plain.txt")"

solve 1 exact1 --exact
solve 3 exact3 --exact
for name in exact1 exact3; do
  for communication in tutti MPI; do bits $name $communication; done
done | sort -u >"$work/sums"
[ "$(wc -l <"$work/sums")" -eq 1 ] || fail "--exact: residuals differ"

# Without libtutti-mpi, nothing can be preloaded.
status=0
timeout 60 "${launch[@]}" -n 2 "$program" --with preloaded >"$work/output" 2>&1 || status=$?
[ $status -eq 2 ] || fail "--with preloaded: expected status 2, got $status" "$(cat "$work/output")"
[ "$(grep -c -e '--with preloaded: libtutti-mpi is not loaded; expected it in LD_PRELOAD' "$work/output")" -eq 1 ] ||
  fail "expected one sentence" "$(cat "$work/output")"

if [ -n "${LIBTUTTI_MPI:-}" ]; then
  command=(env LD_PRELOAD="$LIBTUTTI_MPI" "$program")
  took='^preloaded: of [0-9]+ calls of MPI_Allreduce, tutti took [1-9]'
  solve 3 all --with all
  alike all tutti
  alike all preloaded
  rows all 6
  grep -q '^cg: with MPI, reductions take .* as long as with preloaded$' "$work/all.txt" ||
    fail "expected how MPI and the preloaded one compare" "$(cat "$work/all.txt")"
  # A program of MPI alone, whose exact residuals are those from above.
  solve 3 exact_preloaded --exact --with preloaded
  for name in all exact_preloaded; do
    grep -Eq "$took" "$work/$name.txt" || fail "tutti took no sum" "$(cat "$work/$name.txt")"
  done
  bits exact_preloaded preloaded | cmp - "$work/sums" || fail "--exact, preloaded: residuals differ"
  command=("$program")
fi

status=0
timeout 60 "${launch[@]}" -n 2 "$program" --ranks 3 >"$work/output" 2>&1 || status=$?
[ $status -eq 2 ] || fail "--ranks: expected status 2, got $status" "$(cat "$work/output")"
[ "$(grep -c -e '--ranks: unknown; expected --grid' "$work/output")" -eq 1 ] ||
  fail "expected one sentence" "$(cat "$work/output")"
