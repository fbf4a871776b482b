// Reports what the operations of a communicator are doing, and what the ranks that they wait for
// are doing, for people and for programs.
#pragma once

#include <string>
#include <tutti/communicator.hpp>

#include "runtime/activity.hpp"

namespace tutti::runtime {

/// Communicator::report().  Asks no other rank; looks at those of this node.
std::string report_of(const Communicator::Implementation& communicator, ReportFormat format);

/// Prints for whom this rank has waited, on standard error.
void print_stragglers(const Communicator::Implementation& communicator) noexcept;

/// A process as it was seen from outside: a line of text for each operation.
std::string text_of(const SeenProcess& seen);
/// Likewise, as JSON.
std::string json_of(const SeenProcess& seen);

}  // namespace tutti::runtime
