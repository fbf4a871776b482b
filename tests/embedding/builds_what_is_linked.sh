#!/usr/bin/env bash
# Promise: a project that embeds tutti builds the library, and nothing else that it does not link; and
# a project that links tutti_mpi or tutti_pmix finds it.
# builds_what_is_linked.sh CMAKE SOURCE
set -eu
cmake=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
command -v ninja >/dev/null || { echo "skipped: ninja is not installed"; exit 77; }
"$cmake" -G Ninja -S "$source/tests/embedding" -B "$scratch/build" -D TUTTI_SOURCE="$source" \
  >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
cd "$scratch/build"
# Archives, libraries and programs that `all` makes in tutti; the project's own are elsewhere.
ninja -n all | sed -En 's,.* Linking .* ((lib|bin|tutti)/[^ ]*)$,\1,p' | sort >"$scratch/built"
printf 'lib/libtutti%s.a\n' '' _bootstrap _plan _runtime _shm _tune _verbs | sort >"$scratch/expected"
diff "$scratch/expected" "$scratch/built" ||
  { echo "expected (<) and what a project builds that embeds tutti (>) differ"; exit 1; }
for name in tutti_mpi tutti_pmix; do
  grep -q "^build lib/lib$name.a" build.ninja || continue  # there is no MPI, or no PMIx
  ninja -n $name | grep -q lib$name.a || { echo "$name cannot be built"; exit 1; }
done
