// The shared ring with threads as ranks.  What the device does is a copy and a store of the word;
// the order of that store is the fabric's.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "support/ring_of_nodes.hpp"

namespace tutti::test {

template <std::memory_order order>
struct StoringFabric : engine::WordsOfNode {
  StoringFabric(RingOfNodes& of, const RingOfNodes::Member& by) : ring(of), member(by) {}
  RingOfNodes& ring;
  const RingOfNodes::Member& member;
  Status room() const noexcept { return Status::ok; }
  Status forward(const engine::Forwarding& chunk) noexcept {
    std::byte* const there = ring.block(member.next);
    if (chunk.bytes > 0)
      std::memcpy(there + chunk.into, ring.block(member.node) + chunk.from, chunk.bytes);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(there + chunk.word)).store(chunk.lap, order);
    return Status::ok;
  }
};

/// How many results were wrong.
template <std::memory_order order>
std::uint64_t run_threads(const RingCase& one, std::uint64_t calls) {
  RingOfNodes ring(one);
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (RingOfNodes::Member& member : ring.members)
    threads.emplace_back([&ring, &member, &wrong, calls] {
      StoringFabric<order> fabric(ring, member);
      std::mt19937 random(member.rank);
      for (std::uint64_t call = 0; call < calls; ++call) {
        ring.start(member);
        if (random() % 4 == 0) std::this_thread::yield();
        while (member.ring->advance(member.execution, fabric) != Status::ok)
          std::this_thread::yield();
        if (!ring.is_right(member)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

}  // namespace tutti::test
