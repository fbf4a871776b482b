#!/usr/bin/env bash
# Promise: in the steady state, with ranks no more than CPUs, the number of system calls does not
# grow with the number of calls.  Counts them with strace at 1x and 10x.
set -eu
program=$1
command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "skipped: needs 2 CPUs, has $(nproc)"; exit 77; }
strace -f -c -o /dev/null true 2>/dev/null || { echo "skipped: strace may not trace here"; exit 77; }

count() {
  local out
  out=$(mktemp)
  TUTTI_SOFT_TRANSPORT=shared timeout 60 strace -f -c -o "$out" "$program" "$1"
  awk '/ total$/ { print $(NF-1) == "total" ? $(NF) : $4 }' "$out" | head -1
  rm -f "$out"
}

small=$(count 20000)
large=$(count 200000)
echo "system calls: $small for 20000 calls of each collective, $large for 200000"
# 360000 more collective calls; a hundred more system calls allow for ten seconds of liveness checks
# and for being preempted, and would catch one system call in 3600 collectives.
[ "$((large - small))" -le 100 ] || { echo "the number of system calls grows with the calls"; exit 1; }
