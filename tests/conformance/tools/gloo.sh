#!/usr/bin/env bash
# Promise: gloo, unmodified, runs on the software device: three ranks that sleep for events, and two
# that poll.  Debian packages the library alone, none of its tests.  77: it is not installed.
#   gloo.sh SOFTVERBS SOURCE
set -u
[ -e /usr/include/gloo/transport/ibverbs/device.h ] || { echo "libgloo-dev is not installed"; exit 77; }
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
${CXX:-c++} -std=c++17 -O1 -pthread "$2" -o "$directory/client" -lgloo || exit 1

# launch RANKS WAY
launch() {
  local rank ranks=() status=0
  mkdir "$directory/$2"
  for ((rank = 0; rank < $1; ++rank)); do
    timeout 60 "$softverbs" "$directory/client" "$directory/$2" $rank "$1" soft0 "$2" \
      >"$directory/$2.$rank" 2>&1 &
    ranks+=($!)
  done
  for rank in "${!ranks[@]}"; do
    wait "${ranks[rank]}" || status=1
    grep -q "^rank $rank of $1: right$" "$directory/$2.$rank" || status=1
  done
  [ $status -eq 0 ] || { echo "$1 ranks, $2:"; tail -n 20 "$directory/$2".*; exit 1; }
}
softverbs=$1
launch 3 events
launch 2 polling
