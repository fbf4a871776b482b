#!/bin/bash
# Promise: tutti-tune answers bad input with one line that names the value and the remedy, and loses
# nothing; a run that is killed goes on where it was, and ends with the file of one that was not.
# Usage: tune_cli.sh TUTTI_TUNE TUTTI_BENCH GROUP [KILLS]
set -u
tune=$1
bench=$2
group=$3
kills=${4:-5}
. "$(dirname "$0")/../support/cli.sh"
export XDG_CONFIG_HOME=$folder/configuration

virtual=(--local 4 --ranks-per-node 1 --virtual-time --fabric fdr)
short=("${virtual[@]}" --collectives barrier,allreduce --bytes 8,4K)

refusals() {
  local file=$folder/t.json
  refuse '--budget="0": expected seconds from 1' "$tune" --local 2 --out "$file" --budget 0
  refuse '--collectives="gossip": expected one of allreduce, barrier' \
    "$tune" --local 2 --out "$file" --collectives gossip
  refuse '/nowhere/t.json.journal: No such file or directory; give a file.*--out' \
    "$tune" --local 2 --out /nowhere/t.json
  refuse 'no ordinary file' "$tune" --local 2 --out "$folder"
  refuse '--virtual-time: expected --fabric.*qdr' "$tune" --local 2 --out "$file" --virtual-time
  refuse '--virtual-time: expected --local' "$tune" --out "$file" --virtual-time --fabric fdr
  refuse '1 rank: expected 2 or more.*--local 2' "$tune" --local 1 --out "$file"
  refuse "$file: there is no such file" "$tune" --show "$file"
  refuse "$file: there is no such file" "$tune" --check --local 2 --file "$file"
  refuse 'there is no tuning file: looked for .*/etc/tutti' "$tune" --check --local 2
  refuse 'TUTTI_WAIT: .*; unset it' env TUTTI_WAIT=block "$tune" --local 2 --out "$file"
  refuse "$file: there is no such file" "$tune" --diff "$file" "$file"
  refuse 'TUTTI_NONSENSE' env TUTTI_NONSENSE=1 "$tune" --local 2 --out "$file"
  [ -z "$(ls -A "$folder")" ] || fail "refused runs have left $(ls -A "$folder")"

  # What is no tuning file is never replaced.
  echo '{"nonsense": 1}' >"$file"
  refuse "$file:1: " "$tune" "${short[@]}" --out "$file"
  refuse "$file:1: " "$tune" "${short[@]}" --out "$file" --fresh
  [ "$(cat "$file")" = '{"nonsense": 1}' ] || fail "a file that is no tuning file was changed"
  rm "$file"

  # A file of another fabric is kept, unless it is asked for.
  expect 0 "file: $file" "$tune" "${short[@]}" --out "$file"
  cp "$file" "$folder/before.json"
  local other=("$tune" --local 4 --ranks-per-node 1 --virtual-time --fabric roce25
    --collectives barrier --network-only --out "$file")
  refuse "$file: .*; give another file.*--fresh" "${other[@]}"
  cmp -s "$file" "$folder/before.json" || fail "a refused run has changed the file"
  expect 0 "file: $file" "${other[@]}" --fresh

  # Findings of this machine are kept, and priced by the network as it is now.
  cp "$folder/before.json" "$file"
  sed -i 's/"predicted_ps": [0-9]*/"predicted_ps": 7/g' "$file"
  expect 0 "file: $file" "$tune" "${virtual[@]}" --collectives barrier --out "$file"
  cmp "$file" "$folder/before.json" || fail "findings that were kept have other prices"
  # Those of another processor are not said of this one.
  sed -i 's/"cpu": "simulated"/"cpu": "another"/' "$file"
  expect 0 'forgotten and measured anew' "$tune" "${virtual[@]}" --collectives barrier --out "$file"
  grep -q '"collective": "allreduce"' "$file" && fail "findings of another processor are kept"

  # A run that was interrupted is not continued as another one.
  cp "$folder/before.json" "$file"
  printf '{"seed":"5"}\n%s\n' "$(tr '\n' ' ' <"$folder/before.json")" >"$file.journal"
  refuse "$file.journal: a run that was interrupted had .*--fresh" "$tune" "${short[@]}" --out "$file"
  expect 0 "file: $file" "$tune" "${short[@]}" --out "$file" --fresh
  [ ! -e "$file.journal" ] || fail "a journal is left of a run that has finished"
}

# The findings that a journal has so far.
findings_of() {
  [ -e "$1" ] && head -c -0 "$1" | sed -n '3,$p'
}

