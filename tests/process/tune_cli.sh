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
  # The message says why a folder cannot be made, not that it does not exist.
  refuse '/sys/nowhere.*: (Operation not permitted|Permission denied|Read-only file system); give a file' \
    env XDG_CONFIG_HOME=/sys/nowhere "$tune" --local 2 --budget 1
  refuse '--bytes="7": expected a multiple of 8, the size of one double; give another size$' \
    "$tune" --local 2 --out "$file" --bytes 7
  refuse '--explain="gossip": expected one of' "$tune" --explain gossip --ranks 4
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

  # A candidate for which the arena has no room does not race; the others do.
  expect 0 'canonical_dissemination.* does not race: needs .* of the arena' \
    env TUTTI_ARENA_BYTES=600K "$tune" "${virtual[@]}" --collectives allreduce --bytes 64K \
    --out "$folder/small.json"
  [ "$(grep -c '"winner"' "$folder/small.json")" -eq 3 ] ||
    fail "not all agreements have raced: $(cat "$folder/small.json")"

  # Findings of this machine are kept, and priced by the network as it is now.
  cp "$folder/before.json" "$file"
  sed -i 's/"predicted_ps": [0-9]*/"predicted_ps": 7/g' "$file"
  expect 0 "file: $file" "$tune" "${virtual[@]}" --collectives barrier --out "$file"
  cmp "$file" "$folder/before.json" || fail "findings that were kept have other prices"
  # Findings of other numbers of nodes are kept, too, and correct prices as before.
  local other_shape=(--ranks-per-node 1 --virtual-time --fabric fdr --collectives allreduce)
  local explained=("$tune" --explain allreduce --bytes 16 --ranks 5 --file "$file")
  rm "$file"
  expect 0 "file: $file" "$tune" --local 4 "${other_shape[@]}" --bytes 8 --out "$file"
  cp "$file" "$folder/four.json"
  # One family takes longer than the model says, and the others do not.
  awk '{ while (match($0, /"recursive_multiplying[^"]*", "measured_ps": [0-9]+/)) {
           found = substr($0, RSTART, RLENGTH)
           rest = substr($0, RSTART + RLENGTH)
           printf "%s", substr($0, 1, RSTART - 1)
           match(found, /[0-9]+$/)
           printf "%s%d", substr(found, 1, RSTART - 1), 1.6 * substr(found, RSTART)
           $0 = rest }
         print }' "$folder/four.json" >"$file"
  expect 0 'corrected by 1\.' "${explained[@]}"
  expect 0 "file: $file" "$tune" --local 2 "${other_shape[@]}" --bytes 8 --out "$file"
  expect 0 'corrected by 1\.' "${explained[@]}"
  ! grep -q '"choice".*"predicted_ps": 0[,}]' "$file" || fail "prices of other numbers of nodes are lost"
  cp "$folder/before.json" "$file"
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

# Starts a command in the background that SIGINT ends as in the foreground.
start() {
  env --default-signal=INT "$@" >"$folder/output" 2>"$folder/errors" &
  started=$!
}

# Ends what start() has started, by a signal to it or to one of its ranks.
interrupted() {
  local signal=$1 whom=$2 status=$3 ranks rank got i
  ranks=$(pgrep -P "$started")
  [ "$whom" = program ] || whom=$(head -1 <<<"$ranks")
  [ "$whom" != program ] || whom=$started
  kill -"$signal" "$whom" || fail "the run has ended before it was interrupted: $(<"$folder/errors")"
  wait "$started"
  got=$?
  [ $got = "$status" ] || fail "exit status $got of a run ended by $signal, expected $status"
  for rank in $ranks; do
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$rank" 2>/dev/null || break
      sleep 0.05
    done
    [ $i -lt 100 ] || fail "rank $rank goes on after the run was ended by $signal"
  done
}

