#!/bin/bash
# Promise: tutti-info attach prints what the operations of a process are doing, from outside, and says
# why where it cannot.
# Usage: attach.sh TUTTI_INFO TUTTI_BENCH
set -u
. "$(dirname "$0")/../support/cli.sh"
program=("$1" attach)

# Two ranks call without end; one of them is stopped.
timeout 60 "$2" allreduce --local 2 --bytes 8 --iterations 100000000 >/dev/null 2>&1 &
bench=$!
trap 'kill $bench $(pgrep -P $bench) 2>/dev/null; rm -rf "$folder" "$errors"' EXIT
ranks=()
for _ in $(seq 300); do
  launcher=$(pgrep -P $bench)
  [ -z "$launcher" ] || mapfile -t ranks < <(pgrep -P "$launcher")
  [ ${#ranks[@]} -ge 2 ] && "${program[@]}" "${ranks[0]}" 2>/dev/null | grep -q 'allreduce #' && break
  sleep 0.1
done
[ ${#ranks[@]} -ge 2 ] || fail "no ranks"
kill -STOP "${ranks[1]}"
sleep 0.5
expect 0 '^process [0-9]+, (running|sleeping): [0-9]+ operations$' "${ranks[0]}"
expect 0 '^  rank [01] of 2: allreduce #[0-9]+, call [0-9]+: waiting, round 0 of 1, needs rank [01] next' \
  "${ranks[0]}"
expect 0 ', no progress for 0\.[0-9]+ s$' "${ranks[0]}"
expect 0 '^    finished: [0-9]+ calls, [0-9]+ rounds, [0-9]+ bytes sent, 0 bytes read$' "${ranks[0]}"
expect 0 '^  rank [01] of 2 waited for rank [01]: [0-9.]+ s in all, [0-9.]+ s at once, the last one [0-9]+ times$' "${ranks[0]}"
expect 0 '^process [0-9]+, stopped: ' "${ranks[1]}"
"${program[@]}" "${ranks[0]}" --format json | python3 -c '
import json, sys
[seen] = json.load(sys.stdin)
waiting = [one for one in seen["operations"] if one["waiting"]]
assert waiting and waiting[0]["collective"] == "allreduce" and waiting[0]["no_progress_s"] > 0, seen
assert waiting[0]["calls_finished"] == waiting[0]["call"] - 1, seen
assert waiting[0]["bytes_sent"] == 8 * waiting[0]["calls_finished"], seen
assert seen["completion_errors"] == 0, seen
[communicator] = seen["communicators"]
[waited] = communicator["waited_for"]
assert waited["rank"] == 1 - communicator["rank"] and waited["longest_s"] >= 0.3, seen
' || fail "not the JSON that was expected"
kill -CONT "${ranks[1]}"

refuse 'attach "x": expected the id of a process' x
refuse 'attach "0": expected the id of a process' 0
refuse '^tutti-info: --format="xml": expected table or json' $$ --format xml
expect 1 "attach $$: this process has no context of tutti" $$
expect 1 'attach 999999999: /proc/999999999/fd: No such file or directory; expected the id of a process of this user' \
  999999999
[ $failures = 0 ]
