// A communicator of the program, as this rank knows it: what was called on it, and what tutti has
// made for that.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "shape.hpp"
#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"

namespace tutti::interposer {

/// So many operations a communicator has at most; the one that was not used for longest goes.
inline constexpr std::size_t operations_max = 32;
/// So many kinds of calls are told apart; after that, all that have no operation are forgotten.
inline constexpr std::size_t shapes_max = 1024;

/// Why the calls of a communicator pass, or no for a reason.
enum class Passing : std::uint8_t { no, intercommunicator, alone, switched_off, too_many, failed };

class ProgramCommunicator {
 public:
  explicit ProgramCommunicator(MPI_Comm handle);

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

  /// The kind of a call that is being made, one more of which is counted.
  Shape& count_call(const ShapeKey& key);

  /// Makes the shape's operation, if it has none and can have one, for the buffers of the call that
  /// needs it.  Collective: all ranks are in the same blocking call.  `context` is nullptr, and
  /// `has_room` false, where this rank cannot adopt a communicator; then none does.
  void make_operation(Shape& shape, Context* context, bool has_room, const void* source,
                      void* target);

  std::optional<std::size_t> nodes_in_report;  // of its ranks, once report has looked

  const Failure& failure() const noexcept { return communicator_->failure(); }

 private:
  void adopt(Context* context, bool has_room);
  void drop_the_oldest(const Shape& but);

  MPI_Comm handle_;
  std::int32_t rank_ = 0;
  std::uint32_t rank_count_ = 0;
  Passing passing_ = Passing::no;
  bool is_first_unable_ = false;
  std::uint64_t calls_ = 0;
  std::size_t operations_ = 0;
  // In the order in which they depend on each other.
  std::unique_ptr<Exchange> exchange_;
  std::optional<Communicator> communicator_;
  std::unordered_map<ShapeKey, std::unique_ptr<Shape>, HashOfShape> shapes_;
};

}  // namespace tutti::interposer
