#!/usr/bin/env bash
# table.sh TUTTI_MPIRUN PROGRAM LAUNCHER [OPTION...]: what libtutti-mpi says of few_calls at its end.
# Promises: nothing unless it is asked for; then the sums of all ranks, once, also where MPI was never seen;
# and in any case the results and the exit status of the program are its own.
set -euo pipefail
. "$(dirname "$0")/said.sh"

run 2
says_lines 0
grep -q '^sum 5$' "$scratch/out" || fail "the program's own output"

own=(--table)
run 2
says '^tutti: calls of 2 ranks of (Open MPI|MPICH), TUTTI_MPI=on$' \
  '^tutti: MPI_Allreduce 14 4 64 2 one rank; 6 first calls of their kind; 2 no elements$' \
  '^tutti: MPI_Barrier 10 4 0 6 first calls of their kind$' \
  '^tutti: MPI_Bcast 2 0 0 2 above TUTTI_MPI_BYTES$'
says_lines 5
run 2 others
for function in Scan Exscan Allgather Allgatherv Alltoall Gather Scatter Scatterv Reduce_scatter \
  Reduce_scatter_block; do
  says "^tutti: MPI_$function 10 4 [0-9]+ 6 first calls of their kind\$"
done
for function in Iallreduce Ireduce Ibcast Ibarrier; do  # the fourth calls want operations, which the next blocking one makes
  says "^tutti: MPI_$function 10 2 [0-9]+ 8 first calls of their kind\$"
done
says '^tutti: MPI_Gatherv 10 4 48 6 first calls of their kind$' \
  '^tutti: MPI_Alltoallv 10 2 32 6 first calls of their kind; 2 blocks above 248 bytes$'
own=(--off --table)
expected=5 run 1 fails
says '^tutti: MPI_Allreduce 7 0 0 7 switched off, or ranks have other settings$'
# One rank alone asks for it, or has other settings.
own=()
run 1 : -n 1 env TUTTI_MPI_TABLE=1 "$program"
says '^tutti: MPI_Barrier 10 4 0'
run 1 : -n 1 env TUTTI_MPI_AFTER=9 TUTTI_MPI_TABLE=1 "$program"
says 'every call is left to MPI: the ranks have different settings' '^tutti: MPI_Barrier 10 0 0 10 switched off, or'

# MPI is loaded, and not seen.
own=(--table)
run 2 hidden
says '^tutti: 0 calls seen: this process has loaded MPI, and MPI_Init was not called'
says_lines 1
