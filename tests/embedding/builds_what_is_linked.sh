#!/usr/bin/env bash
# Promise: a project that embeds tutti builds the library, and nothing else that it does not link; and
# a project that links tutti_mpi finds it.
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
if grep -q '^build lib/libtutti_mpi.a' build.ninja; then  # else there is no MPI
  ninja -n tutti_mpi | grep -q libtutti_mpi.a || { echo "tutti_mpi cannot be built"; exit 1; }
fi
