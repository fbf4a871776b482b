#include "verbs/soft/shared_ports.hpp"

#include <sys/mman.h>

#include <cassert>
#include <string>
#include <tutti/status.hpp>

#include "tutti/detail/clock.hpp"

namespace tutti::verbs::soft {
namespace {

SharedPorts* joined_one = nullptr;

}  // namespace

struct alignas(64) SharedPorts::Line {
  Ports ports;
};

SharedPorts::SharedPorts(std::uint32_t rank_count, std::span<const std::uint32_t> node_of)
    : rank_count_(rank_count), epoch_ns_(detail::MonotonicClock::read().count()) {
  static_assert(std::atomic<Picoseconds>::is_always_lock_free);
  assert(rank_count > 0);
  assert(node_of.empty() || node_of.size() == rank_count);
  const std::size_t bytes = rank_count * (sizeof(Line) + sizeof(std::uint32_t));
  mapping_ = detail::Mapping(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
  if (!mapping_)
    throw Error(ErrorCode::system, "emulated ports: " + std::to_string(bytes) +
                                       " bytes of shared memory could not be had");
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    this->node_of()[rank] = node_of.empty() ? rank : node_of[rank];
    assert(this->node_of()[rank] < rank_count);
  }
}

SharedPorts::Line* SharedPorts::lines() const noexcept {
  return reinterpret_cast<Line*>(mapping_.data());
}
std::uint32_t* SharedPorts::node_of() const noexcept {
  return reinterpret_cast<std::uint32_t*>(lines() + rank_count_);
}

void SharedPorts::join(std::uint32_t rank) noexcept {
  assert(rank < rank_count_);
  rank_ = rank;
  joined_one = this;
}
SharedPorts* SharedPorts::joined() noexcept {
  return joined_one;
}

SharedPorts::Ports* SharedPorts::ports_of(std::uint32_t rank) const noexcept {
  return rank < rank_count_ ? &lines()[node_of()[rank]].ports : nullptr;
}

void SharedPorts::free_all() noexcept {
  for (std::uint32_t node = 0; node < rank_count_; ++node) {
    lines()[node].ports.transmit.store(0, std::memory_order_relaxed);
    lines()[node].ports.receive.store(0, std::memory_order_relaxed);
  }
}

}  // namespace tutti::verbs::soft
