// See late_ranks.hpp.
#include "late_ranks.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

namespace poisson {
namespace {

constexpr std::size_t block_values = 128;  // a few messages for a solve

/// Differs between hosts, and between two starts of one; the monotonic clock begins there.  Where
/// it is not known, it is a number that not even equals itself.
double host_number() {
  std::string name;
  if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> name))
    return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(std::hash<std::string>()(name) >> 12);  // as a double holds it
}

}  // namespace

LateRanks::LateRanks(Communication& communication)
    : rank_count_(communication.rank_count()),
      mine_(block_values * rank_count_),
      all_(block_values * rank_count_) {
  const std::vector<std::size_t> counts(rank_count_, block_values);
  gather_ = communication.exchange({mine_, counts}, {all_, counts});
  const double host = host_number();
  gather({&host, 1});
  comparable_ = true;
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
    comparable_ = comparable_ && all_[rank * block_values] == host;
}

void LateRanks::gather(std::span<const double> mine) {
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
    std::copy(mine.begin(), mine.end(),
              mine_.begin() + static_cast<std::ptrdiff_t>(rank * block_values));
  gather_->run();
}

double LateRanks::seconds_waited(std::span<const CallTime> calls,
                                 std::span<const std::size_t> counts) {
  double waited = 0;
  std::vector<double> started;
  for (std::size_t first = 0; first < calls.size(); first += block_values) {
    const auto block = calls.subspan(first, std::min(block_values, calls.size() - first));
    started.clear();
    for (const CallTime& call : block) started.push_back(call.started);
    gather(started);
    for (std::size_t i = 0; i < block.size(); ++i) {
      double last = block[i].started;
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
        if (counts[rank] > 0) last = std::max(last, all_[rank * block_values + i]);
      waited += std::clamp(last, block[i].waiting, block[i].ended) - block[i].waiting;
    }
  }
  return waited;
}

}  // namespace poisson