# A run that is ended by a signal says how to go on.
interrupt() {
  local file=$folder/t.json whole=$folder/whole.json way i words
  local run=("$tune" --local 3 --ranks-per-node 1 --virtual-time --fabric fdr --seed 3)
  expect 0 "file: $whole" "${run[@]}" --collectives allreduce,alltoall --out "$whole"
  for way in "INT program 130" "INT rank 130" "TERM program 143"; do
    start "${run[@]}" --collectives allreduce,alltoall --out "$file"
    for ((i = 0; i < 400; ++i)); do
      [ "$(wc -l 2>/dev/null <"$file.journal")" -ge 3 ] 2>/dev/null && break
      sleep 0.01
    done
    # shellcheck disable=SC2086
    interrupted $way
    words="ended by a signal; what was found is kept in $file.journal: start it again with the same"
    [ "$(grep -c "$words" "$folder/errors")" = 1 ] || fail "$way: $(<"$folder/errors")"
    ! grep -q 'rank [0-9]' "$folder/errors" || fail "$way: ranks complain: $(<"$folder/errors")"
    expect 0 'goes on with .*t.json.journal' "${run[@]}" --collectives allreduce,alltoall --out "$file"
    cmp "$whole" "$file" || fail "$way: a resumed run ends with another file"
    rm -f "$file"
  done
  # While the network is measured nothing has been found, and nothing stays.
  start "$tune" --local 2 --ranks-per-node 1 --network-only --budget 20 --out "$file"
  for ((i = 0; i < 400; ++i)); do
    [ -e "$file.journal" ] && break
    sleep 0.01
  done
  interrupted INT program 130
  grep -q 'nothing was found yet, and no file has changed' "$folder/errors" ||
    fail "before anything was found: $(<"$folder/errors")"
  [ ! -e "$file.journal" ] || fail "an empty journal is left"
  # The grid has no journal, so what was judged by then is printed.
  start "$tune" --verify model
  for ((i = 0; i < 400; ++i)); do
    grep -q '[1-9][0-9]* of [0-9]*, ' "$folder/errors" && break
    sleep 0.05
  done
  interrupted INT program 130
  grep -q '^[1-9][0-9]* of [0-9]* cells, as a signal has come$' "$folder/output" ||
    fail "nothing is printed of a grid that was interrupted: $(<"$folder/output")"
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
  # --explain says that the file is for another machine, and that bits are kept.
  expect 0 'Note: the tuning file is for another network: .*do without it' \
    "$tune" --explain barrier --ranks 9 --file "$file"
  if env TUTTI_SOFT_FABRIC=fdr "$tune" --explain barrier --ranks 9 --file "$file" |
    grep -q 'another network'; then
    fail "a file of this network is said to be another one's"
  fi
  expect 0 'TUTTI_TUNING_BITS=keep' env TUTTI_TUNING_BITS=keep "$tune" --explain allreduce --ranks 9 \
    --bytes 8 --file "$file"
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
  local file=$folder/t.json try took all=
  # The program itself prints the time, without what a busy machine takes to start and to end
  # processes.  If something else has had the CPUs meanwhile, another run decides.
  for try in 1 2 3; do
    took=$("$tune" --local 2 --out "$file" --budget 3 --fresh 2>/dev/null |
      sed -n 's/^tutti-tune: .*, \([0-9.]*\) s of a budget of 3 s$/\1/p')
    all+=" $took"
    awk -v took="$took" 'BEGIN { exit !(took > 0.5 && took <= 3 * 1.05) }' && break
    [ $try -lt 3 ] || fail "a budget of 3 s is overrun by more than 5 %:$all s"
  done
  # A budget is also kept with many findings of earlier runs, which are priced anew in the time that
  # races leave. Findings of more ranks than there can be are not priced.
  awk '/"collective": "barrier"/ && !many++ {
         many_of = "    {\"collective\": \"allreduce\", \"bytes\": %d, \"nodes\": %d, \"ranks_per_node\": %d, " \
           "\"agreement\": \"identical\", \"operators\": \"rounding\", \"winner\": {\"choice\": " \
           "\"recursive_multiplying with 1 a round\", \"measured_ps\": 9, \"predicted_ps\": 9}, " \
           "\"others\": ["
         for (i = 1; i <= 15; ++i)
           many_of = many_of (i > 1 ? ", " : "") "{\"choice\": \"recursive_multiplying with " i + 1 \
             " a round\", \"measured_ps\": 9, \"predicted_ps\": 9}"
         many_of = many_of "], \"noisy\": false},\n"
         printf many_of, 8, 1048576, 65536
         printf many_of, 8, 65536, 65536
         for (i = 1; i <= 4000; ++i) printf many_of, 8 * i, 64, 64
       } { print }' "$file" >"$folder/many.json"
  for try in 1 2 3; do
    cp "$folder/many.json" "$folder/some.json"
    took=$("$tune" --local 2 --out "$folder/some.json" --budget 1 2>"$folder/errors" |
      tee "$folder/output" | sed -n 's/^tutti-tune: .*, \([0-9.]*\) s of a budget of 1 s$/\1/p')
    awk -v took="$took" 'BEGIN { exit !(took > 0.5 && took <= 2) }' && break
    [ $try -lt 3 ] || fail "a budget of 1 s is overrun by kept findings: $took s: $(<"$folder/errors")"
  done
  tr -s ' \n' ' ' <"$folder/output" | grep -q 'too short to price [0-9]* of [0-9]* findings of earlier' ||
    fail "nothing is said of findings that were not priced: $(<"$folder/output")"
  # Where ranks share CPUs nothing is measured: the file keeps its figures, or gets those of the
  # preset.
  local shared=(taskset -c 0 "$tune" --local 2 --ranks-per-node 1 --budget 2 --out "$file")
  expect 0 'model of the network decides alone, by the figures of the preset' "${shared[@]}" --fresh
  ! grep -q '"measured"' "$file" || fail "figures of ranks that share a CPU: $(<"$file")"
  expect 3 'ranks share CPUs, so that no time says anything of the network; start at most' \
    taskset -c 0 "$tune" --check --local 2 --ranks-per-node 1 --file "$file"
  # The figures of a stale file cannot be measured anew, so it stays, unless --fresh is given.
  sed -i 's/"firmware": "/"firmware": "0/' "$file"
  cp "$file" "$folder/stale.json"
  refuse "$file: .*stale: firmware.*; nothing can be measured in its place where ranks share CPUs; start at most" \
    "${shared[@]}"
  cmp -s "$file" "$folder/stale.json" || fail "a refused run has changed a stale file"
  expect 0 'model of the network decides alone, by the figures of the preset' "${shared[@]}" --fresh
  if [ "$(nproc)" -gt 1 ]; then
    expect 0 "file: $file" "$tune" --local 2 --ranks-per-node 1 --budget 2 --network-only --out "$file"
    cp "$file" "$folder/measured.json"
    expect 0 'model of the network decides alone, by the figures that the file had' "${shared[@]}"
    diff <(sed '/"placement"/d' "$folder/measured.json") <(sed '/"placement"/d' "$file") ||
      fail "ranks that share a CPU have changed the figures of a file"
  fi
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
