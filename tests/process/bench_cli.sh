#!/bin/bash
# Promise: tutti-bench computes right results under every bootstrap of one machine, and answers bad
# input with one line that names the value and the remedy, and with exit status 2; never a hang.
# Usage: bench_cli.sh TUTTI_BENCH TUTTI_INFO GROUP
set -u
bench=$1
info=$2
group=$3
. "$(dirname "$0")/../support/cli.sh"

results() {
  local short=(--check --iterations 40 --warmup 5 --format json)
  for ranks in 1 2 3 4; do
    expect 0 '"collective":"barrier".*"correct":true' \
      "$bench" barrier --local $ranks "${short[@]}" --delay-us 200
    for type in int32 uint32 int64 uint64 float double half bfloat16; do
      expect 0 '"correct":true' "$bench" allreduce --local $ranks --dtype $type --bytes 0,8,1K \
        "${short[@]}"
    done
  done
  for op in prod min max band bor bxor land lor; do
    expect 0 '"correct":true' "$bench" allreduce --local 3 --dtype int64 --op $op --bytes 8,512 \
      "${short[@]}"
  done
  for op in prod min max; do
    expect 0 '"correct":true' "$bench" allreduce --local 4 --dtype float --op $op --bytes 64 \
      "${short[@]}"
  done
  for nodes in 1 2 3 4; do
    expect 0 '"algorithm":"shared_ring".*"correct":true' "$bench" allreduce --local 4 \
      --ranks-per-node $nodes --algorithm shared_ring --bytes 0,8,64K "${short[@]}" --delay-us 200
  done
  expect 0 '"bytes":56,.*"notify":"flag".*"correct":true' "$bench" allreduce --local 3 --bytes 56 \
    --ranks-per-node 1 --notify flag "${short[@]}" --delay-us 100
  expect 0 '"bytes":64,.*"notify":"immediate".*"correct":true' env TUTTI_NOTIFY=flag "$bench" \
    allreduce --local 3 --bytes 64 --ranks-per-node 1 "${short[@]}"
  expect 0 '"notify":"immediate".*"correct":true' env TUTTI_NOTIFY=flag "$bench" \
    allreduce --local 3 --bytes 8 --ranks-per-node 1 --notify immediate "${short[@]}"
  for vector in 4 2,1 1,1,1; do
    expect 0 '"op":"user".*"correct":true' "$bench" allreduce --local 5 --op user --bytes 8,256 \
      --per-round $vector "${short[@]}" --delay-us 100
  done
  expect 0 'Note: no overlap of collectives that are timed from a root' \
    "$bench" broadcast --local 2 --bytes 8 --iterations 400 --overlap
  expect 0 'overlap of allreduce 65536 B +[01]\.[0-9]+ +\(2 alternating blocks\)' \
    "$bench" allreduce,broadcast --local 2 --ranks-per-node 1 --fabric fdr --bytes 64K \
    --iterations 400 --overlap
  expect 0 'busy in test\(\) of allreduce 65536 B +[0-9]+\.[0-9]+ +\(1 alternating blocks\)' \
    "$bench" allreduce --local 2 --ranks-per-node 1 --fabric roce10 --bytes 64K --iterations 200 \
    --overlap
  for across in leader lanes; do
    expect 0 '"algorithm":"'$across'/.*"correct":true' "$bench" allreduce --local 7 --dtype double \
      --across $across --ranks-per-node 3,2 --placement cyclic --bytes 8,1K "${short[@]}" --delay-us 100
  done
  for root in 0 4; do
    expect 0 '"collective":"reduce".*"correct":true' "$bench" broadcast,reduce --local 5 --root $root \
      --op user --ranks-per-node 2,1 --placement cyclic --bytes 8,1K "${short[@]}" --delay-us 100
  done
  for name in gatherv scatterv; do
    expect 0 '"collective":"'$name'",.*"correct":true' "$bench" $name --local 5 --root 3 \
      --ranks-per-node 2 --bytes 8,10000 "${short[@]}" --delay-us 100
  done
  # The reason for a check pass: no row may have been skipped.
  if timeout 60 "$bench" all --local 3 "${short[@]}" | grep '"correct":\(null\|false\)' >/dev/null; then
    fail "an unchecked row of a checked run"
  fi
  expect 0 '/bound: .* floor for wimm 8, barrier, allreduce 8' \
    "$bench" all --local 2 --bytes 8 --iterations 400
  expect 0 'oneway for broadcast 8, reduce 8, gather 8' \
    "$bench" oneway,broadcast,reduce,gather,barrier --rotate-root --local 2 --bytes 8 \
    --iterations 40 --warmup 5 --check
  expect 0 'memcpy for broadcast 64K; 1.5 memcpy for reduce 64K' \
    "$bench" memcpy,broadcast,reduce --local 2 --bytes 64K --iterations 400
  expect 0 '"algorithm":"single_copy".*"correct":true' "$bench" broadcast --local 3 --bytes 100000 \
    --iterations 8 --check --format json --single-copy 4K
  expect 0 'allgather 65536 B default / never .*alternating blocks' "$bench" broadcast,allgather --local 2 \
    --bytes 64K --iterations 40 --check --single-copy default,4K,never
  expect 0 'allgather 65536 B default / node memory' \
    "$bench" broadcast,allgather --local 2 --bytes 64K --iterations 40 --node-memory
  local traces
  traces=$(mktemp -d)
  expect 0 'allreduce 8 B traced / default' "$bench" barrier,allreduce --local 2 --bytes 8 \
    --iterations 400 --trace "$traces/%r.json"
  grep -q '"name":"allreduce #' "$traces/1.json" || fail "--trace has left no trace"
  rm -r "$traces"
  expect 0 'oversubscribed' "$bench" barrier --local 16 --iterations 20
  expect 0 'none: --bind none' "$bench" barrier --local 2 --bind none --iterations 20
  expect 0 '^collective,bytes,' "$bench" barrier --local 2 --iterations 20 --format csv
}

