#!/usr/bin/env bash
# Promise: Open MPI over UCX, both unmodified, runs on the software device.  77: not installed.
#   openmpi.sh SOFTVERBS SOURCE
set -u
command -v mpicc.openmpi >/dev/null && command -v mpirun.openmpi >/dev/null && ldconfig -p | grep libucp >/dev/null ||
  { echo "Open MPI or UCX is not installed"; exit 77; }
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mpicc.openmpi -O1 "$2" -o "$directory/allreduce" || exit 1
launch=(mpirun.openmpi --oversubscribe -n 2 --mca pml ucx --mca osc ucx)
[ "$(id -u)" -eq 0 ] && launch+=(--allow-run-as-root)
# No other transport: were the device not used, nothing would arrive.
export UCX_TLS=rc_v,self UCX_NET_DEVICES=soft0:1
timeout 100 "$1" "${launch[@]}" -x UCX_TLS -x UCX_NET_DEVICES "$directory/allreduce" >"$directory/out" 2>&1
status=$?
grep -q '^2 ranks: right$' "$directory/out" && [ $status -eq 0 ] && exit 0
echo "status $status"
tail -n 40 "$directory/out"
exit 1
