#include "microbench/virtual_run.hpp"

#include "microbench/statistics.hpp"
#include "microbench/together.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

namespace soft = verbs::soft;

/// The makespan of one call, in picoseconds.
double one_call(Subject& subject) {
  soft::enter_virtual_time();
  const soft::VirtualTime& time = *soft::VirtualTime::joined();
  try {
    subject.run(1);
  } catch (...) {
    soft::leave_virtual_time();
    throw;
  }
  const soft::Picoseconds taken = time.now();
  soft::leave_virtual_time();
  if (time.is_broken()) throw RunFailed("virtual time has ended before the run");
  return static_cast<double>(taken);
}

}  // namespace

Samples measure_virtual(Subject& subject, std::size_t calls, Exchange& exchange) {
  Samples samples;
  subject.synchronise();
  subject.run(2);  // in real time, so that connections and mappings of both parities are made
  for (std::size_t call = 0; call < calls; ++call) {
    const double makespan = largest(gather(exchange, one_call(subject)));
    samples.batches.push_back(makespan / 1000 / subject.hand_overs_per_call());
  }
  samples.block_medians = samples.singles = samples.batches;
  return samples;
}

}  // namespace tutti::bench
