// What a wait does with its core.  Everything here is pure: the decision follows from the policy,
// from how many ranks share the CPUs, and from how long nothing has come.  It may differ by rank,
// because it changes no result.
#pragma once

#include <span>
#include <tutti/communicator.hpp>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/timeout.hpp>

namespace tutti::runtime {

/// Whether ranks of this host share CPUs: those that may run only where this rank may are more than
/// these CPUs.  `of_host`: where each rank of the host may run, this one among them.
bool is_oversubscribed(std::span<const detail::CpuSet> of_host, const detail::CpuSet& self);

/// The circumstances of a wait.
struct Waiting {
  WaitPolicy policy = WaitPolicy::automatic;
  bool oversubscribed = false;
  bool time_is_simulated = false;
  /// Whether everything that the operations in flight wait for ends a sleep of this rank.  It
  /// matters to WaitPolicy::block alone.
  bool can_be_woken = false;
};

enum class GiveWay : std::uint8_t {
  not_at_all,
  yield,  // to any thread that is ready to run
  nap,    // sleeps for nap_of()
  block,  // sleeps until something comes
};

/// What a wait does that has met no progress for `idle`.
GiveWay give_way(const Waiting& waiting, Timeout idle) noexcept;

/// How long a wait naps that has met no progress for `idle`.
Timeout nap_of(Timeout idle) noexcept;

}  // namespace tutti::runtime