virtual_time() {
  local first second
  first=$("$bench" wimm,barrier,allreduce --local 2 --virtual-time --format json --check)
  second=$(taskset -c 0 "$bench" wimm,barrier,allreduce --local 2 --virtual-time --fabric fdr \
    --format json --check)
  [ "$first" = "$second" ] || fail "virtual time differs: $first $second"
  # o + L + 8 G + o_r
  grep -Eq '"wimm".*"virtual":true,"fabric":"fdr".*"median_ns":901.176,' <<<"$first" ||
    fail "wimm in virtual time: $first"
  expect 0 '"ranks":96.*"median_ns":6300.0,.*"oversubscribed":false' "$bench" barrier --local 96 \
    --virtual-time --per-round 1,1,1,1,1,1,1 --format json
  # A wrong result would be exit status 1.
  expect 0 '"collective":"exscan","bytes":256.*"correct":true' "$bench" \
    allgather,alltoall,gather,gatherv,scatter,scatterv,reduce_scatter,broadcast,reduce,scan,exscan \
    --local 24 \
    --virtual-time --bytes 256 --iterations 2 --check --format json
  # Along a chain: all bytes once, and 14 hops of a piece, with a credit of the calls before more or
  # less; as a tree it would take four times that.
  expect 0 '"collective":"broadcast",.*"algorithm":"pipelined_chain".*"median_ns":18[89][0-9]{3}\..*"correct":true' \
    "$bench" broadcast --local 16 --virtual-time --bytes 1M --iterations 1 --check --format json
  # In lanes, of 4 ranks a node.
  for collective in broadcast reduce; do
    expect 0 '"algorithm":"lanes/.*"correct":true' "$bench" $collective --local 16 \
      --ranks-per-node 4 --root 5 --virtual-time --bytes 64K --iterations 3 --check --format json
  done
  expect 0 '"bytes":2097152,.*"algorithm":"lanes/turns".*"correct":true' "$bench" allreduce --local 12 \
    --ranks-per-node 3 --virtual-time --bytes 80008,2M --iterations 2 --check --format json
  # 31 blocks of 32 KiB, o + L + o_r, and one answer between windows; on 17 connections.
  expect 0 '"collective":"allgatherv",.*"median_ns":150283.*"correct":true' "$bench" allgatherv \
    --local 32 --virtual-time --bytes 32K --iterations 1 --check --format json
  # Whatever the distribution, about what so many bytes take: 154 us, and a piece from hop to hop.
  local distribution ranks time
  for distribution in decreasing single; do
    for ranks in 4 8 16 32; do
      time=$("$bench" allgatherv --local $ranks --virtual-time --fabric fdr --dtype int32 \
        --bytes $((1048576 / ranks)) --distribution $distribution --iterations 1 --check \
        --format json | sed -En 's/.*"median_ns":([0-9]+)\..*"correct":true.*/\1/p')
      [ "${time:-0}" -gt 150000 ] && [ "$time" -lt 190000 ] ||
        fail "allgatherv, $distribution, $ranks ranks: ${time:-no result} ns, expected about 154200"
    done
  done
  # Chunks that are republished cost what those of a plan do: 6 hops of o + L + o_r.
  expect 0 '"algorithm":"shared_ring",.*"median_ns":5407\..*"correct":true' "$bench" allreduce \
    --local 4 --virtual-time --algorithm shared_ring --bytes 8 --iterations 2 --check --format json
  # One half of the ring: 3 hops, of an allgather and of a reduce_scatter, and what bounds it.
  expect 0 '"collective":"allgather",.*"algorithm":"shared_ring",.*"correct":true' "$bench" allgather \
    --local 4 --virtual-time --algorithm shared_ring --bytes 64K --iterations 2 --check --format json
  expect 0 '/bound' "$bench" reduce_scatter --local 4 --virtual-time \
    --algorithm shared_ring --bytes 256K --iterations 2 --check
  expect 0 '"collective":"allgatherv",.*"algorithm":"shared_ring",.*"correct":true' "$bench" \
    allgatherv --local 6 --ranks-per-node 2 --virtual-time --algorithm shared_ring --bytes 8K \
    --distribution decreasing --iterations 2 --check --format json
  # o + L + 64 G + o_r
  expect 0 '"notify":"flag".*"median_ns":909.412,.*"correct":true' "$bench" allreduce --local 2 \
    --virtual-time --notify flag --bytes 8 --check --format json
  expect 0 '"collective":"exscan",.*"notify":"flag".*"correct":true' "$bench" all --local 6 \
    --ranks-per-node 2 --virtual-time --notify flag --bytes 8 --iterations 2 --check --format json
  expect 0 'shared_ring.*"correct":true' "$bench" allreduce --local 4 --virtual-time --notify flag \
    --algorithm shared_ring --bytes 8 --iterations 2 --check --format json
  expect 0 'fabric +roce100, emulated in virtual time' "$bench" all --local 3 --virtual-time \
    --fabric roce100
  expect 0 '"virtual":false,"fabric":"qdr".*"correct":true' "$bench" allreduce --local 2 --bytes 8 \
    --fabric qdr --iterations 40 --check --format json
}

