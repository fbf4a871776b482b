// tutti: collectives with the latency of the wire.  Read the headers in this order.
#pragma once

#include "tutti/bootstrap.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"
#include "tutti/operation.hpp"
#include "tutti/reduction.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"
