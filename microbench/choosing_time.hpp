// How long choosing takes: all ranks choose by themselves, each time an operation is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "microbench/verify_choices.hpp"
#include "tune/knowledge.hpp"

namespace tutti::bench {

struct ChoosingTime {
  ChoiceCell cell;
  std::string choice;
  std::chrono::nanoseconds time;  // the least of several times
};

/// Calls of all collectives: of 4,096 ranks, alone on their nodes or up to 64 on one, and of few
/// ranks, whose events are followed.
std::vector<ChoiceCell> cells_of_choosing();

/// Chooses for each of the calls so many times.
std::vector<ChoosingTime> time_choosing(const std::vector<ChoiceCell>& cells,
                                        const tune::Knowledge& knowledge, int times);

/// By shape: how many calls, the median and the longest time, and which call that is.
std::string table_of(const std::vector<ChoosingTime>& times);

}  // namespace tutti::bench
