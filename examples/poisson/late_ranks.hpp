// How much of the time in a collective is waiting for ranks that have not begun it yet.  Such a
// wait is the fault of what came before, on the late rank; the rest is what the collective itself
// takes, counted from the arrival of the last rank.
//
//     this rank    start |--- waiting for the other ---|--- the collective ---| end
//     the last                                    start |--- the collective ---| end
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "call_times.hpp"
#include "communication.hpp"

namespace poisson {

class LateRanks {
 public:
  /// Collective.
  explicit LateRanks(Communication& communication);

  /// Whether all ranks are on one host, and so have one clock.  If not, waits are not known.
  bool are_comparable() const { return comparable_; }

  /// Collective; all ranks have made equally many calls.  How many seconds the calls were waiting
  /// while some rank had not begun; ranks to which `counts` gives no element do not matter.
  double seconds_waited(std::span<const CallTime> calls, std::span<const std::size_t> counts);

 private:
  void gather(std::span<const double> mine);

  std::uint32_t rank_count_;
  std::vector<double> mine_, all_;  // mine_: a copy for each rank
  std::unique_ptr<Collective> gather_;
  bool comparable_;
};

}  // namespace poisson
