// How many messages a rank can find that does not look at its peers' for a long time: what it has
// to have receives for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan::test {

/// Messages from one rank to rank 0 that rank 0 has not looked at, the most from any, before any of
/// its steps, if all others are as far as they can be then.  It has looked at what had to be sent
/// before it could get there, and at no more.
class OnTheirWay {
 public:
  OnTheirWay(const std::vector<Plan>& plans, std::uint32_t calls)
      : plans_(plans), calls_(calls), at_(plans.size()), sent_(plans.size()) {
    known_.assign(plans.size(), std::vector<std::uint16_t>(plans.size()));
    do {
      for (bool moved = true; moved;) {
        moved = false;
        for (std::uint32_t rank = 1; rank < plans.size(); ++rank)
          while (step(rank)) moved = true;
      }
      for (std::uint32_t rank = 1; rank < plans.size(); ++rank)
        most_ = std::max<std::size_t>(most_, sent_[rank] - known_[0][rank]);
    } while (step(0));
  }

  std::size_t most() const { return most_; }

 private:
  struct At {
    std::uint32_t call = 0;
    std::size_t step = 0;
  };
  using Message = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // to, call, slot
  using Sent = std::vector<std::uint16_t>;                                  // to rank 0, by whom

  bool step(std::uint32_t rank) {
    At& at = at_[rank];
    while (at.call < calls_ && at.step == plans_[rank].steps.size()) at = {at.call + 1, 0};
    if (at.call == calls_) return false;
    const Step& step = plans_[rank].steps[at.step];
    const bool is_credit = step.action == Action::await_credit && at.call >= 2;
    if (step.action == Action::await || is_credit) {
      const auto found = before_.find({rank, is_credit ? at.call - 2 : at.call, step.slot});
      if (found == before_.end()) return false;
      for (std::size_t i = 0; i < known_[rank].size(); ++i)
        known_[rank][i] = std::max(known_[rank][i], found->second[i]);
    }
    if (step.action == Action::put) {
      if (step.peer == Rank{0}) known_[rank][rank] = ++sent_[rank];
      before_[{index_of(step.peer), at.call, step.slot}] = known_[rank];
    }
    ++at.step;
    return true;
  }

  const std::vector<Plan>& plans_;
  std::uint32_t calls_;
  std::vector<At> at_;
  Sent sent_;
  std::vector<Sent> known_;         // in the past of each rank
  std::map<Message, Sent> before_;  // in that of each message
  std::size_t most_ = 0;
};

inline std::size_t most_on_their_way(const std::vector<Plan>& plans, std::uint32_t calls) {
  return OnTheirWay(plans, calls).most();
}

}  // namespace tutti::plan::test
