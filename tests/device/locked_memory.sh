#!/usr/bin/env bash
# locked_memory.sh TUTTI_BENCH TUTTI_INFO DEVICE: on a device of the kernel, as nobody.
# Promise: who may not lock what the arena and large payloads need hears the limit, what is needed and
# what to do; who may, needs nothing else; and CAP_IPC_LOCK lifts the limit.
set -uo pipefail
bench=$1 info=$2 device=$3
export TUTTI_DEVICE=$device TUTTI_RANKS_PER_NODE=1 TUTTI_ARENA_BYTES=2M
[ "$(id -u)" -eq 0 ] || { echo "needs root, to raise and lower limits for others"; exit 77; }
run=(timeout 60 "$bench" barrier --local 2 --check --iterations 20 --warmup 5)
as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all
  --no-new-privs)
"${as_nobody[@]}" test -x "$bench" || { echo "nobody may not run $bench"; exit 77; }
failures=0
# expect STATUS LIMIT_KIB PATTERN COMMAND...
expect() {
  local status=$1 limit=$2 pattern=$3 output got
  shift 3
  output=$(ulimit -l "$limit" && cd / && "$@" 2>&1)
  got=$?
  if [ "$got" != "$status" ] || ! grep -Eq -- "$pattern" <<<"$output"; then
    echo "FAILED: ulimit -l $limit: exit status $got, expected $status and \"$pattern\": $output"
    failures=$((failures + 1))
  fi
}
remedy='raise it \(ulimit -l unlimited, or memlock in /etc/security/limits.conf\) or lower TUTTI_ARENA_BYTES'
expect 2 1024 "RLIMIT_MEMLOCK is 1048576 bytes, and $device:1 needs 2101248 more for the arena: $remedy" \
  "${as_nobody[@]}" "${run[@]}"
expect 2 4096 "RLIMIT_MEMLOCK is 4194304 bytes, of which 2101248 are locked, and $device:1 needs 4194304 more for .*: $remedy" \
  "${as_nobody[@]}" env TUTTI_REGISTER_BUFFERS=1 timeout 60 "$bench" allreduce --local 2 --bytes 4M --check --iterations 2
expect 1 1024 "^tutti-info: RLIMIT_MEMLOCK is 1048576 bytes, and $device:1 needs" "${as_nobody[@]}" "$info"
expect 0 4096 'barrier' "${as_nobody[@]}" "${run[@]}"
expect 0 4096 'locked memory \(ulimit -l\) +4096 KiB$' "${as_nobody[@]}" "$info"
expect 0 1024 'barrier' "${run[@]}"
[ "$failures" -eq 0 ] || exit 1
