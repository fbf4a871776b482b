#!/usr/bin/env bash
# report.sh TUTTI_MPIRUN PROGRAM LAUNCHER [OPTION...]: few_calls with TUTTI_MPI=report.
# Promises: MPI does every call, and is timed; the table says which ones tutti would take, and how long that
# would be expected to take by the tuning file in force, whatever that is.
set -euo pipefail
. "$(dirname "$0")/said.sh"
number='-?[0-9]+(\.[0-9]+)?(e-[0-9]+)?'
own=(--report)
run 2 passes
says '^tutti: calls of 2 ranks of (Open MPI|MPICH), TUTTI_MPI=report$' \
  "^tutti: MPI_Allreduce 14 176 0\.[0-9]+ 4 0\.[0-9]+ 0\.00000[0-9]+ $number to $number s 2 one rank; 6 first calls of their kind; 2 no elements\$" \
  "^tutti: MPI_Barrier 10 0 0\.[0-9]+ 4 0\.[0-9]+ 0\.00000[0-9]+ $number to $number s 6 first calls of their kind\$" \
  "^tutti: MPI_Bcast 2 6400000 0\.[0-9]+ 0 0\.0+ 0\.0+ 0 to 0 s 2 above TUTTI_MPI_BYTES\$" \
  "^tutti: expected saving: $number to $number of $number s" \
  '^tutti: tuning file: ' \
  "^tutti: MPI_Allreduce of 16 bytes, 2 ranks on 1 node, 2 calls: MPI $number, its fastest $number; tutti 0\.[0-9]+\$"
# Scans and blocks have a price; nonblocking calls have none, as they are over when others have come.
run 2 others
for row in 'Scan 160' 'Exscan 160' 'Allgather 320' 'Allgatherv 240' 'Alltoall 320' 'Gather 320' 'Gatherv 120' \
  'Scatter 320' 'Scatterv 120' 'Reduce_scatter 240' 'Reduce_scatter_block 320'; do
  says "^tutti: MPI_${row% *} 10 ${row#* } 0\.[0-9]+ 4 0\.[0-9]+ 0\.00000[0-9]+ $number to $number s 6 first calls of their kind\$"
done
for row in 'Iallreduce 160' 'Ireduce 160' 'Ibcast 160' 'Ibarrier 0'; do
  says "^tutti: MPI_${row% *} 10 ${row#* } 0\.[0-9]+ 4 0\.0+ 0\.0+ no price 6 first calls of their kind\$"
done
says "^tutti: MPI_Alltoallv 10 1408 0\.[0-9]+ 2 0\.[0-9]+ 0\.00000[0-9]+ $number to $number s 6 first calls of their kind; 2 blocks above 248 bytes\$"
# Ranks that are told to be two nodes pay for a network; a file is named.
cat >"$scratch/tuning.json" <<'JSON'
{"format": "tutti tuning 1", "rules": [{"collective": "allreduce", "bytes": {"from": 65536}, "algorithm": "ring"}]}
JSON
TUTTI_RANKS_PER_NODE=1 TUTTI_TUNING_FILE=$scratch/tuning.json run 2 passes
says '^tutti: MPI_Barrier of 0 bytes, 2 ranks on 2 nodes, 2 calls' "^tutti: tuning file: .*$scratch/tuning.json"
price() { sed -nE 's/^tutti: +MPI_Barrier of .*; tutti ([0-9.]+)$/\1/p' "$1"; }
awk "BEGIN { exit !($(price "$scratch/said") > 0.7) }" || { cat "$scratch/said"; fail "a network for nothing"; }
# Without anything to go by it still counts.
TUTTI_TUNING_FILE=$scratch/none.json run 2 passes
says 'tuning file: .*none.json' 'tutti: MPI_Allreduce 14 176 ' '; tutti no price$'
