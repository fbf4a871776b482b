// Requests and plans for the rows of the registry, for tests that run every schedule.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "tune/registry.hpp"

namespace tutti::tune {

inline bool is_canonical_tree(const Row& row) {
  return row.name == std::string("canonical_tree");
}

/// Requests that the row may be for.
inline std::vector<CollectiveRequest> requests_for(const Row& row, std::uint32_t rank_count) {
  const Reduction reduction =
      built_in_reduction(row.needs_idempotent ? BuiltIn::max : BuiltIn::sum,
                         row.needs_inverse ? ElementType::int64 : ElementType::float64);
  const bool has_root =
      row.collective == Collective::broadcast || row.collective == Collective::reduce ||
      row.collective == Collective::gather || row.collective == Collective::scatter;
  // Trees give the bits of the canonical one by a row of their own.
  const bool is_identical = row.hierarchy != Hierarchy::flat ||
                            (row.collective == Collective::reduce && !is_canonical_tree(row));
  const Agreement agreement = is_identical ? Agreement::identical : agreement_of(row);
  std::vector<CollectiveRequest> requests;
  for (const std::size_t bytes : {8u, 1u << 20})
    for (const bool reads_in_place : {false, true})
      for (const bool has_uneven_blocks : {false, true}) {
        CollectiveRequest request{.collective = row.collective,
                                  .element_count = bytes / 8,
                                  .reduction = reduction,
                                  .agreement = agreement,
                                  .algorithm = row.algorithm,
                                  .tree = row.tree,
                                  .reads_in_place = reads_in_place};
        if (has_root) request.root = Rank{rank_count - 1};
        if (row.hierarchy == Hierarchy::leader) request.across = Across::leader;
        if (row.hierarchy == Hierarchy::lanes) request.across = Across::lanes;
        if (has_uneven_blocks) {
          if (row.collective != Collective::allgather) continue;
          request.block_bytes.assign(rank_count, 8);
          request.block_bytes.front() = bytes;
        }
        requests.push_back(std::move(request));
      }
  if (row.collective != Collective::broadcast && row.collective != Collective::allgather &&
      !row.is_in_place)
    return requests;
  CollectiveRequest request = requests.front();
  request.element_count = (1u << 20) / 8;
  request.zero_copy = true;
  requests.push_back(std::move(request));
  return requests;
}

inline bool is_possible(const Row& row, const Query& query) {
  const bool is_asked_for =
      row.collective == Collective::allreduce && row.algorithm != Algorithm::automatic;
  return serves(row, query.request) && (row.why_not == nullptr || row.why_not(query).empty()) &&
         (is_asked_for || row.why_not_unasked == nullptr || row.why_not_unasked(query).empty());
}

/// The variants that there is a plan for.
inline std::vector<Variant> variants_of(const Row& row, const Query& query) {
  if (!is_possible(row, query)) return {};
  if (row.variants == nullptr) return {{}};
  try {
    return row.variants(query);
  } catch (const Error&) {  // nothing serves so many ranks
    return {};
  }
}

}  // namespace tutti::tune
