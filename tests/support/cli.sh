# What tests of command lines share.  Sourced; a test ends with `[ $failures = 0 ]`.
failures=0
unset "${!TUTTI_@}"
program=()  # what stands before the arguments of expect and refuse
folder=$(mktemp -d)  # for the test; empty
errors=$(mktemp)
trap 'rm -rf "$folder" "$errors"' EXIT

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# judge STATUS EXPECTED-PATTERN 'regular expression' OUTPUT COMMAND...
# Matches a line, or what is one once the lines that the text was broken into are joined.
judge() {
  local got=$1 status=$2 pattern=$3 output=$4
  shift 4
  # shellcheck disable=SC2053  # a pattern
  [[ $got == $status ]] || fail "exit status $got, expected $status: $*: $output"
  grep -Eq -- "$pattern" <<<"$output" || { [[ $output != *'{"'* ]] &&
    grep -Eq -- "$pattern" <<<"$(tr -s ' \n' ' ' <<<"$output")"; } ||
    fail "no \"$pattern\" in the output of: $*: $output"
}

# expect STATUS 'regular expression of the output' COMMAND...
expect() {
  local status=$1 pattern=$2 output got
  shift 2
  output=$(timeout 120 "${program[@]}" "$@" 2>&1)
  got=$?
  judge $got "$status" "$pattern" "$output" "$@"
}

# Refused in exactly one line, on standard error, with nothing on standard output.
refuse() {
  local pattern=$1 output got
  shift
  output=$(timeout 120 "${program[@]}" "$@" 2>"$errors")
  got=$?
  judge $got 2 "$pattern" "$(<"$errors")" "$@"
  [ "$(wc -l <"$errors")" = 1 ] || fail "not one line on standard error: $*: $(<"$errors")"
  [ -z "$output" ] || fail "standard output of a refused run: $*: $output"
}