# What --help says of an option that is left out is what a run without it does.
defaults() {
  local help output name value field
  help=$("$bench" --help)
  output=$("$bench" allreduce --local 2 --virtual-time --format json) || fail "defaults: $output"
  for name in dtype op agreement seed fabric; do
    value=$(sed -En "s/^ +--$name .*; default ([a-z0-9]+).*/\1/p" <<<"$help")
    [ "$name" != fabric ] || value=$(sed -En 's/^ +--virtual-time .*\(default ([a-z0-9]+)\).*/\1/p' <<<"$help")
    field=$(sed -En "1s/.*\"$name\":\"?([a-z0-9]+).*/\1/p" <<<"$output")
    [ -n "$value" ] && [ "$value" = "$field" ] ||
      fail "--$name: the default of --help is \"$value\", that of a run \"$field\""
  done
  value=$(sed -En 's/^ +--bytes .*; default ([0-9,]+)$/\1/p' <<<"$help")
  field=$(sed -En 's/.*"bytes":([0-9]+).*/\1/p' <<<"$output" | paste -sd,)
  [ "$value" = "$field" ] || fail "--bytes: the default of --help is $value, that of a run $field"
  value=$(sed -En 's/^ +--iterations .*, ([0-9]+) in virtual time.*/\1/p' <<<"$help")
  field=$(sed -En '1s/.*"iterations":([0-9]+).*/\1/p' <<<"$output")
  [ "$value" = "$field" ] || fail "--iterations: $value in --help, $field in a run"
}

