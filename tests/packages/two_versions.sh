#!/usr/bin/env bash
# Promise: a program and a plug-in of it that are linked with two versions of libtutti.so do not disturb
# each other, with messages through shared memory and through the software device.
# two_versions.sh PACKAGING SOURCE CC CXX
set -eu
packaging=$1 source=$2 c=$3 cxx=$4
. "$(dirname "$0")/../support/scratch.sh"
name=$(readelf -d "$packaging/libtutti.so" | sed -n 's/.*SONAME.*\[libtutti\.so\.\(.*\)\]/\1/p')
[ -n "$name" ] || fail "libtutti.so has no SONAME with a version"
cp "$packaging/libtutti.so" "$scratch/libtutti.so.$name"
# The other version: the same objects below another number.
other=7.7
sed "s/^TUTTI_[0-9.]* {/TUTTI_$other {/" "$packaging/exports.map" >"$scratch/map"
"$cxx" -shared -Wl,--whole-archive "$packaging/libtutti.a" -Wl,--no-whole-archive \
  -Wl,-soname,libtutti.so.$other -Wl,--version-script="$scratch/map" -Wl,-z,defs \
  -o "$scratch/libtutti.so.$other" -lrdmacm -libverbs -pthread
build() {
  "$c" -std=gnu11 -O1 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -I"$source/include" \
    "$source/tests/packages/two_versions.c" "$@" -Wl,-rpath,"$scratch" -ldl
}
build -o "$scratch/program" "$scratch/libtutti.so.$name"
build -D PLUGIN -shared -o "$scratch/plugin.so" "$scratch/libtutti.so.$other"
for shape in 2 1; do  # one node, two nodes
  TUTTI_RANKS_PER_NODE=$shape TUTTI_DEVICE=soft0 timeout 60 "$scratch/program" "$scratch/plugin.so" ||
    fail "with $shape ranks on a node"
done
# And with what the program is linked with visible to all, as where it is preloaded.
LD_PRELOAD="$scratch/libtutti.so.$name" timeout 60 "$scratch/program" "$scratch/plugin.so" || fail "preloaded"
