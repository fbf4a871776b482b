// The one interposer of a process: whether it takes calls, and the communicators that it knows.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "program_communicator.hpp"
#include "settings.hpp"
#include "tutti/communicator.hpp"

namespace tutti::interposer {

/// Why a call was left to MPI.
enum class Reason : std::uint8_t {
  not_initialized,  // MPI_Init was not seen
  off,              // TUTTI_MPI=off, or another rank says so
  threads,          // MPI_THREAD_MULTIPLE
  intercommunicator,
  alone,           // one rank
  other_job,       // with ranks of another MPI_COMM_WORLD
  switched_off,    // by an info key of the communicator
  communicators,   // too many, or tutti failed on this one
  first_calls,     // of their kind
  empty,           // no elements
  large,           // above TUTTI_MPI_BYTES
  undefined,       // MPI defines no such reduction: it says so itself
  layout,          // a type of which elements begin before their address
  refused,         // tutti can make no operation for it
  long_block,      // of an alltoallv or scatterv, where only some ranks know how long blocks are
  not_persistent,  // an MPI_..._init of which tutti has no persistent operation
  requests,        // too many persistent requests of the communicator
  no_progress,     // nonblocking, and MPI would not let tutti go on while it waits
  reported,        // TUTTI_MPI=report: tutti would take it
  not_compared,    // TUTTI_MPI=verify, and MPI makes no communicator to do it on
};
inline constexpr std::size_t reason_count = static_cast<std::size_t>(Reason::not_compared) + 1;
const char* name_of(Reason reason);

struct CallCounts {
  std::uint64_t taken = 0;
  std::uint64_t bytes_taken = 0;
  std::array<std::uint64_t, reason_count> passed = {};

  /// Threads may come here at the same time only where no call is looked at: the first reasons.
  void pass(Reason reason) noexcept {
    std::uint64_t& count = passed[static_cast<std::size_t>(reason)];
    if (reason <= Reason::threads)
      std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed);
    else
      ++count;
  }
  std::uint64_t bytes_passed = 0;  // counted by report alone
  std::uint64_t differences = 0;   // calls that were found to differ from MPI's, by verify
  std::uint64_t not_compared = 0;  // calls of which verify does not know the type
};

class Interposer {
 public:
  /// MPI is initialised.  Collective over MPI_COMM_WORLD.
  void begin();
  /// MPI is about to be finalised: forgets everything.  Collective.
  void end();

  /// Whether begin() was called.
  bool has_begun() const noexcept { return has_begun_; }
  bool takes_calls() const noexcept { return takes_calls_; }
  /// Whether all calls pass, and are timed.
  bool reports() const noexcept { return reports_; }
  Reason why_not() const noexcept { return why_not_; }
  /// Whether MPI calls this library while it waits, on all ranks.
  bool has_progress() const noexcept { return has_progress_; }
  const Settings& settings() const noexcept { return settings_; }
  CallCounts& counts(Collective collective) noexcept {
    return counts_[static_cast<std::size_t>(collective)];
  }

  /// The sums over reasons; false if no function of this name is taken.
  bool calls(std::string_view function, unsigned long long& taken,
             unsigned long long& passed) const noexcept;

  /// Whether it looks at communicators at all.
  bool has_communicators() const noexcept { return takes_calls_ || reports_; }
  /// The program has given it info: "tutti" may be "off" or "on".  Collective; one rank that says
  /// off is enough.
  void heed(MPI_Comm handle, MPI_Info info);

  /// Returns what is known of a communicator, which begins when it is seen first; nullptr if it is
  /// none.
  ProgramCommunicator* communicator(MPI_Comm handle) {
    if (last_found_ != nullptr && last_found_->handle() == handle) return last_found_;
    return find_communicator(handle);
  }
  /// The program frees it.  Never waits for another rank, which may need this one in MPI first.
  void forget(MPI_Comm handle) noexcept;

  /// As ProgramCommunicator::make_operation.
  void make_operation(ProgramCommunicator& communicator, Shape& shape, bool is_in_place);
  void make_wanted_operations(ProgramCommunicator& communicator);
  /// As ProgramCommunicator::claim_persistent; with TUTTI_MPI=verify, the slot has a communicator.
  PersistentOperations::Claimed claim_persistent(ProgramCommunicator& communicator,
                                                 const ShapeKey& key, bool has_room);

 private:
  ProgramCommunicator* find_communicator(MPI_Comm handle);
  Context* context() noexcept;
  void retire(std::unique_ptr<ProgramCommunicator> communicator) noexcept;
  /// Whatever makes operations may adopt the communicator first, as this rank votes.
  template <class Make>
  void adopt_and_make(ProgramCommunicator& communicator, Make&& make);

  bool has_begun_ = false;
  bool prints_table_ = false;
  bool takes_calls_ = false;
  bool has_progress_ = false;
  bool reports_ = false;
  Reason why_not_ = Reason::not_initialized;
  bool has_no_context_ = false;
  std::string context_problem_;  // until it is said
  int keyval_ = MPI_KEYVAL_INVALID;
  std::uint32_t adopted_ = 0;
  std::uint32_t early_adoptions_ = 0;  // since the beginning
  Settings settings_;
  std::unique_ptr<Context> context_;
  std::unordered_map<MPI_Comm, std::unique_ptr<ProgramCommunicator>> communicators_;
  ProgramCommunicator* last_found_ = nullptr;  // of them
  // Freed by the program, the latest last; their peers may still have to read.
  std::deque<std::unique_ptr<ProgramCommunicator>> freed_;
  std::array<CallCounts, collective_count> counts_;
};

Interposer& interposer();

}  // namespace tutti::interposer
