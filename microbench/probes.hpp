// The probes floor, oneway and memcpy: what two processes of one machine can do at best, without a
// library.  They are kept so short that reading them is checking them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

/// Memory for ranks that are forked later.  Throws Error{system}.
detail::Mapping probe_memory_for_children();

/// Memory of rank 0 that rank 1 maps too, through /proc.  Collective.  Throws Error{system}.
detail::Mapping probe_memory_between(Exchange& exchange, const Placement& placement);

/// Both write their line and wait for the other's: the time of one exchange, which bounds a barrier
/// or allreduce of two ranks.
std::unique_ptr<Subject> floor_probe(SharedLines& lines, Rank self);

/// Rank 0 writes, rank 1 sees it and answers: half of this time is one hand-over.
std::unique_ptr<Subject> oneway_probe(SharedLines& lines, Rank self);

/// Both ranks copy as many bytes at the same time.  A multiple of this time bounds what two ranks
/// of a node do with large payloads (copies_of() in results.cpp).  `meeting` is borrowed.
std::unique_ptr<Subject> memcpy_probe(std::span<const std::byte> from, std::span<std::byte> into,
                                      Operation& meeting);

}  // namespace tutti::bench
