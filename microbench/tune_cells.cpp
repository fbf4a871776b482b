#include "microbench/tune_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/detail/names.hpp>
#include <utility>

#include "microbench/tune_options.hpp"
#include "microbench/tune_racers.hpp"
#include "microbench/tutti_side.hpp"

namespace tutti::bench {
namespace {

/// The less, the sooner.  Small payloads are what latency is about, and results that all ranks
/// share by default are what most programs ask for.
std::size_t place_of(const Cell& cell, std::size_t size_place) {
  const auto all = tuned_collectives();
  const auto found = std::find(all.begin(), all.end(), cell.collective);
  return 2 * static_cast<std::size_t>(found - all.begin()) + 3 * size_place +
         5 * static_cast<std::size_t>(cell.agreement == Agreement::relaxed        ? 1
                                      : cell.agreement == Agreement::reproducible ? 2
                                                                                  : 0);
}

}  // namespace

std::string text_of(const Cell& cell) {
  if (cell.collective == Collective::barrier) return name_of(cell.collective);
  std::string text = fmt::format("{} {} B", name_of(cell.collective), cell.bytes);
  if (has_agreements(cell.collective)) text += fmt::format(" {}", tutti::name_of(cell.agreement));
  return text;
}

std::vector<Cell> cells_of(std::span<const Collective> collectives,
                           std::span<const std::size_t> bytes, std::uint32_t rank_count) {
  std::vector<std::size_t> sizes(bytes.begin(), bytes.end());
  std::sort(sizes.begin(), sizes.end());
  std::vector<std::pair<std::size_t, Cell>> placed;
  for (const Collective collective : collectives) {
    if (collective == Collective::barrier) {
      const Cell cell{.collective = collective};
      placed.emplace_back(place_of(cell, 0), cell);
      continue;
    }
    const bool has_blocks = has_blocks_in_source(collective) || has_blocks_in_target(collective);
    for (std::size_t place = 0; place < sizes.size(); ++place) {
      if (sizes[place] > tuned_buffer_bytes_max / (has_blocks ? rank_count : 1)) continue;
      for (const Agreement agreement :
           {Agreement::identical, Agreement::relaxed, Agreement::reproducible}) {
        if (agreement != Agreement::identical && !has_agreements(collective)) continue;
        const Cell cell{collective, sizes[place], agreement};
        placed.emplace_back(place_of(cell, place), cell);
      }
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });
  std::vector<Cell> cells;
  for (const auto& [place, cell] : placed) cells.push_back(cell);
  return cells;
}

std::string remark_on_untimed(std::span<const Collective> collectives) {
  std::vector<const char*> untimed;
  for (const Collective one : collectives)
    if (is_timed_from_root(one)) untimed.push_back(name_of(one));
  if (untimed.empty()) return {};
  const std::string names = fmt::format("{}", fmt::join(untimed, ", "));
  if (untimed.size() == collectives.size())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--collectives=\"{}\": these are timed from one rank to another, which "
                            "the clocks of several hosts do not permit; give others, or ranks of "
                            "one host",
                            names));
  return fmt::format(
      "Not raced, as they are timed from one rank to another and these ranks are on several hosts, "
      "whose clocks differ: {}.  The model of the network chooses for them.",
      names);
}

tune::Collective tuned_as(Collective collective) {
  switch (collective) {
    case Collective::barrier:
      return tune::Collective::barrier;
    case Collective::allreduce:
      return tune::Collective::allreduce;
    case Collective::broadcast:
      return tune::Collective::broadcast;
    case Collective::reduce:
      return tune::Collective::reduce;
    case Collective::reduce_scatter:
      return tune::Collective::reduce_scatter;
    case Collective::allgather:
    case Collective::allgatherv:
      return tune::Collective::allgather;
    case Collective::alltoall:
    case Collective::alltoallv:
      return tune::Collective::alltoall;
    case Collective::gather:
    case Collective::gatherv:
      return tune::Collective::gather;
    case Collective::scatter:
    case Collective::scatterv:
      return tune::Collective::scatter;
    case Collective::scan:
      return tune::Collective::scan;
    case Collective::exscan:
      return tune::Collective::exscan;
    case Collective::floor:
    case Collective::oneway:
    case Collective::memcpy:
    case Collective::wimm:
      break;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is a probe and has no schedule", name_of(collective)));
}

}  // namespace tutti::bench
