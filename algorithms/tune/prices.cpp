#include "tune/prices.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "tune/plan_time.hpp"

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
  return network.round_time(messages, values * value_bytes);
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

plan::Picoseconds scaled(plan::Picoseconds price, std::uint64_t by, std::uint64_t of) {
  assert(price >= 0 && of > 0);
  __extension__ typedef unsigned __int128 Wide;
  constexpr plan::Picoseconds longest = plan::Rate::longest;
  const Wide result = static_cast<Wide>(static_cast<std::uint64_t>(price)) * by / of;
  return static_cast<plan::Picoseconds>(std::min<Wide>(result, longest));
}

int excess_bits(const plan::Network& network, const CollectiveRequest& request,
                const Topology& topology) {
  const auto& [between, inside] = network;
  const auto bits = [](auto value) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value)));
  };
  const plan::Picoseconds longest =
      std::max({between.latency, between.send_overhead, between.receive_overhead, between.gap,
                between.rank_gap, between.work, inside.latency, inside.send_overhead,
                inside.receive_overhead, inside.read_overhead});
  const auto of_byte = [](const plan::Rate& rate) { return rate.time / rate.bytes + 1; };
  const plan::Picoseconds slowest =
      std::max({of_byte(between.per_byte), of_byte(between.work_per_byte), of_byte(inside.per_byte),
                of_byte(inside.read_per_byte)});
  // All ranks of a node send to all others, one after the other through one port, in some more
  // messages than that; or some thousand messages are followed one by one, or go in chunks.
  constexpr int followed = 14;
  const int pairs = 2 * bits(topology.rank_count - 1);
  const int of_messages = bits(longest) + std::max(pairs + 4, followed);
  const int of_bytes =
      bits(slowest) + std::max(pairs + bits(priced_bytes(request.bytes())) + 2,
                               followed + bits(followed_bytes(request, topology.rank_count)) - 1);
  // What remains is for the sums of a few such terms, and for corrections.
  constexpr int bits_max = 57;
  return std::max({of_messages - bits_max, of_bytes - bits_max, 0});
}

plan::Network faster(const plan::Network& network, int bits) {
  plan::Network result = network;
  auto& [between, inside] = result;
  for (plan::Picoseconds* const time :
       {&between.latency, &between.send_overhead, &between.receive_overhead, &between.gap,
        &between.rank_gap, &between.work, &inside.latency, &inside.send_overhead,
        &inside.receive_overhead, &inside.read_overhead})
    *time >>= bits;
  for (plan::Rate* const rate :
       {&between.per_byte, &between.work_per_byte, &inside.per_byte, &inside.read_per_byte})
    rate->bytes <<= bits;
  // Nothing can be seen where it begins (plan/cost/makespan.hpp).
  between.latency = std::max<plan::Picoseconds>(between.latency, 1);
  inside.latency = std::max<plan::Picoseconds>(inside.latency, 1);
  return result;
}

}  // namespace tutti::tune
