#!/usr/bin/env bash
# Promises: libtutti and all that is built with it define no function of libibverbs (two definitions
# in one program would be one too many), and its libraries none of nlohmann_json, of which a program
# that is linked with them may have another version; what is made to stand in front of libibverbs defines
# nothing else but the functions that programs look for device files with, and nothing of libibverbs
# without the version that programs ask for.  Judged are the files that are shipped, each of which
# has to be there, and also as they are once somebody has stripped them.
#   symbols.sh plain FILE...      libtutti's libraries and programs
#   symbols.sh standing FILE...   libtutti-softverbs.so, and libibverbs.so.1 in libibverbs' place
set -u
kind=$1
shift
[ $# -gt 0 ] || { echo "no files"; exit 1; }
status=0
wrong() {
  echo "$1"
  status=1
}
stripped=$(mktemp) || exit 1
trap 'rm -f "$stripped"' EXIT
for file in "$@"; do
  [ -s "$file" ] || { wrong "$file is not there"; continue; }
  if [ "$kind" = plain ]; then
    # Capital letters: visible outside their file.  The header's inline functions are small ones.
    defined=$(nm --defined-only "$file" 2>/dev/null) && [ -n "$defined" ] ||
      wrong "$file has no symbols to look at"
    # Programs and shared libraries keep these when they are stripped.
    defined+=$'\n'$(nm -D --defined-only "$file" 2>/dev/null)
    grep -E ' [A-Z] _?ibv_' <<<"$defined" && wrong "$file defines these functions of libibverbs"
    [[ $file != *.a && $file != *.so* ]] ||
      ! grep -E ' [A-Zuvw] .*(nlohmann|json_abi)' <<<"$defined" ||
      wrong "$file defines these symbols of the JSON library, which others can see"
    continue
  fi
  strip -o "$stripped" "$file" || wrong "$file cannot be stripped"
  for judged in "$file" "$stripped"; do
    defined=$(nm -D --defined-only --with-symbol-versions "$judged" |
      grep -Ev ' A | T (stat|stat64|access)$')
    grep -Ev ' T _?ibv_[a-z0-9_]+@@IBVERBS_[A-Z0-9_.]+$' <<<"$defined" &&
      wrong "$file exports these, which are not libibverbs' or have no version"
    grep -q ' ibv_open_device@@IBVERBS_1.1$' <<<"$defined" || wrong "$file lacks ibv_open_device"
  done
done
exit $status
