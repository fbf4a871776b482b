#!/usr/bin/env bash
# Promise: an alltoall between all pairs of many ranks is right in virtual time, and takes what the
# messages of a rank take to leave its port one after the other.
# all_pairs.sh TUTTI_BENCH RANKS GIBIBYTES: skipped where less memory than that is left.
set -eu
bench=$1 ranks=$2 needed=$3

left=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
if [ "$limit" != max ]; then
  used=$(cat /sys/fs/cgroup/memory.current)
  [ $(((limit - used) >> 30)) -ge "$left" ] || left=$(((limit - used) >> 30))
fi
if [ "$left" -lt "$needed" ]; then
  echo "skipped: the connections of $ranks ranks need $needed GiB of memory, and $left GiB are left"
  exit 77
fi

row=$(TUTTI_ARENA_BYTES=1M "$bench" alltoall --virtual-time --fabric fdr --local "$ranks" \
  --bytes 256 --iterations 1 --check --format json)
echo "$row"
grep -q '"correct":true' <<<"$row" || { echo "a result is wrong" >&2; exit 1; }
grep -q "\"algorithm\":\"direct\",\"per_round\":\[$((ranks - 1))\]" <<<"$row" ||
  { echo "not every rank sends to all others" >&2; exit 1; }
# FDR: overhead, latency, the gaps of the messages before, the bytes of the last, and overhead.
grep -oE '"median_ns":[0-9.]+' <<<"$row" | cut -d: -f2 | awk -v ranks="$ranks" '
  { least = 150 + 700 + (ranks - 2) * 100 + 256 / 6.8 + 50
    if ($1 < least - 0.01 || $1 > least + 0.01) { print $1 " ns, and not " least; exit 1 } }'
