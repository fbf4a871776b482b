# For scripts that have to name a port before the program that listens on it is started.

# has_port PORT STATE: whether a socket of this host with this local port is in STATE, a pattern of
# the numbers in /proc/net/tcp: 0A listens, "." is any.
has_port() {
  awk -v port=":$(printf %04X "$1")" -v state="$2" \
    'index($2, port) == length($2) - 4 && $4 ~ state { found = 1 } END { exit !found }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# free_port: prints one that no socket has, below those that the kernel gives to outgoing connections,
# of which one could take it in the meantime.
free_port() {
  local port tries
  for ((tries = 0; tries < 1000; ++tries)); do
    port=$((20000 + RANDOM % 12000))
    has_port $port . || { echo $port; return; }
  done
  echo "1000 ports between 20000 and 32000 are all in use" >&2
  return 1
}
