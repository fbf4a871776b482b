// The probe wimm: write-with-immediate ping-pong of 8 bytes between two ranks, with nothing but
// ibv_post_send, ibv_post_recv and ibv_poll_cq on the device that tutti chooses.  Half a round trip
// bounds a round of any collective that goes through the device.
#pragma once

#include <memory>
#include <string>
#include <tutti/exchange.hpp>

#include "microbench/subject.hpp"

namespace tutti::bench {

/// Makes the probe.  Collective over exactly two ranks.  `device` is as ContextOptions::device.
/// Throws Error.
std::unique_ptr<Subject> wimm_probe(Exchange& exchange, const std::string& device);

}  // namespace tutti::bench
