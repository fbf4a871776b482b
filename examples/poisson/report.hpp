// Solves as the command line says, and prints how it went.
#pragma once

#include <memory>
#include <vector>

#include "communication.hpp"
#include "options.hpp"

namespace poisson {

/// Collective.  With several communications, solves by turns.  Rank 0 prints.  Returns the exit
/// status, the same on every rank.
int solve_and_report(const std::vector<std::unique_ptr<Communication>>& communications,
                     const Options& options, const Matrix& matrix);

}  // namespace poisson
