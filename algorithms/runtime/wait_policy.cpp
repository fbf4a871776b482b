#include "runtime/wait_policy.hpp"

#include <algorithm>

namespace tutti::runtime {
namespace {

/// A wait this long yields even when every rank has a CPU: somebody else may need it.
constexpr Timeout patience = std::chrono::milliseconds(1);

/// A wait that has met no progress for this long sleeps, because its partner may be away for any
/// time.  A rank with a CPU of its own takes it from nobody, and a nap would cost up to a
/// millisecond when the partner is back; where ranks share CPUs, the partner may need this one.
constexpr Timeout awake_on_own_cpu = std::chrono::seconds(1);
constexpr Timeout awake_on_shared_cpu = std::chrono::milliseconds(10);
constexpr Timeout awake_of_block = std::chrono::microseconds(50);

/// Each nap is an eighth of the time since the last progress within these bounds, so that the
/// partner's message is noticed not much later.
constexpr Timeout nap_min = std::chrono::microseconds(10), nap_max = std::chrono::milliseconds(1);

}  // namespace

bool is_oversubscribed(std::span<const detail::CpuSet> of_host, const detail::CpuSet& self) {
  const unsigned cpus = self.count();
  const auto confined =
      std::count_if(of_host.begin(), of_host.end(), [&](const detail::CpuSet& other) {
        for (std::size_t i = 0; i < self.words.size(); ++i)
          if ((other.words[i] & ~self.words[i]) != 0) return false;
        return true;
      });
  return cpus > 0 && confined > cpus;
}

GiveWay give_way(const Waiting& waiting, Timeout idle) noexcept {
  switch (waiting.policy) {
    case WaitPolicy::spin:
      return GiveWay::not_at_all;
    case WaitPolicy::yield:
      return GiveWay::yield;
    case WaitPolicy::automatic:
      if (!waiting.oversubscribed && idle <= patience) return GiveWay::not_at_all;
      if (waiting.time_is_simulated) return GiveWay::yield;
      return idle <= (waiting.oversubscribed ? awake_on_shared_cpu : awake_on_own_cpu)
                 ? GiveWay::yield
                 : GiveWay::nap;
    case WaitPolicy::block:
      if (waiting.time_is_simulated || idle <= awake_of_block) return GiveWay::yield;
      return waiting.can_be_woken ? GiveWay::block : GiveWay::nap;
  }
  return GiveWay::not_at_all;
}

Timeout nap_of(Timeout idle) noexcept {
  return std::clamp(idle / 8, nap_min, nap_max);
}

}  // namespace tutti::runtime
