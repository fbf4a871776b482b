#include <algorithm>

#include "tune/rows.hpp"

namespace tutti::tune {

plan::Picoseconds price_of_round_ahead(const Query& query, const plan::Round& round,
                                       std::uint64_t values, std::uint64_t value_bytes,
                                       bool combines) {
  const Topology& topology = query.topology;
  if (topology.is_one_node() || !topology.has_shared_nodes())
    return price_of_round(query, round.messages, values, value_bytes, combines);
  const std::uint64_t ranks = topology.largest_node(), nodes = topology.node_count();
  const bool has_runs = topology.has_runs();
  std::uint64_t leave = 0, stay = 0;  // of all ranks of a node, and of one of them at most
  for (std::uint64_t message = 1; message <= round.messages; ++message) {
    const std::uint64_t ahead = message * round.length;
    leave += has_runs ? std::min(ahead, ranks) : ahead % nodes == 0 ? 0 : ranks;
    stay += has_runs ? ahead < ranks : ahead % nodes == 0;
  }
  const auto inside = static_cast<std::uint32_t>(stay);
  if (leave == 0) return round_cost_in_node(query.network, inside, values, value_bytes, combines);
  const std::uint64_t bytes = values * value_bytes;
  const plan::LogGP& network = query.network.between;
  const plan::Picoseconds work = combines ? static_cast<plan::Picoseconds>(values) * network.work +
                                                network.work_per_byte.of(bytes)
                                          : 0;
  const auto behind = static_cast<plan::Picoseconds>(leave - 1);
  const auto others = static_cast<plan::Picoseconds>(round.messages - 1);
  return network.travel_time(bytes) + network.receive_overhead + work +
         static_cast<plan::Picoseconds>(stay) * query.network.inside.store_time(bytes) +
         std::max(behind * network.port_time(bytes), others * (network.receive_overhead + work));
}

}  // namespace tutti::tune
