// Being called whenever MPI waits or looks for messages: a rank that waits in MPI must go on with
// tutti's operations, because its partner may wait for one of them before it comes.
//
// Open MPI calls functions that are registered with it.  MPICH has no such thing, but where it runs
// on UCX, as packages of it do, each of its looks at the network is a call of
// ucp_worker_progress(), which this library stands in for.
#pragma once

namespace tutti::interposer {

/// Whether MPI calls what is hooked; MPI is initialised.
bool has_progress_hook();

/// From now on `function` is called by MPI, in the thread of the program that is in a call of MPI.
void hook_progress(void (*function)() noexcept);

}  // namespace tutti::interposer
