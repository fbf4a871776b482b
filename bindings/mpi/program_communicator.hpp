// A communicator of the program, as this rank knows it: what was called on it, and what tutti has
// made for that.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "handles.hpp"
#include "persistent_operations.hpp"
#include "shape.hpp"
#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"

namespace tutti::interposer {

/// So many operations a communicator has at most; the one that was not used for longest goes.
inline constexpr std::size_t operations_max = 32;
/// So many kinds of calls are told apart; after that, all that have no operation are forgotten.
inline constexpr std::size_t shapes_max = 1024;

/// So many calls of one nonblocking kind can be in flight at the same time; further ones wait for
/// them.
inline constexpr std::size_t instances_max = 2;

/// Making a communicator of tutti's takes as long as thousands of calls gain, and an operation as
/// long as hundreds (README, "Decisions").  So many are made as soon as calls repeat: communicators
/// of a process, and operations of a communicator.  Whatever more is made, or once more, has to be
/// called often first: a program may make and free thousands, and call in many ways.
inline constexpr std::uint32_t early_adoptions_max = 32;
inline constexpr std::uint32_t early_operations_max = 1024;
inline constexpr std::uint64_t calls_before_adoption = 1000;
inline constexpr std::uint64_t calls_before_operation = 200;

/// What a rank has to say when a communicator might be adopted; the least word of all ranks counts.
enum class Vote : std::int32_t { never, later, now };

/// Why the calls of a communicator pass, or no for a reason.
enum class Passing : std::uint8_t {
  no,
  intercommunicator,
  alone,
  other_job,  // with ranks of another MPI_COMM_WORLD, who may know nothing of tutti
  switched_off,
  too_many,
  failed,
};

class ProgramCommunicator {
 public:
  explicit ProgramCommunicator(MPI_Comm handle);
  ProgramCommunicator(const ProgramCommunicator&) = delete;
  ProgramCommunicator& operator=(const ProgramCommunicator&) = delete;

  MPI_Comm handle() const noexcept { return handle_; }
  std::int32_t rank() const noexcept { return rank_; }
  std::uint32_t rank_count() const noexcept { return rank_count_; }
  Passing passing() const noexcept { return passing_; }
  bool is_adopted() const noexcept { return communicator_.has_value(); }
  /// Switches it off, or on again if that was why its calls passed.
  void switch_off(bool is_off) noexcept {
    if (is_off && passing_ == Passing::no) passing_ = Passing::switched_off;
    if (!is_off && passing_ == Passing::switched_off) passing_ = Passing::no;
  }
  /// Whether this is the first of the ranks that could not adopt it: the one to say why.
  bool is_first_unable() const noexcept { return is_first_unable_; }
  /// Its adoption, until it has been called often.
  bool was_put_off() const noexcept { return was_put_off_; }

  /// Nonblocking calls that tutti does, and persistent requests that the program has.
  std::uint64_t calls_in_flight = 0;

  /// The kind of a call that is being made, one more of which is counted.
  Shape& count_call(const ShapeKey& key);

  /// Whether calls of this kind need another one, with larger frames (framed_blocks).
  bool has_outgrown(const ShapeKey& key) const {
    const auto found = shapes_.find(key);
    return found != shapes_.end() && found->second->is_refused && found->second->is_outgrown;
  }

  /// Whether enough calls were made for an operation of this shape; `after` are the least.
  bool is_due(const Shape& shape, std::uint32_t after) const noexcept;

  /// Makes the shape's operation, if it has none and can have one, for calls that are in place or
  /// not.  Collective: all ranks are in the same blocking call.  `context` may be nullptr if the
  /// vote is never.
  void make_operation(Shape& shape, Context* context, Vote vote, bool is_in_place);

  /// An operation for a persistent request.  Collective: all ranks are in the same ..._init, and
  /// one without `has_room` can hold no more requests.
  PersistentOperations::Claimed claim_persistent(const ShapeKey& key, bool has_room,
                                                 Context* context, Vote vote);

  /// The program makes no more calls.  Never waits, as the end of an adopted communicator may.
  void drop_operations() noexcept {
    shapes_.clear();
    persistent_.clear();
  }

  /// The operation of a shape is not used any more.  Nothing of it is in flight, and all ranks are
  /// at the end of the same call.
  void give_up(Shape& shape) noexcept;

  /// By which MPI sends long blocks of a gatherv; made with the operation of the first one.
  MPI_Comm for_long_blocks() const noexcept { return for_long_blocks_; }
  /// Makes the communicator of a slot that verify needs.  Collective; where MPI makes none on some
  /// rank, all give the slot back and return false.
  bool make_for_verify(PersistentOperations::Slot& slot);
  /// Frees what MPI has for long blocks and for verify.  Collective, so that only the program's
  /// free of this communicator does it.  Where the program frees none, or a persistent request
  /// needs it still, MPI_Finalize does: later, ranks would free several in different orders.
  void free_ways() noexcept;

  /// A nonblocking call is local: it wants operations, and the next blocking call on the
  /// communicator makes them.  All ranks are in the same call there, and have the same wishes.
  void want_operations(Shape& shape);
  bool wants_operations() const noexcept { return !wanted_.empty(); }
  void make_wanted_operations(Context* context, Vote vote);

  std::optional<std::size_t> nodes_in_report;  // of its ranks, once report has looked

  const Failure& failure() const noexcept { return communicator_->failure(); }

 private:
  /// Has MPI make a communicator of the same ranks.  Collective; MPI_COMM_NULL on all ranks where
  /// MPI has failed on one, now or before.
  MPI_Comm make_way();
  void adopt(Context* context, Vote vote);
  /// Makes room for so many more operations.
  void drop_the_oldest(std::size_t count, const Shape& but);
  template <class Make>
  void try_to_make(Shape& shape, Make&& make);

  MPI_Comm handle_;
  MPI_Comm for_long_blocks_ = handles().no_comm;
  bool has_no_way_ = false;  // MPI has failed to make a communicator, on some rank
  std::int32_t rank_ = 0;
  std::uint32_t rank_count_ = 0;
  Passing passing_ = Passing::no;
  bool is_first_unable_ = false;
  std::uint64_t calls_ = 0;
  bool was_put_off_ = false;  // its adoption
  std::size_t operations_ = 0;
  std::uint64_t operations_made_ = 0;
  // In the order in which they depend on each other.
  std::unique_ptr<Exchange> exchange_;
  std::optional<Communicator> communicator_;
  std::unordered_map<ShapeKey, std::unique_ptr<Shape>, HashOfShape> shapes_;
  std::vector<Shape*> wanted_;
  PersistentOperations persistent_;
};

}  // namespace tutti::interposer
