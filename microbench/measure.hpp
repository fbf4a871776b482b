// How samples are taken.  One sample is a batch of calls, timed as a whole and divided by their
// number; batches come in blocks, and the blocks of all contestants of a run alternate:
//
//   block 0:  wimm | barrier, MPI_Barrier | allreduce 8, MPI_Allreduce 8 | ...
//   block 1:  wimm | barrier, MPI_Barrier | ...
//
// so that slow changes of the machine meet all of them alike.  A second pass of this shape times
// single calls, for p99 and maximum, which a batch would hide.
//
// Rooted collectives, in which a rank may be done before another has begun, are timed call by call:
// from the root's start, after a barrier of the same side, to the last rank's end, by the counter
// that all CPUs of the machine share.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <tutti/exchange.hpp>
#include <vector>

#include "microbench/subject.hpp"
#include "microbench/timer.hpp"

namespace tutti::bench {

/// How often each subject of one size is called; alike for tutti, MPI and probes.
struct Effort {
  std::size_t batch = 1;         // calls of one sample
  std::size_t block_calls = 0;   // a multiple of `batch`
  std::size_t single_calls = 0;  // of each block of the second pass
};

/// What all subjects of a run have in common.
struct CommonEffort {
  std::size_t blocks = 1;
  std::size_t warmup = 0;  // untimed calls of every subject before its first block
};

inline constexpr std::size_t block_calls_min = 200;
inline constexpr std::size_t blocks_min = 10;  // unless --iterations asks for fewer calls

/// Timed calls of a row, enough for medians to settle: by size, and fewer where ranks share CPUs.
std::size_t iterations_default(std::size_t bytes, bool oversubscribed) noexcept;

/// `iterations` as given on the command line; nothing: the default.
CommonEffort common_effort_for(std::optional<std::size_t> iterations, std::size_t warmup,
                               bool oversubscribed);
Effort effort_for(std::size_t bytes, std::optional<std::size_t> iterations, bool oversubscribed,
                  const CommonEffort& common);

/// Nanoseconds per call.
struct Samples {
  std::vector<double> batches;        // means of batches
  std::vector<double> block_medians;  // of the batches of each block
  std::vector<double> singles;
};

struct Contestant {
  Subject* subject;
  Effort effort;
  Samples samples = {};
};

/// Collective over `exchange`.  Samples all contestants, in the order given within each block.
/// Throws RunFailed, Error.
void measure(std::span<Contestant> contestants, const CommonEffort& common, const Timer& timer,
             Exchange& exchange);

/// One batch of `calls`, after an untimed one: nanoseconds a call on the slowest rank, which is the
/// same number on all ranks.  Of calls that are timed from their root, the median of a batch of
/// them.  Collective.  Throws RunFailed, Error.
double sample_batch(Subject& subject, std::size_t calls, const Timer& timer, Exchange& exchange);

inline constexpr std::size_t virtual_calls_default = 3;  // without faults all calls take as long

/// Samples calls in virtual time: how long a collective would take on the emulated network, for any
/// number of ranks on any number of CPUs.  Collective.  Each sample is the makespan of one call:
/// all ranks start at the same instant, and the last one's end counts.
Samples measure_virtual(Subject& subject, std::size_t calls, Exchange& exchange);

}  // namespace tutti::bench
