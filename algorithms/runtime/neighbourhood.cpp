#include "runtime/neighbourhood.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tutti/status.hpp>

#include "shm/peer_memory.hpp"

namespace tutti::runtime {
namespace {

constexpr std::uint64_t placement_seed = 1;  // of Placement::random

/// What a rank tells the others after it has tried to map their memory.
struct Report {
  std::vector<bool> out_of_reach;  // by rank
  bool reads_peers = true;         // of this node, also what they do not offer
  std::string reason;              // of the first of these
  std::optional<shm::CopyCosts> costs = {};

  static constexpr std::size_t reason_bytes = 192;
  static constexpr std::size_t fixed_bytes = reason_bytes + sizeof(shm::CopyCosts);

  std::vector<std::byte> packed() const {
    std::vector<std::byte> bytes(fixed_bytes + out_of_reach.size());
    std::memcpy(bytes.data(), reason.data(), std::min(reason.size(), reason_bytes - 3));
    bytes[reason_bytes - 2] = std::byte{costs.has_value()};
    bytes[reason_bytes - 1] = std::byte{reads_peers};
    if (costs) std::memcpy(bytes.data() + reason_bytes, &*costs, sizeof *costs);
    for (std::size_t rank = 0; rank < out_of_reach.size(); ++rank)
      bytes[fixed_bytes + rank] = std::byte{out_of_reach[rank]};
    return bytes;
  }
  static Report unpacked(std::span<const std::byte> bytes) {
    Report report;
    report.reason = reinterpret_cast<const char*>(bytes.data());  // ends with a zero
    report.reads_peers = bytes[reason_bytes - 1] != std::byte{0};
    if (bytes[reason_bytes - 2] != std::byte{0}) {
      report.costs.emplace();
      std::memcpy(&*report.costs, bytes.data() + reason_bytes, sizeof *report.costs);
    }
    for (const std::byte one : bytes.subspan(fixed_bytes))
      report.out_of_reach.push_back(one != std::byte{0});
    return report;
  }
};

/// Whether this process may read memory of that one.
bool reads(shm::PeerProcess process) {
  std::uint64_t nonce = 0;
  return process.read(process.nonce_address, reinterpret_cast<std::byte*>(&nonce), sizeof nonce) ==
         0;
}

/// Maps the memory of the ranks of this node; `may_read`: tries also whether all memory can be
/// read.
Report map_neighbours(Neighbourhood& all, std::uint32_t self, std::span<const NeighbourCard> cards,
                      shm::Wakers& wakers, bool may_read) {
  Report report{.out_of_reach = std::vector<bool>(cards.size()), .reason = {}};
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank) {
    if (rank == self || all.nodes.node[rank] != all.nodes.node[self]) continue;
    std::string reason;
    if (!bootstrap::may_share_memory(cards[rank].host, cards[self].host) ||
        !bootstrap::share_process_ids(cards[rank].host, cards[self].host)) {
      reason = "is on another host, or in another namespace (IPC, UTS or process ids)";
    } else {
      try {
        all.mappings[rank] = {.mapping = shm::map_offered(cards[rank].mapping),
                              .card = cards[rank].mapping};
        if (cards[rank].sleeper != NeighbourCard::no_sleeper)
          all.mappings[rank].waker =
              wakers.of(cards[rank].mapping.nonce, cards[rank].mapping.process,
                        static_cast<int>(cards[rank].sleeper), all.mappings[rank].mapping);
        report.reads_peers = report.reads_peers && may_read && reads(all.mappings[rank].reader());
        continue;
      } catch (const std::exception& error) {
        all.mappings[rank] = {};
        reason = error.what();
      }
    }
    report.out_of_reach[rank] = true;
    if (report.reason.empty()) report.reason = "rank " + std::to_string(rank) + ": " + reason;
  }
  return report;
}

}  // namespace

bootstrap::NodeMap imposed_nodes(std::size_t rank_count, const ContextSettings& settings) {
  return bootstrap::imposed_node_map({.rank_count = static_cast<std::uint32_t>(rank_count),
                                      .ranks_per_node = settings.ranks_per_node,
                                      .placement = settings.placement,
                                      .seed = placement_seed});
}

bootstrap::NodeMap nodes_of(std::span<const Rank> members, const bootstrap::NodeMap& whole) {
  std::map<Node, Node> number;
  std::map<Node, std::uint32_t> rank_count;
  bootstrap::NodeMap part;
  for (const Rank member : members) {
    const Node next{static_cast<std::uint32_t>(number.size())};
    const Node node = number.try_emplace(whole.node[index_of(member)], next).first->second;
    part.node.push_back(node);
    part.local_rank.push_back(LocalRank{rank_count[node]++});
  }
  part.node_count = static_cast<std::uint32_t>(number.size());
  return part;
}

shm::ReadRanges reads_of(const Neighbourhood& all, const ContextSettings& settings,
                         bool shares_cpus) {
  if (!all.reads_peers || all.nodes.node_count != 1) return shm::no_reading();
  if (settings.single_copy_bytes) return shm::reading_from(*settings.single_copy_bytes);
  const bool is_measured =
      !all.costs.empty() && all.costs.front() && !all.costs.front()->is_word_alone;
  return is_measured ? shm::reading_by_costs(*all.costs.front(), shares_cpus) : shm::no_reading();
}

