// Which ports can communicate with each other: ports of one kind can, others cannot.  Pure.
#pragma once

#include <span>
#include <string>

#include "verbs/device.hpp"
#include "verbs/wire.hpp"

namespace tutti::verbs {

/// What the other ranks need to know about a port before any queue pair is made.
PortCard card_of(const Port& port);

/// The property that two ports must have in common, in words: "InfiniBand", "RoCE v2 with an IPv4
/// address", "software device".  The path MTU is no part of it, because the smaller one is used.
std::string kind_of(const PortCard& card);

/// Whether a port's link is an Ethernet.  The software device says of every port that it is
/// InfiniBand; networks of less than 40 Gb/s that it emulates are Ethernets.
bool is_ethernet(const PortCard& card) noexcept;

/// The slowest of the ports of all ranks, which has the least rate; the first of equal ones.  Rates
/// that are not known are left out of account if any is known.
const PortCard& slowest_of(std::span<const PortCard> all) noexcept;

/// Why the ports of all ranks, in rank order, cannot communicate: which rank has which port, and
/// what to do about it; empty if they can.  Names of ports may differ.
std::string incompatibility(std::span<const PortCard> all);

}  // namespace tutti::verbs
