#!/usr/bin/env bash
# Promise: the binary interface of libtutti.so is that of the baseline in packaging/abi.  A function more
# is no change of it, another layout is one, and is named.
# abi.sh LIBRARY SOURCE CXX
set -eu
library=$1 source=$2 cxx=$3
command -v abidiff >/dev/null || { echo "skipped: libabigail (Debian: abigail-tools) is not installed"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$source/include" "$scratch/include"
header=$scratch/include/tutti/tutti.h
sed -i 's/^TUTTI_EXPORT tutti_status tutti_exchange_free(/TUTTI_EXPORT int tutti_one_more(int);\n&/' "$header"
grep -q tutti_one_more "$header" || { echo "FAILED: nothing was planted"; exit 1; }
"$source/packaging/abi/check.py" "$library" "$scratch/include" "$cxx"
sed -i 's/^  int32_t peer; /  int32_t planted;\n&/' "$header"
grep -q planted "$header" || { echo "FAILED: nothing was planted"; exit 1; }
if "$source/packaging/abi/check.py" "$library" "$scratch/include" "$cxx" >"$scratch/report" 2>&1; then
  echo "FAILED: another layout was not seen"
  exit 1
fi
grep -q "'int32_t planted'" "$scratch/report" || { cat "$scratch/report"; echo "FAILED: it was not named"; exit 1; }
