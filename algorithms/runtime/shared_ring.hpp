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
// have found it.  So each has a receive for each chunk that can wait at this node at once
// (plan::shared_ring_waiting_max, for each lap in flight).  Where these are more than 16, or than a
// quarter of what a connection promises, it has no more than that, and the rank that the chunks
// come to acknowledges them: whenever it has polled a quarter of so many, it writes how many it has
// polled into a word of their sender, which sends no more ahead.  A sender that may not send leaves
// chunks to the other ranks of its node.  What is acknowledged follows from what was sent, so a
// sender knows when no further acknowledgement will be written into its memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
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
#include "tune/request.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti::runtime {

struct OperationRequest;
struct Completed;

/// By which a rank's peers get into the block of its node.
struct RingDoor {
  std::uint64_t address = 0;  // in that rank's process
  std::uint32_t remote_key = 0;
  std::uint32_t channel = 0;  // to which chunks are notified, if they are
  // The word in that rank's memory for what was polled of what it has sent.
  std::uint32_t acknowledged_key = 0;
  std::uint64_t acknowledged = 0;
};

/// Whether this rank has room for a shared ring that nobody asks for by name, and gets on in it
/// while it waits: twice the memory that it needs, so that as much is left for others; receives;
/// and neither a sleep that ends only when a message comes, nor chunks of a size that was asked
/// for.
bool has_room_for_ring(const Communicator::Implementation& communicator,
                       const tune::CollectiveRequest& asked);

/// Adds to this rank's row, which is not empty, whether it has room for the ring, and returns
/// whether it has added that.  It depends on the nodes alone, so that the rows of all ranks have
/// one length, whatever each asks for.  What is not `is_usable` will be refused.
bool tell_ring_room(Communicator& communicator, const tune::CollectiveRequest& asked,
                    bool is_usable, std::vector<std::uint64_t>& row);
/// Takes what ranks say about their room for a shared ring out of their rows, where it is last.
tune::RingRoom split_off_ring_room(std::vector<std::uint64_t>& rows,
                                   const Communicator::Implementation& communicator);

class SharedRingOperation {
 public:
  /// Cuts the payload, and this rank's area out of the arena, with the block if it is the first of
  /// its node.
  /// Throws Error{limit_exceeded}.
  SharedRingOperation(Operation::Implementation& operation, const OperationRequest& request,
                      const Completed& completed);

  /// How many messages, an even number, can be on their way along a connection to this rank, and
  /// take a receive; none with words.
  std::uint64_t notified_max() const noexcept { return notified_max_; }
  /// To how many laps this rank contributes ahead of what it has consumed.
  std::uint32_t ahead() const noexcept { return ahead_; }

  // ---- set-up, in this order; throws Error ----

  /// How the payload goes around, which must be alike on all ranks.
  const plan::RingLaps& laps() const noexcept { return layout_.laps; }
  /// Elements of the blocks of the nodes, likewise; none of an allreduce.
  std::span<const std::size_t> block_elements() const noexcept { return layout_.blocks.elements; }

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

  void begin() noexcept;
  /// Leaves some more of this rank's contributions; false: as much as there is room for is there.
  bool contribute() noexcept;
  bool may_contribute() const noexcept { return ring_->may_contribute(); }
  std::uint64_t contributed() const noexcept { return ring_->contributed(); }
  Status advance() noexcept;
  std::uint64_t position() const noexcept { return ring_ ? ring_->position() : 0; }

  // ForwardingFabric
  Status room() const noexcept;
  Status forward(const engine::Forwarding& chunk) noexcept;
  void publish(std::uint64_t* word, std::uint64_t value, std::size_t bytes) noexcept {
    if (is_timed_) [[unlikely]]
      clock().announce(word, value, bytes);
    else
      engine::WordsOfNode::publish(word, value, bytes);
  }
  void saw() noexcept {
    if (is_timed_) [[unlikely]]
      clock().charge_message();
  }
  void copied(std::size_t bytes) noexcept {
    if (is_timed_) [[unlikely]]
      clock().charge_copying(bytes);
  }
  bool is_polled_for_chunks() const noexcept { return republishes_; }
  bool operator_has_failed() const noexcept;

