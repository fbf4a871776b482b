// What stands behind Communicator: its ranks, their nodes, and the first failure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/exchange.hpp>
#include <tutti/operation.hpp>
#include <vector>

#include "bootstrap/reunion.hpp"
#include "plan/core/plan.hpp"
#include "runtime/context.hpp"
#include "runtime/liveness.hpp"
#include "runtime/neighbourhood.hpp"
#include "runtime/peer_waits.hpp"
#include "runtime/set_up_call.hpp"
#include "runtime/tuning_agreement.hpp"
#include "runtime/watched_exchange.hpp"
#include "shm/single_copy_rule.hpp"
#include "tune/chunks.hpp"
#include "tune/topology.hpp"

namespace tutti {

struct TUTTI_HIDDEN Communicator::Implementation {
  /// Collective: introduces the ranks, and finds their nodes.
  Implementation(Context::Implementation& owner, Exchange& given);
  /// Makes one of some ranks of another communicator, whose nodes are known, and by which the ranks
  /// choose.
  Implementation(Context::Implementation& owner, std::unique_ptr<Exchange> given,
                 runtime::Neighbourhood known,
                 std::shared_ptr<const runtime::TuningInForce> inherited);
  /// Collective: makes one of those that have met (runtime/shrink.hpp), and lets go of connections.
  /// `original`: their ranks in the first communicator.  All steps together take no longer than
  /// `at_most`.  If it throws, the others learn that this rank has given up, unless they have
  /// failed before.
  Implementation(Communicator::Implementation& whole, std::unique_ptr<Exchange> given,
                 std::vector<Rank> original, Timeout at_most);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Context::Implementation& context;
  std::optional<Deadline> made_by = {};  // while it is being made, if that has a time limit
  // Where its ranks meet again, if it can be shrunk; shared with what it is shrunk to.
  std::shared_ptr<bootstrap::MeetingPlace> meeting_place;
  std::vector<Rank> original = {};  // by rank: its rank in the first communicator of that place
  // The nodes of that communicator, if they were imposed: ranks stay on them.
  std::shared_ptr<const bootstrap::NodeMap> original_nodes = {};
  std::unique_ptr<Exchange> own_exchange;  // of one that was split or shrunk from another
  std::unique_ptr<runtime::WatchedExchange> watched;     // else the user's, watched
  Exchange& exchange;                                    // one of the two
  runtime::WatchedExchange* spreads_by = watched.get();  // also of parts
  std::vector<std::uint64_t> process_of;                 // by rank
  std::uint64_t id = 0;  // the same on all ranks, another for each communicator; 0: being made
  runtime::Neighbourhood neighbours;
  bool shares_cpus = false;  // some host has more ranks than CPUs for them; alike on all ranks
  shm::ReadRanges reads = shm::no_reading();  // alike on all ranks
  // The least of all ranks, whose devices and settings may differ: how many connections a context
  // holds, and how many receives a connection promises.
  std::uint32_t partners_max = UINT32_MAX, receives_max = UINT32_MAX;
  /// Connections with this serial number or a higher one were made after a communicator of this
  /// context was shrunk, and this communicator has not asked for a connection since.  So it does
  /// not use them, and its failure does not concern them.
  std::uint64_t connections_end = UINT64_MAX;
  // In force; republished where the ranks' own tuning files would have them do otherwise.
  SharedNotifications shared_notifications = context.shared_notifications;
  std::shared_ptr<const runtime::TuningInForce> tuning;  // by which all ranks choose
  std::string only = {};  // the choice by which the next operations go (runtime/first_call.hpp)
  /// What first calls have found, by request.
  struct FirstCall {
    std::string choice, words;
  };
  std::map<std::string, FirstCall> first_calls = {};
  std::uint32_t operations_made = 0;
  // Whether segments, and whether segments of Scope::node, were allocated; the same on all ranks.
  bool has_segments = false, has_node_segments = false;
  std::uint32_t live_operations = 0;
  /// Operations in flight that no step of progress advances, while the ranks cancel them.
  std::vector<Operation::Implementation*> set_aside;
  std::vector<Operation::Implementation*> operations;  // of its users, in order of creation
  Failure failure;
  /// Operations that are destroyed for their user, and whose peers may still read what they sent.
  std::vector<std::unique_ptr<Operation::Implementation>> retired;
  runtime::Liveness liveness{*this};
  static constexpr std::uint32_t unusable = 0;
  /// Points to the word of ForkMark until this communicator fails, then to a zero.  So a single
  /// look finds a failure as well as a forked child.
  const std::uint32_t* usable = &context.mark.word();
  std::uint64_t number = 0;  // of all that its context has made, from 1
  /// How long this rank has waited for each other one.  Records have its address: it stays as it
  /// is.
  std::vector<runtime::PeerWait> waits = std::vector<runtime::PeerWait>(exchange.rank_count());
  /// The first of a connection to one of its ranks.  What it means is known once it has failed.
  std::optional<verbs::TransportFailure> completion_error;

