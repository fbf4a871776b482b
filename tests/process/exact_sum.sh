#!/usr/bin/env bash
# exact_sum.sh PROGRAM: its exact sums are alike for every number of ranks, its plain ones are not.
set -euo pipefail
printed=$("$1" 20000)
fail() { printf '%s\n%s\n' "$1" "$printed" >&2; exit 1; }
sums() { awk -v column="$1" '/^ +[0-9]+ / { print $column }' <<<"$printed"; }
[ "$(sums 1 | tr '\n' ' ')" = "1 2 3 5 8 " ] || fail "expected rows for 1, 2, 3, 5 and 8 ranks"
[ "$(sums 2 | sort -u | wc -l)" -gt 1 ] || fail "the plain sums are alike: this shows nothing"
[ "$(sums 3 | sort -u | wc -l)" -eq 1 ] || fail "the exact sums differ"
[[ $printed == *"adding 20000 numbers: plain "*" ms, ratio "* ]] || fail "expected the last line"
for wrong in 0 x 1000000001; do
  status=0
  "$1" $wrong >/dev/null 2>&1 || status=$?
  [ $status -eq 2 ] || fail "$wrong: expected status 2, got $status"
done
