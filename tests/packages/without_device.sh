#!/usr/bin/env bash
# Promise: built without the software device (TUTTI_SOFT_DEVICE=OFF), the library is complete, has nothing
# of it, and says which devices it knows; what needs the device is refused with it.
# without_device.sh LIBRARY SOURCE CC CMAKE
set -eu
library=$1 source=$2 c=$3 cmake=$4
. "$(dirname "$0")/../support/scratch.sh"
if nm -C "$library" | grep -E ' [TtVv] .*(SoftDevice|verbs::soft::Process)'; then fail "it has the device"; fi
cat >"$scratch/main.c" <<'C'
#include <stdio.h>
#include <tutti/tutti.h>
int main(void) {
  tutti_context_options options = {.struct_size = sizeof options, .device = "soft0"};
  tutti_context* context;
  tutti_failure failure;
  if (tutti_context_create(&options, &context, &failure) == TUTTI_OK) return 1;
  puts(failure.text);
  return 0;
}
C
"$c" -std=c11 -I"$source/include" "$scratch/main.c" -o "$scratch/main" "$library" -Wl,-rpath,"${library%/*}"
text=$("$scratch/main") || fail "it has a device soft0"
grep -q 'no device is called "soft0"' <<<"$text" || fail "it says: $text"
if "$cmake" -S "$source" -B "$scratch/build" -D TUTTI_SOFT_DEVICE=OFF -D CMAKE_C_COMPILER="$c" \
  >"$scratch/log" 2>&1; then fail "tests without the device are not refused"; fi
tr -s ' \n' ' ' <"$scratch/log" | grep -q 'set TUTTI_TESTS, TUTTI_BENCHMARKS and TUTTI_SOFTVERBS to OFF, too' ||
  { cat "$scratch/log"; fail "it is refused otherwise"; }
