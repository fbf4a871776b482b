// Which ranks share memory with this one.  Ranks that may (same host, same namespaces) try to map
// each other's memory; one that others cannot map is a node of its own, with the reason.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/bulk_copy.hpp>
#include <tutti/detail/check.hpp>
#include <tutti/detail/descriptor.hpp>
#include <vector>

#include "bootstrap/domain.hpp"
#include "bootstrap/node_map.hpp"
#include "runtime/settings.hpp"
#include "shm/copy_costs.hpp"
#include "shm/known_costs.hpp"
#include "shm/offered_mapping.hpp"
#include "shm/peer_memory.hpp"
#include "shm/single_copy_rule.hpp"
#include "shm/sleeper.hpp"

namespace tutti::runtime {

/// What a rank tells the others of itself.
struct NeighbourCard {
  bootstrap::HostIdentity host;
  std::uint64_t domain;  // its name; no_domain: none
  shm::MappingCard mapping;
  std::int64_t sleeper = no_sleeper;  // descriptor of the pipe that wakes it

  static constexpr std::int64_t no_sleeper = -1;
};

/// The memory of a rank of this node.
struct NeighbourMapping {
  std::shared_ptr<detail::Mapping> mapping;      // null: not of this node
  shm::MappingCard card = {};                    // what its owner says of it
  std::shared_ptr<const shm::Waker> waker = {};  // null: it does not sleep

  /// Reads the memory of the rank that is not mapped here.
  shm::PeerProcess reader() const noexcept {
    return {.id = card.process, .nonce_address = card.address, .nonce = card.nonce};
  }
  /// Where `bytes` that lie at `theirs` there lie here.
  std::byte* at(std::uint64_t theirs, std::size_t bytes) const noexcept {
    const std::uint64_t offset = theirs - card.address;
    detail::check(offset <= mapping->size() && bytes <= mapping->size() - offset,
                  "what a neighbour has told of lies in its mapping", offset, bytes);
    return mapping->data() + offset;
  }
  /// Likewise, for what is used in calls: its pages are entered here.
  std::byte* prepared(std::uint64_t theirs, std::size_t bytes) const noexcept {
    std::byte* const here = at(theirs, bytes);
    detail::enter_pages(here, bytes);
    return here;
  }
};

struct Neighbourhood {
  bootstrap::NodeMap nodes;
  std::vector<NeighbourMapping> mappings;  // by rank
  bool reads_peers = false;  // whether every rank can read all memory of its neighbours
  /// What reading and copying cost on each node, or how long a word takes there, if two of its
  /// ranks have measured it; the same on all ranks.
  std::vector<std::optional<shm::CopyCosts>> costs = {};
  std::vector<Node> domain;  // of each rank, parts of nodes
  std::string remark;        // why ranks that may be a node are not; alike on all ranks

  /// Whether two ranks that share a node share no cache, as measured; alike on all ranks.
  bool caches_are_apart() const noexcept {
    return std::any_of(costs.begin(), costs.end(),
                       [](const auto& of_node) { return of_node && of_node->caches_are_apart(); });
  }
  /// The copies that an operation makes for neighbours to read.  `both_write`: its ranks write into
  /// each other's partials, whose lines come back to the writer, as in an allreduce.
  detail::BulkCopy copies_for_readers(bool both_write) const {
    using detail::BulkCopy;
    return BulkCopy(detail::Stores::automatic, caches_are_apart() && !both_write
                                                   ? BulkCopy::gain_between_caches
                                                   : BulkCopy::gain_of_streaming);
  }
};

/// Gathers as many bytes from each rank; collective.
using GatherBytes = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

/// What two ranks of a node have to measure together (shm/copy_costs.hpp).
struct Measuring {
  const NeighbourMapping& theirs;
  bool leads;       // this rank does
  bool copies;      // of a leader: it measures copies, else a word alone
  bool is_settled;  // this rank knows it already, or has tried often enough; the leader's counts
};

/// One side of it.  A leader for whom it is settled tells its partner that there is nothing to do.
using MeasureCopies = std::function<std::optional<shm::CopyCosts>(const Measuring&)>;

/// Which payloads are read where their users have them, if all ranks are of one node and may do so.
/// Pure, so all ranks get the same result.
shm::ReadRanges reads_of(const Neighbourhood& all, const ContextSettings& settings,
                         bool shares_cpus);

/// Which ranks have to be nodes of their own, given who could not map whose memory,
/// [mapper][owner].  The rank whose memory most others could not map is set apart (of several such
/// ranks the last one), and this is repeated until the remaining ranks can all map each other.
/// Pure.
std::vector<bool> apart(std::vector<std::vector<bool>> out_of_reach);

/// The nodes that `settings.ranks_per_node`, which is not empty, and the placement impose.
bootstrap::NodeMap imposed_nodes(std::size_t rank_count, const ContextSettings& settings);

/// The domain of each rank, by its card, inside its node; `settings` may impose domains, otherwise
/// those of the hardware count.  Pure, so all ranks get the same result.
std::vector<Node> domains_of(const bootstrap::NodeMap& nodes, std::span<const NeighbourCard> cards,
                             const ContextSettings& settings);

/// The nodes of the members, numbered as if there were no other ranks.  Pure.
bootstrap::NodeMap nodes_of(std::span<const Rank> members, const bootstrap::NodeMap& whole);

/// Collective: the ranks of `cards`.  Their nodes are `imposed`, or are found if that is empty.
/// The first two ranks of each node measure: copies, unless the user has said which payloads to
/// read or they may not be read, and how long a word takes in any case.  `known` is what this
/// process has measured with neighbours before, and learns what these two ranks find.  Ranks that
/// sleep get their wakers from `wakers`.  Throws Error{unsupported} if the ranks of an imposed node
/// cannot share memory.
Neighbourhood meet_neighbours(Rank self, std::span<const NeighbourCard> cards,
                              const std::optional<bootstrap::NodeMap>& imposed,
                              const ContextSettings& settings, shm::Wakers& wakers,
                              shm::KnownCosts& known, const GatherBytes& gather,
                              const MeasureCopies& measure);

}  // namespace tutti::runtime
