#include "microbench/measure.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "microbench/statistics.hpp"
#include "microbench/together.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

constexpr unsigned block_seconds_max = 300;

extern "C" void end_stuck_rank(int /*signal*/) {
  constexpr char text[] = "tutti: a block of calls took longer than 300 s; ending\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
  ::_exit(1);
}

/// Ends a rank that is stuck in a block, because the calls of MPI take no timeout.  It is set for
/// each block, outside of the timed calls, and for all contestants alike.
class Alarm {
 public:
  Alarm() {
    ::signal(SIGALRM, end_stuck_rank);
    ::alarm(block_seconds_max);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() { ::alarm(0); }
};

std::size_t rounded_up(std::size_t calls, std::size_t batch) {
  return (calls + batch - 1) / batch * batch;
}

/// Long enough that the timer costs about 1 % of a sample, short enough for many samples.
std::size_t batch_for(std::size_t bytes) {
  if (bytes <= 1024) return 20;
  if (bytes <= 65536) return 10;
  return 2;
}

class Run {
 public:
  Run(const Timer& timer, Exchange& exchange) : timer_(timer), exchange_(exchange) {}

  /// Appends one sample for each `calls` of `total`.
  void sample(Subject& subject, std::size_t total, std::size_t calls, std::vector<double>& into) {
    if (const auto root = subject.root()) return sample_rooted(subject, *root, total, into);
    const double parts = static_cast<double>(calls) * subject.hand_overs_per_call();
    subject.synchronise();
    subject.run(calls);  // untimed: code and data of this contestant come back into the caches
    for (std::size_t done = 0; done < total; done += calls) {
      const std::uint64_t begin = timer_.ticks();
      subject.run(calls);
      const std::uint64_t end = timer_.ticks();
      into.push_back(timer_.nanoseconds(end - begin) / parts);
    }
  }

 private:
  struct Visit {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  void sample_rooted(Subject& subject, Rank root, std::size_t total, std::vector<double>& into) {
    std::vector<Visit> mine(total), all(total * exchange_.rank_count());
    subject.synchronise();
    subject.run(1);
    for (Visit& visit : mine) {
      subject.synchronise();
      visit.begin = timer_.ticks();
      subject.run(1);
      visit.end = timer_.ticks();
    }
    exchange_.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                        setup_timeout);
    for (std::size_t call = 0; call < total; ++call) {
      std::uint64_t last = 0;
      for (std::size_t rank = 0; rank < exchange_.rank_count(); ++rank)
        last = std::max(last, all[rank * total + call].end);
      into.push_back(timer_.nanoseconds(last - all[index_of(root) * total + call].begin));
    }
  }

  const Timer& timer_;
  Exchange& exchange_;
};

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

std::size_t iterations_default(std::size_t bytes, bool oversubscribed) noexcept {
  if (oversubscribed) return blocks_min * block_calls_min;
  if (bytes <= 1024) return 20000;
  if (bytes <= 65536) return 10000;
  return 4000;
}

CommonEffort common_effort_for(std::optional<std::size_t> iterations, std::size_t warmup,
                               bool oversubscribed) {
  constexpr std::size_t blocks_default = 2 * blocks_min;
  std::size_t blocks = oversubscribed ? blocks_min : blocks_default;
  if (iterations) blocks = std::clamp<std::size_t>(*iterations / block_calls_min, 1, blocks);
  return {.blocks = blocks, .warmup = warmup};
}

Effort effort_for(std::size_t bytes, std::optional<std::size_t> iterations, bool oversubscribed,
                  const CommonEffort& common) {
  const std::size_t calls = iterations.value_or(iterations_default(bytes, oversubscribed));
  const std::size_t per_block = std::max<std::size_t>(calls / common.blocks, 1);
  const std::size_t batch = std::min(batch_for(bytes), per_block);
  const std::size_t block_calls = rounded_up(per_block, batch);
  return {.batch = batch,
          .block_calls = block_calls,
          .single_calls = std::max<std::size_t>(block_calls / 4, 1)};
}

void measure(std::span<Contestant> contestants, const CommonEffort& common, const Timer& timer,
             Exchange& exchange) {
  Run run(timer, exchange);
  for (Contestant& contestant : contestants) {
    // All memory for samples is allocated now, so that none is asked for between two calls.
    Samples& samples = contestant.samples;
    const Effort& effort = contestant.effort;
    const std::size_t batch = contestant.subject->root() ? 1 : effort.batch;
    samples.batches.reserve(common.blocks * effort.block_calls / batch);
    samples.singles.reserve(common.blocks * effort.single_calls);
    const Alarm alarm;
    contestant.subject->synchronise();
    contestant.subject->run(common.warmup);
  }
  for (std::size_t block = 0; block < common.blocks; ++block) {
    for (Contestant& contestant : contestants) {
      const Alarm alarm;
      Samples& samples = contestant.samples;
      const std::size_t before = samples.batches.size();
      run.sample(*contestant.subject, contestant.effort.block_calls, contestant.effort.batch,
                 samples.batches);
      samples.block_medians.push_back(median(std::span(samples.batches).subspan(before)));
    }
  }
  for (std::size_t block = 0; block < common.blocks; ++block) {
    for (Contestant& contestant : contestants) {
      const Alarm alarm;
      run.sample(*contestant.subject, contestant.effort.single_calls, 1,
                 contestant.samples.singles);
    }
  }
}

double sample_batch(Subject& subject, std::size_t calls, const Timer& timer, Exchange& exchange) {
  const Alarm alarm;
  std::vector<double> samples;
  Run(timer, exchange).sample(subject, calls, calls, samples);
  return largest(gather(exchange, median(samples)));
}

Samples measure_virtual(Subject& subject, std::size_t calls, Exchange& exchange) {
  Samples samples;
  subject.synchronise();
  subject.run(2);  // in real time, so that connections and mappings of both parities are made
  // Credits of those may have been seen or not; a call sees those of the two calls before.
  for (int call = 0; call < 2; ++call) (void)gather(exchange, one_call(subject));
  for (std::size_t call = 0; call < calls; ++call) {
    const double makespan = largest(gather(exchange, one_call(subject)));
    samples.batches.push_back(makespan / 1000 / subject.hand_overs_per_call());
  }
  samples.block_medians = samples.singles = samples.batches;
  return samples;
}

}  // namespace tutti::bench
