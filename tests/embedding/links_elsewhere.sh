#!/usr/bin/env bash
# Promise: a C program in a project without C++ links with tutti, so does one at C++17, and a plug-in
# that links tutti exports none of its symbols.  Each is compiled and linked by the commands that CMake
# generates for it, with the archives that this build has made already.
set -eu
cmake=$1 source=$2 archives=$3 c=$4 cxx=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -e "$archives/libtutti.a" ] || { echo "skipped: $archives/libtutti.a is not built"; exit 77; }
command -v ninja >/dev/null || { echo "skipped: ninja is not installed"; exit 77; }

# link PROJECT TARGET...: configures the project in the scratch folder, and makes these targets of it.
link() {
  local project=$1 target commands command
  shift
  cd "$scratch"
  rm -rf build
  "$cmake" -G Ninja -S "$project" -B "$scratch/build" -D TUTTI_SOURCE="$source" \
    -D CMAKE_C_COMPILER="$c" -D CMAKE_CXX_COMPILER="$cxx" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; exit 1; }
  rm -rf "$scratch/build/lib"
  ln -s "$archives" "$scratch/build/lib"
  cd "$scratch/build"
  for target; do
    commands=$(ninja -t commands "$target" | grep -F "CMakeFiles/$target.dir/")
    [ "$(wc -l <<<"$commands")" -eq 2 ] ||
      { echo "expected to compile and to link $target, found: $commands"; exit 1; }
    while read -r command; do
      eval "$command" >"$scratch/log" 2>&1 || { echo "$command"; cat "$scratch/log"; exit 1; }
    done <<<"$commands"
  done
}

link "$source/tests/embedding/c_only" c_only
./c_only

plugins=(plugin_open plugin_hidden)
[ ! -e "$archives/libtutti_mpi.a" ] || plugins=(plugin_mpi "${plugins[@]}")
link "$source/tests/embedding" cxx17 "${plugins[@]}"
./cxx17
nm --defined-only --extern-only lib/libtutti.a lib/libtutti_*.a |
  awk 'NF == 3 && $2 ~ /^[TDBR]$/ { print $3 }' | sort -u >"$scratch/defined"
[ -s "$scratch/defined" ] || { echo "nothing is defined by the archives in $archives"; exit 1; }
for plugin in "${plugins[@]}"; do
  nm --dynamic --defined-only "lib$plugin.so" | awk 'NF == 3 { print $3 }' |
    sort -u >"$scratch/exported"
  grep -qx plugin_run "$scratch/exported" ||
    { echo "$plugin does not export its own function"; exit 1; }
  if comm -12 "$scratch/defined" "$scratch/exported" | grep .; then
    echo "$plugin exports these symbols of tutti; expected none"
    exit 1
  fi
done
# Templates of the headers are compiled as part of the plug-in.
if c++filt <"$scratch/exported" | grep tutti; then
  echo "plugin_hidden exports these; expected none of tutti"
  exit 1
fi
