#!/usr/bin/env bash
# Promise: what a small collective executes does not grow unnoticed.  Counts, by callgrind, the
# instructions of a call on each of two ranks of a node, beside those of instructions.csv, which
# were counted in a release build by GCC 12; 5 % more fail.
set -eu
program=$1
expected=$2
command -v valgrind >/dev/null || { echo "skipped: valgrind is not installed"; exit 77; }
calls=1000 grown=0
while IFS=, read -r collective before; do
  case $collective in collective | \#*) continue ;; esac
  log=$(TUTTI_SOFT_TRANSPORT=shared timeout 120 valgrind --tool=callgrind --instr-atstart=no \
    --callgrind-out-file=/dev/null "$program" "$collective" "$calls" 2>&1) ||
    { echo "$log"; exit 1; }
  counted=$(awk '/Collected *:/ { print $NF }' <<<"$log")
  now=$((${counted:?valgrind printed no count} / (2 * calls)))
  echo "$collective: $now instructions a call and rank, $before before"
  [ $((now * 100)) -le $((before * 105)) ] || grown=1
done <"$expected"
[ $grown -eq 0 ] || echo "more than 5 % have been added: find out why, or change $expected"
exit $grown
