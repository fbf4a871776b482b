#!/usr/bin/env bash
# Promise: every collective is right for any number of ranks, on nodes of any shape, with ranks that
# come late, for payloads of any size, in chunks that do not divide them.
# every_collective.sh TUTTI_BENCH ranks|shapes|scale|sizes
set -eu
bench=$1
collectives=(barrier allreduce broadcast reduce reduce_scatter allgather allgatherv alltoall
  alltoallv gather gatherv scatter scatterv scan exscan)

# run OPTION...: every collective once for each size; an empty answer and a wrong result fail.
run() {
  local rows
  rows=$(IFS=,; timeout 280 "$bench" "${collectives[*]}" --check --dtype int32 --iterations 2 \
    --warmup 1 --format json "$@") || { echo "$*: exit status $?" >&2; exit 1; }
  local wrong
  wrong=$(grep -vc '"correct":true' <<<"$rows" || true)
  local kinds
  kinds=$(sed -E 's/.*"collective":"([a-z_]+)".*/\1/' <<<"$rows" | sort -u | wc -l)
  [ "$wrong" = 0 ] && [ "$kinds" = ${#collectives[@]} ] ||
    { echo "$*: $wrong rows are not correct, of $kinds collectives" >&2; exit 1; }
}

usual=4,60,5000
case $2 in
  ranks)
    for ranks in $(seq 1 16); do
      run --local "$ranks" --bytes $usual --delay-us 300
      run --local "$ranks" --ranks-per-node 1 --bytes $usual --delay-us 300
      run --local "$ranks" --bytes $usual --distribution decreasing
      run --local "$ranks" --ranks-per-node 1 --bytes $usual --distribution single
    done
    ;;
  shapes)
    for shape in 12 11,1 1,11 6 4 3 2 5,3,4 7,5 1,2,3,6 3,1; do
      for placement in block cyclic random; do
        run --local 12 --ranks-per-node "$shape" --placement "$placement" --bytes $usual
      done
    done
    ;;
  scale)
    # Not all at once: of many ranks, those that pass blocks on need up to 30 of the 192 messages that
    # a connection promises.
    all=("${collectives[@]}")
    for ranks in 24 33 64; do
      for bytes in 4 5000; do
        for begin in 0 5 10; do
          collectives=("${all[@]:begin:5}")
          run --local "$ranks" --virtual-time --bytes $bytes
        done
      done
    done
    ;;
  sizes)
    export TUTTI_ARENA_BYTES=128M  # all operations exist at once
    for bytes in 100K 1000004 3M; do run --local 3 --ranks-per-node 2,1 --bytes $bytes; done
    run --local 2 --bytes 64M
    run --local 2 --ranks-per-node 1 --bytes 64M
    ;;
  *) echo "every_collective.sh: \"$2\": expected ranks, shapes, scale or sizes" >&2; exit 2 ;;
esac
