// What stands behind Context, Communicator and Operation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tutti/collectives.hpp>
#include <tutti/detail/clock.hpp>
#include <unordered_map>
#include <variant>
#include <vector>

#include "api/fork_mark.hpp"
#include "api/joined_fabric.hpp"
#include "api/liveness.hpp"
#include "api/neighbourhood.hpp"
#include "api/segment.hpp"
#include "api/set_up_call.hpp"
#include "api/settings.hpp"
#include "api/shared_ring.hpp"
#include "engine/execution.hpp"
#include "engine/stale.hpp"
#include "plan/core/plan.hpp"
#include "tune/chunks.hpp"
#include "tune/request.hpp"
#include "tune/topology.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti {

struct Context::Implementation {
  explicit Implementation(const ContextOptions& given);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  const api::ForkMark mark;
  api::ContextSettings settings;
  std::uint64_t process_key;  // random; names this context to its peers
  verbs::VerbsFabric fabric;
  shm::OfferedMapping window;  // the arena, for the ranks of this node
  /// Arenas of neighbours that peers of this rank write to, by process.  Registered until the
  /// context goes, as the own one is: a peer may see that what it has written has had its effect
  /// before its device has heard that it was written.
  struct NeighbourArena {
    std::shared_ptr<detail::Mapping> mapping;
    verbs::RegionHandle region;
  };
  std::unordered_map<std::uint64_t, NeighbourArena> neighbour_arenas;
  detail::Clock& clock;                      // of the device
  SharedNotifications shared_notifications;  // in force
  bool oversubscribed = false;  // more ranks than CPUs on this host: waiting yields early

  std::vector<Communicator::Implementation*> communicators;
  std::vector<Segment::Implementation*> segments;
  /// Operations in flight; its capacity is at least the number of live operations, so that start()
  /// allocates nothing.
  std::vector<Operation::Implementation*> in_flight;
  std::size_t live_operations = 0;
  std::size_t live_network_operations = 0;  // those with a partner on another node
  std::uint32_t communicators_made = 0;
  bool has_failed = false;  // a communicator of it: no orderly end

  /// Registers it, once.  Throws Error.
  const ibv_mr& neighbour_arena(std::uint64_t process, const api::NeighbourWindow& theirs);
  /// In a forked child: lets every communicator fail, here alone.  Touches neither the device nor
  /// memory that is shared.
  void disown_slow() noexcept;
  /// Polls once, then advances every operation in flight.  Returns the number of completions.  Not
  /// in a forked child.
  std::size_t progress() noexcept;
  /// Tells the communicators of which connections have failed.
  void hear_failures_slow() noexcept;
};

struct Communicator::Implementation {
  /// Collective: introduces the ranks, and finds their nodes.
  Implementation(Context::Implementation& owner, Exchange& given);
  /// Makes one of some ranks of another communicator, whose nodes are known.
  Implementation(Context::Implementation& owner, std::unique_ptr<Exchange> given,
                 api::Neighbourhood known);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Context::Implementation& context;
  std::unique_ptr<Exchange> own_exchange;  // of one that was split from another; else the user's
  Exchange& exchange;
  std::vector<std::uint64_t> process_of;  // by rank
  std::uint64_t id = 0;  // the same on all ranks, another for each communicator; 0: being made
  api::Neighbourhood neighbours;
  api::ReadRanges reads = api::no_reading();  // alike on all ranks
  std::uint32_t operations_made = 0;
  // Whether such segments were allocated; alike on all ranks.
  bool has_segments = false, has_node_segments = false;
  std::uint32_t live_operations = 0;
  Failure failure;
  /// Operations that are destroyed for their user, and whose peers may still read what they sent.
  std::vector<std::unique_ptr<Operation::Implementation>> retired;
  api::Liveness liveness{*this};
  static constexpr std::uint32_t unusable = 0;
  /// The word of ForkMark until this has failed: one look finds a failure as well as a forked
  /// child.
  const std::uint32_t* usable = &context.mark.word();

  /// Whether messages to and from that rank go through shared memory.
  bool is_neighbour(Rank rank) const noexcept {
    return neighbours.windows[index_of(rank)].mapping != nullptr;
  }
  /// The connection to a rank of another node; made, but not connected, if it was not there.
  verbs::Connection& connection_to(Rank rank) {
    verbs::Connections& connections = context.fabric.connections();
    return connections[connections.to(process_of[index_of(rank)])];
  }
  /// Ranks of this node.
  std::size_t members_of_node() const noexcept {
    const std::vector<Node>& nodes = neighbours.nodes.node;
    return static_cast<std::size_t>(
        std::count(nodes.begin(), nodes.end(), nodes[index_of(exchange.self())]));
  }
  /// Whether ranks tell each other where payloads of so many bytes lie instead of sending them;
  /// alike on all ranks.
  bool takes_single_copy(api::ReadFor what, std::size_t bytes) const noexcept {
    return reads[static_cast<std::size_t>(what)].holds(bytes);
  }
  /// What choices see of the ranks.
  tune::Topology topology() const {
    return {.rank_count = exchange.rank_count(),
            .node_of = neighbours.nodes.node,
            .domain_of = neighbours.domain};
  }
  /// What goes through a plan at a time, of each of its parts; alike on all ranks.
  std::size_t chunk_bytes(const plan::Plan& plan) const noexcept {
    return tune::chunk_bytes_for(plan, neighbours.nodes.node_count < process_of.size(),
                                 context.settings.chunk_bytes);
  }

  /// Takes over an operation whose user is done with it.
  void retire(std::unique_ptr<Operation::Implementation> operation) noexcept;
  /// Destroys those that nobody reads from any more.
  void reap() noexcept;

