#include "runtime/peer_waits.hpp"

#include <algorithm>
#include <cstdio>

namespace tutti::runtime {
namespace {

/// Lines of a text; a communicator of a thousand ranks may have waited for all of them.
constexpr std::size_t lines_max = 16;

double seconds_of(std::uint64_t ns) noexcept {
  return static_cast<double>(ns) / 1e9;
}

}  // namespace

void WaitCharges::begin(Timeout now, Awaited awaited) noexcept {
  if (awaited.position != awaited_.position) stretch_ns_ = 0;
  awaited_ = awaited;
  since_ = now;
}

void WaitCharges::go_on(std::span<PeerWait> waits, Timeout now, Awaited awaited) noexcept {
  const auto passed = static_cast<std::uint64_t>(std::max<std::int64_t>((now - since_).count(), 0));
  if (index_of(awaited_.rank) < waits.size()) {  // no_rank is not
    PeerWait& wait = waits[index_of(awaited_.rank)];
    stretch_ns_ += passed;
    wait.total_ns += passed;
    wait.longest_ns = std::max(wait.longest_ns, stretch_ns_);
  }
  begin(now, awaited);
}

void WaitCharges::finish(std::span<PeerWait> waits, Timeout now) noexcept {
  const Rank last = awaited_.rank;
  go_on(waits, now, {});
  if (index_of(last) < waits.size()) ++waits[index_of(last)].times_last;
}

std::vector<WaitedFor> waited_for(std::span<const PeerWait> waits) {
  std::vector<WaitedFor> ranks;
  for (std::size_t rank = 0; rank < waits.size(); ++rank)
    if (waits[rank].total_ns > 0 || waits[rank].times_last > 0)
      ranks.push_back({Rank{static_cast<std::uint32_t>(rank)}, waits[rank]});
  std::stable_sort(ranks.begin(), ranks.end(), [](const WaitedFor& left, const WaitedFor& right) {
    return left.wait.total_ns > right.wait.total_ns;
  });
  return ranks;
}

std::string text_of(std::span<const WaitedFor> ranks, const std::string& indent) {
  std::string text;
  for (const WaitedFor& one : ranks.first(std::min(ranks.size(), lines_max))) {
    char line[160];
    std::snprintf(
        line, sizeof line, "rank %u: %.6f s in all, %.6f s at once, the last one %llu times\n",
        index_of(one.rank), seconds_of(one.wait.total_ns), seconds_of(one.wait.longest_ns),
        static_cast<unsigned long long>(one.wait.times_last));
    text += indent + line;
  }
  if (ranks.size() <= lines_max) return text;
  std::uint64_t rest_ns = 0;
  for (const WaitedFor& one : ranks.subspan(lines_max)) rest_ns += one.wait.total_ns;
  char line[160];
  std::snprintf(line, sizeof line, "%zu other ranks: %.6f s in all\n", ranks.size() - lines_max,
                seconds_of(rest_ns));
  return text + indent + line;
}

}  // namespace tutti::runtime