# Kills runs at random points until so many were alive; each journal has all that the one before
# had; each run that comes to its end ends with the file of one that was not killed.
resume() {
  local whole=$folder/whole.json cut=$folder/cut.json before='' after hits=0 tries=0 ends=0 begin took
  local run=("$tune" --local 3 --ranks-per-node 1 --virtual-time --fabric fdr
    --collectives barrier,allreduce,broadcast --bytes 8,1K --seed 3)
  begin=$(date +%s%N)
  expect 0 "file: $whole" "${run[@]}" --out "$whole"
  took=$((($(date +%s%N) - begin) / 1000000))
  while [ $hits -lt "$kills" ] && [ $tries -lt $((6 * kills)) ]; do
    tries=$((tries + 1))
    "${run[@]}" --out "$cut" >/dev/null 2>"$folder/errors" &
    local pid=$!
    sleep "$(awk -v most=$took -v random=$RANDOM 'BEGIN { print most * random / 32768 / 1000 }')"
    kill -9 $pid 2>/dev/null && hits=$((hits + 1))
    wait $pid 2>/dev/null
    if [ -e "$cut" ]; then  # it came to its end
      ends=$((ends + 1))
      cmp -s "$whole" "$cut" || fail "try $tries: a resumed run has ended with another file"
      rm -f "$cut"
      before=''
    fi
    after=$(findings_of "$cut.journal")
    case $after in
      "$before"*) ;;
      *) fail "try $tries: findings were lost: before \"$before\", after \"$after\"" ;;
    esac
    before=$(sed '$d' <<<"$after")  # the last line may be cut
  done
  [ $hits -ge "$kills" ] || fail "only $hits of $tries runs were alive when they were killed"
  expect 0 "file: $cut" "${run[@]}" --out "$cut"
  cmp "$whole" "$cut" || fail "a resumed run ends with another file than one that was not killed"
  [ ! -e "$cut.journal" ] || fail "a journal is left"
  echo "$hits kills within $took ms each, in $tries runs, $ends of which came to their end"
}

# Two at once on one journal: as long as one has its lock, another one is refused.
lock() {
  local file=$folder/t.json pid
  flock "$file.journal" sleep 60 &
  pid=$!
  for ((i = 0; i < 100; ++i)); do
    flock --nonblock "$file.journal" true || break
    sleep 0.05
  done
  refuse 'another process has locked it; wait' "$tune" "${short[@]}" --out "$file"
  [ ! -e "$file" ] || fail "a refused run has written the file"
  kill $(pgrep -P $pid) $pid
  wait $pid 2>/dev/null
  expect 0 "file: $file" "$tune" "${short[@]}" --out "$file"
}

# Modes that read a file.
modes() {
  local file=$folder/t.json
  expect 0 'findings' "$tune" "${short[@]}" --out "$file"
  expect 0 'allreduce' "$tune" --show "$file"
  expect 0 'say the same' "$tune" --diff "$file" "$file"
  expect 0 'latency' "$tune" --explain allreduce --bytes 8 --ranks 96 --ranks-per-node 8 --fabric fdr
  expect 0 'What would flip it' "$tune" --explain barrier --ranks 9 --file "$file"
  expect 0 'What would flip it' "$tune" --explain barrier --ranks 9
  expect 0 'within noise' "$tune" --check "${virtual[@]}" --file "$file"
  # What misses a bound is listed, and has a status of its own.
  local status=0
  timeout 60 "$tune" --verify --budget 2 >"$folder/verified" 2>/dev/null || status=$?
  grep -Eq '^[0-9]+ of [0-9]+ cells$' "$folder/verified" || fail "no count of verified cells"
  for way in 'the model alone' 'a race' 'findings of other bytes and nodes'; do
    grep -q "^| $way | [1-9]" "$folder/verified" || fail "no regret of what is chosen by $way"
  done
  if grep -q '^What misses a bound' "$folder/verified"; then
    [ $status = 3 ] || fail "exit status $status of --verify with misses, expected 3"
  else
    [ $status = 0 ] || fail "exit status $status of --verify without misses, expected 0"
  fi
  expect '[03]' '4096 nodes of 1 .* us ' "$tune" --verify time
  # What the fabric is now, and what cannot be said, have statuses of their own.
  sed -E '/"(latency|gap)_ps"/s/[0-9]+/1/g' "$file" >"$folder/other.json"
  expect 1 'fabric has changed' "$tune" --check "${virtual[@]}" --file "$folder/other.json"
  sed 's/"measured"/"preset"/g' "$file" >"$folder/other.json"
  expect 3 'Nothing can be compared' "$tune" --check "${virtual[@]}" --file "$folder/other.json"
  expect 0 'within noise' env TUTTI_TUNING_FILE="$file" "$tune" --check "${virtual[@]}"
  expect 0 "by file $file" env TUTTI_TUNING_FILE="$file" "$tune" --explain barrier --ranks 9
  expect 0 "$folder/t.html" "$tune" --report "$folder/t.html" --file "$file"
  grep -q '</html>' "$folder/t.html" || fail "the report is no page"
  cp "$file" "$folder/before.json"
  refuse "$file.*it is the tuning file itself; name another" "$tune" --report "$file" --file "$file"
  cmp -s "$file" "$folder/before.json" || fail "a report has replaced its tuning file"
  # Where nothing is said, every program finds it.
  expect 0 'Every program' "$tune" "${short[@]}"
  [ -s "$XDG_CONFIG_HOME/tutti/tuning.json" ] || fail "no file where programs look for it"
  expect 0 'off / ' "$bench" barrier,allreduce --bytes 8 --local 2 --iterations 400 \
    --tuning off,"$file"
  expect 0 'COLLECTIVE|--collectives' "$tune" --help
}

