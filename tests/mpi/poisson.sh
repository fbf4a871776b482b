#!/usr/bin/env bash
# poisson.sh PROGRAM LAUNCHER [OPTION...]: the solver on MPI and on tutti.
# Promises: both take the same number of iterations, but for one; on tutti the residuals have the same bits
# on all ranks; with --exact they have the same bits on MPI, too, for every number of ranks.
set -euo pipefail
program=$1
shift
launch=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$@" >&2; exit 1; }

solve() {  # RANKS NAME ARGUMENT...
  local ranks=$1 name=$2
  shift 2
  timeout 60 "${launch[@]}" -n "$ranks" "$program" --grid 7x6 --history "$work/$name" "$@" \
    >"$work/$name.txt" || fail "$*: status $?" "$(cat "$work/$name.txt")"
}
# bits NAME COMMUNICATION: residuals of each rank, as checksums of which each is there once.
bits() {
  local file
  for file in "$work/$1".*.csv; do grep ",$2," "$file" | cut -d, -f1,3,5 | sha256sum; done | sort -u
}
iterations() {  # SOLVER,COMMUNICATION
  grep "^$1," "$work/plain.0.csv" | tail -n 1 | cut -d, -f3
}

solve 3 plain
for solver in cg pipelined; do
  difference=$(($(iterations $solver,MPI) - $(iterations $solver,tutti)))
  [ "${difference#-}" -le 1 ] || fail "$solver: iterations differ by $difference"
done
[ "$(iterations cg,MPI)" -gt 5 ] || fail "hardly any iterations"
[ "$(bits plain tutti | wc -l)" -eq 1 ] || fail "tutti: the ranks have different residuals"
grep -q '^cg: with MPI, reductions take ' "$work/plain.txt" || fail "expected how they compare"
# Waiting for late ranks is part of the time, so what is left of it is less, and more than nothing.
awk '/^(cg|pipelined) / { rows += $9 > 0 && $9 <= $8 && $11 > 0 && $11 <= $10 && ($12 - $8 - $10) ^ 2 < 0.02 ^ 2 } END { exit rows != 4 }' \
  "$work/plain.txt" || fail "expected times from the last rank on" "$(cat "$work/plain.txt")"

# The only solve is the quickest one, too, and so undisturbed.
[ "$(grep -cE '^(cg|pipelined): undisturbed were 1 of 1 pairs of solves: reductions [0-9.]+ and [0-9.]+, ' \
  "$work/plain.txt")" -eq 2 ] || fail "expected an undisturbed pair" "$(cat "$work/plain.txt")"

solve 1 exact1 --exact
solve 3 exact3 --exact
for name in exact1 exact3; do
  for communication in tutti MPI; do bits $name $communication; done
done | sort -u >"$work/sums"
[ "$(wc -l <"$work/sums")" -eq 1 ] || fail "--exact: residuals differ"

status=0
timeout 60 "${launch[@]}" -n 2 "$program" --ranks 3 >"$work/output" 2>&1 || status=$?
[ $status -eq 2 ] || fail "--ranks: expected status 2, got $status" "$(cat "$work/output")"
[ "$(grep -c -e '--ranks: unknown; expected --grid' "$work/output")" -eq 1 ] ||
  fail "expected one sentence" "$(cat "$work/output")"
