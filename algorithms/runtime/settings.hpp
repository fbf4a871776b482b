// The TUTTI_* environment, read in this one place (TUTTI_SOFT_* by verbs/soft).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/communicator.hpp>
#include <vector>

#include "runtime/settings_table.hpp"

namespace tutti::runtime {

/// Throws Error{invalid_argument} if the environment has a TUTTI_* variable that is not in
/// settings().
void refuse_unknown_settings();

/// Nodes of more ranks than that meet by domains (bootstrap/domain.hpp).  A first guess, not
/// measured: it takes a machine of several domains with as many ranks.  Flat barriers were faster
/// on nodes of 16 processors (V. Tipparaju, J. Nieplocha, D. Panda, "Fast collective operations
/// using shared and remote memory access protocols on clusters", IPDPS 2003, 2.2).
inline constexpr std::size_t domains_above_ranks = 16;

/// More than any address space has room for; sizes near 2^64 would wrap when they are rounded.
inline constexpr std::size_t arena_bytes_max = std::size_t{1} << 47;

/// What a context has for its ring of partials (shm/staging_ring.hpp) besides an arena of so many
/// bytes: nothing where memory is short.
constexpr std::size_t staging_bytes(std::size_t arena_bytes) noexcept {
  constexpr std::size_t ring = 2u << 20;
  return arena_bytes >= 4 * ring ? ring : 0;
}

/// ContextOptions without gaps.
struct ContextSettings {
  std::string device;  // empty: the best one
  std::size_t arena_bytes = 16u << 20;
  std::uint32_t connections_max = 0;             // 0: what the device allows
  std::size_t chunk_bytes = 0;                   // 0: by the node shape
  std::optional<std::size_t> single_copy_bytes;  // empty: measured; SIZE_MAX: never
  bool register_buffers = false;
  CheckLevel check = CheckLevel::collective;
  Timeout setup_timeout = std::chrono::seconds(30);
  Timeout detection_bound = std::chrono::seconds(1);  // within which a death has to be found
  bool shrinkable = false;
  ConnectBy connect = ConnectBy::exchange;
  Notify notify = Notify::immediate;
  WaitPolicy wait = WaitPolicy::automatic;
  SharedNotifications shared_notifications = SharedNotifications::automatic;
  std::vector<std::uint32_t> per_round;       // empty: the rule
  std::vector<std::uint32_t> ranks_per_node;  // empty: found
  Placement placement = Placement::block;
  std::size_t domains_above = domains_above_ranks;  // SIZE_MAX: never
  std::vector<std::uint32_t> ranks_per_domain;      // empty: found
  TuningMode tuning = TuningMode::file;
  std::string tuning_file;  // empty: looked for
  bool tuning_keeps_bits = false;
  bool tuning_appends = false;
  int report_signal = 0;    // 0: none
  bool stragglers = false;  // for whom a rank has waited is printed at the end
  std::string trace_file;   // pattern of a path; empty: no trace
  std::size_t trace_bytes = 4u << 20;
  bool trace_samples = true;    // of calls in quick succession only some are timed
  std::string emulated_fabric;  // TUTTI_SOFT_FABRIC; empty: none
};

/// Code over environment over defaults.  Throws Error{invalid_argument}, also for an unknown name
/// in the environment.
ContextSettings context_settings(const ContextOptions& given);

/// Which of both is in force, never automatic, and why.
struct SharedNotificationsChoice {
  SharedNotifications in_force;
  const char* reason;
};
/// `promises_order`: whether the device does (promises_order() in tuning_table.hpp).
SharedNotificationsChoice choose_shared_notifications(SharedNotifications asked,
                                                      bool promises_order,
                                                      bool time_is_simulated) noexcept;

/// "3,2,1" -> {3, 2, 1}; throws Error{invalid_argument} that begins with `origin`.
std::vector<std::uint32_t> parse_per_round(std::string_view text, const std::string& origin);

/// "2" or "3,1,2" -> ranks of each node; throws Error{invalid_argument} that begins with `origin`.
std::vector<std::uint32_t> parse_ranks_per_node(std::string_view text, const std::string& origin);

/// "2" or "3,1,2" -> ranks of each domain of a node; throws likewise.
std::vector<std::uint32_t> parse_ranks_per_domain(std::string_view text, const std::string& origin);

/// "block", "cyclic" or "random"; throws likewise.
Placement parse_placement(std::string_view text, const std::string& origin);

/// "16M" -> 16777216; K, M, G are powers of 1024; throws Error{invalid_argument}.
std::uint64_t parse_bytes(std::string_view text, const std::string& origin);

/// "4K" -> 4096; "never" -> SIZE_MAX; "measured" -> nothing; throws likewise.
std::optional<std::size_t> parse_single_copy(std::string_view text, const std::string& origin);

}  // namespace tutti::runtime
