// The table at the end: who did the calls of a program, and why.
#pragma once

namespace tutti::interposer {

class Interposer;

/// Rank 0 prints the sums of all ranks.  Collective over MPI_COMM_WORLD.
void print_table(Interposer& interposed);

/// The rank that the launcher has given this process, or 0: what one process shall say that may not
/// ask MPI.
int rank_by_launcher() noexcept;

}  // namespace tutti::interposer
