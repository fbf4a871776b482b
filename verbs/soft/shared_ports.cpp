#include "verbs/soft/shared_ports.hpp"

#include <sys/mman.h>

#include <cassert>
#include <string>
#include <tutti/status.hpp>

#include "tutti/detail/clock.hpp"

namespace tutti::verbs::soft {

struct alignas(64) SharedPorts::Seat {
  Ports ports;         // of the node of this number, which is no more than a rank
  std::uint32_t node;  // of the rank of this number
};

SharedPorts::SharedPorts(std::uint32_t rank_count, std::span<const std::uint32_t> node_of)
    : rank_count_(rank_count), epoch_ns_(detail::MonotonicClock::read().count()) {
  static_assert(std::atomic<Picoseconds>::is_always_lock_free);
  assert(rank_count > 0);
  assert(node_of.empty() || node_of.size() == rank_count);
  const std::size_t bytes = rank_count * sizeof(Seat);
  mapping_ = detail::Mapping(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
  if (!mapping_)
    throw Error(ErrorCode::system, "emulated ports: " + std::to_string(bytes) +
                                       " bytes of shared memory could not be had");
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    seat(rank).node = node_of.empty() ? rank : node_of[rank];
    assert(seat(rank).node < rank_count);
  }
}

SharedPorts::Seat& SharedPorts::seat(std::uint32_t rank) const noexcept {
  assert(rank < rank_count_);
  return reinterpret_cast<Seat*>(mapping_.data())[rank];
}

SharedPorts::Ports* SharedPorts::ports_of(std::uint32_t rank) const noexcept {
  return rank < rank_count_ ? &seat(seat(rank).node).ports : nullptr;
}

void SharedPorts::free_all() noexcept {
  for (std::uint32_t node = 0; node < rank_count_; ++node) {
    seat(node).ports.transmit.store(0, std::memory_order_relaxed);
    seat(node).ports.receive.store(0, std::memory_order_relaxed);
  }
}

}  // namespace tutti::verbs::soft
