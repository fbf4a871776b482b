#include <algorithm>

#include "tune/rows.hpp"

namespace tutti::tune {

RoundPrices::RoundPrices(const Query& query)
    : network_(query.network),
      share_(network_of(query)),
      ranks_(query.topology.largest_node()),
      nodes_(query.topology.node_count()),
      is_one_node_(nodes_ == 1),
      is_shared_(query.topology.has_shared_nodes()),
      has_runs_(query.topology.has_runs()) {}

plan::Picoseconds RoundPrices::of(std::uint32_t messages, std::uint64_t values,
                                  std::uint64_t value_bytes, bool combines) const {
  return is_one_node_ ? round_cost_in_node(network_, messages, values, value_bytes, combines)
                      : round_cost(share_, messages, values, value_bytes, combines);
}

plan::Picoseconds RoundPrices::ahead(const plan::Round& round, std::uint64_t values,
                                     std::uint64_t value_bytes, bool combines) const {
  if (is_one_node_ || !is_shared_) return of(round.messages, values, value_bytes, combines);
  std::uint64_t leave = 0, stay = 0;  // of all ranks of a node, and of one of them at most
  for (std::uint64_t message = 1; message <= round.messages; ++message) {
    const std::uint64_t distance = message * round.length;
    leave += has_runs_ ? std::min(distance, ranks_) : distance % nodes_ == 0 ? 0 : ranks_;
    stay += (has_runs_ ? distance < ranks_ : distance % nodes_ == 0) ? 1 : 0;
  }
  if (leave == 0)
    return round_cost_in_node(network_, static_cast<std::uint32_t>(stay), values, value_bytes,
                              combines);
  const std::uint64_t bytes = values * value_bytes;
  const plan::LogGP& network = network_.between;
  const plan::Picoseconds work = combines ? static_cast<plan::Picoseconds>(values) * network.work +
                                                network.work_per_byte.of(bytes)
                                          : 0;
  const auto behind = static_cast<plan::Picoseconds>(leave - 1);
  const auto others = static_cast<plan::Picoseconds>(round.messages - 1);
  return network.travel_time(bytes) + network.receive_overhead + work +
         static_cast<plan::Picoseconds>(stay) * network_.inside.store_time(bytes) +
         std::max(behind * network.port_time(bytes), others * (network.receive_overhead + work));
}

}  // namespace tutti::tune
