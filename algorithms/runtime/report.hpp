// What the operations of a communicator are doing, and what the ranks that they wait for were last
// seen doing, for people and for programs.
#pragma once

#include <string>
#include <tutti/communicator.hpp>

#include "runtime/activity.hpp"

namespace tutti::runtime {

/// Communicator::report().  Asks no other rank; looks at those of this node.
std::string report_of(const Communicator::Implementation& communicator, ReportFormat format);

/// What was seen of a process from outside, as text; a line for each operation.
std::string text_of(const SeenProcess& seen);
/// Likewise, as JSON.
std::string json_of(const SeenProcess& seen);

}  // namespace tutti::runtime
