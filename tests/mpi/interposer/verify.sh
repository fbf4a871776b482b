#!/usr/bin/env bash
# verify.sh TUTTI_MPIRUN PROGRAM LAUNCHER [OPTION...]: verified with TUTTI_MPI=verify.
# Promises: everything that tutti takes is compared; what rounding and gaps make differ is no difference; what does
# differ is told by call, communicator, block, element and both values; the program gets MPI's results.
set -euo pipefail
. "$(dirname "$0")/said.sh"
own=(--verify)
taken=('MPI_Allreduce 105 42' 'MPI_Reduce 45 18' 'MPI_Bcast 15 6' 'MPI_Barrier 15 6' 'MPI_Scan 15 6' 'MPI_Exscan 15 6' \
  'MPI_Allgather 15 6' 'MPI_Allgatherv 15 6' 'MPI_Alltoall 15 6' 'MPI_Gather 15 6' 'MPI_Scatter 15 6' \
  'MPI_Alltoallv 15 6' 'MPI_Gatherv 15 6' 'MPI_Scatterv 15 6' \
  'MPI_Reduce_scatter 15 6' 'MPI_Reduce_scatter_block 15 6' 'MPI_Iallreduce 75 60' 'MPI_Ireduce 15 3' \
  'MPI_Ibcast 15 3' 'MPI_Ibarrier 15 3')
run 3
says "${taken[@]/#/^tutti: }" '^tutti: differences: 0 '
says_lines 23  # nothing else, and nothing that is not compared

# differs FUNCTION NUMBER RANK WHERE: such a difference is told.
differs() {
  says "^tutti: verify: $1 number $2 of rank $3 of everybody \(3 ranks\): $4 is [0-9.e+-]+ by tutti, and [0-9.e+-]+ by MPI\$"
}
int='element 0 of 1 \(MPI_INT\)' double='element 0 of 1 \(MPI_DOUBLE\)'
run 3 unsteady
differs MPI_Allreduce 4 2 "$int"
differs MPI_Reduce 4 0 "$double"
differs MPI_Scan 4 1 "$int"
differs MPI_Exscan 4 2 "$double"
differs MPI_Reduce_scatter 4 1 "block of rank 1, $int"
differs MPI_Reduce_scatter_block 4 2 "block of rank 2, $int"
differs MPI_Iallreduce 5 1 "$int"
differs MPI_Ireduce 5 0 "$double"
says '^tutti: differences: [1-9]'

# One number of what is passed on is too large by MPI.
run 3 erring
for function in Allgather Allgatherv Gather Gatherv Scatter Scatterv; do
  says "MPI_$function number 5 of rank 2 .*: block of rank 2, element 1 of 2 \(MPI_SHORT\) is 5 by tutti, and 6 by MPI\$"
done
says 'MPI_Alltoall number 5 of rank 2 .*: block of rank 0, element 1 of 2 \(MPI_SHORT\) is 1 by tutti, and 2 by MPI$' \
  'MPI_Alltoallv number 5 of rank 2 .*: block of rank 0, element 1 of 2 \(MPI_SHORT\) is 1 by tutti, and 2 by MPI$' \
  'MPI_Bcast number 5 of rank 2 .*: element 1 of 3 \(MPI_SHORT\) is 1 by tutti, and 2 by MPI$' \
  'MPI_Ibcast number 5 of rank 1 .*: element 2 of 3 \(MPI_SHORT\) is 2 by tutti, and 3 by MPI$' \
  '^tutti: differences: 11 '

# Persistent requests are compared from their first start, but for one for which MPI makes no communicator.
run 3 persistent
if ! grep -q 'no persistent collectives' "$scratch/out"; then
  differs MPI_Allreduce_init 2 1 "$int"  # number 1 was left to MPI
  differs MPI_Allreduce_init 3 2 "$int"
  differs MPI_Reduce_init 1 0 "$double"
  says 'MPI_Bcast_init number 2 of rank 0 .*: element 0 of 1 \(MPI_SHORT\) is 7 by tutti, and 8 by MPI$' \
    '^tutti: MPI_Allreduce_init 9 6 24 3 not compared by TUTTI_MPI=verify$' \
    '^tutti: MPI_Reduce_init 6 6 ' '^tutti: not compared: 3 persistent requests'
fi
