#include "tune/registry.hpp"

#include <algorithm>

#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

/// How much an agreement promises.
int strength(Agreement agreement) {
  return agreement == Agreement::relaxed ? 0 : agreement == Agreement::identical ? 1 : 2;
}

}  // namespace

const std::vector<Row>& registry() {
  static const std::vector<Row> all = [] {
    std::vector<Row> rows;
    for (const auto& some :
         {other_rows(), allreduce_rows(), hierarchy_rows(), rooted_rows(), block_rows()})
      rows.insert(rows.end(), some.begin(), some.end());
    return rows;
  }();
  return all;
}

const std::vector<Row>& named_schedules() {
  static const std::vector<Row> all = [] {
    std::vector<Row> rows;
    for (const Row& row : allreduce_rows())
      if (row.algorithm != Algorithm::automatic && !row.is_flow) rows.push_back(row);
    return rows;
  }();
  return all;
}

const Row& row_of(Algorithm algorithm) {
  const auto rows = allreduce_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return row.algorithm == algorithm && algorithm != Algorithm::automatic;
  });
  if (found == rows.end())
    throw Error(ErrorCode::invalid_argument,
                "algorithm " + std::to_string(static_cast<unsigned>(algorithm)) +
                    " is none; use one of the enumerators of tutti::Algorithm");
  return *found;
}

Agreement agreement_of(const Row& row) noexcept {
  switch (row.association) {
    case Association::any:
      return Agreement::relaxed;
    case Association::expression:
      return Agreement::identical;
    case Association::canonical:
      break;
  }
  return Agreement::reproducible;
}

bool serves(const Row& row, const CollectiveRequest& request) {
  const OperatorProperties& properties = request.reduction.properties;
  if (row.needs_idempotent && !properties.idempotent) return false;
  if (!row.keeps_rank_order && !properties.commutative) return false;
  if (row.needs_inverse && request.reduction.inverse == nullptr) return false;
  return !order_shows_in_bits(request.reduction) ||
         strength(agreement_of(row)) >= strength(request.agreement);
}

}  // namespace tutti::tune
