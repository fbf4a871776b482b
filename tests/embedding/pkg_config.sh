#!/usr/bin/env bash
# Promise: what `cmake --install` puts into an empty prefix, which then is moved, serves C and C++
# programs and plug-ins by `pkg-config` alone: with the shared library, and with the archive by
# --static.  The shared library exports public names only.
# pkg_config.sh CMAKE BUILD SOURCE CC CXX
set -eu
cmake=$1 build=$2 source=$3 c=$4 cxx=$5
. "$(dirname "$0")/../support/scratch.sh"
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not installed"; exit 77; }
"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
prefix=$scratch/prefix
mv "$scratch/first" "$prefix"
file=$(find "$prefix" -name tutti.pc)
[ -n "$file" ] || fail "no tutti.pc is installed"
export PKG_CONFIG_PATH=${file%/*}
library=$(pkg-config --variable=libdir tutti)
[ "$(realpath "$library")" = "$(realpath "${file%/*}/..")" ] || fail "libdir is $library"
[ -s "$prefix/share/tutti/tuning.schema.json" ] || fail "the schema of tuning files is not installed"
if grep -rlF "$build" "$prefix"/include "$file"; then fail "these name the folder of the build"; fi

# run WHAT --static|'': makes and runs a C and a C++ program, and a plug-in.
run() {
  local how=$1 cflags libs
  cflags=$(pkg-config $how --cflags tutti)
  libs=$(pkg-config $how --libs tutti)
  # shellcheck disable=SC2086 # words
  {
    "$c" -std=c11 $cflags "$source/tests/embedding/c_only/main.c" -o "$scratch/c_program" $libs
    # Hidden in both, the type of an exception is the same.
    "$cxx" -std=c++20 -fvisibility=hidden $cflags "$source/tests/embedding/plugin.cpp" -x c++ - \
      -o "$scratch/cxx_program" $libs <<'CXX'
#include <tutti/tutti.hpp>
extern "C" int plugin_run();
int main() {
  try {
    tutti::Context context({.device = "no_such_device"});
  } catch (const tutti::Error&) {
    return plugin_run();
  }
  return 1;
}
CXX
    "$cxx" -std=c++20 -fPIC -shared -fvisibility=hidden -fvisibility-inlines-hidden $cflags \
      "$source/tests/embedding/plugin.cpp" -o "$scratch/plugin.so" $libs
  }
  LD_LIBRARY_PATH=$library "$scratch/c_program" || fail "the C program, linked with $libs"
  LD_LIBRARY_PATH=$library "$scratch/cxx_program" || fail "the C++ program, linked with $libs"
  if nm -D --defined-only "$scratch/plugin.so" | c++filt | grep tutti; then
    fail "a plug-in, linked with $libs, exports these"
  fi
}

run ''
readelf -d "$scratch/c_program" | grep -q 'NEEDED.*libtutti\.so\.' || fail "it is linked statically"
if readelf -d "$scratch/c_program" | grep -E 'NEEDED.*(ibverbs|rdmacm|stdc)'; then
  fail "a C program needs these directly"
fi
# Each in the version that keeps two libraries apart; that has a line of its own.
versioned=$(nm -D --defined-only "$library/libtutti.so" | c++filt | grep -v ' A TUTTI_')
if grep -v '@@TUTTI_[0-9.]*$' <<<"$versioned"; then fail "libtutti.so exports these without a version"; fi
exported=$(sed 's/@@.*//' <<<"$versioned")
if grep -vE ' [A-Z] (tutti_[a-z_]+|((typeinfo|typeinfo name|vtable) for )?tutti::.*)$' <<<"$exported"; then
  fail "libtutti.so exports these"
fi
internal='[^(]*(Implementation|tutti::(runtime|plan|tune|verbs|shm|engine|bootstrap))'
if grep -E "^[0-9a-f]+ . $internal" <<<"$exported"; then
  fail "libtutti.so exports these, which are not public"
fi
# And all of them: each function that the headers mark, but for those of MPI and PMIx, which are in libraries of their own.
marked=$(sed -nE 's/^ *(\[\[noreturn\]\] )?TUTTI_EXPORT [^(]*[ *&]([a-z_]+)\(.*/\2/p' "$prefix"/include/tutti/[!mp]*.h*)
[ "$(wc -w <<<"$marked")" -ge 60 ] || fail "only these functions are marked: $marked"
for name in $marked; do
  grep -Eq "[ :]$name(\(|\$)" <<<"$exported" || fail "libtutti.so lacks $name"
done
rm "$library"/libtutti.so*
run --static
