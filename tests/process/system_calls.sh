#!/usr/bin/env bash
# Promise: in the steady state, with ranks no more than CPUs, the number of system calls does not
# grow with the number of calls.  Counts them with strace at 1x and 10x.
set -eu
program=$1
command -v strace >/dev/null || { echo "skipped: strace is not installed"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "skipped: needs 2 CPUs, has $(nproc)"; exit 77; }
strace -f -c -o /dev/null true 2>/dev/null || { echo "skipped: strace may not trace here"; exit 77; }

# How many, and how many of these are yields.
count() {
  local out
  out=$(mktemp)
  TUTTI_SOFT_TRANSPORT=shared timeout 60 strace -f -c -o "$out" "$program" "$1"
  awk '$NF == "total" { all = $4 } $NF == "sched_yield" { yields = $4 } END { print all, yields + 0 }' "$out"
  rm -f "$out"
}

# A rank whose partner lost its CPU to somebody else yields after a while, and now and then looks
# for deaths, so a busy machine adds system calls and never removes any: the smallest of many short
# attempts is the promise.
others=1
for attempt in $(seq 40); do
  read -r small small_yields < <(count 2000)
  read -r large large_yields < <(count 20000)
  echo "system calls: $small for 2000 calls of each collective, $large for 20000;" \
    "yields: $small_yields, $large_yields"
  # 36000 more collective calls.  A hundred more system calls leave room for what set-up varies by,
  # and would still show one system call in 360 collectives.
  [ "$((large - small))" -gt 100 ] || [ "$small" -gt 1500 ] || exit 0
  # But for yields it is the same on a busy machine, give or take a look for deaths each 100 ms.
  [ "$((large - large_yields - (small - small_yields)))" -gt 300 ] || others=0
done
if [ $others -eq 0 ] && awk -v cpus="$(nproc)" '{ exit !($1 > cpus + 0.5) }' /proc/loadavg; then
  echo "skipped: others use the CPUs (load $(cut -d' ' -f1 /proc/loadavg)), so that ranks yield;" \
    "other system calls do not grow"
  exit 77
fi
echo "the number of system calls grows with the number of collective calls"
exit 1
