#include "microbench/choosing_time.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tutti::bench {
namespace {

using tune::Collective;

struct Shape {
  std::uint32_t nodes, ranks_per_node;
  friend bool operator==(const Shape&, const Shape&) = default;
};
constexpr Shape shapes[] = {{4096, 1}, {512, 8}, {128, 32}, {64, 64}, {64, 1}, {13, 8}, {4, 4}};

std::string row_of(const Shape& shape, std::vector<ChoosingTime> times) {
  std::sort(times.begin(), times.end(),
            [](const auto& left, const auto& right) { return left.time < right.time; });
  const auto us = [](const ChoosingTime& one) {
    return static_cast<double>(one.time.count()) / 1e3;
  };
  char row[96];
  std::snprintf(row, sizeof row, "| %u | %u | %zu | %.0f us | %.0f us | ", shape.nodes,
                shape.ranks_per_node, times.size(), us(times[times.size() / 2]), us(times.back()));
  return row + times.back().cell.text() + ": " + times.back().choice + " |\n";
}

}  // namespace

std::vector<ChoiceCell> cells_of_choosing() {
  std::vector<ChoiceCell> cells;
  for (const Shape& shape : shapes)
    for (const Collective collective :
         {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce,
          Collective::reduce_scatter, Collective::allgather, Collective::alltoall,
          Collective::gather, Collective::scatter, Collective::scan})
      for (const std::uint64_t bytes :
           {0ull, 8ull, 2ull << 10, 64ull << 10, 1ull << 20, 64ull << 20})
        for (const Agreement agreement :
             {Agreement::identical, Agreement::reproducible, Agreement::relaxed}) {
          const ChoiceCell cell{.collective = collective,
                                .nodes = shape.nodes,
                                .ranks_per_node = shape.ranks_per_node,
                                .bytes = bytes,
                                .agreement = agreement};
          const bool has_payload = collective != Collective::barrier;
          if (has_payload == (bytes == 0)) continue;
          if (!tune::combines(collective) && agreement != Agreement::identical) continue;
          if (has_payload && cell.request().element_count == 0) continue;
          cells.push_back(cell);
        }
  return cells;
}

std::vector<ChoosingTime> time_choosing(const std::vector<ChoiceCell>& cells,
                                        const tune::Knowledge& knowledge, int times) {
  using Clock = std::chrono::steady_clock;
  std::vector<ChoosingTime> result;
  for (const ChoiceCell& cell : cells) {
    const tune::CollectiveRequest request = cell.request();
    const tune::Topology topology = cell.topology();
    ChoosingTime one{.cell = cell, .choice = {}, .time = std::chrono::nanoseconds::max()};
    for (int i = 0; i < times; ++i) {
      const Clock::time_point begin = Clock::now();
      const tune::Choice choice = tune::choose(request, topology, knowledge);
      one.time = std::min<std::chrono::nanoseconds>(one.time, Clock::now() - begin);
      one.choice = choice.name();
    }
    result.push_back(std::move(one));
  }
  return result;
}

std::string table_of(const std::vector<ChoosingTime>& times) {
  std::string text =
      "| nodes | ranks a node | calls | choosing takes, median | at most | of |\n"
      "|---|---|---|---|---|---|\n";
  for (const Shape& shape : shapes) {
    std::vector<ChoosingTime> some;
    for (const ChoosingTime& one : times)
      if (Shape{one.cell.nodes, one.cell.ranks_per_node} == shape) some.push_back(one);
    if (!some.empty()) text += row_of(shape, std::move(some));
  }
  return text;
}

}  // namespace tutti::bench
