// Which ports can talk to each other.  One rule: ports of one kind can, others cannot.  Pure.
#pragma once

#include <span>
#include <string>

#include "verbs/device.hpp"
#include "verbs/wire.hpp"

namespace tutti::verbs {

/// What the other ranks need to know of a port before any queue pair is made.
PortCard card_of(const Port& port);
/// The same of the port behind one end of a queue pair; without its name.
PortCard card_of(const Endpoint& endpoint);

/// What two ports must have in common, in words: "InfiniBand", "RoCE v2 with an IPv4 address",
/// "software device".  The path MTU is no part of it: the smaller one holds.
std::string kind_of(const PortCard& card);

/// Why two ports cannot talk to each other; empty if they can.
std::string incompatibility(const PortCard& local, const PortCard& remote);

/// The same for the ports of all ranks, in rank order: who has what, and what to do about it.
/// Names may differ, as those of one kind do between hosts.
std::string incompatibility(std::span<const PortCard> all);

}  // namespace tutti::verbs
