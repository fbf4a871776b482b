// A fabric without a device: messages wait in flight and are delivered when the test says so, in
// any order across pairs but in order within a pair, and the source memory is read only then, as a
// slow network card might.  Payloads come before their notifications, perhaps several of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tutti/status.hpp>
#include <tutti/types.hpp>
#include <utility>
#include <vector>

#include "engine/execution.hpp"

namespace tutti::simulation {

/// One rank: registers, arrival flags, position.
struct SimulatedRank {
  std::vector<std::byte> memory;
  std::vector<std::uint8_t> arrived;  // [parity][slot]
  engine::Execution execution;
  std::vector<const plan::Step*> puts;
};

struct Message {
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  std::size_t bytes = 0;
  std::uint8_t* flag = nullptr;
  bool written = false;
  bool from_user = false;  // not from the rank's registers
};

class SimulatedFabric {
 public:
  SimulatedFabric(std::vector<SimulatedRank>& ranks, std::uint32_t copies, std::uint64_t seed)
      : ranks_(ranks), copies_(copies), random_(seed) {}

  Status put(std::uint32_t self, std::uint32_t parity, std::size_t put) noexcept {
    if (refuse_next_) {  // no room for a moment, as a full send queue
      refuse_next_ = false;
      return Status::in_progress;
    }
    refuse_next_ = random_() % 8 == 0;
    const plan::Step& step = *ranks_[self].puts[put];
    if (broken_.count({self, index_of(step.peer)}) != 0) return Status::peer_failed;
    SimulatedRank& target = ranks_[index_of(step.peer)];
    const engine::Execution& execution = ranks_[self].execution;
    const auto& there = target.execution.memory;
    const std::size_t flag = (parity % copies_) * (target.arrived.size() / 2) + step.slot;
    const engine::Part& part = execution.part_of(step);
    const bool from_user =
        step.from.place == plan::Place::source || step.from.place == plan::Place::target;
    const std::byte* const reference =
        step.by_reference ? reinterpret_cast<const std::byte*>(&execution.references[put])
                          : nullptr;
    const std::byte* const from =
        reference != nullptr ? reference : execution.address(step.from, part);
    std::byte* const into = step.into_target
                                ? there.target + part.target.offset
                                : there.slots[parity] + there.offset_of_slot(step.slot);
    flying_[{self, index_of(step.peer)}].push_back(
        {.from = from,
         .into = into,
         .bytes = from == into ? 0 : execution.bytes_of(step),  // a target that both share
         .flag = &target.arrived[flag],
         .from_user = from_user && !step.by_reference});
    return Status::ok;
  }

  bool take(std::uint32_t self, std::uint32_t parity, std::uint32_t slot) noexcept {
    SimulatedRank& rank = ranks_[self];
    std::uint8_t& flag = rank.arrived[(parity % copies_) * (rank.arrived.size() / 2) + slot];
    if (flag == 0) return false;
    --flag;
    return true;
  }

  /// Reads memory of the other rank, which is memory of this process.
  Status read(std::uint32_t, std::uint32_t, std::uint64_t from, std::byte* into,
              std::size_t bytes) noexcept {
    if (bytes > 0) std::memcpy(into, reinterpret_cast<const std::byte*>(from), bytes);
    return Status::ok;
  }

  /// Whether all that a rank has put from its buffers was read there.
  bool sent(std::uint32_t self) const noexcept {
    return std::all_of(flying_.begin(), flying_.end(), [&](const auto& pair) {
      return pair.first.first != self ||
             std::all_of(pair.second.begin(), pair.second.end(), [](const Message& message) {
               return message.written || !message.from_user;
             });
    });
  }

  bool idle() const { return flying_.empty(); }

  /// Writes the next payload of a random pair, or notifies of the oldest that is written.
  void deliver_one() {
    auto pair = flying_.begin();
    std::advance(pair, static_cast<std::ptrdiff_t>(random_() % flying_.size()));
    std::deque<Message>& messages = pair->second;
    const auto next = std::find_if(messages.begin(), messages.end(),
                                   [](const Message& message) { return !message.written; });
    if (next == messages.begin() || (next != messages.end() && random_() % 2 == 0)) {
      if (next->bytes > 0) std::memcpy(next->into, next->from, next->bytes);
      next->written = true;
      return;
    }
    if (++*messages.front().flag > 1) doubled_ = true;
    messages.pop_front();
    if (pair->second.empty()) flying_.erase(pair);
  }

  /// From now on, puts from one rank to the other fail.  Of what is on its way, a random number of
  /// messages still arrives.
  void break_connection(std::uint32_t from, std::uint32_t to) {
    broken_.insert({from, to});
    const auto pair = flying_.find({from, to});
    if (pair == flying_.end()) return;
    pair->second.resize(random_() % (pair->second.size() + 1));
    if (pair->second.empty()) flying_.erase(pair);
  }

  /// As if the rank had died: all its connections break.
  void kill(std::uint32_t rank) {
    for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer) {
      break_connection(rank, peer);
      break_connection(peer, rank);
    }
  }

  /// Whether a notification arrived while the previous one for its slot had not been taken.
  bool doubled() const { return doubled_; }

 private:
  std::vector<SimulatedRank>& ranks_;
  std::uint32_t copies_;  // of slots, partials and flags: 2, or 1 to show what that breaks
  std::mt19937_64 random_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Message>> flying_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> broken_;  // from, to
  bool refuse_next_ = false;
  bool doubled_ = false;
};

}  // namespace tutti::simulation
