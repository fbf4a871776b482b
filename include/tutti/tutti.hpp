// tutti: collectives with the latency of the wire.  Read the headers in this order.
#pragma once

// clang-format off
#include "tutti/types.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/algorithm.hpp"
#include "tutti/reduction.hpp"
#include "tutti/exact_sum.hpp"
#include "tutti/exchange.hpp"
#include "tutti/bootstrap.hpp"
#include "tutti/segment.hpp"
#include "tutti/communicator.hpp"
#include "tutti/operation.hpp"
#include "tutti/collectives.hpp"
#include "tutti/block_collectives.hpp"
// clang-format on
