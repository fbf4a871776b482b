// What stands behind Operation: a plan, its memory, its messages, and how far it has got.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/operation.hpp>
#include <tutti/reduction.hpp>
#include <tutti/timeout.hpp>
#include <variant>
#include <vector>

#include "engine/execution.hpp"
#include "engine/stale.hpp"
#include "plan/core/plan.hpp"
#include "runtime/activity.hpp"
#include "runtime/communicator.hpp"
#include "runtime/joined_fabric.hpp"
#include "runtime/peer_waits.hpp"
#include "runtime/segment.hpp"
#include "runtime/shared_ring.hpp"
#include "runtime/staging.hpp"
#include "runtime/trace.hpp"
#include "runtime/user_operator.hpp"
#include "shm/mailbox.hpp"
#include "tune/request.hpp"

namespace tutti {

struct TUTTI_HIDDEN Operation::Implementation {
  Implementation(Communicator::Implementation& owner, plan::Plan&& made, const char* collective);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Communicator::Implementation& communicator;
  plan::Plan plan;
  const char* name;  // of the collective
  runtime::OperationRecord record;
  std::uint64_t stands_at = 0;  // Context::Implementation::position(), when a wait last looked
  std::uint32_t ordinal;
  runtime::JoinedChannel channel;
  std::uint32_t channel_id = 0;
  Operation::Coverage coverage;
  bool uses_network = false;                       // has a partner on another node
  bool is_timed = false;                           // in simulated time, and memory is polled
  bool uses_lines = false;                         // and sends it, or awaits, messages of one line
  bool wakes_readers = false;                      // ranks of this node to which it sends may sleep
  std::array<std::vector<bool>, 2> credits_taken;  // by parity of the call, then by slot
  /// Memory of a buffer, if the plan is zero-copy.
  struct RegisteredBuffer {
    const std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::uint32_t local_key = 0, remote_key = 0;
    Segment::Implementation* segment = nullptr;  // or registered for this operation:
    verbs::RegionHandle region = {};
  } source, target;
  Segment::Implementation* moved_source = nullptr;  // of a call with another source
  std::byte* block = nullptr;     // of the arena: slots and partials, both parities, words
  std::byte* finished = nullptr;  // the words in it: what ranks of this node have read in place
  std::vector<shm::SequenceWord*> readers;       // those of ranks that read this rank's partials
  std::vector<shm::SequenceWord*> is_read_here;  // this rank's, with those whose partials it reads
  shm::SequenceWord* withdrawn = nullptr;  // 1: what this rank has told of is its user's again
  engine::Execution execution;
  std::unique_ptr<runtime::Staging> staging;  // null: nothing it sends or receives is staged
  /// How calls go: round after round of the plan, stale-synchronously, or along the ring of nodes.
  struct PlanCalls {};
  struct OtherPlanCalls {};   // of the plan, where is_timed, wakes_readers, staging or may_fail()
  struct TracedPlanCalls {};  // of the plan, where tracing and nothing else
  std::variant<PlanCalls, OtherPlanCalls, TracedPlanCalls, engine::StaleCalls,
               runtime::SharedRingOperation>
      calls;
  // Where time is simulated: what the engine calls instead of the reduction.
  struct ChargedReduction {
    Reduction reduction;
    detail::Clock* clock;
  } charged = {};
  runtime::UserOperator user_operator = {};  // where it may_fail()
  // What explanation() needs; nothing of it is used while calls are made.
  tune::CollectiveRequest asked = {};
  std::string chosen_by = {};  // what first calls have found, as a line
  bool is_chosen = false;      // by tune::choose()
  runtime::WaitCharges charges;
  bool is_plain = true;  // its call advances as PlanCalls do: it is not traced, or not timed
  std::unique_ptr<runtime::OperationTrace> tracing;  // null: it is not traced