refusals() {
  refuse 'rotate-root needs exactly 2 ranks, this run has 3' "$bench" broadcast --rotate-root --local 3
  refuse '--distribution="odd"' "$bench" allgatherv --local 2 --distribution odd
  refuse '--distribution="single".*allgatherv, gatherv or scatterv' \
    "$bench" allgather --local 2 --distribution single
  refuse '--virtual-time.*--local' "$bench" barrier --virtual-time
  refuse 'shared_ring polls words in memory, and in virtual time.*=republished' \
    env TUTTI_SHARED_NOTIFICATIONS=words \
    "$bench" allreduce --local 2 --virtual-time --algorithm shared_ring
  refuse 'TUTTI_SHARED_NOTIFICATIONS="flags": expected automatic, words or republished' \
    env TUTTI_SHARED_NOTIFICATIONS=flags "$bench" allreduce --local 2
  refuse '--single-copy="always": expected bytes.*measured or never' \
    "$bench" broadcast --local 2 --single-copy always
  refuse '--single-copy="4K,4K": expected each way once' "$bench" broadcast --local 2 --single-copy 4K,4K
  refuse '--format="json": expected table with several ways' \
    "$bench" broadcast --local 2 --single-copy default,never --format json
  refuse '--node-memory="reduce": expected allreduce, broadcast, allgather or allgatherv' \
    "$bench" reduce --local 2 --node-memory
  refuse '--node-memory="--check": expected one of them' \
    "$bench" broadcast --local 2 --node-memory --check
  refuse '--trace="t": expected no TUTTI_TRACE beside it' \
    env TUTTI_TRACE=u "$bench" barrier --local 2 --trace t
  refuse '--format="json": expected table with --overlap' "$bench" barrier --local 2 --overlap --format json
  refuse '--overlap with --virtual-time.*leave one' "$bench" allreduce --local 2 --virtual-time --overlap
  refuse '--virtual-time="floor".*leave it out' "$bench" floor --local 2 --virtual-time
  refuse 'fabric "fddr".*qdr, fdr' "$bench" barrier --local 2 --fabric fddr
  refuse '--notify="word": expected one of immediate, flag' "$bench" allreduce --local 2 --notify word
  refuse 'TUTTI_NOTIFY=flag.*soft0:1 does not promise.*TUTTI_SOFT_TRANSPORT=cma.*use immediate' \
    env TUTTI_SOFT_TRANSPORT=cma "$bench" barrier --local 2 --notify flag
  refuse '--across="x": expected one of automatic, flat, leader, lanes' "$bench" barrier --local 2 --across x
  refuse 'COLLECTIVE="gossip".*allreduce' "$bench" gossip --local 2
  refuse '--dtype="quad".*int32' "$bench" allreduce --local 2 --dtype quad
  refuse '--op="bor".*double.*uint64' "$bench" allreduce --local 2 --op bor --dtype double
  refuse '--local="0".*1' "$bench" allreduce --local 0
  refuse '--ranks-per-node="2,0".*each 1 or more' "$bench" allreduce --local 2 --ranks-per-node 2,0
  refuse 'broadcast: root 2: expected a rank, 0 .. 1' "$bench" broadcast --local 2 --root 2
  refuse '--placement="near".*block, cyclic or random' "$bench" allreduce --local 2 --placement near
  refuse '1,1 does not cover 13 ranks.*1,1,1,1' "$bench" allreduce --local 13 --per-round 1,1
  refuse '--per-round="0".*1 or more' "$bench" allreduce --local 2 --per-round 0
  refuse '--against="mpi".*--local.*mpirun' "$bench" allreduce --local 2 --against mpi
  refuse '--bytes="12".*multiple of 8' "$bench" allreduce --local 2 --bytes 12
  TUTTI_CHUNK_BYTES=64M TUTTI_SINGLE_COPY_BYTES=1G refuse 'raise TUTTI_ARENA_BYTES' \
    "$bench" allreduce --local 2 --bytes 64M
  refuse 'memcpy needs exactly 2 ranks, this run has 3' "$bench" memcpy --local 3
  refuse 'TUTTI_SINGLE_COPY_BYTES="x".*bytes' env TUTTI_SINGLE_COPY_BYTES=x "$bench" memcpy --local 2
  refuse 'floor needs exactly 2 ranks, this run has 3' "$bench" floor --local 3
  refuse 'two_partial_dissemination promises no more than relaxed.*recursive_multiplying' \
    "$bench" allreduce --local 2 --agreement identical --algorithm two_partial_dissemination
  refuse '--algorithm="gossip".*one of automatic, dissemination.*chunked_fold' \
    "$bench" allreduce --local 2 --algorithm gossip
  refuse 'per_round 1: .*cannot be adapted to 25 ranks.*nearest n that can is 2' \
    "$bench" allreduce --local 25 --algorithm nway --per-round 1
  refuse '--out="/nowhere/x"' "$bench" barrier --local 2 --out /nowhere/x
  refuse 'nonsense.*expected' env TUTTI_DEVICE=nonsense "$bench" barrier --local 2
  refuse 'TUTTI_NONSENSE.*TUTTI_DEVICE' env TUTTI_NONSENSE=1 "$bench" barrier --local 2
  refuse '--dtype="half".*MPI has' "$bench" allreduce --dtype half --against mpi
  refuse 'TUTTI_RANK.*mpirun' env TUTTI_RANK=0 "$bench" barrier --against mpi
  refuse 'TUTTI_SIZE' env TUTTI_RANK=0 "$bench" barrier
  refuse 'TUTTI_SIZE.*1 or more' env TUTTI_RANK=0 TUTTI_SIZE=0 "$bench" barrier
  expect 0 'COLLECTIVE' "$bench" --help
  defaults

  expect 0 'ranks of this host that can map' "$info"
  expect 0 'locked memory \(ulimit -l\) +not needed by the software device' "$info"
  expect 0 'memory of a rank +2052 KiB \(TUTTI_ARENA_BYTES\)' env TUTTI_ARENA_BYTES=2M "$info"
  expect 0 'memory left +[0-9]+ .iB, as (this host|memory.* of control group .*) says' "$info"
  expect 0 '"algorithm":"binomial_tree"' "$bench" reduce --local 4 --ranks-per-node 1 --tree binomial \
    --check --iterations 40 --format json
  refuse '--tree="oak": expected one of automatic, knomial' "$bench" broadcast --local 2 --tree oak
  expect 0 'notify +immediate \(default\); flag: can be used here' "$info"
  expect 0 'notify +flag \(TUTTI_NOTIFY\): messages of at most 56 bytes' env TUTTI_NOTIFY=flag "$info"
  expect 0 'notify +immediate \(TUTTI_NOTIFY\); flag: cannot be used here' \
    env TUTTI_NOTIFY=immediate TUTTI_SOFT_TRANSPORT=bounce "$info"
  expect 1 'TUTTI_NOTIFY=flag: a rank polls.*soft0:1 does not promise' \
    env TUTTI_NOTIFY=flag TUTTI_SOFT_TRANSPORT=cma "$info"
  expect 0 'domains +found, in nodes of more than 16 ranks' "$info"
  expect 0 'domain of this process +(CPUs |none: )' "$info"
  expect 0 'imposed: 4,2 ranks each' env TUTTI_RANKS_PER_DOMAIN=4,2 "$info"
  expect 0 '"algorithm":"domains/dissemination"' env TUTTI_RANKS_PER_DOMAIN=2 "$bench" barrier \
    --local 4 --check --iterations 40 --format json
  expect 0 'imposed: 3,1 ranks per node, placed cyclic' \
    env TUTTI_RANKS_PER_NODE=3,1 TUTTI_PLACEMENT=cyclic "$info"
  expect 0 '"Limits"' "$info" --format json
  tuning_tables
  refuse '--format="xml"' "$info" --format xml
  expect 0 '^  TUTTI_SETUP_TIMEOUT +.*[[]seconds; default: 30]' "$info" settings
  expect 0 '"name": "TUTTI_SOFT_LOG"' "$info" settings --format json
  expect 0 '^[|] `TUTTI_CHECK` [|] `off`, `local`, `collective` [|]' \
    "$info" settings --format markdown
  refuse '--format="xml": expected table, json or markdown' "$info" settings --format xml
  refuse '--format="json" before settings.*settings --format json' "$info" --format json settings
  expect 1 'tutti-info: device "nonsense".*expected name or name:port' \
    env TUTTI_DEVICE=nonsense "$info"
  expect 1 '^  TUTTI_DEVICE +nonsense' env TUTTI_DEVICE=nonsense "$info"
  expect 1 '"error": "device .*nonsense' env TUTTI_DEVICE=nonsense "$info" --format json
  refuse 'TUTTI_NONSENSE.*TUTTI_DEVICE' env TUTTI_NONSENSE=1 "$info"
  local two=(env TUTTI_SOFT_DEVICES=soft0:1,soft1:2 TUTTI_SOFT_LINK_DOWN=soft1:1)
  expect 0 'soft1:2: .*asked for soft1; not taken: ' "${two[@]}" TUTTI_DEVICE=soft1 "$info"
  expect 0 'choice +not taken: port down' "${two[@]}" "$info"
  expect 0 '"correct":true' "${two[@]}" TUTTI_DEVICE=soft1:2 "$bench" barrier --local 2 --check \
    --iterations 40 --format json
  expect 1 'device "soft1:1".*cannot be used: port down.*soft1:2 \(usable\)' \
    "${two[@]}" TUTTI_DEVICE=soft1:1 "$info"
  expect 1 'soft1 has no port 3; expected soft1:1 or soft1:2' \
    "${two[@]}" TUTTI_DEVICE=soft1:3 "$info"
  expect 1 "TUTTI_CONNECT=cm: soft0:1 is " env TUTTI_CONNECT=cm TUTTI_DEVICE=soft0 "$info"
  expect 1 '"1x" is no port number' "${two[@]}" TUTTI_DEVICE=soft1:1x "$info"
  refuse 'soft1:1 \(port down\)' "${two[@]}" TUTTI_DEVICE=soft1:1 "$bench" barrier --local 2
  # A link that is down is nobody's wrong setting, and hides nothing else.
  expect 1 'link +InfiniBand, down' env TUTTI_SOFT_LINK_DOWN=soft0:1 "$info"
  expect 1 '^  CPUs allowed' env TUTTI_SOFT_LINK_DOWN=soft0:1 "$info"
  expect 1 'tutti-info: no port can be used.*soft0:1 \(port down\)' \
    env TUTTI_SOFT_LINK_DOWN=soft0:1 "$info"
  if TUTTI_SOFT_LINK_DOWN=soft0:1 "$info" 2>&1 >/dev/null | grep TUTTI_DEVICE >/dev/null; then
    fail "a link that is down is blamed on TUTTI_DEVICE"
  fi
  expect 1 'TUTTI_SOFT_DEVICES="soft0": expected' env TUTTI_SOFT_DEVICES=soft0 "$info"
  expect 1 'TUTTI_SOFT_LINK_DOWN="soft0:2": expected .* soft0:1' \
    env TUTTI_SOFT_LINK_DOWN=soft0:2 "$info"
  expect 0 'TUTTI_SECRET +\(set\)' env TUTTI_SECRET=rumpelstiltskin "$info"
  if TUTTI_SECRET=rumpelstiltskin "$info" | grep rumpelstiltskin >/dev/null; then
    fail "tutti-info prints the secret"
  fi
}

