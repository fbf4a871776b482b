// A stress of how a device places the writes of a peer: whether who polls the last word of a line
// finds the whole line (messages by flag), and who polls a word finds what earlier writes of the
// queue pair have written (shared notifications by words).  Both ranks of a pair write and poll at
// the same time, messages follow each other without a pause, and every byte is compared.
//
//   a slot, of which there are 32:
//   | a chunk of 1 B to 64 KiB, anywhere, also right before the word   | 56 bytes and a word |
//                                                                      '---- the line ------'
//   line    the whole line, in one inline write
//   word    the word alone, inline
//   chunk   a chunk, in one write, and then the word, inline
//
// Message n goes to slot n mod 32, once its reader has said that it has taken message n - 32: so
// what is there is old or new, and a reader can tell which.  The reader polls the word of the next
// message, or of one of the three after it, and then looks at all that has to be there by then.  A
// word counts only if the look before had found the old one: what was there already shows nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/exchange.hpp>
#include <tutti/types.hpp>

#include "microbench/station.hpp"
#include "tune/tuning.hpp"
#include "tune/write_placement.hpp"

namespace tutti::bench {

struct DeviceStressOptions {
  std::string device = {};                 // as ContextOptions::device
  Timeout time = std::chrono::seconds(2);  // of writing, beside making the connections
};

/// Collective.  `nodes` says which node each rank is of.  The ranks of rank 0's node are paired
/// with ranks of other nodes; the others wait.  Returns what all pairs have seen, the same on every
/// rank; nothing, if all ranks share a node, if a device cannot send lines inline, or if a
/// software device says that it does not keep lines whole.
///
/// Throws Error alike on all ranks, and RunFailed where a rank does not answer for 20 s, unless
/// something wrong was seen by then.
tune::WritePlacement stress_device(Exchange& exchange, std::span<const Node> nodes,
                                   const DeviceStressOptions& options);

/// Why what all ranks see together would not hold for rank 0's machine, of which it is recorded: a
/// rank has another device, firmware or CPU, or nobody knows which; empty: it holds.  The same on
/// every rank.  Collective.
std::string why_not_of_rank_0(Exchange& exchange, const tune::Fingerprint& mine);

/// What each memory of a station has to have for stress_cable().
std::size_t stress_memory_bytes() noexcept;
/// Both ends of a cable of queue 0 at the same time, with lines that go inline.  Returns what this
/// end has seen.
tune::WritePlacement stress_cable(Station& station, std::uint32_t cable, bool is_one, Timeout time);

}  // namespace tutti::bench
