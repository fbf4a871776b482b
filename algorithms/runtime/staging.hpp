// Partials that are elsewhere in each chunk: in the ring of this rank's context (shm/staging_ring),
// or in the operation's own block as those of all other operations, whichever has been faster.  Its
// readers are told the place with each message.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/detail/check.hpp>
#include <vector>

#include "engine/execution.hpp"
#include "runtime/kernels.hpp"
#include "shm/mailbox.hpp"
#include "shm/staging_ring.hpp"

namespace tutti::runtime {

/// What copies into either place have cost their sender, in ticks per byte; 0: unknown.
struct PutCosts {
  double plain = 0;      // into the block
  double streaming = 0;  // into the block, with what streaming costs the reader
  double ring = 0;
};

/// Whether to use the ring, by what copies into either place have cost.
class StagingChoice {
 public:
  /// `areas`: how many of the operation's size the ring has.
  explicit StagingChoice(std::size_t areas = 0) noexcept
      : trial_of_ring_(static_cast<unsigned>(areas) + settling_chunks) {}

  /// For the next chunk, given the costs so far.  Now and then it is the dearer place,
  /// so that a change is noticed.  It is tried long enough that the caches are as they would be if
  /// it had always been used: the ring for a whole round.
  bool next(const PutCosts& costs) noexcept {
    const double in_block = std::min(costs.plain, costs.streaming), in_ring = costs.ring;
    const bool is_known = in_block > 0 && in_ring > 0;
    const bool best = is_known && in_ring < plain_gain * costs.plain &&
                      in_ring < streaming_loss * costs.streaming;
    const bool is_dear = !is_trial_ && is_known && best != in_ring_;
    dear_chunks_ = is_dear ? dear_chunks_ + 1 : 0;
    if (left_ == 0 || dear_chunks_ > settling_chunks) {  // done, or dearer by now
      dear_chunks_ = 0;
      if (is_trial_) {
        in_ring_ = best;
        const double dearer = !is_known ? seldom_max
                              : best    ? in_block / in_ring
                                        : in_ring / in_block;
        left_ = static_cast<unsigned>(trials_between * trial_of_ring_ *
                                      std::clamp(dearer, 1.0, seldom_max));
      } else {
        in_ring_ = !in_ring_;
        left_ = in_ring_ ? trial_of_ring_ : settling_chunks;
      }
      is_trial_ = !is_trial_;
    }
    --left_;
    return in_ring_;
  }

 private:
  /// The ring also takes lines of the caches.
  static constexpr double plain_gain = 0.8;
  /// A sender that runs ahead puts while its reader gets what it has put before, which slows both
  /// down.  By what its copies cost, the ring then seems as dear as streaming where a call takes
  /// half of the time.  Where the ranks have met on CPUs that share no cache, the cost of
  /// streaming stands for less (BulkCopy::gain_between_caches; docs/performance.md, "Reading in
  /// place").
  static constexpr double streaming_loss = 1.3;
  static constexpr unsigned settling_chunks = 8;  // both kinds of stores, and a mean
  static constexpr unsigned trials_between = 32;
  static constexpr double seldom_max = 8;
  unsigned trial_of_ring_;
  unsigned left_ = settling_chunks;  // chunks until the next decision
  bool in_ring_ = false;
  bool is_trial_ = false;     // the chunks that are left are
  unsigned dear_chunks_ = 0;  // one after the other, in the place that has become the dearer one
};

/// What an operation needs for it.
struct Staging {
  // As the sender of messages.
  shm::StagingRing* ring = nullptr;  // null: its partials stay where they are
  std::array<std::byte*, 2> block = {};
  std::size_t bytes = 0;  // of all partials of a parity
  StagingChoice choice{};
  std::vector<std::size_t> offsets = {};  // of what each put sends, from the first partial on
  std::vector<std::uint64_t> told = {};   // where it is in this chunk, which is what is sent
  // As their receiver, by slot.
  struct Sender {
    std::array<const std::byte*, 2> told = {};  // in the slot, by parity; null: it tells nothing
    std::uint64_t address = 0;                  // of its mapping, there
    std::byte* mapping = nullptr;               // here
    std::size_t mapping_bytes = 0;
  };
  std::vector<Sender> senders = {};
  std::size_t message_bytes = 0;  // at most
  CombineApart combine_apart = nullptr;

  /// The place of a message is told in the bytes in front of its word.
  static constexpr std::size_t bytes_behind_place =
      sizeof(shm::SequenceWord) + sizeof(std::uint64_t);

  template <class IsRead>
  void begin_chunk(engine::Execution& execution, const void* user, IsRead&& is_read) noexcept {
    if (ring == nullptr) return;
    const auto& [into_block, into_ring] = execution.into_partials;
    const PutCosts costs{.plain = into_block.cost_of_plain(),
                         .streaming = into_block.cost_of_streaming(),
                         .ring = into_ring.cost_of_plain()};
    std::byte* const area =
        choice.next(costs) ? ring->take(bytes, user, execution.sequence, is_read) : nullptr;
    execution.partials_are_elsewhere = area != nullptr;
    std::byte* const partials = area != nullptr ? area : block[execution.parity()];
    execution.memory.partials[execution.parity()] = partials;
    for (std::size_t put = 0; put < offsets.size(); ++put)
      told[put] = reinterpret_cast<std::uint64_t>(partials + offsets[put]);
  }

  /// The message of a slot has come.
  void find(engine::RegisterMemory& memory, std::uint32_t parity, std::uint32_t slot) noexcept {
    if (slot >= senders.size() || senders[slot].told[parity] == nullptr) return;
    const Sender& sender = senders[slot];
    std::uint64_t place = 0;
    std::memcpy(&place, sender.told[parity], sizeof place);
    const std::uint64_t offset = place - sender.address;
    detail::check(offset <= sender.mapping_bytes && message_bytes <= sender.mapping_bytes - offset,
                  "what a neighbour has told of lies in its mapping", offset, message_bytes);
    memory.in_place[parity][slot] = sender.mapping + offset;
  }
};

}  // namespace tutti::runtime