  /// Neither failed, nor inherited by a forked child.
  bool is_usable() const noexcept { return *usable != 0; }
  bool failed() const noexcept { return failure.status != Status::ok; }
  /// The failure of this communicator, or ok; in a forked child a failure.
  Status settled() noexcept {
    if (context.mark.is_inherited()) [[unlikely]]
      context.disown_slow();
    return failure.status;
  }
  /// Fails in a forked child, which tells nobody.
  void disown() noexcept;
  /// Throws Error{invalid_argument} in a forked child.
  void require_own() const;
  /// Throws Error{peer_failed} if it has failed, Error{invalid_argument} in a forked child.
  void require_usable() const;

  /// Records the first failure and takes this communicator's operations out of flight.  `met_by` is
  /// the operation that met it; without it any of those in flight is a fair witness.
  void fail(Status status, Rank peer, const char* what, const Operation::Implementation* met_by,
            std::uint32_t completion = 0, int system_errno = 0) noexcept;
  /// Tells the other ranks of the incident, then fails.
  void fail_all(Incident incident, const char* what,
                const Operation::Implementation* met_by) noexcept;
  /// The next step of a call that all ranks make: an allgather, within the set-up timeout.  Throws
  /// Error{mismatch} on every rank, and stays usable, if ranks make different calls.  A failure of
  /// the exchange is the communicator's.
  void gather(api::SetUpCall& call, std::span<const std::byte> mine,
              std::span<std::byte> everybodys);
  Rank rank_of(std::uint64_t process) const noexcept;

 private:
  /// Collective: tells the other ranks of this one, and finds their nodes unless they are known.
  void introduce(std::optional<api::Neighbourhood> known);
  /// An allgather of the exchange, whose failure is the communicator's.
  void exchange_all(std::span<const std::byte> mine, std::span<std::byte> everybodys);
  const Operation::Implementation* any_in_flight() const noexcept;
};

struct Operation::Implementation {
  Implementation(Communicator::Implementation& owner, plan::Plan&& made, const char* collective);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Communicator::Implementation& communicator;
  plan::Plan plan;
  const char* name;  // of the collective
  std::uint32_t ordinal;
  api::JoinedChannel channel;
  std::uint32_t channel_id = 0;
  Operation::Coverage coverage;
  bool uses_network = false;                       // has a partner on another node
  bool uses_lines = false;                         // and sends it, or awaits, messages of one line
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
  std::vector<const shm::SequenceWord*> readers;  // those of ranks that read this rank's partials
  std::vector<shm::SequenceWord*> is_read_here;   // this rank's, with those whose partials it reads
  shm::SequenceWord* withdrawn = nullptr;  // 1: what this rank has told of is its user's again
  engine::Execution execution;
  /// How calls go: round after round of the plan, stale-synchronously, or along the ring of nodes.
  struct PlanCalls {};
  std::variant<PlanCalls, engine::StaleCalls, api::SharedRingOperation> calls;
  // Where time is simulated: what the engine calls instead of the reduction.
  struct ChargedReduction {
    Reduction reduction;
    detail::Clock* clock;
  } charged = {};

  engine::StaleCalls* stale() noexcept { return std::get_if<engine::StaleCalls>(&calls); }
  const engine::StaleCalls* stale() const noexcept {
    return std::get_if<engine::StaleCalls>(&calls);
  }
  api::SharedRingOperation* ring() noexcept {
    return std::get_if<api::SharedRingOperation>(&calls);
  }
  const api::SharedRingOperation* ring() const noexcept {
    return std::get_if<api::SharedRingOperation>(&calls);
  }

  /// Advances as far as it can; when that is to the end, tells those whose memory was read.
  Status advance(api::JoinedFabric& joined) noexcept;
  /// Takes the credits of the last two calls that have arrived.  True once all have, and nobody
  /// reads this rank's partials any more.
  bool collect_credits() noexcept;

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
  /// While in flight: one who has left in good order and who is waited for; no_rank: none.
  Rank one_who_left() const noexcept;
  std::string describe() const;

 private:
  Status wait_slow(Timeout timeout) noexcept;
};

namespace api {

/// Puts in the order of the plan; used to build the channel.
std::size_t put_count(const plan::Plan& plan) noexcept;

/// Where the blocks of a collective of blocks lie on this rank.
struct Blocks {
  std::vector<engine::Part> of_rank;  // element counts are not needed
  std::size_t longest_bytes = 0;      // of all ranks
};

/// A request that is complete: all ranks have sent their sizes.
struct Completed {
  tune::CollectiveRequest asked;
  Blocks blocks = {};  // of a collective of blocks
};

/// What a collective hands to make_operation().
struct OperationRequest {
  const char* collective = "";
  tune::CollectiveRequest asked = {};  // as far as this rank knows it by itself
  const void* source = nullptr;
  void* target = nullptr;
  std::size_t chunk_bytes_max = SIZE_MAX;  // of a payload that is not of blocks
  std::vector<Rank> members = {};          // who takes part, if not all do: the plan is theirs
  /// Sizes that this rank sends to all others first; as many numbers on every rank.
  std::vector<std::uint64_t> row = {};
  /// Checks the arguments of this rank, and completes what is asked by the rows of all ranks.  May
  /// throw Error, which every rank then hears.  Changes nothing.
  std::function<Completed(std::span<const std::uint64_t> rows)> complete = {};
  /// This rank's plan; by default what is chosen.
  std::function<plan::Plan(const tune::CollectiveRequest& asked)> plan_of = {};
};

/// Collective: agrees with the other ranks that this step succeeded everywhere and that they ask
/// for the same, then connects.
Operation make_operation(Communicator& communicator, const OperationRequest& request);

}  // namespace api
}  // namespace tutti
