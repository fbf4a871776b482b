// A writer that forgets the release of a sequence word: ThreadSanitizer has to report it, or its
// silence about the fabric of a node would mean nothing.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "shm/node_fabric.hpp"

namespace {
struct alignas(64) Slot {
  std::byte bytes[64];
};
}  // namespace

int main() {
  static Slot slot;
  tutti::shm::NodeChannel reader(0, 1);
  tutti::shm::SequenceWord* const word = tutti::shm::word_of(slot.bytes, sizeof slot);
  reader.await(0, 0, word);
  std::thread writer([&] {
    const std::uint64_t payload = 7;
    std::memcpy(slot.bytes, &payload, sizeof payload);
    std::atomic_ref(*word).store(1, std::memory_order_relaxed);  // planted: announce() releases
  });
  while (!reader.take(0, 0)) std::this_thread::yield();
  std::uint64_t payload = 0;
  std::memcpy(&payload, slot.bytes, sizeof payload);
  writer.join();
  return payload == 7 ? 0 : 1;
}
