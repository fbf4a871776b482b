#!/usr/bin/env bash
# Promise: Open MPI over UCX and over libfabric, all unmodified, runs on the software device.  77: not
# installed.
#   openmpi.sh SOFTVERBS SOURCE ucx|ofi
set -u
library=libucp
[ "$3" = ucx ] || library=libfabric
command -v mpicc.openmpi >/dev/null && command -v mpirun.openmpi >/dev/null &&
  PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep "$library" >/dev/null || { echo "Open MPI or $library is not installed"; exit 77; }
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mpicc.openmpi -O1 "$2" -o "$directory/allreduce" || exit 1
launch=(mpirun.openmpi --oversubscribe -n 2)
[ "$(id -u)" -eq 0 ] && launch+=(--allow-run-as-root)
# No other transport: were the device not used, nothing would arrive.
if [ "$3" = ucx ]; then
  export UCX_TLS=rc_v,self UCX_NET_DEVICES=soft0:1
  launch+=(--mca pml ucx --mca osc ucx -x UCX_TLS -x UCX_NET_DEVICES)
else
  export FI_PROVIDER='verbs;ofi_rxd'
  launch+=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs -x FI_PROVIDER)
fi
timeout 100 "$1" "${launch[@]}" "$directory/allreduce" >"$directory/out" 2>&1
status=$?
grep -q '^2 ranks: right$' "$directory/out" && [ $status -eq 0 ] && exit 0
echo "status $status"
tail -n 40 "$directory/out"
exit 1
