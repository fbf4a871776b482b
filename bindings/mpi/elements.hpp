// Elements of the program's buffers, wherever they lie.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "loaded_mpi.hpp"

namespace tutti::interposer {

/// Where the element is that lies so many elements behind the one at `address`.
inline const void* moved(const void* address, std::int64_t elements, MPI_Datatype type) {
  MPI_Aint lower = 0, extent = 0;
  own_mpi().Type_get_extent(type, &lower, &extent);
  return static_cast<const std::byte*>(address) + elements * extent;
}

/// Elements of the program's.  MPICH packs nothing from MPI_BOTTOM, which it takes for an address
/// that was forgotten: there the type is moved so far that an address can be given.
class Elements {
 public:
  Elements(const void* address, std::size_t count, MPI_Datatype type)
      : address_(address), count_(static_cast<int>(count)), type_(type) {
    if (address != MPI_BOTTOM || count == 0) return;
    const MPI_Aint back = -reinterpret_cast<MPI_Aint>(&origin_);
    own_mpi().Type_create_hindexed(1, &count_, &back, type, &moved_type_);
    own_mpi().Type_commit(&moved_type_);
    address_ = &origin_;
    count_ = 1;
    type_ = moved_type_;
    is_moved_ = true;
  }
  ~Elements() {
    if (is_moved_) own_mpi().Type_free(&moved_type_);
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  /// Copies them to `into`, without gaps.
  void pack(std::byte* into, std::size_t bytes, MPI_Comm communicator) const {
    int position = 0;
    if (count_ > 0)
      own_mpi().Pack(address_, count_, type_, into, static_cast<int>(bytes), &position,
                     communicator);
  }
  void unpack(const std::byte* from, std::size_t bytes, MPI_Comm communicator) const {
    int position = 0;
    if (count_ > 0)
      own_mpi().Unpack(from, static_cast<int>(bytes), &position, const_cast<void*>(address_),
                       count_, type_, communicator);
  }

 private:
  static inline char origin_ = 0;
  const void* address_;
  int count_;
  MPI_Datatype type_;
  MPI_Datatype moved_type_{};
  bool is_moved_ = false;
};

}  // namespace tutti::interposer
