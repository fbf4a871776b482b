// How the ranks of a test meet, and which of them share a node.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tutti/exchange.hpp>

#include "support/jobs.hpp"

namespace tutti::test {

/// `mute`: without a side channel for incidents, as over MPI.
enum class Meeting { local, tcp, mute };

struct Scenery {
  Meeting meeting;
  std::uint32_t ranks_per_node;  // more than 1: messages between them go through shared memory
};

inline std::string name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::local:
      return "local";
    case Meeting::tcp:
      return "tcp";
    case Meeting::mute:
      return "mute";
  }
  return "";
}

inline std::string name_of_scenery(const testing::TestParamInfo<Scenery>& scenery) {
  return name_of(scenery.param.meeting) + (scenery.param.ranks_per_node > 1 ? "_nodes" : "");
}

/// A port for ranks that meet in this way; 0 if they need none.
inline std::uint16_t port_for(Meeting meeting) {
  return meeting == Meeting::tcp ? free_port() : std::uint16_t{0};
}

/// The exchange by which the ranks of `local` meet.
class Met {
 public:
  Met(Meeting meeting, Exchange& local, std::uint16_t port) : exchange_(local) {
    if (meeting == Meeting::tcp)
      other_ = meet_over_tcp(index_of(local.self()), local.rank_count(), port);
    if (meeting == Meeting::mute) other_ = std::make_unique<MuteExchange>(local);
  }
  Exchange& operator*() const noexcept { return other_ ? *other_ : exchange_; }

 private:
  Exchange& exchange_;
  std::unique_ptr<Exchange> other_;
};

}  // namespace tutti::test
