// The race of one cell on the real path.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/exchange.hpp>
#include <tutti/operation.hpp>
#include <vector>

#include "microbench/timer.hpp"
#include "microbench/tune_cells.hpp"
#include "microbench/tune_racers.hpp"
#include "tune/choose.hpp"
#include "tune/race.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// What all races of a run have in common; borrowed.
struct RaceTrack {
  Communicator& communicator;
  Exchange& exchange;
  const Timer& timer;
  Operation& meeting;              // a barrier: before batches, and the control probe
  const tune::Knowledge& machine;  // the network as it was measured; no findings
  const tune::Knowledge& untuned;  // what is known without a file
  bool is_virtual = false;
  bool has_faults = false;    // of the simulated network: calls take different times
  std::uint64_t seed = 1;     // of this cell
  double batch_ns = 200'000;  // what a batch is to take: the longer, the less its ends count
};

/// What a call of a cell asks for, as the library asks for it.  Collective.
tune::CollectiveRequest request_of(const Cell& cell, const RaceTrack& track);

/// Prices the choices of a finding on the measured machine, for the ranks and nodes of the finding.
/// With more than `ranks_priced_max` ranks it keeps its prices.  Collective; only rank 0 has the
/// new prices.  The rest is as in price_anew() of tune_racers.hpp.
void price_anew(tune::Finding& finding, const RaceTrack& track, std::size_t messages_max);

/// How many calls take about as long as a batch is to take.  `time_of_a_call(calls)` measures so
/// many: two, then sixteen if that takes no longer than a batch.
std::size_t calls_of_batch(double batch_ns,
                           const std::function<double(std::size_t)>& time_of_a_call);

/// The samples of a cell that has a single candidate: it has won, and the number is how long it
/// takes.  There is no control, so that it is noisy if the time ended before `blocks_alone`.
inline constexpr std::uint32_t blocks_alone = 6;
tune::RaceResult run_alone(const std::function<plan::Picoseconds()>& sample,
                           const std::function<bool()>& may_go_on, bool is_exact);

/// Races the operations that programs would make.  Collective.  `may_go_on` returns the same on all
/// ranks; if there is no time to prepare all racers, the first ones race, and the finding is noisy.
/// A racer does not race if its operation cannot be made while those of earlier racers exist (for
/// example, the arena is full); all ranks then call `remark` with its name and the reason.  Throws
/// the same Error on all ranks if no operation can be made, and RunFailed if a call fails.
tune::Finding race_cell(const Cell& cell, const tune::CollectiveRequest& request,
                        const Racers& racers, const RaceTrack& track,
                        const std::function<bool()>& may_go_on,
                        const std::function<void(const std::string&)>& remark);

}  // namespace tutti::bench
