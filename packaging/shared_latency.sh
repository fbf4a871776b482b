#!/usr/bin/env bash
# What libtutti.so costs beside libtutti.a.
set -euo pipefail
case "${1:-}" in
  --help | -h)
    cat <<'TEXT'
usage: packaging/shared_latency.sh [BUILD [PAIRS]]

Runs one program, linked with libtutti.so and with libtutti.a by turns, on CPUs 0 and 1, which have to
be idle: an allreduce of 8 bytes between two ranks.  Prints nanoseconds, and shared / static as the
median of PAIRS pairs of runs (default 25, about 10 s).  BUILD: default build/release.
Exit status 3: the shared library costs more than 3 percent.
TEXT
    exit 0
    ;;
esac
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packaging=$(cd "${1:-$source/build/release}/packaging" && pwd)
pairs=${2:-25}
[ "$(nproc)" -ge 2 ] || { echo "skipped: needs two CPUs"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compile() {
  "${CXX:-c++}" -std=c++20 -O2 -I"$source/include" "$source/packaging/shared_latency.cpp" "$@"
}
compile -o "$scratch/shared" -L"$packaging" -ltutti -Wl,-rpath,"$packaging"
compile -o "$scratch/static" "$packaging/libtutti.a" -lrdmacm -libverbs -pthread
readelf -d "$scratch/shared" | grep -q 'NEEDED.*libtutti' || { echo "not linked with libtutti.so" >&2; exit 1; }
for ((pair = 0; pair < pairs; ++pair)); do
  # Each goes first as often as the other.
  if ((pair % 2)); then first=shared second=static; else first=static second=shared; fi
  a=$("$scratch/$first")
  b=$("$scratch/$second")
  if ((pair % 2)); then echo "$a $b"; else echo "$b $a"; fi
done >"$scratch/times"
sort -g "$scratch/times" | awk '{ time[NR] = $1 } END { printf "shared %.1f ns", time[int((NR + 1) / 2)] }'
awk '{ print $2 }' "$scratch/times" | sort -g | awk '{ time[NR] = $1 } END { printf ", static %.1f ns", time[int((NR + 1) / 2)] }'
awk '{ print $1 / $2 }' "$scratch/times" | sort -g | awk '{ ratio[NR] = $1 }
  END { middle = ratio[int((NR + 1) / 2)]
        printf ", shared / static %.3f (%d pairs, quartiles %.3f and %.3f)\n", middle, NR, ratio[int((NR + 3) / 4)], ratio[int((3 * NR + 3) / 4)]
        exit middle > 1.03 ? 3 : 0 }'