# tutti-info says which table is in force, and why others are not.
tuning_tables() {
  local rules='{"format": "tutti tuning 1", "rules": [{"collective": "barrier", "across": "flat"}]}'
  mkdir "$folder/tutti"
  expect 0 'table +none was found; prices are those of fdr, for the software device' \
    env XDG_CONFIG_HOME="$folder" "$info"
  expect 0 "looked for +$folder/tutti/tuning.json, /etc/tutti/tuning.json" \
    env XDG_CONFIG_HOME="$folder" "$info"
  expect 0 'latency_ps +850000, preset' env XDG_CONFIG_HOME="$folder" "$info"
  expect 0 'prices are those of roce25, for a port of 25 Gb/s Ethernet' \
    env XDG_CONFIG_HOME="$folder" TUTTI_SOFT_FABRIC=roce25 "$info"
  expect 0 'mode +off \(TUTTI_TUNING\) table +none \(TUTTI_TUNING=off\)' \
    env XDG_CONFIG_HOME="$folder" TUTTI_TUNING=off "$info"
  expect 1 'tutti-info: TUTTI_TUNING_FILE .*/nowhere/t.json: cannot be opened: No such file.*; name another' \
    env TUTTI_TUNING_FILE=/nowhere/t.json "$info"
  echo "$rules" >"$folder/tutti/tuning.json"
  expect 0 "table +$folder/tutti/tuning.json: 0 findings, 1 rule" \
    env XDG_CONFIG_HOME="$folder" "$info"
  echo "${rules%?}" >"$folder/tutti/tuning.json"
  expect 0 "table +none was found.*not taken +$folder/tutti/tuning.json:[12]: " \
    env XDG_CONFIG_HOME="$folder" "$info"
  expect 1 "tutti-info: TUTTI_TUNING_FILE .*$folder/tutti/tuning.json:[12]: " \
    env TUTTI_TUNING_FILE="$folder/tutti/tuning.json" "$info"
  expect 0 'first calls +none are made, so that TUTTI_TUNING_APPEND=1 does nothing' \
    env TUTTI_TUNING_APPEND=1 "$info"
  expect 0 'first calls +rank 0 of each communicator appends' \
    env TUTTI_TUNING_APPEND=1 TUTTI_TUNING=first_call "$info"
  refuse 'TUTTI_TUNING="on": expected file, model, first_call or off' env TUTTI_TUNING=on "$info"
}