  /// Whether messages to and from that rank go through shared memory.
  bool is_neighbour(Rank rank) const noexcept {
    return neighbours.mappings[index_of(rank)].mapping != nullptr;
  }
  /// Makes a connection to a rank of another node, which is not connected yet, unless there is one
  /// that its peer has not closed.  Throws Error.
  verbs::Connection& make_connection_to(Rank rank) {
    verbs::Connections& connections = context.fabric.connections();
    connections_end = UINT64_MAX;
    return connections[connections.to(process_of[index_of(rank)])];
  }
  /// The connection that make_connection_to() has returned last.
  verbs::Connection& connection_to(Rank rank) noexcept {
    return context.fabric.connections().last_to(process_of[index_of(rank)]);
  }
  /// Ranks of this node.
  std::size_t members_of_node() const noexcept {
    const std::vector<Node>& nodes = neighbours.nodes.node;
    return static_cast<std::size_t>(
        std::count(nodes.begin(), nodes.end(), nodes[index_of(exchange.self())]));
  }
  /// Whether payloads of this size are read in the buffer of their user instead of being sent.  All
  /// ranks get the same result.
  bool takes_single_copy(shm::ReadFor what, std::size_t bytes) const noexcept {
    return reads[static_cast<std::size_t>(what)].holds(bytes);
  }
  /// The nodes and domains of the ranks, by which schedules are chosen.
  tune::Topology topology() const {
    return {.rank_count = exchange.rank_count(),
            .node_of = neighbours.nodes.node,
            .domain_of = neighbours.domain,
            .shares_cpus = shares_cpus,
            .caches_are_apart = neighbours.caches_are_apart()};
  }
  /// The bytes of the smallest arena of the ranks of a single node, with what is besides it.  All
  /// ranks get the same result.
  std::size_t smallest_arena() const noexcept {
    std::size_t bytes = context.offered.card().bytes;
    for (const runtime::NeighbourMapping& neighbour : neighbours.mappings)
      if (neighbour.mapping) bytes = std::min(bytes, std::size_t{neighbour.mapping->size()});
    return bytes;
  }
  /// How many bytes of each part go through a plan at a time.  All ranks get the same result.
  /// `broadcast_bytes`: the payload if the plan is of a broadcast, else 0.
  std::size_t chunk_bytes(const plan::Plan& plan, std::size_t broadcast_bytes) const noexcept {
    // In simulated time chunks have the sizes that the prices of schedules assume.
    if (neighbours.nodes.node_count == 1 && process_of.size() > 1 && !context.clock.is_simulated())
      return tune::chunk_bytes_in_one_node(plan, context.settings.chunk_bytes, smallest_arena(),
                                           broadcast_bytes);
    return tune::chunk_bytes_for(plan, neighbours.nodes.node_count < process_of.size(),
                                 context.settings.chunk_bytes);
  }

  /// How long a collective step of set-up may take that begins now.
  Timeout step_timeout() const noexcept;

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

  /// Records the first failure and takes this communicator's operations out of flight.  The failure
  /// names the operation `met_by` that met it, or, if that is null, any one of those in flight.
  void fail(Status status, Rank peer, const char* what, const Operation::Implementation* met_by,
            std::uint32_t completion = 0, int system_errno = 0) noexcept;
  /// Likewise, because of a connection to `peer`.
  void fail_by(const verbs::TransportFailure& cause, Status status, Rank peer) noexcept;
  /// Tells the other ranks of the incident, then fails.
  void fail_all(Incident incident, const char* what,
                const Operation::Implementation* met_by) noexcept;
  /// Tells the other ranks that the user's operator of `operation` has failed here, and why, unless
  /// another rank of this host is telling them of its own.
  void announce_failed_operator(const Operation::Implementation& operation) noexcept;
  /// Why a rank gave up, in its words if they are known here.
  shm::IncidentBoard::Text reason_of_incident() const noexcept;
  /// The next step of a call that all ranks make: an allgather, within the set-up timeout.  If
  /// ranks make different calls, every rank throws Error{mismatch}, and the communicator stays
  /// usable.  If the exchange fails, the communicator has failed.
  void gather(runtime::SetUpCall& call, std::span<const std::byte> mine,
              std::span<std::byte> everybodys);
  /// As gather(), except that it returns true if all ranks bring the same, and leaves `everybodys`
  /// as it is then; it may return false all the same.  `mine` fits a SetUpBlock.
  bool gather_unless_equal(runtime::SetUpCall& call, std::span<const std::byte> mine,
                           std::span<std::byte> everybodys);
  /// The next step of a call that is known to be the same on all ranks: swaps records with partners
  /// (Exchange::swap()).  A failure of the exchange is the communicator's.
  void swap(runtime::SetUpCall& call, std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs);
  Rank rank_of(std::uint64_t process) const noexcept;
  /// Whether an operation of this communicator uses the connection with that index.
  bool uses_connection(std::uint32_t index) const noexcept;

 private:
  /// Collective: tells the other ranks of this one, and finds their nodes unless they are known.
  void introduce(std::optional<runtime::Neighbourhood> known);
  /// The nodes that settings, or the communicator before any was shrunk, impose on its ranks.
  std::optional<bootstrap::NodeMap> imposed_nodes() const;
  /// Collective, as a step of `call`: each rank listens, and tells the others where.
  void find_meeting_place(runtime::SetUpCall& call, bool all_are_here);
  /// Runs a step over the exchange.  If the exchange fails, the communicator has failed.
  template <class Step>
  auto over_exchange(Step&& step);
  runtime::SetUpBlock block_of(runtime::SetUpCall& call, std::span<const std::byte> mine) const;
  void require_one_call(const runtime::SetUpCall& call,
                        std::span<const runtime::SetUpBlock> blocks);
  const Operation::Implementation* any_in_flight() const noexcept;
};

}  // namespace tutti
