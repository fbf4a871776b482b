// Communication by tutti, over a communicator that the program has made.
#pragma once

#include <memory>
#include <tutti/tutti.hpp>

#include "communication.hpp"

namespace poisson {

/// The communicator is borrowed.
std::unique_ptr<Communication> tutti_communication(tutti::Communicator& communicator);

}  // namespace poisson