# The shape and the figures of a run decide which bounds of a file are judged, and how it ends.
bounds() {
  local run
  run=("$bench" floor,barrier --local 2 --iterations 2000)
  refuse '--expect="/nowhere/x": No such file' "${run[@]}" --expect /nowhere/x
  refuse '--expect="/": .*give a file of bounds' "${run[@]}" --expect /
  printf 'barrier <= 9 floor\nbarrier < 1 floor\n' >"$folder/bad"
  refuse "$folder/bad:2: \"<\": expected <=" "${run[@]}" --expect "$folder/bad"
  printf '# nothing\n' >"$folder/empty"
  refuse "$folder/empty: expected bounds such as" "${run[@]}" --expect "$folder/empty"
  printf '[ranks 4]\nbarrier <= 9 floor\n' >"$folder/four"
  refuse '--iterations="40": expected at least 2000' "$bench" floor,barrier --local 2 \
    --iterations 40 --expect "$folder/four"
  echo 'barrier <= 9 mpi' >"$folder/mpi"
  if [ "$(nproc)" -lt 2 ]; then
    refuse 'expected a CPU for each rank' "${run[@]}" --expect "$folder/mpi"
    return
  fi
  refuse "$folder/mpi:1: \"barrier <= 9 mpi\": it is not measured --against mpi" \
    "${run[@]}" --expect "$folder/mpi"
  refuse "$folder/four:2: .*expected a run of .ranks 4" "${run[@]}" --expect "$folder/four"
  # No barrier takes a millionth of the floor, none a million times as long.
  printf '[ranks 2, nodes 1]\nbarrier <= 0.000001 floor tripwire 1000000\n[nodes 2]\nbarrier <= 1 wimm\n' \
    >"$folder/targets"
  expect 3 '^NOT met  barrier .* <= 1e-06 floor +line 2$' "${run[@]}" --expect "$folder/targets"
  expect 3 '^0 of 1 met, 1 line about other numbers' "${run[@]}" --expect "$folder/targets"
  expect 0 '^met      barrier .* <= 1e\+06 floor +line 2$' "${run[@]}" --expect "$folder/targets" \
    --tripwire
  printf 'barrier <= 0.000001 floor\n' >"$folder/out_of_reach"
  expect 3 'its tripwires; measured 3 times, the best counts' "${run[@]}" --tripwire \
    --expect "$folder/out_of_reach"
  # Standard output is the JSON alone.
  timeout 60 "${run[@]}" --format json --expect "$folder/targets" 2>"$folder/stderr" |
    grep -v '^{.*}$' && fail "not only JSON on standard output"
  grep -q '^NOT met' "$folder/stderr" || fail "no verdict on standard error"

  # Rows of several runs in one file; none is beside MPI here.
  for run in 1 2; do
    "$bench" barrier --local 2 --iterations 20 --record "$folder/rows" >/dev/null || fail "--record"
  done
  [ "$(grep -c '"collective":"barrier"' "$folder/rows")" = 2 ] || fail "--record does not append"
  refuse 'no row stands beside MPI; expected rows of tutti-bench --against mpi' \
    "$bench" summary "$folder/rows"
  refuse 'FILE="/nowhere/x": No such file' "$bench" summary /nowhere/x
  refuse 'FILE is required' "$bench" summary
  expect 0 'FILE' "$bench" summary --help
  sed 's|"against":null|"against":{"mpi":{"name":"MPI 1","ratio":0.5}}|' "$folder/rows" \
    >"$folder/beside"
  expect 0 'faster than MPI 1 in 2 of 2 rows' "$bench" summary "$folder/beside"

  for ranks_per_node in 1 2; do
    expect 0 '2000 +block +[0-9.]+ +[0-9.]+ +0\.[0-9]+ ' "$bench" wake --local 3 --away-us 2000 \
      --ranks-per-node $ranks_per_node --iterations 10
  done
  refuse '--wait="sleep": expected one of spin' "$bench" wake --wait sleep
  refuse '--local="1": expected a number from 2' "$bench" wake --local 1
  expect 0 'away-us' "$bench" wake --help
}

