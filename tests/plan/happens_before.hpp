// Whether two copies of slots and partials, by call parity, are enough: vector clocks over
// consecutive calls.  Knows nothing of how plans are built, nor of the verifier.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan::test {

/// Runs `calls` consecutive calls, each rank as far as it can, and notes what is known to have
/// happened where.  A slot may be written only when its owner's last read of it in an earlier call
/// has happened before; a partial only when every message sent from it has arrived, since the
/// network card reads it at any time until then, and when its receiver has read it for the last
/// time: inside a node it does so where the message was sent from.  What a put by reference tells
/// of may be written, and the call may end, only when its receiver has read it for the last time;
/// source and target count as the same memory, part by part, unless told otherwise.  What is put
/// from source or target must have arrived (or, of the target, have been waited for) before it is
/// written and before the call ends; a put into a target must come after the peer has entered, and
/// after all that it does with that part before it awaits the put.  Where targets are shared, who
/// writes there must know that all have entered who share it: they may read the last result until
/// then.  `copies` of everything: 2, or 1 to see what that breaks.
class HappensBefore {
 public:
  enum class Buffers { same, apart };

  HappensBefore(std::span<const Plan> plans, std::uint32_t calls, std::uint32_t copies,
                Buffers buffers = Buffers::same)
      : plans_(plans),
        calls_(calls),
        copies_(copies),
        lent_is_target_(buffers == Buffers::same),
        ranks_(plans.size()) {
    for (State& rank : ranks_) rank.clock.resize(plans.size());
    find_sharers();
  }

