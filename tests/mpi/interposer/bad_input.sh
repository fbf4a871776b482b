#!/usr/bin/env bash
# bad_input.sh LIBRARY OTHER_LIBRARY|none TABLE_PROGRAM openmpi|mpich LAUNCHER [OPTION...]: libtutti-mpi where
# it does not belong, or is told nonsense.
# Promises: what has no MPI does not notice it; whatever is wrong, it says so in one line, or is silent where
# nothing is lost; the program's results and its exit status are its own.
set -euo pipefail
library=$1 other=$2 program=$3 mpi=$4
shift 4
launch=("$@")
. "$(dirname "$0")/../../support/scratch.sh"
unset LD_PRELOAD "${!TUTTI_@}"

# plain COMMAND...: with the library; as without it, and silent.
plain() {
  local status=0 expected=0
  "$@" >"$scratch/expected" 2>&1 </dev/null || expected=$?
  LD_PRELOAD=$library TUTTI_MPI_TABLE=1 TUTTI_MPI=${mode:-on} "$@" >"$scratch/found" 2>&1 </dev/null || status=$?
  [ $status = $expected ] || fail "$*: exit status $status"
  cmp "$scratch/expected" "$scratch/found" || fail "$*: says something else"
}
plain true
plain sh -c 'echo here; ls -d /; exit 3'
plain "${launch[0]}" --version
mode=report plain sh -c 'exit 4'
mode=nonsense plain sh -c 'exit 4'
plain "${launch[@]}" -n 1 sh -c 'echo here'

# run LD_PRELOAD [SETTING=VALUE...]: two ranks, whose table tells.
run() {
  local status=0 variables=() setting
  for setting in "LD_PRELOAD=$1" "${@:2}" TUTTI_MPI_TABLE=1; do
    if [ "$mpi" = openmpi ]; then
      variables+=(-x "$setting")
    else
      variables+=(-genv "${setting%%=*}" "${setting#*=}")
    fi
  done
  timeout 60 "${launch[@]}" -n 2 "${variables[@]}" "$program" >"$scratch/out" 2>"$scratch/all" || status=$?
  [ $status = 0 ] || { cat "$scratch/all"; fail "$*: exit status $status"; }
  grep -q '^sum 5$' "$scratch/out" || fail "$*: the program's own output"
  grep '^tutti' "$scratch/all" | tr -s ' ' >"$scratch/said" || true
}
# says LINES TEXT...: so many lines, among which these.
says() {
  local text
  [ "$(wc -l <"$scratch/said")" = "$1" ] || { cat "$scratch/said"; fail "not $1 lines"; }
  for text in "${@:2}"; do
    grep -qE -- "$text" "$scratch/said" || { cat "$scratch/said"; fail "no line is like \"$text\""; }
  done
}
taken='^tutti: MPI_Barrier 10 4 0 6 first calls'

# Twice: by one name, by two, and as two files, of one version or of two.
ln -s "$library" "$scratch/linked.so"
cp "$library" "$scratch/copy.so"
sed 's/libtutti-mpi [0-9]/libtutti-mpi X/' "$library" >"$scratch/version.so"
cmp -s "$library" "$scratch/version.so" && fail "no version was changed"
run "$library:$library:$scratch/linked.so"
says 5 "$taken"
run "$library:$scratch/copy.so"
says 5 "$taken"
run "$scratch/version.so:$library"
says 6 "$taken" '^tutti: LD_PRELOAD has libtutti-mpi twice.*libtutti-mpi X'

# In the launcher as well, whose ranks inherit it.
LD_PRELOAD=$library run "$library"
says 5 "$taken"

# That of the other MPI, with a copy of which nothing can be done.
if [ "$other" != none ]; then
  run "$other"
  says 1 '^tutti: every call is left to MPI: this libtutti-mpi is for (Open MPI|MPICH), and the program runs'
  run "$other" TUTTI_MPI=verify
  says 1 'every call is left to MPI'
fi

# Settings.
run "$library" TUTTI_MPI=sometimes
says 1 'every call is left to MPI: TUTTI_MPI="sometimes": expected off, on, verify or report'
run "$library" TUTTI_MPI_AFTER=-1
says 1 'every call is left to MPI: TUTTI_MPI_AFTER="-1": expected'
run "$library" TUTTI_MPI_AFTR=1
says 6 'collectives are left to MPI: .*TUTTI_MPI_AFTR' \
  '^tutti: MPI_Barrier 10 0 0 4 communicator not adopted; 6 first calls of their kind'
