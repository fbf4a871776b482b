#!/usr/bin/env bash
# The example of stale-synchronous allreduce: it converges for every slack, is drawn, reads ratings,
# and refuses what it does not understand.
set -euo pipefail
program=$1
picture=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 60 "$program" --ranks 3 --iterations 160 --sleep-us 200 >"$work/run.csv"
for slack in 0 2 8; do
  grep -q "^# slack $slack: [0-9]* iterations per second$" "$work/run.csv"
  awk -F, -v slack=$slack '$1 == slack { last = $4; if ($5 > slack) exit 1 }
    END { exit !(last > 0 && last < 0.4) }' "$work/run.csv" ||
    { echo "slack $slack: has not converged, or is too stale" >&2; cat "$work/run.csv" >&2; exit 1; }
done
"$picture" "$work/picture.svg" "$work/run.csv"
grep -q 'slack 8: [0-9]* iterations' "$work/picture.svg"
printf '1\t1\t5\t0\n2\t1\t3\t0\n1\t2\t4\t0\n3\t3\t1\t0\n' >"$work/ratings"
timeout 60 "$program" --ranks 2 --iterations 16 --sleep-us 0 --ratings "$work/ratings" |
  grep -q '^8,16,'
expect_refused() {  # TEXT ARGUMENT...
  local text=$1 status=0
  shift
  timeout 20 "$program" "$@" 2>"$work/error" >/dev/null || status=$?
  [ $status -eq 2 ] && grep -q -e "$text" "$work/error" ||
    { echo "$*: status $status, $(cat "$work/error")" >&2; exit 1; }
}
expect_refused '--ranks x: expected a number' --ranks x
expect_refused 'cannot be opened' --ratings "$work/none"
echo 'one two' >"$work/ratings"
expect_refused 'line 1: expected user, item and rating' --ratings "$work/ratings"
