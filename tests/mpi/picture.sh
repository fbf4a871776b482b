#!/bin/sh
# Promise: microbench/picture.py draws what tutti-bench writes, a line for each side, and says what
# it wants else.  usage: picture.sh PICTURE.PY COMMAND..., which prints the JSON of two collectives.
set -eu
picture=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" >"$folder/run.json"
"$picture" --note 'tutti & others' "$folder/out.svg" "$folder/run.json"
grep -q 'bytes of each rank; tutti &amp; others</text>' "$folder/out.svg" ||
  { echo "picture.sh: the note is missing" >&2; exit 1; }
"$picture" "$folder/out.svg" "$folder/run.json"
lines=$(grep -c '<polyline' "$folder/out.svg")
[ "$lines" = 4 ] || { echo "picture.sh: $lines lines, expected 2 collectives of 2" >&2; exit 1; }
grep -v against "$folder/run.json" >"$folder/empty.json" || true
if "$picture" "$folder/out.svg" "$folder/empty.json" 2>"$folder/reason"; then
  echo "picture.sh: draws nothing without a complaint" >&2
  exit 1
fi
grep -q 'run with --against mpi' "$folder/reason"
