#!/bin/bash
# Promise: tutti-info plan prints what an independent program finds to be a collective, for every
# number of ranks, and answers bad input with one line that names the value and the remedy, and
# with exit status 2; never a crash, never a hang.
# Usage: plan_cli.sh TUTTI_INFO CHECK_PLANS GROUP
set -u
checker=$2
group=$3
. "$(dirname "$0")/../support/cli.sh"
program=("$1" plan)

# check exactly|at_least 'numbers of ranks' ARGUMENT...
check() {
  local times=$1 counts=$2 ranks
  shift 2
  for ranks in $counts; do
    timeout 60 "${program[@]}" --ranks "$ranks" --format json "$@" || fail "$ranks ranks: $*" >&2
  done | python3 "$checker" "$times" "$(wc -w <<<"$counts")" || fail "$times: $*"
}

json() {
  local all name names=0
  all=$(seq -s ' ' 1 40)
  check exactly "$all"
  check exactly "$all 96 125 250" --algorithm two_partial_dissemination
  check exactly "$all" --algorithm two_partial_dissemination --per-round 1,1,1,1,1,1
  check exactly "$all" --algorithm two_partial_dissemination --per-round 2,2,2,2 --op user
  check exactly "$all 96 125 250" --algorithm recursive_multiplying
  check exactly "$all" --algorithm recursive_multiplying --per-round 1,1,1,1,1,1 --op user
  check at_least "$all 96 125 250" --algorithm dissemination --op max
  check at_least "$all" --algorithm dissemination --op max --per-round 2,3,4
  check at_least "$all 96 125 250" --collective barrier
  check at_least "$all" --collective barrier --per-round 1,1,1,1,1,1
  # Every schedule there is, with an operator that it takes.
  for name in $("${program[@]}" --ranks 5 --algorithm x 2>&1 | sed 's/.*one of //; s/,//g'); do
    names=$((names + 1))
    case $name in
      dissemination) check at_least "1 2 5 8 13 16 31" --algorithm "$name" --op max --dtype int64 ;;
      automatic | canonical_dissemination) # a block that comes twice is left unread
        check at_least "1 2 5 8 13 16 31" --algorithm "$name" --dtype double ;;
      shared_ring)
        refuse 'shared_ring has no fixed plan' --ranks 5 --algorithm "$name"
        for collective in allgather reduce_scatter; do
          refuse "$collective: algorithm shared_ring has no fixed plan" --ranks 5 --algorithm "$name" \
            --collective $collective
          expect 0 'chosen: shared_ring, which is asked for' --ranks 5 --algorithm "$name" \
            --collective $collective --explain
          refuse 'algorithm ring is not offered; use automatic or shared_ring' --ranks 5 \
            --algorithm ring --collective $collective
        done ;;
      nway_inverse) check exactly "1 2 5 8 13 16 31" --algorithm "$name" --dtype int64 ;;
      canonical_halving) check exactly "1 2 3 5 7 8 31 49 65" --algorithm "$name" --dtype double ;;
      *) check exactly "1 2 5 8 13 16 31" --algorithm "$name" --dtype double ;;
    esac
  done
  [ "$names" -ge 12 ] || fail "only $names names of schedules"
  expect 0 '^\{"ranks":5,"rank":4,.*"takes_out":\[\]\}$' --ranks 5 --rank 4 --format json
  [ "$("${program[@]}" --ranks 5 --rank 4 --format json | wc -l)" = 1 ] || fail "more than rank 4"
  for name in leader lanes; do
    check exactly "1 2 5 8 12 13 40" --across $name --dtype int64 --ranks-per-node 4
    check exactly "12 13 40" --across $name --dtype double --algorithm recursive_multiplying \
      --ranks-per-node 3,2,5 --placement cyclic
  done
  # One target a node: who reads it there is told what it holds.
  check exactly "2 3 8 12 13 40" --dtype int64 --ranks-per-node 4 --node-memory
  check exactly "2 8 12 40" --dtype int64 --ranks-per-node 4 --node-memory --bytes 64K
  check exactly "2 12 13 40" --op user --dtype int32 --ranks-per-node 3,2 --node-memory
  check exactly "4 8 12 13 40" --dtype int64 --ranks-per-node 8 --ranks-per-domain 3,2
  check at_least "12 13 40" --collective barrier --ranks-per-node 6 --ranks-per-domain 2
  expect 0 '^domains/leader/dissemination, 12 ranks' --ranks 12 --collective barrier \
    --ranks-per-node 6 --ranks-per-domain 3
  # Two segments on the wire are one interval: rank 0 holds 4 and 0.
  expect 0 '"covers":\[\[4,2\]\]' --ranks 5 --per-round 2,2 --op user --dtype int32 --format json
}

