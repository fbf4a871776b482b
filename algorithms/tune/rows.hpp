// The rows of the registry, by the files that define them; and what several of these need.
#pragma once

#include <cstdint>
#include <span>

#include "tune/registry.hpp"

namespace tutti::tune {

std::span<const Row> allreduce_rows();
std::span<const Row> hierarchy_rows();  // of allreduce and barrier, node by node
std::span<const Row> rooted_rows();     // broadcast, reduce
std::span<const Row> block_rows();      // allgather, alltoall, gather, scatter, reduce_scatter
std::span<const Row> other_rows();      // barrier, allreduce_ssp, scan, exscan

/// Schedules that cut the payload into a part for each rank send less of it in more messages.
/// Provisional: it has not been measured on a network.
inline constexpr std::size_t in_parts_from_bytes = 64u << 10;
/// With more ranks of other nodes than that none is connected unasked, where fewer will do.
inline constexpr std::uint32_t partners_unasked_max = 31;
/// Schedules that pass parts on have registers for a part of each rank: those of more ranks than
/// this would take more than the arena that there is by default.
inline constexpr std::uint32_t passed_on_ranks_max = 4096;

inline bool is_reproducible_in_bits(const CollectiveRequest& request) {
  return request.agreement == Agreement::reproducible && order_shows_in_bits(request.reduction);
}
inline plan::Order order_of(const Reduction& reduction) {
  return reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
}

}  // namespace tutti::tune
