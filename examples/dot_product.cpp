#include <cstdio>
#include <tutti/tutti.hpp>

int main() {
  const auto ranks = tutti::run_local({.rank_count = 2}, [](tutti::Exchange& exchange) {
    tutti::Context context;  // device, registered memory
    tutti::Communicator communicator(context, exchange);
    double mine = 0, whole = 0;  // an operation is made once, and started for each dot product
    auto dot = tutti::allreduce<double>(communicator, {&mine, 1}, {&whole, 1}, tutti::sum);
    for (const double x : {5.0, 15.0}) mine += x * x;  // this rank's part of the vector
    if (dot.start() != tutti::Status::ok) return 1;    // reads mine; never waits
    // ... compute here what does not need the result; call dot.test() now and then ...
    if (dot.wait(std::chrono::seconds(5)) != tutti::Status::ok) return 1;
    std::printf("rank %u: |x|^2 = %g\n", index_of(communicator.rank()), whole);
    return 0;
  });
  for (const auto& rank : ranks)
    if (rank.signal != 0 || rank.exit_status != 0) return 1;
  return 0;
}
