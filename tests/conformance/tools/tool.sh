#!/usr/bin/env bash
# Runs one program that knows nothing of tutti on the software device.
#   tool.sh alone   STATUS PATTERN PROGRAM [ARGUMENT...]   one process
#   tool.sh pair    STATUS PATTERN PROGRAM [ARGUMENT...]   server and client, over a port of loopback
# Both processes must end with STATUS, and a line of the output (of the client's) match PATTERN.
# The environment says how the device gets into the program.  77: it is not installed.
set -u
kind=$1 status=$2 pattern=$3
shift 3
command -v "$1" >/dev/null || { echo "$1 is not installed"; exit 77; }

directory=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null
  rm -rf "$directory"
}
trap finish EXIT
fail() {
  echo "$*"
  tail -n 40 "$directory"/*.out
  exit 1
}

. "$(dirname "$0")/../../support/free_port.sh"

# run NAME COMMAND...: its own output and status.
run() {
  local name=$1
  shift
  timeout 100 "$@" >"$directory/$name.out" 2>&1
}

if [ "$kind" = alone ]; then
  run program "$@"
  ended=$?
  [ $ended -eq "$status" ] || fail "$*: status $ended, expected $status"
  grep -Eq -- "$pattern" "$directory/program.out" || fail "$*: no line matches \"$pattern\""
  exit 0
fi

# Both sides, once.  Sets ended_client and ended_server.
pair() {
  local port tries listen=-p connect=-p
  [ "$1" != fi_pingpong ] || listen=-B connect=-P
  port=$(free_port) || fail "no port"
  run server "$@" $listen $port &
  server=$!
  for ((tries = 0; tries < 500; ++tries)); do
    has_port $port 0A && break
    kill -0 $server 2>/dev/null || break
    sleep 0.02
  done
  run client "$@" $connect $port 127.0.0.1
  ended_client=$?
  # One that gave up at once may leave the other waiting.
  [ $ended_client -eq "$status" ] || kill $server 2>/dev/null
  wait $server
  ended_server=$?
  server=
}

# perftest finds the CPU's clock by comparing two, and gives up where something else delays it: that
# says nothing of the device.
for attempt in 1 2 3; do
  pair "$@"
  grep -q "Correlation coefficient r^2" "$directory"/*.out || break
  echo "$*: attempt $attempt: the clock could not be measured"
done
[ $ended_client -eq "$status" ] || fail "$* (client): status $ended_client, expected $status"
[ $ended_server -eq "$status" ] || fail "$* (server): status $ended_server, expected $status"
grep -Eq -- "$pattern" "$directory/client.out" || fail "$* (client): no line matches \"$pattern\""
