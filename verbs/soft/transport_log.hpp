// TUTTI_SOFT_LOG=transport: by which way a queue pair reaches its peer's memory, and why.  There is
// one line on stderr for each peer and each file that its memory lies in; private memory counts as
// one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::verbs::soft {

struct QueuePair;
struct Region;

enum class Way : std::uint8_t { self, shared_map, cma, bounce, none };

/// The lines that were printed about one target.  Empty without that setting.
using LoggedWays = std::vector<std::pair<std::uint32_t, Way>>;

/// Prints the line once.  `region` NULL: it concerns all memory of the target.  `error`: 0, or the
/// errno value behind the reason.
void log_way_slow(QueuePair& pair, Way way, const Region* region, const char* reason,
                  int error = 0) noexcept;

}  // namespace tutti::verbs::soft
