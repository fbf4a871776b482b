// A rank dies amid the calls of a collective.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <tutti/tutti.hpp>

namespace tutti::test {

/// Calls `operation` again and again.  Rank 1 dies at a random point of one of the first calls.
/// The others return an exit status: 0 if they have learnt that rank 1 has failed.
inline int call_until_rank_1_dies(const Communicator& ranks, Operation& operation) {
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  const int last = 3 + static_cast<int>(random() % 20);
  for (int call = 0; call < 100'000; ++call) {
    const Status started = operation.start();
    if (index_of(ranks.rank()) == 1 && call == last) {
      for (auto i = random() % 30; i > 0; --i) (void)operation.test();
      ::kill(::getpid(), SIGKILL);
    }
    const Status status =
        started == Status::ok ? operation.wait(std::chrono::seconds(20)) : started;
    if (status == Status::ok) continue;
    return status == Status::peer_failed && ranks.failure().peer == Rank{1} ? 0 : 2;
  }
  return 3;
}

}  // namespace tutti::test
