# For scripts that look at what libtutti-mpi says: to be sourced with TUTTI_MPIRUN PROGRAM LAUNCHER
# [OPTION...] as arguments.
wrapper=$1 program=$2 launcher=$3
options=("${@:4}")
. "$(dirname "$0")/../../support/scratch.sh"
unset LD_PRELOAD "${!TUTTI_@}"

# run RANKS ARGUMENT...: the program by the wrapper, whose own options are in $own; it has to return $expected.
own=() expected=0
run() {
  local ranks=$1 status=0
  shift
  timeout 60 "$wrapper" --launcher "$launcher" "${own[@]}" "${options[@]}" -n "$ranks" "$program" "$@" \
    >"$scratch/out" 2>"$scratch/all" || status=$?
  [ $status = $expected ] || { cat "$scratch/all"; fail "$*: exit status $status"; }
  grep '^tutti' "$scratch/all" >"$scratch/said" || true
}
# says TEXT...: a line is like each of these.
says() {
  local text
  for text in "$@"; do
    tr -s ' ' <"$scratch/said" | grep -qE -- "$text" || { cat "$scratch/said"; fail "no line is like \"$text\""; }
  done
}
# says_lines NUMBER
says_lines() {
  [ "$(wc -l <"$scratch/said")" = "$1" ] || { cat "$scratch/said"; fail "not $1 lines"; }
}
