// What stands behind Context: device, arena and connections of a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tutti/communicator.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/operation.hpp>
#include <tutti/segment.hpp>
#include <unordered_map>
#include <vector>

#include "bootstrap/process.hpp"
#include "runtime/activity.hpp"
#include "runtime/fork_mark.hpp"
#include "runtime/neighbourhood.hpp"
#include "runtime/report_signal.hpp"
#include "runtime/settings.hpp"
#include "runtime/trace.hpp"
#include "runtime/tuning_table.hpp"
#include "shm/known_costs.hpp"
#include "shm/offered_mapping.hpp"
#include "shm/sleeper.hpp"
#include "shm/staging_ring.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti {

namespace runtime {
/// A number that no other process draws, never 0, which says nobody.
std::uint64_t random_key();
class Liveness;
}  // namespace runtime

struct TUTTI_HIDDEN Context::Implementation {
  explicit Implementation(const ContextOptions& given);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  const runtime::ForkMark mark;
  runtime::ContextSettings settings;
  std::uint64_t process_key;  // random; names this context to its peers
  verbs::VerbsFabric fabric;
  shm::OfferedMapping offered;  // the arena, for the ranks of this node
  /// At the begin of the arena, for the ring of partials; empty where the arena is small.  It has
  /// pages from when it is first used, by ranks that measure or by an operation.
  std::span<std::byte> staging_memory;
  std::optional<shm::StagingRing> staging_ring;  // once an operation needs it
  std::optional<shm::Sleeper> sleeper;           // with WaitPolicy::block, unless time is simulated
  shm::KnownCosts known_costs;                   // of copies, with neighbours
  shm::Wakers wakers;                            // of neighbours that sleep
  bootstrap::ProcessWatches process_watches;     // of ranks of this host
  runtime::Activity activity;                    // what its operations do, for whoever asks
  std::uint32_t reports_printed = 0;             // of those that were asked for by signals
  /// Arenas of neighbours that peers of this rank write to, by process.  They stay registered until
  /// the context is destroyed, as this rank's own arena does: a peer may see the effect of what it
  /// has written before its device has received the acknowledgement.
  struct NeighbourArena {
    std::shared_ptr<detail::Mapping> mapping;
    verbs::RegionHandle region;
  };
  std::unordered_map<std::uint64_t, NeighbourArena> neighbour_arenas;
  detail::Clock& clock;                   // of the device
  std::unique_ptr<runtime::Trace> trace;  // if one is asked for: from its first communicator on
  const runtime::FoundTable found_table;
  SharedNotifications shared_notifications = SharedNotifications::republished;  // in force
  bool oversubscribed = false;  // more ranks than CPUs on this host: waiting yields early

  std::vector<Communicator::Implementation*> communicators;
  std::vector<Segment::Implementation*> segments;
  /// Operations in flight; its capacity is at least the number of live operations, so that start()
  /// allocates nothing.
  std::vector<Operation::Implementation*> in_flight;
  std::size_t live_operations = 0;
  std::size_t live_network_operations = 0;  // those with a partner on another node
  std::uint32_t communicators_made = 0;

  /// Opens the trace that is asked for, if it is not open, as that of this rank.  Returns why it
  /// cannot; empty: it can, or none is asked for.
  std::string open_trace(Rank rank);
  /// The ring of partials; null if the arena is small, or if there is no memory for it.
  shm::StagingRing* use_staging_ring();
  /// Registers it, once.  Throws Error.
  const ibv_mr& neighbour_arena(std::uint64_t process, const runtime::NeighbourMapping& theirs);
  /// In a forked child: marks every communicator as failed, in this process only.  Touches neither
  /// the device nor memory that is shared.
  void disown_slow() noexcept;
  /// Polls once, then advances every operation in flight.  Returns the number of completions.  Not
  /// in a forked child.
  std::size_t progress() noexcept;
  /// Changes when an operation in flight advances.
  std::uint64_t position() const noexcept;
  /// Whether everything that the operations in flight wait for ends a sleep.
  bool can_be_woken() const noexcept;
  /// Sleeps until something comes for an operation in flight, the next check of `watched` is due, a
  /// neighbour raises the alarm, `at_most` has passed, or a signal has come.  Only if it can be
  /// woken, and right after `watched` was checked at time `now`.  Makes a step of progress before
  /// it sleeps.
  void sleep(runtime::Liveness& watched, Timeout now, Timeout at_most) noexcept;
  /// Whether operations that are destroyed for their users still wait for their peers to read.
  bool has_retired() const noexcept;
  /// Traces the calls in flight from now on, also those that were not to be timed.  This is called
  /// when a wait has lasted for long, and when a communicator fails.
  void trace_untimed_calls() noexcept {
    if (trace) [[unlikely]]
      trace_untimed_calls_slow();
  }
  void trace_untimed_calls_slow() noexcept;
  /// Prints the reports of its communicators if a signal has asked for them.
  void report_if_asked() noexcept {
    if (settings.report_signal != 0 && reports_printed != runtime::report_signals()) [[unlikely]]
      print_reports_slow();
  }
  void print_reports_slow() noexcept;
  /// Tells the communicators of which connections have failed.
  void hear_failures_slow() noexcept;
};

}  // namespace tutti
