#!/usr/bin/env bash
# Promise: the binary interface of libtutti.so is that of the baseline in packaging/abi.  A function more
# is no change of it, another layout is one, and is named.
# abi.sh LIBRARY SOURCE CXX
set -eu
library=$1 source=$2 cxx=$3
command -v abidiff >/dev/null || { echo "skipped: libabigail (Debian: abigail-tools) is not installed"; exit 77; }
. "$(dirname "$0")/../support/scratch.sh"
cp -r "$source/include" "$scratch/include"
header=$scratch/include/tutti/tutti.h
sed -i 's/^TUTTI_EXPORT tutti_status tutti_exchange_free(/TUTTI_EXPORT int tutti_one_more(int);\n&/' "$header"
grep -q tutti_one_more "$header" || fail "nothing was planted"
"$source/packaging/abi/check.py" "$library" "$scratch/include" "$cxx"
sed -i 's/^  int32_t peer; /  int32_t planted;\n&/' "$header"
grep -q planted "$header" || fail "nothing was planted"
if "$source/packaging/abi/check.py" "$library" "$scratch/include" "$cxx" >"$scratch/report" 2>&1; then
  fail "another layout was not seen"
fi
grep -q "'int32_t planted'" "$scratch/report" || { cat "$scratch/report"; fail "it was not named"; }