tcp() {
  local port rank
  . "$(dirname "$0")/../support/free_port.sh"
  port=$(free_port) || exit 1
  export TUTTI_SIZE=4 TUTTI_RENDEZVOUS=127.0.0.1:$port TUTTI_SECRET=s TUTTI_BOOTSTRAP_TIMEOUT=20
  for rank in 0 1 2 3; do
    TUTTI_RANK=$rank timeout 60 "$bench" barrier,allreduce --check --iterations 50 --bytes 8,1K \
      --format json >"$folder/$rank" 2>&1 &
    pids[rank]=$!
  done
  for rank in 0 1 2 3; do
    wait "${pids[rank]}" || fail "rank $rank of the tcp bootstrap: status $?: $(cat "$folder/$rank")"
  done
  [ "$(grep -c '"bootstrap":"tcp"' "$folder/0")" = 3 ] || fail "rank 0: $(cat "$folder/0")"
  [ "$(grep -c '"correct":true' "$folder/0")" = 3 ] || fail "rank 0: $(cat "$folder/0")"
  [ -s "$folder/3" ] && fail "rank 3 prints: $(cat "$folder/3")"
}

# The cases of the verbs layer, each on the software device; in virtual time they are the model.
verbs() {
  local short=(--iterations 3 --bytes 64,4K --format json) case output virtual
  for case in latency message_rate bandwidth fan_out registration connection; do
    expect 0 "\"case\":\"$case\".*\"device\":\"soft0:1\",\"virtual\":false,.*\"evidence\":\"measured\"" \
      "$bench" $case --local 2 "${short[@]}"
  done
  expect 0 '"case":"fan_out","bytes":8,"queue_pairs":64,.*"messages_per_second":[1-9]' \
    "$bench" fan_out --local 2 "${short[@]}"
  expect 0 '"case":"deregistration","bytes":4096,.*"us":[0-9.]*[1-9]' \
    "$bench" registration --local 1 "${short[@]}"
  expect 0 '"case":"queue_pair",.*"us":[1-9]' "$bench" connection --local 2 "${short[@]}"
  expect 0 '"case":"incast","bytes":4096,"queue_pairs":null,"senders":2,.*"evidence":"model"' \
    "$bench" incast --local 3 "${short[@]}"
  expect 0 '"case":"shared_port","bytes":64,.*"senders":2,.*"evidence":"model"' \
    "$bench" shared_port --local 4 --ranks-per-node 2 "${short[@]}"
  expect 0 '"case":"latency",.*"fabric":"fdr","evidence":"measured",.*"us":(0\.9|[1-9])' \
    "$bench" latency,message_rate --local 2 --fabric fdr "${short[@]}"
  expect 0 '^case +bytes +pairs +senders +M messages/s +GB/s +us +MAD +min +evidence$' \
    "$bench" verbs --local 3 --iterations 3
  expect 0 'model: an emulated device has no switch' "$bench" incast --local 3 --iterations 3
  expect 0 '^case,bytes,queue_pairs,senders,' "$bench" latency --local 2 --iterations 3 --format csv
  local run=(--local 4 --ranks-per-node 2 --virtual-time --fabric fdr --iterations 1 --format json)
  virtual=$("$bench" latency,message_rate --bytes 8 "${run[@]}")
  [ "$virtual" = "$(taskset -c 0 "$bench" latency,message_rate --bytes 8 "${run[@]}")" ] ||
    fail "virtual time differs: $virtual"
  virtual+=$(taskset -c 0 "$bench" bandwidth,shared_port --bytes 8,64K "${run[@]}")
  # o + L + 8 G + o_r; nearly 1 / g, also of two ranks that share the port; 1 / G
  for output in '"case":"latency","bytes":8,.*"us":0.901176,' \
    '"case":"message_rate",.*"messages_per_second":99[0-9]{5}\.' \
    '"case":"shared_port","bytes":8,.*"senders":2,.*"evidence":"model",.*"messages_per_second":99[0-9]{5}\.' \
    '"case":"shared_port","bytes":65536,.*"senders":2,.*"gigabytes_per_second":6\.[78]' \
    '"case":"bandwidth","bytes":65536,.*"gigabytes_per_second":6\.[78]'; do
    grep -Eq -- "$output" <<<"$virtual" || fail "no $output in: $virtual"
  done
  if command -v ib_write_bw >/dev/null && [ -e "$(dirname "$bench")/../lib/softverbs-shim" ]; then
    expect 0 '"case":"latency",.*"tool":"ib_write_lat","figure":[0-9.]+,"unit":"us","ratio":[0-9.]+' \
      "$bench" latency,message_rate --local 2 --bytes 8 --iterations 1 --against perftest --format json
  fi
  expect 0 'nothing beside perftest: ib_write_bw and ib_write_lat are not installed' \
    env PATH=/nowhere "$bench" latency --local 2 --bytes 8 --iterations 3 --against perftest

  refuse 'incast needs 3 ranks or more, this run has 2: start more' "$bench" incast --local 2
  refuse 'latency needs 2 ranks or more, this run has 1: ' "$bench" latency --local 1
  refuse 'shared_port needs 2 ranks or more on rank 0.s node' "$bench" shared_port --local 2
  refuse '--virtual-time="connection": expected messages' "$bench" connection --local 2 --virtual-time
  refuse '--out="/nowhere/x"' "$bench" latency --local 2 --out /nowhere/x
}

$group
[ $failures = 0 ] || exit 1
echo "all as promised"