  /// Whether its reduction is an operator that may say so (tutti::fail()).
  bool may_fail() const noexcept { return user_operator.reduction.combine != nullptr; }
  engine::StaleCalls* stale() noexcept { return std::get_if<engine::StaleCalls>(&calls); }
  const engine::StaleCalls* stale() const noexcept {
    return std::get_if<engine::StaleCalls>(&calls);
  }
  runtime::SharedRingOperation* ring() noexcept {
    return std::get_if<runtime::SharedRingOperation>(&calls);
  }
  const runtime::SharedRingOperation* ring() const noexcept {
    return std::get_if<runtime::SharedRingOperation>(&calls);
  }

  /// Advances as far as it can; when that is to the end, tells those whose memory was read.
  Status advance(runtime::JoinedFabric& joined) noexcept;
  /// Takes those credits of the last two calls that have arrived.  Returns true when all of them
  /// have arrived, so that nobody reads this rank's partials any more.
  bool collect_credits() noexcept;
  /// Whether any missing credit may still arrive, as far as is known here: its sender has not left,
  /// and no connection to it has failed.  The answer true may be wrong, false is certain.
  bool may_collect_more() noexcept;
  /// Whether the partials of that chunk are no longer used here, and no longer read by a rank of
  /// this node; it may be said late.
  bool has_been_read(std::uint64_t chunk) const noexcept;
  /// Called when a chunk has begun: decides where its partials are.
  void stage_chunk() noexcept;

  /// As if it had just been made.  No rank advances it meanwhile, and nothing of it is on its way.
  void forget_calls() noexcept;

  /// Its user has the buffers back for good; `may_be_written`: but peers may still write there.
  void give_back_buffers(bool may_be_written) noexcept;

  /// Called before the buffers of a zero-copy plan change.
  void move_source(const void* source, const void* target) noexcept;

  Status start() noexcept;
  Status test() noexcept;
  Status wait(Timeout timeout) noexcept;

  /// ok, or the communicator's failure.
  Status settled() const noexcept { return communicator.failure.status; }
  /// Whether this is a forked child of the process that made it.
  bool is_inherited() const noexcept { return communicator.context.mark.is_inherited(); }
  std::uint32_t round() const noexcept;
  /// Returns the rank that has to do something before the next step, and the position.
  runtime::Awaited awaited() const noexcept;
  std::uint64_t position() const noexcept {
    return (execution.sequence << 24) + execution.next + 1 + (ring() ? ring()->position() : 0);
  }
  /// While in flight: one who has left in good order and who is waited for; no_rank: none.
  Rank one_who_left() const noexcept;
  std::string describe() const;
  /// The ranks whose messages its round still needs; empty along the ring of nodes.
  std::vector<Rank> missing_ranks() const;
  /// From now on its calls are traced, if its context has a trace.  May throw std::bad_alloc.
  void trace();
  /// Traces the call in flight from now on, if there is one that was not to be timed.
  void trace_untimed_call() noexcept;
  /// Tells others of it, now that it is complete.
  void publish();
  /// Its user is done with it.
  void unpublish() noexcept;
  /// Whether its user's buffers lie in segments that are registered.
  bool is_in_segments() const noexcept;
  std::string explanation() const;

 private:
  /// Finds out how many bytes go from rank to rank in a call.
  void count_bytes() noexcept;
  /// advance() for calls that are not PlanCalls; kept apart so that PlanCalls pay nothing for it.
  Status advance_otherwise_slow(runtime::JoinedFabric& joined) noexcept;
  /// Keeps it in flight until its communicator has failed.
  Status fail_by_operator_slow() noexcept;
  Status advance_traced(runtime::JoinedFabric& joined) noexcept;
  Status advance_by_kind(runtime::JoinedFabric& joined) noexcept;
  /// What else such calls do when they have begun.
  void begin_otherwise() noexcept;
  Status wait_slow(Timeout timeout) noexcept;
  class Waiting;
};

namespace runtime {

/// The puts of the plan, which has a message prepared for each.
std::size_t put_count(const plan::Plan& plan) noexcept;

}  // namespace runtime
}  // namespace tutti
