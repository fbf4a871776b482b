// How many messages a rank can find that does not look at its peers' for a long time: what it has
// to have receives for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "plan/plan.hpp"

namespace tutti::plan::test {

/// Messages from one rank to rank 0 that rank 0 has not looked at, the most from any, if it looks
/// only where all others can do nothing.
inline std::size_t most_on_their_way(const std::vector<Plan>& plans, std::uint32_t calls) {
  struct State {
    std::uint32_t call = 0;
    std::size_t step = 0;
  };
  std::vector<State> states(plans.size());
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>> sent;  // to, call, slot
  std::vector<std::size_t> unseen(plans.size());                           // by sender
  std::size_t most = 0;
  // Rank 0 looks at all that has come when it moves.
  const auto run = [&](std::uint32_t rank) {
    State& state = states[rank];
    bool moved = false;
    while (state.call < calls) {
      if (state.step == plans[rank].steps.size()) {
        state = {state.call + 1, 0};
        continue;
      }
      const Step& step = plans[rank].steps[state.step];
      if (step.action == Action::await && !sent.contains({rank, state.call, step.slot})) break;
      if (step.action == Action::await_credit && state.call >= 2 &&
          !sent.contains({rank, state.call - 2, step.slot}))
        break;
      if (step.action == Action::put) {
        sent.insert({index_of(step.peer), state.call, step.slot});
        if (step.peer == Rank{0}) most = std::max(most, ++unseen[rank]);
      }
      ++state.step;
      moved = true;
      // One step of rank 0 at a time: as late as can be.
      if (rank == 0) break;
    }
    return moved;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t rank = 1; rank < plans.size(); ++rank) moved = run(rank) || moved;
    if (moved) continue;
    std::fill(unseen.begin(), unseen.end(), 0);
    moved = run(0);
  }
  return most;
}

}  // namespace tutti::plan::test
