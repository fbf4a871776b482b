#include <cstdio>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  using namespace std::chrono_literals;
  const auto ranks = tutti::run_local({.rank_count = 2}, [](tutti::Exchange& exchange) {
    tutti::Context context;  // device, registered memory
    tutti::Communicator communicator(context, exchange);
    std::vector<double> part(1000, 0.5);  // this rank's part of a long vector
    double mine = 0, whole = 0;
    auto dot = tutti::allreduce<double>(communicator, {&mine, 1}, {&whole, 1},
                                        tutti::sum);  // planned and connected once
    for (int iteration = 0; iteration < 3; ++iteration) {
      mine = 0;
      for (const double x : part) mine += x * x;
      if (dot.start() != tutti::Status::ok) return 1;  // never waits
      // ... compute here what does not need the result; call dot.test() now and then ...
      if (dot.wait(5s) != tutti::Status::ok) return 1;  // dot.describe() says what is missing
    }
    std::printf("rank %u: |x|^2 = %g\n", index_of(communicator.rank()), whole);
    return 0;
  });
  for (const auto& rank : ranks)
    if (rank.signal != 0 || rank.exit_status != 0) return 1;
  return 0;
}
