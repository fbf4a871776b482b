// Context: one process's device, arena, completion queue and queue pairs.  Communicator: ranks over
// a context and an exchange.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"

namespace tutti {

/// How much the library verifies when an operation is made.
enum class CheckLevel : std::uint8_t {
  off,         // only what memory safety needs
  local,       // this rank's arguments
  collective,  // also that all ranks gave the same arguments; set-up communicates anyway
};

struct ContextOptions {
  std::string device;                   // name or name:port, "" = the best one (README "Settings")
  std::size_t arena_bytes = 16u << 20;  // registered memory for slots and send buffers
  CheckLevel check = CheckLevel::collective;
  Timeout setup_timeout = std::chrono::seconds(30);  // of each collective set-up step
  std::vector<std::uint32_t> per_round;  // messages per round for every operation; empty = the rule

  /// Defaults, overridden by the TUTTI_* environment (README "Settings").  Throws
  /// Error{invalid_argument} for an unknown TUTTI_* name or a value that cannot be read.
  TUTTI_EXPORT static ContextOptions from_environment();
};

/// Device, arena, connections (keyed by peer, only the partners that plans use), completion queue.
/// One thread at a time for it and for everything made from it.  Must outlive its communicators.
class TUTTI_EXPORT Context {
 public:
  /// Opens the device and registers the arena.  Throws Error.
  explicit Context(const ContextOptions& options = ContextOptions::from_environment());
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  const ContextOptions& options() const noexcept;
  std::string device_name() const;    // e.g. "mlx5_0:1"
  std::string device_choice() const;  // one line: which port and GID, and why

  struct Implementation;
  Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

/// The ranks of an exchange over a context.  Until shared memory inside a node is used, every rank
/// counts as a node of its own.  Context and exchange are borrowed and must outlive it.
class TUTTI_EXPORT Communicator {
 public:
  /// Collective.  Throws Error.
  Communicator(Context& context, Exchange& exchange);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // its operations must be gone

  Rank rank() const noexcept;
  std::uint32_t rank_count() const noexcept;

  /// Gives up: every operation in flight here returns `aborted`, and within the detection bound
  /// (README "Guarantees") those of the other ranks do too.
  void abort() noexcept;

  /// Collective, out of band: no rank returns before all have entered.  Slow; for set-up and tests.
  /// Throws Error.
  void synchronize();

  /// One step of progress for all operations of the context.
  Status progress() noexcept;

  /// The first failure; its status is `ok` while there is none.
  const Failure& failure() const noexcept;

  struct Implementation;
  Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
