#!/bin/bash
# Promise: a job whose rank does not come, and one that a stranger tries to join, end in time and
# say in one line what was wrong.  Separate processes, set up by their environment as users do.
# So do ranks that have the secret from a file, from a descriptor and from the environment.
# Usage: bootstrap_rendezvous.sh TUTTI_BENCH missing|stranger|secrets
set -u
bench=$1
group=$2
failures=0
unset "${!TUTTI_@}"
export LC_ALL=C
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
. "$(dirname "$0")/../support/free_port.sh"
port=$(free_port) || exit 1
export TUTTI_SIZE=4 TUTTI_RENDEZVOUS=127.0.0.1:$port
export TUTTI_SECRET=rumpelstiltskin TUTTI_BOOTSTRAP_TIMEOUT=20

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# run NAME RANK: leaves NAME.out, NAME.err, and in NAME.end the exit status and the milliseconds.
run() {
  local start=${EPOCHREALTIME/./} status
  TUTTI_RANK=$2 timeout 60 "$bench" barrier,allreduce --check --iterations 50 --bytes 8 \
    --format json >"$folder/$1.out" 2>"$folder/$1.err"
  status=$?
  echo "$status $(((${EPOCHREALTIME/./} - start) / 1000))" >"$folder/$1.end"
}

# refused NAME PATTERN: NAME has failed with one line that matches, and without the secret.
refused() {
  local status text
  read -r status _ <"$folder/$1.end"
  text=$(cat "$folder/$1.out" "$folder/$1.err")
  [ "$status" != 0 ] && [ "$status" != 124 ] || fail "$1: exit status $status: $text"
  [ "$(wc -l <<<"$text")" = 1 ] || fail "$1: not one line: $text"
  grep -Eq -- "$2" <<<"$text" || fail "$1: no \"$2\" in: $text"
  ! grep -Eq "rumpelstiltskin|guessed" <<<"$text" || fail "$1: prints a secret: $text"
}

# Rank 2 is not started: every other one ends within the timeout and a second, and names it.
missing() {
  local rank milliseconds
  export TUTTI_BOOTSTRAP_TIMEOUT=2
  for rank in 0 1 3; do run "rank-$rank" $rank & done
  wait
  for rank in 0 1 3; do
    refused "rank-$rank" "rank 2 did not come to $TUTTI_RENDEZVOUS within 2 s"
    read -r _ milliseconds <"$folder/rank-$rank.end"
    [ "$milliseconds" -le 3000 ] || fail "rank $rank took $milliseconds ms"
  done
}

# A fifth process claims rank 2 with a wrong secret: it is refused, and the four complete.
stranger() {
  local rank
  for rank in 0 1 3; do run "rank-$rank" $rank & done
  TUTTI_SECRET=guessed run stranger 2
  refused stranger 'refused rank 2: wrong secret'
  run rank-2 2
  wait
  all_well
}

# all_well: the four ranks have completed, with right results.
all_well() {
  local rank status
  for rank in 0 1 2 3; do
    read -r status _ <"$folder/rank-$rank.end"
    [ "$status" = 0 ] || fail "rank $rank: status $status: $(cat "$folder/rank-$rank.err")"
  done
  [ "$(grep -c '"correct":true' "$folder/rank-0.out")" = 2 ] ||
    fail "rank 0: $(cat "$folder/rank-0.out")"
}

# Rank 0 reads a file, rank 1 its standard input, rank 2 a pipe; rank 3 first a file that others may
# read, which is refused.
secrets() {
  (umask 077; echo "$TUTTI_SECRET" >"$folder/secret")
  (umask 022; echo "$TUTTI_SECRET" >"$folder/open")
  (unset TUTTI_SECRET; TUTTI_SECRET_FILE=$folder/secret run rank-0 0) &
  (unset TUTTI_SECRET; TUTTI_SECRET_FD=0 run rank-1 1 <"$folder/secret") &
  (unset TUTTI_SECRET; TUTTI_SECRET_FD=7 run rank-2 2 7< <(cat "$folder/secret")) &
  (unset TUTTI_SECRET; TUTTI_SECRET_FILE=$folder/open run open 3)
  refused open 'TUTTI_SECRET_FILE=.*/open": others than its owner may read or change it .mode 644'
  run rank-3 3
  wait
  all_well
}

$group
[ $failures = 0 ] || exit 1
echo "as promised"
