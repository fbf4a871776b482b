#include "tune/prices.hpp"

#include <algorithm>
#include <cassert>

#include "plan/cost/cost_model.hpp"

namespace tutti::tune {

plan::LogGP share_of_port(const plan::LogGP& network, std::uint32_t ranks) {
  assert(ranks > 0);
  plan::LogGP share = network;
  share.ranks_at_port *= ranks;
  return share;
}

plan::Picoseconds round_cost(const plan::LogGP& given, std::uint32_t messages, std::uint64_t values,
                             std::uint64_t value_bytes, bool combines) {
  plan::LogGP network = given;
  network.work *= combines ? static_cast<plan::Picoseconds>(values) : 0;
  if (!combines) network.work_per_byte = {};
  return plan::round_time(messages, values * value_bytes, network, plan::Combining::while_arriving);
}

plan::Picoseconds round_cost_in_node(const plan::Network& network, std::uint32_t messages,
                                     std::uint64_t values, std::uint64_t value_bytes,
                                     bool combines) {
  const plan::NodeMemory& memory = network.inside;
  const auto count = static_cast<plan::Picoseconds>(messages);
  const plan::Picoseconds work =
      combines ? static_cast<plan::Picoseconds>(values) * network.between.work_time(value_bytes)
               : 0;
  const plan::Picoseconds taken = memory.receive_overhead + work;
  return count * memory.store_time(values * value_bytes) +
         std::max(memory.latency + taken, count * taken);
}

plan::Picoseconds hop_in_node(const plan::NodeMemory& memory, std::uint64_t bytes) {
  return memory.store_time(bytes) + memory.latency + memory.receive_overhead;
}

std::uint64_t bytes_of_gap(const plan::LogGP& network) {
  return static_cast<std::uint64_t>(network.gap * network.per_byte.bytes /
                                    std::max<plan::Picoseconds>(network.per_byte.time, 1));
}

std::uint64_t priced_bytes(std::size_t payload_bytes) {
  constexpr std::uint64_t bytes_max = 4u << 20;
  return std::clamp<std::uint64_t>(payload_bytes, 1, bytes_max);
}

}  // namespace tutti::tune
