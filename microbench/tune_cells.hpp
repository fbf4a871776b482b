// What tutti-tune races schedules for: a cell is a collective, a size, and what is promised of
// bits. Cells that matter to more programs come first, so that a short budget is spent on these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/types.hpp>
#include <vector>

#include "microbench/options.hpp"
#include "tune/request.hpp"

namespace tutti::bench {

struct Cell {
  Collective collective = Collective::barrier;
  std::size_t bytes = 0;
  Agreement agreement = Agreement::identical;
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// "allreduce 64 B relaxed".
std::string text_of(const Cell& cell);

/// Whether a collective's results differ by how operands are associated.
constexpr bool has_agreements(Collective collective) noexcept {
  return collective == Collective::allreduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

/// All cells, the most important ones first; pure.
std::vector<Cell> cells_of(std::span<const Collective> collectives,
                           std::span<const std::size_t> bytes, std::uint32_t rank_count);

/// A sentence about the collectives that cannot be timed between hosts, as their clocks differ;
/// empty: all can be.  Throws Error{invalid_argument} if none can be.
std::string remark_on_untimed(std::span<const Collective> collectives);

/// A collective as choices know it.
tune::Collective tuned_as(Collective collective);

}  // namespace tutti::bench
