// Which ranks share memory with this one.  Ranks that may (same host, same namespaces) try to map
// each other's windows; a rank that cannot is a node of its own, and says why.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/settings.hpp"
#include "bootstrap/node_map.hpp"
#include "shm/window.hpp"

namespace tutti::api {

/// What a rank tells the others of itself.
struct NeighbourCard {
  bootstrap::HostIdentity host;
  shm::WindowCard window;
};

/// The memory of a rank of this node.
struct NeighbourWindow {
  std::shared_ptr<detail::Mapping> mapping;  // null: not of this node
  std::uint64_t address = 0;                 // of its start, in the rank's own process

  std::byte* at(std::uint64_t theirs) const noexcept {
    return mapping->data() + (theirs - address);
  }
};

struct Neighbourhood {
  bootstrap::NodeMap nodes;
  std::vector<NeighbourWindow> windows;  // by rank
  std::string remark;                    // why ranks of one host are apart; the same on all ranks
};

/// Gathers one text of this size from each rank; collective.
constexpr std::size_t obstacle_bytes = 192;
using GatherTexts = std::function<std::vector<char>(std::span<const char> mine)>;

/// Collective: the ranks of `cards`, whose shape of nodes is that of `settings`, or is found.
/// Throws Error{unsupported} if the ranks of an imposed node cannot share memory.
Neighbourhood meet_neighbours(Rank self, std::span<const NeighbourCard> cards,
                              const ContextSettings& settings, const GatherTexts& gather);

}  // namespace tutti::api