# The checker sees what is wrong.
tampered() {
  local pattern
  for pattern in 's/\[\[0,1\]\]/[[1,1]]/' 's/"rank":3/"rank":4/' 's/"slot":1/"slot":2/' \
    's/\],"takes_out":\[\]/],"takes_out":[[0,1]]/' 's/"peer":2/"peer":3/g' \
    's/"covers":\[\[3,1\]\]/"covers":[[3,2]]/g' 's/"per_round":\[/"per_round":[1,/' \
    '2s/"algorithm":"/"algorithm":"x/' '$d' 's/"puts"/"put"/' 's/\[\[0,1\]\]/[[5,1]]/g'; do
    "${program[@]}" --ranks 5 --algorithm two_partial_dissemination --per-round 2,2 --format json |
      sed "$pattern" | python3 "$checker" exactly 1 >/dev/null 2>&1 && fail "accepted: $pattern"
  done
  "${program[@]}" --ranks 5 --op max --per-round 2,2 --format json | python3 "$checker" exactly 1 \
    >/dev/null && fail "accepted as exactly once: dissemination"
}

texts() {
  expect 0 '^leader/two_partial_dissemination, 7 ranks, rank 1$' --ranks 7 --rank 1 --ranks-per-node 3,2
  expect 0 'sends 1, receives 1$' --ranks 7 --rank 1 --ranks-per-node 3,2 --collective barrier
  expect 0 '^lanes/.*, 8 ranks' --ranks 8 --ranks-per-node 4 --bytes 16K
  expect 0 '^lanes/turns, 8 ranks' --ranks 8 --ranks-per-node 4 --bytes 64K
  expect 0 '^leader/.*_shared_target, 8 ranks' --ranks 8 --ranks-per-node 4 --node-memory
  expect 0 '^lanes/.*_shared_target, 8 ranks' --ranks 8 --ranks-per-node 4 --node-memory --bytes 64K
  expect 0 '^ +target +one of all ranks of a node$' --ranks 8 --ranks-per-node 4 --node-memory
  expect 0 'bytes sent +8$' --ranks 8 --ranks-per-node 4 --node-memory --rank 1
  expect 0 'bytes sent +0$' --ranks 4 --ranks-per-node 4 --collective broadcast --node-memory
  expect 0 '^node_allgather.*_shared_target, 8 ranks' --ranks 8 --ranks-per-node 4 --node-memory \
    --collective allgather
  expect 0 '  has entered' --ranks 8 --ranks-per-node 4 --node-memory --collective allgather
  expect 0 '^chosen: leader, the only one considered' --ranks 16 --ranks-per-node 8 --node-memory \
    --explain
  expect 0 '^recursive_multiplying, 4 ranks' --ranks 4 --ranks-per-node 1 --node-memory --dtype double
  expect 0 '^two_partial_dissemination, 13 ranks, rank 2$' --ranks 13 --rank 2 --op user \
    --dtype int32
  expect 0 '^  rounds +1, with 12 messages$' --ranks 13 --op max
  expect 0 '^  rounds +2, with 3,3 messages$' --ranks 13 --op max --per-round 3,3
  expect 0 '^ +round +to +data of +from +data of$' --ranks 13 --op max
  expect 0 '^      1      4  10..0 ' --ranks 13 --op max --per-round 3,3
  expect 0 'rounds +4, with at most 1,11,7,1 messages$' --ranks 97 --algorithm recursive_multiplying
  expect 0 '^canonical_dissemination, 13 ranks' --ranks 13 --dtype double
  # What a rank is connected with: few for a ring and for dissemination, all where parts are swapped.
  for ranks in 8 64 96; do
    expect 0 'connections +2$' --ranks $ranks --algorithm ring
    expect 0 "connections +$((ranks - 1))\$" --ranks $ranks --algorithm chunked_fold
  done
  expect 0 'connections +16$' --ranks 64 --algorithm circulant
  expect 0 'rounds +6, with 4,2,1,1,2,4 messages$' --ranks 8 --algorithm circulant
  expect 0 'connections +6$' --ranks 64 --algorithm canonical_halving
  expect 0 'rounds +6, with 4,2,1,1,2,4 messages$' --ranks 8 --algorithm canonical_halving
  expect 0 'connections +5$' --ranks 8 --per-round 1,1,1
  expect 0 'connections +11$' --ranks 64 --per-round 1,1,1,1,1,1
  expect 0 'connections +1, and 3 in shared memory$' --ranks 8 --ranks-per-node 4 --across leader
  for ranks in 8 64 200; do
    expect 0 "connections +$((ranks - 1))\$" --ranks $ranks --collective alltoall --bytes 1M
  done
  expect 0 'connections +21$' --ranks 64 --collective alltoall
  expect 0 'chosen: bruck_alltoall with 7 a round, .* us on' --ranks 64 --collective alltoall --explain
  expect 0 'chosen: shared_ring, which is asked for' --ranks 4 --algorithm shared_ring --explain
  # By price, where the arena has room; a plan is printed of the best schedule that has one.
  expect 0 'chosen: shared_ring, .* us on' --ranks 8 --bytes 1M --dtype double --explain
  expect 0 'next: chunked_fold, .* us' --ranks 8 --bytes 1M --dtype double --explain
  expect 0 '^chunked_fold, 8 ranks' --ranks 8 --bytes 1M --dtype double
  TUTTI_ARENA_BYTES=4M expect 0 'not shared_ring: it takes .* bytes of the arena .* some rank has not' \
    --ranks 8 --bytes 1M --dtype double --explain
  refuse '--format="json": expected table' --ranks 4 --explain --format json
  # As programs choose that have a tuning file.
  local file=$folder/tuning.json node=(--ranks 2 --ranks-per-node 2 --dtype double)
  cat >"$file" <<'TUNING'
{"format": "tutti tuning 1", "findings": [
  {"collective": "allreduce", "bytes": 32768, "nodes": 1, "ranks_per_node": 2, "agreement": "identical",
   "operators": "rounding",
   "winner": {"choice": "recursive_multiplying with 1 a round", "measured_ps": 5000000, "predicted_ps": 2000000},
   "others": [{"choice": "2 lanes, recursive_multiplying across", "measured_ps": 9000000,
               "predicted_ps": 2000000}], "noisy": false}]}
TUNING
  expect 0 '^lanes/recursive_multiplying, 2 ranks' "${node[@]}" --bytes 32K
  expect 0 '^recursive_multiplying, 2 ranks' "${node[@]}" --bytes 32K --file "$file"
  expect 0 '^lanes/recursive_multiplying, 2 ranks' "${node[@]}" --bytes 64K --file "$file"
  expect 0 '^chosen: recursive_multiplying with 1 a round, measured to be the fastest, 5.000 us' \
    "${node[@]}" --bytes 32K --file "$file" --explain
  refuse "$folder/none.json: there is no such file" "${node[@]}" --file "$folder/none.json"
  refuse '--fabric="edr": expected no --file' "${node[@]}" --file "$file" --fabric edr
  # Of many ranks only an alltoall of long blocks connects all: every other collective few more than their logarithm.
  local collective bytes connections how
  for collective in barrier allreduce broadcast reduce reduce_scatter allgather gather scatter scan \
    exscan; do
    for bytes in 8 1M; do
      for ranks in 64 200 1024; do
        how="--bytes $bytes"
        [ $collective != barrier ] || how=
        connections=$("${program[@]}" --ranks $ranks --collective $collective $how |
          sed -n 's/.*connections *\([0-9]*\)$/\1/p')
        [ "$connections" -le $((4 * $(python3 -c "print(($ranks - 1).bit_length())"))) ] ||
          fail "$collective of $bytes bytes connects $connections of $ranks ranks"
      done
    done
  done
  # Whatever the agreement, the operator and the nodes.
  for how in "allreduce --dtype double --agreement reproducible" "allreduce --op user --dtype int32" \
    "reduce_scatter --dtype double --agreement reproducible" \
    "reduce_scatter --op user --dtype int32" "reduce_scatter --ranks-per-node 3,2"; do
    for ranks in 64 99 200 1024; do
      # shellcheck disable=SC2086 # words
      connections=$("${program[@]}" --ranks $ranks --collective $how --bytes 1M |
        sed -n 's/.*connections *\([0-9]*\).*/\1/p')
      [ "${connections:-999}" -le $((4 * $(python3 -c "print(($ranks - 1).bit_length())"))) ] ||
        fail "$how of 1 MiB connects $connections of $ranks ranks"
    done
  done
  # Of a root: all, unless they are many; then one for each halving of the nodes.
  expect 0 'connections +1$' --ranks 32 --collective gather --root 3 --rank 7
  expect 0 'connections +31$' --ranks 32 --collective gather --root 3 --rank 3
  for ranks in 33 64 200; do
    bits=$(python3 -c "print(($ranks - 1).bit_length())")
    for collective in gather scatter; do
      expect 0 "connections +$bits\$" --ranks $ranks --collective $collective --root 3 --rank 3
    done
  done
  expect 0 'connections +6, and 3 in shared memory$' --ranks 256 --ranks-per-node 4 --bytes 4K \
    --collective scatter
  # Blocks go directly to few, and to more by dissemination.
  expect 0 'connections +8$' --ranks 9 --collective allgather
  for ranks in 10 64 256 1000; do
    for bytes in 8 4K 1M; do
      got=$("${program[@]}" --ranks $ranks --collective allgather --bytes $bytes |
        sed -n 's/^ *connections *//p')
      bits=$(python3 -c "print(($ranks - 1).bit_length())")
      [ "$got" -le $((4 * bits)) ] && [ "$got" -ge "$bits" ] ||
        fail "allgather of $bytes bytes, $ranks ranks: $got connections"
    done
  done
  expect 0 'connections +11$' --ranks 64 --collective allgather --per-round 1,1,1,1,1,1
  expect 0 'rounds +6, with 1,2,4,8,17,37 messages$' --ranks 64 --collective allgather \
    --per-round 1,1,1,1,1,1
  expect 0 'connections +8, and 3 in shared memory$' --ranks 36 --collective allgather \
    --ranks-per-node 4
  expect 0 'connections +11, and 3 in shared memory$' --ranks 256 --collective allgather \
    --ranks-per-node 4 --per-round 1,1,1,1,1,1
  # In windows, for which nodes have to be of one size.
  expect 0 '128 slots of 1 part; .*; 16 lines for credits$' --ranks 128 --collective allgather \
    --per-round 3,3,3,1
  expect 0 'connections +99, and 2 in shared memory$' --ranks 200 \
    --collective allgather --ranks-per-node 3,2
  expect 0 '^node_allgather, 200 ranks' --ranks 200 --collective allgather --ranks-per-node 4
  expect 0 'rounds +3, with at most 3,3,3 messages$' --ranks 64 --collective broadcast --per-round 3,3,3
  expect 0 'connections +9$' --ranks 64 --collective broadcast --per-round 3,3,3
  expect 0 '^fibonacci_tree, 64 ranks' --ranks 64 --collective broadcast --bytes 1K
  expect 0 '_tree, 18 ranks' --ranks 18 --ranks-per-node 2 --collective reduce
  expect 0 '^fibonacci_tree, 8 ranks' --ranks 8 --ranks-per-node 8 --collective broadcast \
    --tree fibonacci
  expect 0 '^binomial_tree, 8 ranks' --ranks 8 --collective broadcast --tree binomial
  # Long ones along a chain, but where fans are asked for, or the canonical tree.
  expect 0 '^pipelined_chain, 16 ranks' --ranks 16 --collective broadcast --bytes 1M
  expect 0 'connections +2$' --ranks 16 --collective reduce --bytes 1M --rank 3
  expect 0 '_tree, 64 ranks' --ranks 64 --collective broadcast --bytes 64K
  expect 0 '^binomial_tree, 16 ranks' --ranks 16 --collective broadcast --bytes 1M --per-round 1,1,1,1
  expect 0 '^binomial_tree, 16 ranks' --ranks 16 --collective reduce --bytes 1M --dtype double \
    --agreement reproducible
  expect 0 '_tree, 16 ranks' --ranks 16 --collective reduce --bytes 1M --op user \
    --dtype int32 --root 3
  expect 0 '^pipelined_chain, 16 ranks' --ranks 16 --collective reduce --bytes 1M --op user \
    --dtype int32
  expect 0 'connections +6$' --ranks 64 --collective broadcast --per-round 1,1,1,1,1,1
  expect 0 '^binomial_tree, 64 ranks' --ranks 64 --collective reduce --dtype double \
    --agreement reproducible
  expect 0 'scratch +1 partial, 1 slot of 1 payload; 16384 bytes in two copies; 9 lines for credits$' \
    --ranks 64 --collective broadcast --bytes 4K --tree knomial
  expect 0 '^flat_tree, 8 ranks, rank 2$' --ranks 8 --ranks-per-node 8 --collective broadcast --rank 2
  expect 0 '^ +0 +0  has read +0$' --ranks 5 --collective broadcast --rank 1
  expect 0 'collective +scatter, root 1, blocks of 4096 bytes$' --ranks 3 --collective scatter \
    --root 1 --bytes 4K
  expect 0 'bytes sent +8192$' --ranks 3 --collective scatter --root 0 --bytes 4K
  [ "$("${program[@]}" --ranks 7 --rank all --collective scan | grep -c '^doubling, 7 ')" = 7 ] ||
    fail "--rank all of a scan"
  expect 0 'rounds +126, each with 2 messages$' --ranks 64 --algorithm ring
  expect 0 'results relaxed' --ranks 13 --dtype double --algorithm two_partial_dissemination
  expect 0 'bytes sent +72$' --ranks 13 --rank 2 --op user --dtype int32 --per-round 3,3
  expect 0 'rounds +none' --ranks 1
  expect 0 'barrier, messages without payload' --ranks 5 --collective barrier
  [ "$("${program[@]}" --ranks 7 --rank all | grep -c ', rank ')" = 7 ] || fail "--rank all"
  expect 0 'is not shown: it takes the plans of all ranks' --ranks 1000000 --rank 999999
  expect 0 '4294967295 ranks, rank 4294967294' --ranks 4294967295 --rank 4294967294 --op max
  expect 0 'r6_0 -> r0_1 \[taillabel="6"\];' --ranks 7 --rank 0 --format dot --op max
  expect 0 '^}$' --ranks 64 --rank all --format dot
  expect 0 '--agreement .*strongest' --help
  if "${program[@]}" --ranks 96 | grep '.\{101\}' >/dev/null; then fail "a table wider than 100 columns"; fi
  if "${program[@]}" --ranks 5 >/dev/full 2>/dev/null; then fail "accepted: a full disk"; fi
  # A device is not needed, and a wrong one not looked at.
  TUTTI_DEVICE=nonsense "${program[@]}" --ranks 5 >/dev/null || fail "asks for a device"
}

