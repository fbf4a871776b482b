#!/usr/bin/env bash
# verify.sh TUTTI_MPIRUN PROGRAM LAUNCHER [OPTION...]: verified with TUTTI_MPI=verify.
# Promises: what rounding and gaps make differ is no difference; what does differ is told by call,
# communicator, element and both values; the program gets MPI's results.
set -euo pipefail
. "$(dirname "$0")/said.sh"
own=(--verify)
run 3
says '^tutti: MPI_Allreduce 105 42 ' '^tutti: MPI_Reduce 45 18 ' '^tutti: MPI_Bcast 15 6 ' '^tutti: MPI_Barrier 15 6 0' \
  '^tutti: differences: 0 '
says_lines 7
run 3 unsteady
values='is [0-9.e+-]+ by tutti, and [0-9.e+-]+ by MPI$'
says "^tutti: verify: MPI_Allreduce number 39 of rank 2 of everybody \(3 ranks\): element 0 of 1 \(MPI_INT\) $values" \
  "^tutti: verify: MPI_Reduce number 19 of rank 0 of everybody \(3 ranks\): element 0 of 1 \(MPI_DOUBLE\) $values" \
  '^tutti: differences: [1-9]'
