#!/usr/bin/env bash
# slurm.sh PMIX_EXCHANGE_TEST UNDER_MPI [TUTTI_BENCH]: ranks that Slurm's srun has started.
# Starts munged, slurmctld and two slurmd (two nodes of Slurm on this host) for itself alone: all their
# files are in a temporary directory, and they listen at free ports.  They end with this script.
# Promises: with --mpi=pmix, ranks meet on one node and on two, hear of a killed rank, and programs of
# Open MPI run; with --mpi=none, the exchange of PMIx says what to do, and ranks meet over TCP.
set -euo pipefail
# CTest would kill it, and what Slurm has started would live on for a while.
[ -n "${SLURM_TEST_IS_TIMED:-}" ] || SLURM_TEST_IS_TIMED=1 exec timeout --foreground -k 15 90 "$0" "$@"
exchange=$1 under_mpi=$2 bench=${3:-}
skip() { echo "skipped: $*"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin  # where the daemons are
for program in munged slurmctld slurmd srun scancel sinfo setpriv python3; do
  command -v $program >/dev/null ||
    skip "$program is not there (Debian: munge, slurmctld, slurmd, slurm-client, util-linux, python3)"
done

# Nothing of a cluster that this host belongs to: no job that this runs in, no daemon but its own.
unset "${!SLURM_@}" "${!SRUN_@}" "${!SCANCEL_@}" "${!SQUEUE_@}"
work=$(mktemp -d)
export SLURM_CONF=$work/slurm.conf
# What runs a step is no child of this script.  Its name alone says nothing: a file that it has open does.
steps_of_this() {
  local process
  for process in $(pgrep -x slurmstepd); do
    ! find "/proc/$process/fd" -lname "$work/*" 2>/dev/null | grep -q . || echo "$process"
  done
}
finish() {
  local status=$?
  trap - EXIT
  # It ends by the daemons, if they are told in time.
  if [ $status -ne 0 ] && [ $status -ne 77 ] && [ -s "$SLURM_CONF" ]; then
    timeout 2 scancel --quiet --user="$(id -un)" 2>/dev/null || true
    local end=$((SECONDS + 5))
    while [ $SECONDS -lt $end ]; do
      [ -n "$(timeout 2 squeue --noheader 2>/dev/null)" ] || break
      sleep 0.1
    done
  fi
  jobs -rp | xargs -r kill || true
  steps_of_this | xargs -r kill -KILL || true
  for _ in {1..50}; do
    [ -n "$(jobs -rp)" ] || break
    sleep 0.1
  done
  jobs -rp | xargs -r kill -KILL || true
  wait
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then tail -n 30 "$work"/*.log >&2 || true; fi
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 1' INT TERM
fail() { printf '%s\n' "$@" >&2; exit 1; }

# daemon NAME COMMAND...: runs until this script ends, even if that is killed.
daemon() {
  local name=$1
  shift
  setpriv --pdeathsig TERM "$@" >"$work/$name.output.log" 2>&1 &
}
# until_true WHAT COMMAND...: within ten seconds.
until_true() {
  local what=$1
  shift
  for _ in {1..100}; do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  fail "not within 10 s: $what"
}

chmod 755 "$work"
mkdir "$work"/{state,temporary.n1,temporary.n2,spool.n1,spool.n2}
(umask 077 && head -c 128 /dev/urandom >"$work/munge.key")
daemon munged munged --foreground --force --socket="$work/munge.socket" --key-file="$work/munge.key" \
  --log-file="$work/munge.log" --pid-file="$work/munged.pid" --seed-file="$work/munge.seed"
until_true "munged listens" test -S "$work/munge.socket"

# All at once, so that they differ.
read -r -a ports < <(python3 -c 'import socket
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(listener.getsockname()[1] for listener in listeners))')
host=$(hostname -s) user=$(id -un)
# More CPUs than there are, so that no step waits for one.  Each node has a directory for PMIx.
cat >"$SLURM_CONF" <<TEXT
ClusterName=tutti
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
TmpFS=$work/temporary.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=32
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=32
PartitionName=all Nodes=ALL Default=YES MaxTime=2
TEXT
daemon slurmctld slurmctld -D -f "$SLURM_CONF" -L "$work/slurmctld.log"
for node in n1 n2; do
  daemon "slurmd.$node" slurmd -N $node -D -f "$SLURM_CONF" -L "$work/slurmd.$node.log"
done
nodes_are_idle() { [ "$(sinfo --noheader --format=%D:%T)" = 2:idle ]; }
until_true "both nodes are idle" nodes_are_idle
srun --mpi=list 2>&1 | grep -qw pmix || skip "this Slurm has no PMIx (srun --mpi=list)"

run() {  # OPTION... PROGRAM ARGUMENT...: status and output, of all ranks, in $status and $output.
  status=0
  timeout 30 srun --quiet "$@" >"$work/output" 2>&1 &
  wait $! || status=$?  # a signal ends this wait
  output=$(cat "$work/output")
}
expect_success() {
  run "$@"
  [ "$status" -eq 0 ] || fail "srun $*: status $status" "$output"
}

expect_success --mpi=pmix -N 1 -n 2 "$exchange" meet
# Rank 0 listens where other hosts reach it, if this host has a network at all.
if ! python3 -c 'import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))' 2>/dev/null; then
  export TUTTI_RENDEZVOUS=127.0.0.1:${ports[3]}
fi
expect_success --mpi=pmix -N 2 -n 3 "$exchange" meet
# Slurm ends the step about a second after the death.
run --mpi=pmix -N 2 -n 3 "$exchange" death
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] ||
  fail "a killed rank: status $status, expected that of a failed step, which ends by itself" "$output"
for rank in 0 2; do
  [ "$(grep -c "rank $rank heard of it" <<<"$output")" -eq 1 ] || fail "rank $rank did not hear" "$output"
done
expect_success --mpi=pmix -N 1 -n 2 "$under_mpi"

expect_success --mpi=none -n 2 "$exchange" refused
[ -n "$bench" ] || exit 0
export TUTTI_RENDEZVOUS=127.0.0.1:${ports[3]} TUTTI_SECRET=slurm TUTTI_SIZE=2
# shellcheck disable=SC2016  # a task of the step expands it
expect_success --mpi=none -N 2 -n 2 \
  bash -c 'TUTTI_RANK=$SLURM_PROCID exec "$0" barrier --brief --iterations 100' "$bench"
grep -q '^barrier ' <<<"$output" || fail "tutti-bench over TCP: expected a row" "$output"
