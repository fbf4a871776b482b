// Which schedule a collective takes, and what is refused: pure, needs no device and no other rank.
// Those with a root: rooted_selection.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/algorithm.hpp>
#include <tutti/reduction.hpp>

#include "plan/allreduce/scan.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::api {

struct AllreduceRequest {
  std::size_t element_count = 0;
  Reduction reduction = {};
  Agreement agreement = Agreement::identical;
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  plan::PerRound per_round = {};             // of the call; empty: see the next
  plan::PerRound per_round_by_default = {};  // the context's; empty: a rule
  std::uint32_t partners_max = UINT32_MAX;   // connections that a context can hold
  std::span<const Node> node_of = {};        // of each rank; empty: each is a node of its own
  std::span<const Node> domain_of = {};      // parts of nodes (bootstrap/domain.hpp); empty: none
  bool shares_target = false;                // the ranks of each node have one target
  bool zero_copy = false;                    // all ranks' buffers are registered
  bool single_copy = false;                  // ranks may read each other's buffers
};

struct BarrierRequest {
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  plan::PerRound per_round = {};  // as of an allreduce
  plan::PerRound per_round_by_default = {};
  std::span<const Node> node_of = {};
  std::span<const Node> domain_of = {};
};

/// Also of exscan.
struct ScanRequest {
  plan::Prefix kind = plan::Prefix::inclusive;
  Reduction reduction = {};
  std::span<const Node> node_of = {};
};

/// Of one contribution.
std::size_t payload_bytes_of(const AllreduceRequest& request) noexcept;

/// Whether another order or association of the operands may give other bits.  Integer elements are
/// taken to be exact; what a user's operator does with elements of no known type is not known.
bool order_shows_in_bits(const Reduction& reduction) noexcept;

/// Why the ranks of a node cannot have one target; empty: they can.
std::string why_not_shared_target(const AllreduceRequest& request);

/// Whether there is a zero-copy plan, if all ranks' buffers are registered; alike on all ranks.
bool may_be_zero_copy(const AllreduceRequest& request) noexcept;

/// Whether messages of a round may be combined in the order in which they arrive.
bool takes_any_order(const AllreduceRequest& request) noexcept;

/// Chunks in which a payload goes through a plan that cuts it into `part_count` parts: none has
/// more than `chunk_bytes` of a part (if an element has not), and each has an element of every
/// part.
std::size_t chunk_count(std::size_t element_count, std::size_t element_bytes,
                        std::size_t part_count, std::size_t chunk_bytes) noexcept;

/// `self`'s plan.  Throws Error{invalid_argument} for a vector or n that does not serve
/// `rank_count`, with the nearest that does, and Error{unsupported} for a schedule that cannot keep
/// the promise, with those that can.
plan::Plan barrier_plan(Rank self, std::uint32_t rank_count, const BarrierRequest& request);
plan::Plan scan_plan(Rank self, std::uint32_t rank_count, const ScanRequest& request);

/// `chunk_bytes`, or less where a plan of so many slots, parts, and payloads in each would take
/// more of the arena than it should.
std::size_t within_registers(std::size_t chunk_bytes, std::size_t slots, std::size_t parts,
                             std::size_t payloads = 1) noexcept;

/// What goes through a plan at a time, of each of its parts; alike on all ranks.  `shares_nodes`:
/// whether any two of them are on one node.  `asked`: what the context's options say, if they do;
/// of pipelines, which have many slots, the arena may allow less.
std::size_t chunk_bytes_for(const plan::Plan& plan, bool shares_nodes,
                            std::size_t asked = 0) noexcept;

/// Of a stale-synchronous allreduce: in slack + 1 copies.  Throws Error.
plan::Plan stale_plan(Rank self, std::uint32_t rank_count, std::size_t payload_bytes,
                      const std::vector<std::uint32_t>& per_round, std::uint32_t slack);
plan::Plan allreduce_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request);

/// Of Algorithm::shared_ring, which is no plan but a flow of chunks: with whom.  Throws Error, as
/// allreduce_plan() does, which refuses that algorithm.  `receives_max`: of what a connection
/// promises, if its messages are notified.
plan::Plan shared_ring_partners(Rank self, std::uint32_t rank_count,
                                const AllreduceRequest& request,
                                std::optional<std::uint32_t> receives_max = {});

}  // namespace tutti::api