  // ---- while a call is in flight ----

  std::uint32_t round() const noexcept;
  /// A rank of those whose contributions or chunks are missing.
  Rank awaited() const noexcept;
  /// Bytes that this rank has sent to the next node, in all calls.
  const std::uint64_t& bytes_sent() const noexcept { return bytes_sent_; }
  /// Somebody who has left and without whom the call cannot end; no_rank: nobody.
  Rank one_who_left() const noexcept;
  /// Whether all ranks of the node before have left, and this rank, to which they send chunks, has
  /// not yet told its node that no more will arrive.  The caller then polls all that they had sent,
  /// and calls tell_drained(), which tells it.  In any other case tell_drained() does nothing.
  bool begins_to_drain() noexcept;
  void tell_drained() noexcept;
  /// What is missing, and from whom.
  std::string missing() const;

  /// Nothing of it is on its way, on any rank: with Execution::forget_calls().
  void forget_calls() noexcept;

  // ---- afterwards ----

  /// Whether what this rank has in its arena is nobody's any more but its own.
  bool is_deserted() noexcept;
  /// Everything that was sent from the block has left.
  void leave() noexcept {
    if (is_shared_) ring_->leave();
  }

 private:
  /// What one rank of the node before has sent, and was told of.
  struct Acknowledgement {
    verbs::Connection* connection = nullptr;
    std::uint64_t address = 0;
    std::uint32_t remote_key = 0;
    std::uint64_t written = 0;
  };

  /// "allgather: algorithm shared_ring".
  std::string whose() const;
  bool is_first() const noexcept { return members_.front() == self_; }
  /// One half of the ring: which rank has what in which block.
  void lay_out_blocks(const Completed& completed);
  void cut(const tune::CollectiveRequest& asked, std::uint32_t largest_node);
  detail::Clock& clock() const noexcept;
  void limit_what_waits() noexcept;
  std::size_t own_bytes(std::uint32_t member) const noexcept;
  /// Returns how many of so many messages are acknowledged: they are so in batches.
  std::uint64_t due_of(std::uint64_t messages) const noexcept {
    const std::uint64_t batch = std::max<std::uint64_t>(notified_max_ / 4, 1);
    return messages / batch * batch;
  }
  /// Relaxed: the number orders nothing, it only grows.
  std::uint64_t acknowledged() const noexcept {
    return std::atomic_ref(*acknowledged_).load(std::memory_order_relaxed);
  }
  /// Writes what is due; false: there was no room for all of it.
  bool acknowledge() noexcept;
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
  bool is_timed_ = false;               // time is simulated, and shared memory takes some of it
  engine::SharedRingLayout layout_;
  std::byte* block_ = nullptr;  // as mapped here
  std::uint32_t local_key_ = 0;
  verbs::Connection* connection_ = nullptr;  // to the next node
  RingDoor next_ = {};
  std::vector<std::byte*> areas_ = {};  // of members_, as mapped here
  std::uint32_t ahead_ = 1;
  bool is_shared_ = false, is_greeting_ = false;
  // Chunks from the node before: some may arrive; all senders have left; the node knows it.
  enum class Flow : std::uint8_t { may_come, draining, drained } flow_ = Flow::may_come;
  // Where notifications are republished, and may be more than there are receives:
  bool acknowledges_ = false;
  std::uint64_t notified_max_ = 0, sent_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t* acknowledged_ = nullptr;  // the word in this rank's memory; then those it sends
  std::vector<Acknowledgement> owed_ = {};
  std::optional<engine::SharedRing> ring_;
};

}  // namespace tutti::runtime
