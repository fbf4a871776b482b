// Prefix reduction by doubling distances (W. D. Hillis, G. L. Steele Jr., Data Parallel Algorithms,
// CACM 29(12), 1986): in round k every rank tells the one 2^k ahead of it what the 2^k ranks up to
// itself hold together, in rank order.
#pragma once

#include "plan/plan.hpp"

namespace tutti::plan {

enum class Prefix : std::uint8_t {
  inclusive,  // the target of rank p = 0 o ... o p
  exclusive,  // the target of rank p = 0 o ... o p-1; that of rank 0 stays as it is
};

/// For any number of ranks, ceil(log2 P) rounds of at most one message.  One-way: a rank can be two
/// calls ahead of whom it tells.
Plan doubling_scan(Rank self, std::uint32_t rank_count, Prefix prefix);

}  // namespace tutti::plan
