// Words that the error texts of this layer share, so that all of them name ranks and times alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/exchange.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti::bootstrap {

/// "rank 2", "ranks 2 and 5", "ranks 1, 2, 3 and 4"; a long list ends in "and 89 more".
std::string name_ranks(std::span<const Rank> ranks);

/// "30 s", "1.5 s", "250 ms".
std::string name_timeout(Timeout timeout);

/// What a rank brings to an exchange: "8 bytes", "records of 8 bytes".
std::string name_contribution(std::uint64_t bytes, bool are_records);

/// "rank 3 has died", "rank 3 has aborted".
std::string name_incident(const Incident& incident);

}  // namespace tutti::bootstrap
