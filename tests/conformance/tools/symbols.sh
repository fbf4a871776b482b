#!/usr/bin/env bash
# Promises: libtutti and all that is built with it define no function of libibverbs (two definitions
# in one program would be one too many); what is made to stand in front of libibverbs defines
# nothing else but the functions that programs look for device files with, and nothing of libibverbs
# without the version that programs ask for.
#   symbols.sh BUILD_DIRECTORY
set -u
cd "$1" || exit 1
status=0
for file in lib/*.a lib/*.so bin/* tests/*; do
  [ -f "$file" ] && [ "$file" != lib/libtutti-softverbs.so ] || continue
  # Capital letters: visible outside their file.  The header's inline functions are small ones.
  if nm --defined-only "$file" 2>/dev/null | grep -E ' [A-Z] _?ibv_'; then
    echo "$file defines these functions of libibverbs"
    status=1
  fi
done
for file in lib/libtutti-softverbs.so lib/softverbs-shim/libibverbs.so.1; do
  [ -f "$file" ] || continue
  defined=$(nm -D --defined-only --with-symbol-versions "$file" | grep -Ev ' A | T (stat|stat64|access)$')
  if grep -Ev ' T _?ibv_[a-z0-9_]+@@IBVERBS_[A-Z0-9_.]+$' <<<"$defined"; then
    echo "$file exports these, which are not libibverbs' or have no version"
    status=1
  fi
  grep -q ' ibv_open_device@@IBVERBS_1.1$' <<<"$defined" ||
    { echo "$file lacks ibv_open_device"; status=1; }
done
exit $status
