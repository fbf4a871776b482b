// The operations of a communicator's persistent requests.  Each request has one of its own, because
// ranks may start them in any order.  What a request had is used again for the next one of its
// kind: programs make and free the same ones in a loop.
//
// A rank frees requests when it likes.  So the ranks agree on the operations that none of them
// needs any more whenever they make a request, where they meet.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "handles.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// So many persistent requests of a communicator tutti has at the same time.
inline constexpr std::size_t persistent_max = 32;
/// So many operations without a request are kept for the next ones.
inline constexpr std::size_t persistent_spare_max = 4;

class PersistentOperations {
 public:
  struct Slot {
    std::unique_ptr<Shape> instance;  // nullptr: it has no operation
    bool is_used = false;             // by a request of this rank
    std::uint64_t last_claim = 0;
    /// With TUTTI_MPI=verify MPI does what its requests do on a communicator of the slot, because
    /// ranks may start requests in any order.
    MPI_Comm for_verify = handles().no_comm;
  };
  enum class Refusal : std::uint8_t { no, later, requests, refused, not_compared };
  struct Claimed {
    Slot* slot = nullptr;
    Refusal why_not = Refusal::no;
  };
  /// Whether this rank can hold one more request, and whether an operation may be made, on which
  /// all ranks agree.
  struct Allowed {
    bool has_room;
    bool may_make;
  };

  /// Collective over `communicator`.  `make` gives a shape its operation, or on all ranks does not.
  Claimed claim(MPI_Comm communicator, const ShapeKey& key, const Allowed& allowed,
                const std::function<void(Shape&)>& make);
  void clear() noexcept { slots_.clear(); }
  /// Frees the communicators of slots without a request of this rank.
  void free_for_verify() noexcept;

 private:
  void drop_spare(std::uint64_t unused);

  std::vector<Slot> slots_;        // persistent_max, or none
  std::vector<ShapeKey> refused_;  // no operation can be made for them
  std::uint64_t claims_ = 0;       // the ranks have made equally many
  std::uint64_t uncounted_ = 0;    // starts, whose order differs between ranks
};

}  // namespace tutti::interposer
