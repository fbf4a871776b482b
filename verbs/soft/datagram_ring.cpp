#include "verbs/soft/datagram_ring.hpp"

#include <cassert>
#include <cstring>
#include <limits>

namespace tutti::verbs::soft {

bool DatagramWriter::write(std::span<const std::byte> datagram) noexcept {
  assert(ring_ != nullptr);
  assert(!datagram.empty());
  assert(datagram.size() <= DatagramSlot::data_bytes);
  if (written_ - taken_ >= DatagramRing::slots_count) {
    // Acquire: the receiver has read the slots that may be overwritten now.
    taken_ = ring_->taken.load(std::memory_order_acquire);
    if (written_ - taken_ >= DatagramRing::slots_count) return false;
  }
  DatagramSlot& slot = ring_->slots[written_ % DatagramRing::slots_count];
  std::memcpy(slot.data, datagram.data(), datagram.size());
  slot.bytes = static_cast<std::uint32_t>(datagram.size());
  // Release: a receiver that sees the sequence sees the datagram.
  slot.sequence.store(++written_, std::memory_order_release);
  return true;
}

bool DatagramWriter::finds_bell() noexcept {
  assert(ring_ != nullptr);
  // The word is exchanged in any case: see Bell.
  return ring_->bell.exchange(Bell::idle, std::memory_order_acq_rel) == Bell::wanted;
}

DatagramReader::DatagramReader(DatagramRing& ring, Watch& watch) noexcept
    : ring_(ring), watch_(watch) {
  // The watch is in use, and never ready.
  watch_.expected.store(std::numeric_limits<std::uint64_t>::max(), std::memory_order_relaxed);
  watch_.sequence.store(&slot().sequence, std::memory_order_release);
}

DatagramReader::~DatagramReader() {
  watch_.sequence.store(nullptr, std::memory_order_release);
}

void DatagramReader::begin() noexcept {
  assert(!has_begun_);
  has_begun_ = true;
  move_watch();
}

void DatagramReader::move_watch() noexcept {
  watch_.expected.store(taken_ + 1, std::memory_order_relaxed);
  watch_.sequence.store(&slot().sequence, std::memory_order_release);
}

bool DatagramReader::is_ready() const noexcept {
  // Acquire: the datagram is there.
  return has_begun_ && slot().sequence.load(std::memory_order_acquire) == taken_ + 1;
}

std::span<const std::byte> DatagramReader::front() const noexcept {
  assert(has_begun_);
  const std::uint32_t bytes = slot().bytes;
  // Another process has written the length.
  if (bytes > DatagramSlot::data_bytes) return {};
  return std::span(slot().data).first(bytes);
}

void DatagramReader::release_front() noexcept {
  assert(has_begun_);
  ++taken_;
  move_watch();
  // Release: the sender may overwrite what has been read.
  ring_.taken.store(taken_, std::memory_order_release);
}

bool DatagramReader::want_call() noexcept {
  ring_.bell.exchange(Bell::wanted, std::memory_order_acq_rel);
  return is_ready();
}

}  // namespace tutti::verbs::soft
