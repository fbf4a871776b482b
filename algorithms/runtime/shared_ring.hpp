// What an operation along the ring of nodes (engine/shared_ring.hpp) has besides its registers: the
// block that the ranks of its node share, which lies in the arena of the node's first rank, the
// areas of the contributions in the arenas of all ranks of the node, and the way to the block of
// the next node.
//
// Every rank registers the arena of the first one for itself, where it has mapped it: then its own
// connection can send from there, and the rank that sends to it can write there, without a word of
// this rank or of the first one.  Contributions are not sent; they are read where they are mapped.
//
// Where words are republished (SharedNotifications), chunks are notified to the rank that the
// connection leads to.  Any chunk may come by any connection, as any rank of the node before may
// have found it, so each has a receive for each chunk that can wait at this node at once
// (plan::shared_ring_waiting_max, for each lap in flight); sub-blocks and laps in flight are so
// many that these are half of what a connection promises, or one of each, and where that is more
// than all of it, the algorithm is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/operation.hpp>
#include <tutti/status.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "engine/shared_ring.hpp"
#include "runtime/card.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti::runtime {

struct OperationRequest;

/// By which a rank's peers get into the block of its node.
struct RingDoor {
  std::uint64_t address = 0;  // in that rank's process
  std::uint32_t remote_key = 0;
  std::uint32_t channel = 0;  // to which chunks are notified, if they are
};

class SharedRingOperation {
 public:
  /// Cuts the payload, and this rank's area out of the arena, with the block if it is the first of
  /// its node.
  /// Throws Error{limit_exceeded}.
  SharedRingOperation(Operation::Implementation& operation, const OperationRequest& request);

  /// How many messages, an even number, can be on their way along a connection to this rank.  With
  /// words it is 0; with notifications, all chunks that can wait at its node, because any rank may
  /// send them.
  std::uint64_t notified_max() const noexcept;

  // ---- set-up, in this order; throws Error ----

  /// How the payload goes around, which must be alike on all ranks.
  const plan::RingLaps& laps() const noexcept { return layout_.laps; }

  /// Finds block and areas of the node at the places of all ranks; they lie in registered memory.
  RingDoor open(std::span<const Places> places);
  /// Once partners are connected.
  void join(std::span<const RingDoor> doors);
  /// To be called once all ranks have joined.  Writes a greeting to the next node and waits until
  /// it is there.  On some devices the first write needs the help of the other side, which a
  /// stopped rank could not give later.  It does nothing where chunks are notified, because a
  /// stopped rank cannot republish them anyway.
  void greet();

  /// All have joined: from now on others may write into the block, which nobody has touched before.
  void share() noexcept { is_shared_ = is_greeting_ = true; }
  /// Tells which ranks have greeted.  If not all have, there will be no call, and the block may be
  /// used again unless a greeting to this node may still be on its way.
  void hear(std::span<const Verdict> greeters) noexcept;

  // ---- data path ----

  void contribute() noexcept;
  Status advance() noexcept;
  std::uint64_t position() const noexcept { return ring_ ? ring_->position() : 0; }

  // ForwardingFabric
  Status room() const noexcept;
  Status forward(const engine::Forwarding& chunk) noexcept;

  // ---- while a call is in flight ----

  std::uint32_t round() const noexcept;
  /// Somebody who has left and without whom the call cannot end; no_rank: nobody.
  Rank one_who_left() const noexcept;
  /// What is missing, and from whom.
  std::string missing() const;

  // ---- afterwards ----

  /// Whether what this rank has in its arena is nobody's any more but its own.
  bool is_deserted() const noexcept {
    return !is_shared_ || !is_first() || (!is_greeting_ && ring_->all_others_have_left());
  }
  /// Everything that was sent from the block has left.
  void leave() noexcept {
    if (is_shared_) ring_->leave();
  }

 private:
  bool is_first() const noexcept { return members_.front() == self_; }
  template <class F>
  void for_each_that_comes(F&& look) const;
  /// Whether the node may join its contributions to the lap that is waited for.
  bool is_open() const noexcept;
  /// Ranks of this node to whom chunks are notified.
  std::span<const Rank> owners() const noexcept {
    return std::span(members_).first(std::min(members_.size(), before_.size()));
  }

  Operation::Implementation& operation_;
  Rank self_;
  std::vector<Rank> members_, before_;  // ranks of this node, and of the one before
  bool republishes_ = false;            // or the device writes words
  engine::SharedRingLayout layout_;
  std::byte* block_ = nullptr;  // as mapped here
  std::uint32_t local_key_ = 0;
  verbs::Connection* connection_ = nullptr;  // to the next node
  RingDoor next_ = {};
  std::vector<std::byte*> areas_ = {};  // of members_, as mapped here
  bool is_shared_ = false, is_greeting_ = false;
  std::optional<engine::SharedRing> ring_;
};

}  // namespace tutti::runtime
