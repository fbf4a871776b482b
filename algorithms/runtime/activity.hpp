// Publishes what the operations of a process are doing in memory that other processes of its host
// may read (process_vm_readv): for reports, and for programs that look at a process which hangs.
//
//   first page of the mapping          memory of the process
//   ActivityBoard: newest  ----------> OperationRecord: next ---> OperationRecord: next ---> ...
//                                        addresses of the ------> Execution, steps of the plan
//                                        execution state
//
// A call writes nothing for this purpose: a record holds the addresses of the execution state that
// the call updates anyway.  Only a long wait also writes when progress was last seen.  Whoever
// reads sees values that change meanwhile, which is good enough for reports, and for nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/timeout.hpp>
#include <tutti/types.hpp>
#include <type_traits>
#include <vector>

#include "plan/core/plan.hpp"
#include "runtime/peer_waits.hpp"

namespace tutti::engine {
struct Execution;
}

namespace tutti::runtime {

/// Describes an operation to others.  Its owner writes it, others read a copy.
struct OperationRecord {
  static constexpr std::uint64_t magic_number = 0x636572206f747574;
  static constexpr std::size_t label_bytes = 64;

  std::uint64_t magic = magic_number;
  std::uint64_t next = 0;  // address of the next record; 0: none
  std::uint64_t communicator = 0;
  std::uint32_t ordinal = 0;
  std::uint32_t rank = 0, rank_count = 0;
  std::uint32_t round_count = 0;
  char collective[32] = {};
  char label[label_bytes] = {};
  std::uint64_t chunk_count = 1;
  std::uint64_t step_count = 0;
  // How much this rank sends and reads in each call.  If `bytes_sent` below is not 0, it is the
  // address of a count that holds instead.
  std::uint64_t bytes_sent_per_call = 0, bytes_read_per_call = 0;
  // Addresses in the owner's memory.
  std::uint64_t sequence = 0, in_flight = 0, next_step = 0, steps = 0;
  std::uint64_t bytes_sent = 0;  // 0: none
  std::uint64_t waits = 0;       // of its communicator, a PeerWait for each rank
  // What a wait adds when it has lasted for some microseconds.
  std::uint32_t is_waiting = 0;
  std::uint32_t unused = 0;
  std::int64_t no_progress_since = 0;  // monotonic clock, nanoseconds; 0: not known

  void set_label(std::string_view label) noexcept;
};
static_assert(std::is_trivially_copyable_v<OperationRecord>);

/// Lies in the first page of a process's mapping, behind the boards of copy_costs.hpp and
/// sleeper.hpp.
struct ActivityBoard {
  static constexpr std::size_t offset = 2304;
  /// Processes whose layouts differ do not read each other's records.
  static constexpr std::uint64_t current_layout =
      std::uint64_t{2} << 48 | sizeof(OperationRecord) << 16 | sizeof(plan::Step);

  std::uint64_t layout;
  std::uint64_t newest;             // address of a record, 0: none
  std::uint64_t process;            // id in the owner's namespace
  std::uint64_t completion_errors;  // address of their count
};

/// The records of a context, in the order in which the operations were made, the newest first.  One
/// thread at a time.
class Activity {
 public:
  /// `page`: of the memory that this process offers to its node, zeroed.
  Activity(std::byte* page, const std::uint64_t& completion_errors) noexcept;

  void add(OperationRecord& record, const engine::Execution& execution) noexcept;
  void remove(OperationRecord& record) noexcept;

 private:
  ActivityBoard* board_;
};

/// An operation of some process, as it was seen.
struct SeenOperation {
  std::uint64_t communicator = 0;
  std::uint32_t ordinal = 0;
  std::uint32_t rank = 0, rank_count = 0;
  std::string collective = {}, label = {};
  std::uint64_t call = 0;  // how many were started
  bool is_in_flight = false;
  bool is_waiting = false;
  std::optional<std::uint32_t> round = {};  // set while it is in flight, if its schedule has rounds
  std::uint32_t round_count = 0;
  Rank awaited = no_rank;                        // whose message is awaited next
  std::optional<Timeout> without_progress = {};  // for so long
  // What this rank has done for the calls that are finished.
  std::uint64_t calls_finished = 0, rounds_finished = 0;
  std::uint64_t bytes_sent = 0;  // in messages to other ranks, also those that are read in place
  std::uint64_t bytes_read = 0;  // in buffers of other ranks

  /// Computes them from `call`, `is_in_flight` and the record.
  void count(const OperationRecord& record) noexcept;
};

/// A communicator of some process, as its operations tell of it.
struct SeenCommunicator {
  std::uint64_t communicator = 0;
  std::uint32_t rank = 0, rank_count = 0;
  std::vector<WaitedFor> waited_for = {};
};

struct SeenProcess {
  std::int32_t process = 0;
  std::string state = {};       // "running", "sleeping", "stopped", ...; empty: not known
  std::string unreadable = {};  // why its operations could not be read; empty: they could
  std::vector<SeenOperation> operations = {};  // the oldest first
  std::uint64_t completion_errors = 0;         // of its context
  std::vector<SeenCommunicator> communicators = {};
};

/// Whether to look for whom a process has waited, too.
enum class LookFor : std::uint8_t { operations, operations_and_waits };

/// Looks at a process of this host, of whose mapping the first page is at `page`.  Its id here is
/// `process`.  Throws std::bad_alloc alone.
SeenProcess look_at(std::int32_t process, const std::byte* page, LookFor what);

/// "allreduce #3 \"residual\"", as operations are called everywhere.
std::string name_of(std::string_view collective, std::uint32_t ordinal, std::string_view label);

}  // namespace tutti::runtime
