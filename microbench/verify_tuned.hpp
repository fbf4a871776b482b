// What a tuning file would say that tutti-tune had written on a machine which exists as numbers:
// what each candidate takes is the recurrence of its events, with noise (noisy_times.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "microbench/verify_choices.hpp"
#include "tune/knowledge.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// What a program knows that has no tuning file, whatever the network is.
tune::Knowledge without_file();

/// Races the candidates of a cell, which are those by `known` and the choice without a file, on the
/// machine that is `truth`; up to so often as tutti-tune does if the race is noisy.
tune::Finding found_for(const ChoiceCell& cell, const tune::Knowledge& known,
                        const plan::Network& truth, std::uint64_t seed);

/// Cells that tutti-tune would race by default, if it ran on 2, 4, 8, 16, ... nodes: the nearest
/// above and below a cell, along bytes and nodes, of all agreements.  None has the bytes or the
/// nodes of the cell, and none more than `ranks_max` ranks.
std::vector<ChoiceCell> tuned_nearby(const ChoiceCell& cell, std::uint32_t ranks_max);

/// What a program knows that has a file with findings for these cells.
tune::Knowledge after_races(const std::vector<ChoiceCell>& cells, const tune::Machine& known,
                            const plan::Network& truth, std::uint64_t seed);

}  // namespace tutti::bench