  /// What is not ordered, as a sentence; nullopt: everything is.
  std::optional<std::string> race() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) moved |= run(rank);
      if (race_) return race_;
    }
    for (const State& rank : ranks_)
      if (rank.call < calls_) return "a rank waits for ever";
    return {};
  }

 private:
  using Clock = std::vector<std::uint32_t>;
  struct Moment {  // an event of a rank
    std::uint32_t rank;
    std::uint32_t time;
  };
  struct State {
    std::uint32_t call = 0;
    std::size_t step = 0;
    Clock clock;
    std::uint32_t entered = 1;  // its first event in this call
  };
  using SlotKey = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // rank, copy, index

  bool run(std::uint32_t rank) {
    bool moved = false;
    while (!race_ && ranks_[rank].call < calls_ && advance(rank)) moved = true;
    return moved;
  }

  /// False: has to wait.
  bool advance(std::uint32_t self) {
    State& rank = ranks_[self];
    const Plan& plan = plans_[self];
    if (rank.step == plan.steps.size()) {
      if (!lent_[self].empty())
        for (std::uint16_t part = 0; part < plan.parts; ++part)
          expect_read(self, part, "ends a call");
      lent_[self].clear();
      for (const auto& [key, sent] : sent_)
        if (key.first == self) expect_arrived(self, self, sent, "ends a call");
      std::erase_if(sent_, [&](const auto& entry) { return entry.first.first == self; });
      std::erase_if(touched_, [&](const auto& entry) { return entry.first.first == self; });
      rank.step = 0;
      rank.entered = rank.clock[self] + 1;
      ++rank.call;
      return true;
    }
    const Step& step = plan.steps[rank.step];
    if (step.action == Action::await && !take(self, step, rank.call)) return false;
    // A credit is awaited two calls later; with one copy of everything, one.
    if (step.action == Action::await_credit && rank.call >= copies_ &&
        !take(self, step, rank.call - copies_))
      return false;
    ++rank.clock[self];
    ++rank.step;
    const std::uint32_t copy = rank.call % copies_;
    if (touches(step)) touched_[{self, step.part}] = {self, rank.clock[self]};
    if (step.action == Action::await_sent)
      for (auto& [key, sent] : sent_) {
        if (key.first == self)
          for (Sent& one : sent)
            if (one.place == Place::target || plan.flow_control == FlowControl::acknowledged)
              one.arrived = Moment{self, rank.clock[self]};
      }
    else if (step.action == Action::put)
      put(self, step, copy);
    else if (step.action == Action::await || step.action == Action::await_credit)
      last_read_[{self, copy, step.slot}] = {self, rank.clock[self]};
    else
      touch_registers(self, step, copy);
    return true;
  }

  bool take(std::uint32_t self, const Step& step, std::uint32_t call) {
    const auto message = flying_.find({self, call, step.slot});
    if (message == flying_.end()) return false;
    Clock& clock = ranks_[self].clock;
    for (std::size_t i = 0; i < clock.size(); ++i)
      clock[i] = std::max(clock[i], message->second.clock[i]);
    // The event of taking it is the next one of this rank.
    for (const SlotKey& partial : message->second.partials)
      arrivals_[partial].push_back({self, clock[self] + 1});
    if (const auto& [sender, part] = message->second.in_place; sender != UINT32_MAX)
      for (Sent& one : sent_[{sender, part}])
        if (one.peer == self && one.slot == step.slot) one.arrived = Moment{self, clock[self] + 1};
    flying_.erase(message);
    return true;
  }

  void put(std::uint32_t self, const Step& step, std::uint32_t copy) {
    const std::uint32_t peer = index_of(step.peer);
    const auto read = last_read_.find({peer, copy, step.slot});
    if ((read != last_read_.end() && !knows(self, read->second)) ||
        will_read(peer, ranks_[self].call, step.slot))
      race_ = "rank " + std::to_string(self) + " writes slot " + std::to_string(step.slot) +
              " of rank " + std::to_string(peer) + " while it may be read";
    Message message{ranks_[self].clock, {}};
    if (step.into_target && step.payloads > 0) expect_untouched(self, peer, step);
    if (step.by_reference) lent_[self].push_back({step.part, peer, step.slot, step.from.place});
    if (step.by_reference && step.from.place != Place::partial) {
      // Read where it is.
    } else if (step.into_target && plans_[self].shares_target) {
      // Nothing is on its way but the notification.
    } else if (step.payloads > 0 && step.from.place != Place::partial) {
      sent_[{self, step.part}].push_back({step.from.place, peer, step.slot, {}});
      message.in_place = {self, step.part};
    } else if (step.payloads > 0) {
      const SlotKey partial{self, copy, step.from.index};
      ++unarrived_[partial];
      message.partials.push_back(partial);
      readers_[partial].push_back({peer, step.slot});
    }
    flying_[{peer, ranks_[self].call, step.slot}] = std::move(message);
  }

  void touch_registers(std::uint32_t self, const Step& step, std::uint32_t copy) {
    if (step.from.place == Place::slot)
      last_read_[{self, copy, step.from.index}] = {self, ranks_[self].clock[self]};
    // Copying a part of the source to where it is does nothing.
    const bool stays = step.action == Action::copy && step.from.place == Place::source;
    if (step.into.place == Place::target && !stays)
      expect_read(self, step.part, "writes its target", true);
    if (step.into.place == Place::target && lent_is_target_ && !stays) {
      expect_arrived(self, self, sent_[{self, step.part}], "writes its target");
    }
    if (step.into.place == Place::target && plans_[self].shares_target)
      expect_sharers_entered(self, step.part);
    if (step.into.place != Place::partial) return;
    const SlotKey partial{self, copy, step.into.index};
    const auto sent = sent_in_.find(partial);
    if (sent != sent_in_.end() && sent->second == ranks_[self].call)
      return;  // other payloads of it
    const auto arrivals = arrivals_.find(partial);
    std::size_t known = 0;
    if (arrivals != arrivals_.end())
      for (const Moment& moment : arrivals->second) known += knows(self, moment) ? 1 : 0;
    if (known < unarrived_[partial])
      race_ = "rank " + std::to_string(self) + " writes partial " +
              std::to_string(step.into.index) + " while it may be on its way";
    for (const auto& [reader, slot] : readers_[partial])
      if (const auto read = last_read_.find({reader, copy, slot});
          (read != last_read_.end() && !knows(self, read->second)) ||
          will_read(reader, ranks_[self].call, slot))
        race_ = "rank " + std::to_string(self) + " writes partial " +
                std::to_string(step.into.index) + " while rank " + std::to_string(reader) +
                " may read it";
    readers_[partial].clear();
    unarrived_[partial] = 0;
    arrivals_.erase(partial);
    sent_in_[partial] = ranks_[self].call;
  }

  /// What `self` has told of in this call must have been read, and `self` must know.
  void expect_read(std::uint32_t self, std::uint16_t part, const char* what,
                   bool writes_target = false) {
    for (const Loan& loan : lent_[self]) {
      if (loan.part != part) continue;
      if (writes_target && loan.place == Place::source && !lent_is_target_) continue;
      if (writes_target && loan.place == Place::partial) continue;
      const auto read = last_read_.find({loan.reader, ranks_[self].call % copies_, loan.slot});
      if (read == last_read_.end() || !knows(self, read->second) ||
          will_read(loan.reader, ranks_[self].call + copies_, loan.slot))
        race_ = "rank " + std::to_string(self) + " " + what + " while rank " +
                std::to_string(loan.reader) + " may read part " + std::to_string(part);
    }
  }

  /// Whether a step uses its part of source or target.
  bool touches(const Step& step) const {
    const auto is_user = [&](Place place) {
      return place == Place::target || (place == Place::source && lent_is_target_);
    };
    if (step.action == Action::put) return step.payloads > 0 && is_user(step.from.place);
    const bool moves = step.action == Action::copy || step.action == Action::combine ||
                       step.action == Action::take_out;
    const bool reads_source =
        step.action == Action::combine && step.by_reference && !step.grows && lent_is_target_;
    return moves && (is_user(step.from.place) || is_user(step.into.place) || reads_source);
  }

  struct Sent {  // from source or target
    Place place;
    std::uint32_t peer;
    std::uint16_t slot;  // of the peer
    std::optional<Moment> arrived;
  };

  /// `self` knows that what `owner` has sent from its buffers has left them.
  void expect_arrived(std::uint32_t self, std::uint32_t owner, const std::vector<Sent>& sent,
                      const char* what) {
    for (const Sent& one : sent)
      if (!one.arrived || !knows(self, *one.arrived))
        race_ = "rank " + std::to_string(self) + " " + what + " while a buffer of rank " +
                std::to_string(owner) + " may be on its way to rank " + std::to_string(one.peer);
  }

  /// Ranks that tell each other what is in their target share it.
  void find_sharers() {
    if (plans_.empty() || !plans_[0].shares_target) return;
    for (std::uint32_t rank = 0; rank < plans_.size(); ++rank) target_of_.push_back(rank);
    for (const Plan& plan : plans_)
      for (const Step& step : plan.steps) {
        if (step.action != Action::put || !step.into_target) continue;
        const std::uint32_t here = target_of_[index_of(plan.self)];
        const std::uint32_t there = target_of_[index_of(step.peer)];
        std::replace(target_of_.begin(), target_of_.end(), there, here);
      }
  }

  /// `self` knows that all ranks that share its target have entered.
  void expect_sharers_entered(std::uint32_t self, std::uint16_t part) {
    for (std::uint32_t peer = 0; peer < target_of_.size(); ++peer)
      if (peer != self && target_of_[peer] == target_of_[self] &&
          (ranks_[peer].call != ranks_[self].call || !knows(self, {peer, ranks_[peer].entered})))
        race_ = "rank " + std::to_string(self) + " writes part " + std::to_string(part) +
                " of the target of its node while rank " + std::to_string(peer) +
                " may read the last result there";
  }

  /// `self` knows that `peer` is done with the part of its target until it awaits this put.
  void expect_untouched(std::uint32_t self, std::uint32_t peer, const Step& put) {
    const State& other = ranks_[peer];
    const std::string whose = "rank " + std::to_string(self) + " writes part " +
                              std::to_string(put.part) + " of the target of rank " +
                              std::to_string(peer);
    if (other.call != ranks_[self].call || !knows(self, {peer, other.entered})) {
      race_ = whose + ", which may not have entered";
      return;
    }
    for (std::size_t i = 0; i < plans_[peer].steps.size(); ++i) {
      const Step& step = plans_[peer].steps[i];
      if (step.action == Action::await && step.slot == put.slot) break;
      if (touches(step) && step.part == put.part && other.step <= i)
        race_ = whose + ", which it is yet to use";
    }
    const auto touched = touched_.find({peer, put.part});
    if (touched != touched_.end() && !knows(self, touched->second))
      race_ = whose + " while it may be used";
    const auto sent = sent_.find({peer, put.part});
    if (sent != sent_.end() && lent_is_target_)
      expect_arrived(self, peer, sent->second, "writes a target");
  }

  /// Whether the owner of the slot is yet to read what came in the last call that used the copy.
  bool will_read(std::uint32_t owner, std::uint32_t call, std::uint16_t slot) const {
    const State& rank = ranks_[owner];
    if (call < copies_) return false;
    const std::span<const Step> steps = plans_[owner].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      // A credit of that call is read `copies_` calls later.
      const bool is_credit = step.action == Action::await_credit && step.slot == slot;
      const bool is_data = (step.action == Action::await && step.slot == slot) ||
                           (step.from.place == Place::slot && step.from.index == slot);
      const std::uint32_t reads_in = is_credit ? call : call - copies_;
      if ((is_credit || is_data) &&
          (rank.call < reads_in || (rank.call == reads_in && rank.step <= i)))
        return true;
    }
    return false;
  }

  bool knows(std::uint32_t self, const Moment& moment) const {
    return ranks_[self].clock[moment.rank] >= moment.time;
  }

  struct Loan {
    std::uint16_t part;
    std::uint32_t reader;
    std::uint16_t slot;  // at the reader
    Place place;         // what is lent
  };
  struct Message {
    Clock clock;
    std::vector<SlotKey> partials;
    std::pair<std::uint32_t, std::uint16_t> in_place = {UINT32_MAX, 0};  // sender, part
  };

  std::span<const Plan> plans_;
  std::uint32_t calls_;
  std::uint32_t copies_;
  bool lent_is_target_;
  std::vector<State> ranks_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>, Message> flying_;
  std::map<SlotKey, Moment> last_read_;
  std::map<std::uint32_t, std::vector<Loan>> lent_;  // by the rank that lends, in this call
  std::map<SlotKey, std::size_t> unarrived_;         // messages from a partial since it was written
  std::map<SlotKey, std::vector<Moment>> arrivals_;  // of these
  std::map<SlotKey, std::vector<std::pair<std::uint32_t, std::uint16_t>>> readers_;  // and slots
  std::map<std::pair<std::uint32_t, std::uint16_t>, std::vector<Sent>> sent_;  // by rank and part
  std::map<std::pair<std::uint32_t, std::uint16_t>, Moment> touched_;          // last, in this call
  std::map<SlotKey, std::uint32_t> sent_in_;  // the call that wrote the partial last
  std::vector<std::uint32_t> target_of_;      // the same number: one target; empty: none is shared
  std::optional<std::string> race_;
};

}  // namespace tutti::plan::test
