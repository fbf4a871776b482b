#include "tune/chunks.hpp"

#include <algorithm>

namespace tutti::tune {

std::size_t chunk_count(std::size_t element_count, std::size_t element_bytes,
                        std::size_t part_count, std::size_t chunk_bytes) noexcept {
  if (element_count == 0 || element_bytes == 0) return 1;
  const std::size_t elements = std::max<std::size_t>(chunk_bytes / element_bytes, 1) * part_count;
  const std::size_t count = (element_count + elements - 1) / elements;
  return std::clamp<std::size_t>(count, 1, std::max<std::size_t>(element_count / part_count, 1));
}

std::uint16_t zero_copy_pieces(std::size_t bytes, std::uint32_t node_count) noexcept {
  constexpr std::size_t bytes_min = 16u << 10;
  const std::size_t hops = std::max(node_count, 2u) - 1;
  const std::size_t wanted = std::min({16 * hops, zero_copy_pieces_max, bytes / bytes_min});
  // However few, none is longer than a message may be.
  const std::size_t least = (bytes + zero_copy_part_bytes_max - 1) / zero_copy_part_bytes_max;
  return static_cast<std::uint16_t>(std::max({wanted, least, std::size_t{1}}));
}

std::uint16_t zero_copy_pieces_of_block(std::size_t bytes, std::uint32_t rank_count) noexcept {
  constexpr std::size_t bytes_min = 32u << 10;
  return static_cast<std::uint16_t>(
      std::clamp<std::size_t>(bytes / bytes_min, 1, zero_copy_pieces_of_block_max(rank_count)));
}

std::size_t zero_copy_pieces_of_block_max(std::uint32_t rank_count) noexcept {
  constexpr std::size_t pieces = 8, parts = 2048;
  return std::clamp<std::size_t>(parts / rank_count, 1, pieces);
}

std::uint16_t zero_copy_pieces_of_lane(std::size_t part_bytes, std::uint32_t node_count,
                                       std::size_t part_count) noexcept {
  constexpr std::size_t pieces_max = 16, pieces_in_node_max = 64, parts = 2048;
  const std::size_t bytes = node_count == 1 ? 128u << 10 : 32u << 10;
  const std::size_t most = std::min(node_count == 1 ? pieces_in_node_max : pieces_max,
                                    std::max<std::size_t>(parts / part_count, 1));
  return static_cast<std::uint16_t>(std::clamp<std::size_t>(part_bytes / bytes, 1, most));
}

std::size_t within_registers(std::size_t chunk_bytes, std::size_t slots, std::size_t parts,
                             std::size_t payloads) noexcept {
  // Partials are about as many as slots and parts; how many, may differ by rank.
  const std::size_t registers = 2 * std::max<std::size_t>(payloads, 1) * (2 * slots + parts);
  constexpr std::size_t least = 512;
  return std::clamp(plan_registers_bytes / registers, least, std::max(least, chunk_bytes));
}

std::size_t chunk_bytes_for(const plan::Plan& plan, bool shares_nodes, std::size_t asked) noexcept {
  // Where the ranks of a single node have one target, no payload goes through a register.
  if (plan.shares_target && plan.slot_count == plan.line_slot_count) return by_reference_bytes;
  if (plan::has_no_registers(plan) && plan.partials_max > 0)
    return asked != 0 ? std::min(asked, chunk_bytes_of_reduce) : chunk_bytes_of_reduce;
  // Some ranks of such a plan send references, which takes one chunk, and then all have one.
  const bool is_told_of = plan.zero_copy && plan.flow_control == plan::FlowControl::acknowledged;
  if (plan::has_no_registers(plan) || is_told_of) return zero_copy_part_bytes_max;
  const std::size_t registers = 2 * (2 * std::size_t{plan.slot_count} + plan.parts);
  const bool has_few_registers = registers <= 256;
  // All pieces of a flat broadcast together are as long as a chunk of another plan.
  const std::size_t pieces = is_flat_broadcast(plan) ? plan.parts : 1;
  if (asked != 0 && !plan.is_pipeline && has_few_registers)
    return std::max<std::size_t>(asked / pieces, 1);
  if (plan::is_by_reference(plan)) return by_reference_bytes;
  const std::size_t chunk = asked != 0         ? asked
                            : plan.is_pipeline ? chunk_bytes_of_pipeline
                            : plan.zero_copy   ? chunk_bytes_zero_copy
                            : shares_nodes     ? chunk_bytes_in_node
                                               : chunk_bytes_across;
  const std::size_t bytes = std::max<std::size_t>(chunk / pieces, 1);
  const std::size_t slots = std::size_t{plan.slot_count} - plan.line_slot_count;
  if (plan.partials_max > 0) {
    // Here the number of registers is known.  An eighth of the budget is left for rounding to
    // lines.
    const std::size_t all = 2 * plan::payloads_of_registers(plan, plan.partials_max);
    return std::clamp(plan_registers_bytes / 8 * 7 / all, std::min(part_bytes_min, bytes), bytes);
  }
  return std::min(bytes, within_registers(bytes, slots, plan.parts, plan.payloads));
}

bool sends_blocks_directly(const plan::Plan& plan) noexcept {
  return plan.algorithm == "direct" && plan.slot_count > plan.line_slot_count &&
         plan.short_slot_count == 0 && plan.payloads == 1;
}

std::uint16_t node_broadcast_pieces(std::size_t bytes) noexcept {
  constexpr std::size_t bytes_min = 32u << 10;
  constexpr std::uint16_t pieces = 4;
  return bytes < bytes_min ? 1 : pieces;
}

bool is_flat_broadcast(const plan::Plan& plan) noexcept {
  // The parts of a tree are pieces of one payload; those of other plans are blocks or lanes.
  const bool is_tree =
      plan.algorithm.ends_with("_tree") && plan.algorithm.find('/') == std::string::npos;
  const bool is_whole = plan.parts == 1 || is_tree;
  return plan.per_round.size() == 1 && is_whole && !plan.is_pipeline && !plan.zero_copy &&
         !plan.shares_target && !plan::is_by_reference(plan);
}

std::size_t chunk_bytes_in_one_node(const plan::Plan& plan, std::size_t asked,
                                    std::size_t arena_bytes, std::size_t broadcast_bytes) noexcept {
  const std::size_t usual = chunk_bytes_for(plan, true, asked);
  const std::size_t share = arena_bytes / node_arena_divisor;
  const auto longer = [&](std::size_t wanted, std::size_t room, std::size_t registers) {
    const std::size_t chunk = room / registers / part_bytes_min * part_bytes_min;
    return std::max(usual, std::min(wanted, chunk));
  };
  if (asked != 0) return usual;
  if (sends_blocks_directly(plan))  // A rank has a partial for each other rank at most.
    return longer(plan.flow_control == plan::FlowControl::one_way ? chunk_bytes_of_node_blocks
                                                                  : chunk_bytes_of_exchanges,
                  std::min(node_blocks_partials_bytes, share),
                  2 * std::max<std::size_t>(plan.parts - 1u, 1));
  const std::size_t pieces = plan.parts;
  const std::size_t partials_of_root = 2 * pieces;  // used by successive chunks in turns
  if (broadcast_bytes != 0 && is_flat_broadcast(plan))
    return longer(
        std::min(chunk_bytes_of_node_broadcast, broadcast_bytes / node_broadcast_chunks) / pieces,
        share, partials_of_root);
  return usual;
}

}  // namespace tutti::tune