refusals() {
  refuse '--root="9": expected a number from 0 to 3' --ranks 4 --collective gather --root 9
  refuse '--algorithm="ring": expected only with' --ranks 4 --collective alltoall --algorithm ring
  refuse '--per-round="3": expected only with' --ranks 4 --collective scan --per-round 3
  refuse 'per_round 3,3: algorithm canonical_halving has .*leave per_round out' --ranks 16 \
    --per-round 3,3 --algorithm canonical_halving
  refuse 'canonical_halving needs .* 32768.*P is 40000; use' --ranks 40000 \
    --algorithm canonical_halving
  refuse 'per_round 1,1 does not cover 16 ranks.*use 1,1,1,1' --ranks 16 --per-round 1,1 \
    --collective allgather
  refuse '--root="1": expected a collective that has one' --ranks 4 --root 1
  refuse '--format="json": expected table, or allreduce' --ranks 4 --collective alltoall --format json
  refuse '--ranks="40000".*slots for all of them' --ranks 40000 --collective alltoall
  refuse '--ranks="40000".*slots for all of them' --ranks 40000 --collective reduce_scatter
  refuse 'expected --ranks P' --rank 0
  refuse '--ranks="0": expected a number from 1' --ranks 0
  refuse '--ranks="-3": expected a number from 1' --ranks -3
  refuse '--ranks="": expected a number from 1' --ranks ''
  refuse '--ranks="5000000000": expected a number from 1 to 4294967295' --ranks 5000000000
  refuse '--rank="7": expected a rank of these 5, 0 to 4, or all' --ranks 5 --rank 7
  refuse '--rank="x": expected a rank' --ranks 5 --rank x
  refuse '--algorithm="gossip": expected one of automatic, dissemination, two_partial_dissem' \
    --ranks 5 --algorithm gossip
  refuse '--collective="gossip": expected one of allreduce, barrier, broadcast' --ranks 5 \
    --collective gossip
  refuse '--placement="cyclic": expected --ranks-per-node' --ranks 5 --placement cyclic
  refuse '--node-memory: expected --ranks-per-node beside it; add it' --ranks 5 --node-memory
  refuse '--node-memory="reduce": expected allreduce, broadcast or allgather' --ranks 4 \
    --ranks-per-node 2 --collective reduce --node-memory
  refuse '--node-memory gives a node one target, but .*reproducible.*leave it out' --ranks 4 \
    --ranks-per-node 2 --dtype double --agreement reproducible --node-memory
  refuse '--node-memory gives a node one target, but across flat' --ranks 4 --ranks-per-node 2 \
    --across flat --node-memory
  refuse '--ranks-per-domain="2": expected --ranks-per-node' --ranks 5 --ranks-per-domain 2
  refuse '--ranks-per-domain="2,0": expected ranks of each domain' --ranks 5 --ranks-per-node 5 \
    --ranks-per-domain 2,0
  refuse '--ranks-per-domain="2": expected only with allreduce and barrier' --ranks 5 \
    --collective scan --ranks-per-node 5 --ranks-per-domain 2
  refuse '--ranks-per-node="0"' --ranks 5 --ranks-per-node 0
  refuse '--tree="oak": expected one of automatic, knomial, binomial, fibonacci' --ranks 5 \
    --collective reduce --tree oak
  refuse '--tree="binary": expected one of automatic, knomial' --ranks 5 --tree binary \
    --collective reduce
  refuse '--tree="knomial": expected only with broadcast and reduce' --ranks 5 --tree knomial
  refuse 'tree fibonacci gives other bits.*use automatic or binomial' --ranks 5 --tree fibonacci \
    --collective reduce --dtype double --agreement reproducible
  refuse '--across="x": expected one of automatic, flat, leader, lanes' --ranks 5 --across x
  refuse 'across leader .*reproducible.*use automatic or flat' --ranks 4 --ranks-per-node 2 \
    --across leader --dtype double --agreement reproducible
  refuse 'across leader .*do not follow each other.*not commute' --ranks 4 --ranks-per-node 2 \
    --placement cyclic --across leader --op user --dtype int32
  refuse 'across lanes does not go with algorithm two_partial' --ranks 4 --ranks-per-node 2 \
    --across lanes --op user --dtype int32 --algorithm two_partial_dissemination
  refuse '--format="xml": expected one of table, dot, json' --ranks 5 --format xml
  refuse '--dtype="quad".*int32' --ranks 5 --dtype quad
  refuse '--op="avg".*sum' --ranks 5 --op avg
  refuse '--op="bor".*double.*uint64' --ranks 5 --op bor --dtype double
  refuse '--bytes="12".*multiple of 8' --ranks 5 --bytes 12
  refuse '--bytes="2G": expected at most 1G' --ranks 5 --bytes 2G
  refuse '--bytes="8": expected only with collectives that have a payload' --ranks 5 --collective barrier --bytes 8
  refuse '--op="max": expected only with allreduce' --ranks 5 --collective alltoall --op max
  refuse '--agreement="loose".*relaxed' --ranks 5 --agreement loose
  refuse '--per-round="0".*1 or more' --ranks 5 --per-round 0
  refuse '--per-round="2,".*1 or more' --ranks 5 --per-round 2,
  refuse '1,1 does not cover 13 ranks.*use 1,1,1,1' --ranks 13 --per-round 1,1
  refuse 'per_round 100000 needs more than 32768 messages' --ranks 100001 --per-round 100000
  refuse 'per_round 4294967295 needs more than 32768' --ranks 4294967295 --per-round 4294967295
  refuse 'dissemination lets.*sum is not idempotent; use automatic' --ranks 5 \
    --algorithm dissemination
  refuse 'no more than relaxed.*identical is asked for; use' --ranks 5 --dtype double \
    --agreement identical \
    --algorithm two_partial_dissemination
  refuse 'barrier: algorithm two_partial_dissemination is not offered; use' --ranks 5 \
    --collective barrier --algorithm two_partial_dissemination
  refuse '--rank="all".*more than 64.*--rank R' --ranks 65 --rank all --format dot
  refuse '--ranks="1000000".*use fewer' --ranks 1000000 --format json
  refuse '--ranks="1000000".*use fewer' --ranks 1000000 --format dot
  refuse '--ranks="1000000".*--rank R' --ranks 1000000 --rank all
  refuse 'not expected: gossip.*plan --help' gossip
  refuse '--ranks.*plan --help' --ranks 5 --ranks 6
  refuse 'not expected.*plan --help' --ranks 5 $'--two\nlines'
  program=("${program[0]}")
  refuse '--format="json" before plan.*plan --format json' --format json plan --ranks 5
}

$group
[ $failures = 0 ] || exit 1
echo "all as promised"