# A budget is kept, also of races in real time.
budget() {
  local file=$folder/t.json begin took
  begin=$(date +%s%N)
  expect 0 "file: $file" "$tune" --local 2 --out "$file" --budget 3
  took=$((($(date +%s%N) - begin) / 1000000))
  # 5 %, and what starting and ending two processes take on a busy machine.
  [ "$took" -lt 4150 ] || fail "a budget of 3 s: $took ms"
  expect 0 'model of the network decides alone' taskset -c 0 "$tune" --local 2 --out "$file" \
    --budget 2 --fresh
}

# What a stress finds of the device is in the file, adds up from run to run, and one violation forbids
# lines, which tutti-info says, too.
stress() {
  local file=$folder/t.json info before after
  [ "$(nproc)" -gt 1 ] || { echo "one CPU, on which nothing is seen to come"; return; }
  info=$(dirname "$tune")/tutti-info
  local run=("$tune" --local 2 --ranks-per-node 1 --network-only --budget 3 --out "$file")
  expect 0 '^placement of writes: [0-9]+ lines were seen to come, all of them whole.*; [0-9]+ words' "${run[@]}"
  before=$(sed -n 's/.*"placement": {"lines": \([0-9]*\),.*/\1/p' "$file")
  expect 0 "^placement of writes: $before lines" "$tune" --show "$file"
  expect 0 "^file: $file" "${run[@]}"
  after=$(sed -n 's/.*"placement": {"lines": \([0-9]*\),.*/\1/p' "$file")
  [ "$after" -gt "$before" ] || fail "$before lines in the file, and after another run $after"
  export TUTTI_TUNING_FILE=$file
  expect 0 "flag: can be used here" "$info"
  sed -i 's/"torn_lines": 0/"torn_lines": 3/' "$file"
  expect 0 'cannot be used here' "$info"
  expect 2 "$after lines were seen to come, 3 of them torn; or use immediate" env TUTTI_NOTIFY=flag \
    "$bench" barrier --local 2 --ranks-per-node 1 --iterations 400
  # Of other firmware it says nothing.
  sed -i 's/"firmware": "/"firmware": "0/' "$file"
  expect 0 'flag: can be used here' "$info"
  unset TUTTI_TUNING_FILE
  expect 0 "^file: $file" "${run[@]}"
  before=$(sed -n 's/.*"placement": {.*"torn_lines": \([0-9]*\),.*/\1/p' "$file")
  [ "$before" = 0 ] || fail "torn lines of other firmware are kept: \"$before\""
}

# Ranks that were started one by one.
tcp() {
  local port rank file=$folder/t.json
  . "$(dirname "$0")/../support/free_port.sh"
  port=$(free_port) || exit 1
  export TUTTI_SIZE=2 TUTTI_RENDEZVOUS=127.0.0.1:$port TUTTI_SECRET=s TUTTI_BOOTSTRAP_TIMEOUT=20
  for rank in 0 1; do
    TUTTI_RANK=$rank timeout 60 "$tune" --budget 2 --collectives barrier --out "$file" \
      >"$folder/$rank" 2>&1 &
    pids[rank]=$!
  done
  for rank in 0 1; do
    wait "${pids[rank]}" || fail "rank $rank of the tcp bootstrap: status $?: $(cat "$folder/$rank")"
  done
  grep -q "file: $file" "$folder/0" || fail "rank 0: $(cat "$folder/0")"
  [ ! -s "$folder/1" ] || fail "rank 1 prints: $(cat "$folder/1")"
}

"$group"
[ $failures = 0 ]
