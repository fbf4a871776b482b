#!/usr/bin/env bash
# Promise: a program that embeds tutti keeps its own warnings and its own floating-point rules, and
# is compiled as the C++20 that tutti's headers need; the library's sources keep their rules.
set -eu
cmake=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" -S "$source/tests/embedding" -B "$scratch" -D TUTTI_SOURCE="$source" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
python3 - "$scratch/compile_commands.json" <<'PYTHON'
import json, sys
entries = json.load(open(sys.argv[1]))
commands = {c["file"]: c["command"].split() for c in entries}
# Several programs have this source; one links tutti.
users = next(c["command"].split() for c in entries if "/embedding.dir/main.cpp.o" in c["command"])
inherited = [flag for flag in users if flag.startswith(("-W", "-ffp", "-ped"))]
if inherited:
    sys.exit(f"the program inherits {' '.join(inherited)}; expected none")
if not {"-std=c++20", "-std=gnu++20"} & set(users):
    sys.exit(f"the program is not compiled as C++20: {' '.join(users)}")
for name in ("/algorithms/runtime/kernels.cpp", "/verbs/verbs_fabric.cpp"):
    own = next(c for f, c in commands.items() if f.endswith(name))
    missing = {"-Wconversion", "-ffp-contract=off"} - set(own)
    if missing:
        sys.exit(f"{name} is compiled without {' '.join(sorted(missing))}")
    if "-Werror" in own:
        sys.exit(f"{name} would not be compiled by a compiler that warns of more")
PYTHON
