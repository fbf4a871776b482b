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
  awk '$NF == "total" { print $4 }' "$out"
  rm -f "$out"
}

# A rank whose partner lost its CPU to somebody else yields after a while, so a busy machine adds
# system calls and never removes any: the smallest of many short attempts is the promise.
for attempt in $(seq 40); do
  small=$(count 2000)
  large=$(count 20000)
  echo "system calls: $small for 2000 calls of each collective, $large for 20000"
  # 36000 more collective calls.  A hundred more system calls leave room for what set-up varies by,
  # and would still show one system call in 360 collectives.
  [ "$((large - small))" -gt 100 ] || [ "$small" -gt 1500 ] || exit 0
done
echo "the number of system calls grows with the number of collective calls"
exit 1
