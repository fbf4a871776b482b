// What stands behind Context, Communicator and Operation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tutti/collectives.hpp>
#include <tutti/detail/clock.hpp>
#include <vector>

#include "engine/execution.hpp"
#include "plan/plan.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti {

struct Context::Implementation {
  explicit Implementation(const ContextOptions& given);

  ContextOptions options;
  verbs::VerbsFabric fabric;
  detail::MonotonicClock clock;
  std::uint64_t process_key;    // random; names this context to its peers
  bool oversubscribed = false;  // more ranks than CPUs on this host: waiting yields early

  std::vector<Communicator::Implementation*> communicators;
  /// Operations in flight; its capacity is at least the number of live operations, so that start()
  /// allocates nothing.
  std::vector<Operation::Implementation*> in_flight;
  std::size_t live_operations = 0;

  /// Polls once, then advances every operation in flight.  Only a failure of the transport is
  /// reported here; it has been recorded in the communicators by then.
  Status progress() noexcept;
  void transport_failed_slow() noexcept;
};

struct Communicator::Implementation {
  Implementation(Context::Implementation& owner, Exchange& given);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Context::Implementation& context;
  Exchange& exchange;
  std::vector<std::uint64_t> process_of;  // by rank
  std::uint32_t operations_made = 0;
  Failure failure;
  Timeout next_liveness_check{0};

  bool failed() const noexcept { return failure.status != Status::ok; }

  /// Records the first failure and takes this communicator's operations out of flight.  `met_by` is
  /// the operation that met it, if any.
  void fail(Status status, Rank peer, const char* what, const Operation::Implementation* met_by,
            std::uint32_t completion = 0, int system_errno = 0) noexcept;

  /// Asks the side channel, at most ten times a second.  `now` is the context's clock.
  void check_liveness(Timeout now) noexcept;
  /// Records what the side channel knows; false if that is nothing.
  bool adopt_incident() noexcept;
  Rank rank_of(std::uint64_t process) const noexcept;
};

struct Operation::Implementation {
  Implementation(Communicator::Implementation& owner, plan::Plan&& made, const char* collective);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Communicator::Implementation& communicator;
  plan::Plan plan;
  const char* name;  // of the collective
  std::uint32_t ordinal;
  verbs::Channel channel;
  std::uint32_t channel_id = 0;
  std::byte* block = nullptr;  // of the arena: slots and partials, both parities
  engine::Execution execution;
  std::uint32_t tests_since_clock = 0;

  Status start() noexcept;
  Status test() noexcept;
  Status wait(Timeout timeout) noexcept;

  /// ok, or the communicator's failure.
  Status settled() const noexcept { return communicator.failure.status; }
  std::uint32_t round() const noexcept;
  std::string describe() const;

 private:
  Status wait_slow(Timeout timeout) noexcept;
};

namespace api {

/// Puts in the order of the plan; used to build the channel.
std::size_t put_count(const plan::Plan& plan) noexcept;

/// What a collective hands to make_operation().
struct OperationRequest {
  const char* collective = "";
  std::size_t element_count = 0;
  Reduction reduction = {};
  Agreement agreement = Agreement::identical;
  const void* source = nullptr;
  void* target = nullptr;
};

/// Collective: agrees with the other ranks that `build` succeeded everywhere and that they ask for
/// the same, then connects.  `build` makes this rank's plan and may throw Error, which every rank
/// then hears.
Operation make_operation(Communicator& communicator, const OperationRequest& request,
                         const std::function<plan::Plan()>& build);

}  // namespace api
}  // namespace tutti