std::vector<bool> apart(std::vector<std::vector<bool>> out_of_reach) {
  const std::size_t count = out_of_reach.size();
  std::vector<bool> alone(count);
  for (;;) {
    std::size_t most = 0, worst = 0;
    for (std::size_t owner = 0; owner < count; ++owner) {
      std::size_t complaints = 0;
      for (std::size_t mapper = 0; mapper < count; ++mapper)
        complaints += !alone[mapper] && out_of_reach[mapper][owner] ? 1 : 0;
      if (!alone[owner] && complaints > 0 && complaints >= most) {
        most = complaints;
        worst = owner;
      }
    }
    if (most == 0) return alone;
    alone[worst] = true;
  }
}

std::vector<Node> domains_of(const bootstrap::NodeMap& nodes, std::span<const NeighbourCard> cards,
                             const ContextSettings& settings) {
  if (!settings.ranks_per_domain.empty())
    return bootstrap::imposed_domain_map(nodes, settings.ranks_per_domain);
  std::vector<std::uint32_t> names;
  for (const NeighbourCard& card : cards) names.push_back(static_cast<std::uint32_t>(card.domain));
  return bootstrap::domain_map(nodes, names, settings.domains_above);
}

Neighbourhood meet_neighbours(Rank self, std::span<const NeighbourCard> cards,
                              const std::optional<bootstrap::NodeMap>& imposed,
                              const ContextSettings& settings, shm::Wakers& wakers,
                              shm::KnownCosts& known, const GatherBytes& gather,
                              const MeasureCopies& measure) {
  std::vector<bootstrap::HostIdentity> hosts;
  for (const NeighbourCard& card : cards) hosts.push_back(card.host);
  Neighbourhood all{.nodes = imposed ? *imposed : bootstrap::node_map(hosts),
                    .mappings = std::vector<NeighbourMapping>(cards.size()),
                    .domain = {},
                    .remark = {}};
  if (all.nodes.node_count == cards.size()) return all;

  Report report =
      map_neighbours(all, index_of(self), cards, wakers, settings.single_copy_bytes != SIZE_MAX);
  const LocalRank place = all.nodes.local_rank[index_of(self)];
  const bool copies = !settings.single_copy_bytes && report.reads_peers;
  const bool leads = place == LocalRank{0};
  std::optional<std::size_t> partner;  // with whom this rank measures
  if (index_of(place) <= 1)
    for (std::size_t other = 0; other < cards.size(); ++other)
      if (all.mappings[other].mapping &&
          index_of(all.nodes.local_rank[other]) + index_of(place) == 1)
        partner = other;
  if (partner) {
    const NeighbourMapping& theirs = all.mappings[*partner];
    report.costs = measure({.theirs = theirs,
                            .leads = leads,
                            .copies = copies,
                            .is_settled = known.is_settled(theirs.card.nonce, copies)});
    if (leads && !report.costs) report.costs = known.with(theirs.card.nonce);
  }
  const std::vector<std::byte> mine = report.packed();
  const std::vector<std::byte> everybodys = gather(mine);
  std::vector<std::vector<bool>> out_of_reach;
  std::vector<std::optional<shm::CopyCosts>> costs;  // by rank
  all.reads_peers = true;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    Report theirs =
        Report::unpacked(std::span(everybodys).subspan(rank * mine.size(), mine.size()));
    all.reads_peers = all.reads_peers && theirs.reads_peers;
    costs.push_back(theirs.costs);
    if (all.remark.empty() && !theirs.reason.empty())
      all.remark = "rank " + std::to_string(rank) + " cannot share memory with " + theirs.reason;
    out_of_reach.push_back(std::move(theirs.out_of_reach));
  }
  // All ranks take what the leader says, whatever its partner knows.
  if (partner)
    known.learn(cards[*partner].mapping.nonce, costs[leads ? index_of(self) : *partner], copies);
  const auto of_nodes = [&] {
    std::vector<std::optional<shm::CopyCosts>> found(all.nodes.node_count);
    for (std::size_t rank = 0; rank < cards.size(); ++rank)
      if (auto& of_node = found[index_of(all.nodes.node[rank])]; !of_node) of_node = costs[rank];
    return found;
  };
  all.costs = of_nodes();
  if (all.remark.empty()) return all;
  if (imposed)
    throw Error(ErrorCode::unsupported,
                "the node shape (TUTTI_RANKS_PER_NODE or code) cannot be had: " + all.remark);
  const std::vector<bool> alone = apart(std::move(out_of_reach));
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (alone[rank]) hosts[rank] = {};  // like nobody's
  all.nodes = bootstrap::node_map(hosts);
  all.costs = of_nodes();
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank)
    if (all.nodes.node[rank] != all.nodes.node[index_of(self)]) all.mappings[rank] = {};
  return all;
}

}  // namespace tutti::runtime
