// The probes.  floor, oneway and memcpy: what two processes of one machine can do at best, without
// a library.  wimm: a write-with-immediate ping-pong of 8 bytes between two ranks, with nothing but
// ibv_post_send, ibv_post_recv and ibv_poll_cq on the device that tutti chooses; half a round trip
// bounds a round of any collective that goes through the device.  They are kept so short that
// reading them is checking them.
#pragma once

#include <sched.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/exchange.hpp>
#include <tutti/operation.hpp>

#include "microbench/placement.hpp"
#include "microbench/subject.hpp"

namespace tutti::bench {

/// Two lines in memory that both processes map: rank r writes line r, and the other reads it.  They
/// are 128 bytes apart, because processors fetch neighbouring lines in pairs.
struct SharedLines {
  struct alignas(128) Line {
    std::uint64_t word = 0;
  };
  Line of[2];
};

/// Each probe counts its own calls, so each has its own lines.
struct ProbeMemory {
  SharedLines floor;
  SharedLines oneway;
};

/// Memory of rank 0 that rank 1 maps too, through /proc.  Collective.  Throws Error{system}.
detail::Mapping probe_memory_between(Exchange& exchange, const Placement& placement);

/// Both write their line and wait for the other's: the time of one exchange, which bounds a barrier
/// or allreduce of two ranks.
std::unique_ptr<Subject> floor_probe(SharedLines& lines, Rank self);

/// Rank 0 writes, rank 1 sees it and answers: half of this time is one hand-over.
std::unique_ptr<Subject> oneway_probe(SharedLines& lines, Rank self);

/// Both ranks copy as many bytes at the same time, as the library does: like memcpy, but for the
/// distances for which memcpy is slow (detail/copy.hpp).  A multiple of this time bounds what two
/// ranks of a node do with large payloads (copies_of() in results.cpp).  `meeting` is borrowed.
std::unique_ptr<Subject> memcpy_probe(std::span<const std::byte> from, std::span<std::byte> into,
                                      Operation& meeting);

/// Makes the probe wimm: half of a round trip of 8 bytes by writes with immediate.  Collective over
/// exactly two ranks.  `device` is as ContextOptions::device. Throws Error.
std::unique_ptr<Subject> wimm_probe(Exchange& exchange, const std::string& device);

/// How probes wait: spins until `ready()`.  It reads the clock and yields only after some 10 us of
/// spinning, so that these do not change a figure.  Throws RunFailed after call_timeout.
template <class Ready>
void spin_until(const char* what, Ready ready) {
  constexpr unsigned polls_before_clock = 1u << 14;
  Timeout begin{0};
  for (;;) {
    for (unsigned polls = 0; polls < polls_before_clock; ++polls)
      if (ready()) return;
    const Timeout now = detail::MonotonicClock::read();
    if (begin == Timeout{0}) begin = now;
    if (now - begin > call_timeout)
      throw RunFailed(std::string(what) + ": nothing from the other rank for 60 s");
    sched_yield();
  }
}

}  // namespace tutti::bench
