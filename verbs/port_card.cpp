#include "verbs/port_card.hpp"

#include <endian.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <vector>

#include "verbs/port_rate.hpp"

namespace tutti::verbs {
namespace {

constexpr const char* what_to_do =
    "set TUTTI_DEVICE to ports of one kind on all ranks; tutti-info, on each host, says why a port "
    "was taken";
constexpr const char* what_to_do_about_addresses =
    "give the ports addresses of one kind, or set TUTTI_DEVICE to ports that have them";

bool has_roce_address(const PortCard& card) {
  return card.is_software == 0 && card.link_layer == static_cast<std::uint8_t>(LinkLayer::ethernet);
}

/// The subnet that subnet managers use unless somebody has chosen another one.
constexpr std::uint64_t default_subnet = 0xfe80'0000'0000'0000;

std::string infiniband_of(std::uint64_t subnet) {
  if (subnet == default_subnet || subnet == 0) return "InfiniBand";
  char text[40];
  std::snprintf(text, sizeof text, "InfiniBand of subnet 0x%016llx",
                static_cast<unsigned long long>(subnet));
  return text;
}

/// Says what is impossible in this card, if it was garbled on the way or a faulty device gave it;
/// empty if nothing is.
std::string fault_of(const PortCard& card) {
  if (card.path_mtu < IBV_MTU_256 || card.path_mtu > IBV_MTU_4096)
    return "path MTU code " + std::to_string(card.path_mtu) + " (expected " +
           std::to_string(IBV_MTU_256) + " to " + std::to_string(IBV_MTU_4096) + ")";
  if (card.link_layer > static_cast<std::uint8_t>(LinkLayer::ethernet))
    return "link layer code " + std::to_string(card.link_layer) + " (expected 0 or 1)";
  if (card.gid_type > static_cast<std::uint8_t>(GidType::roce_v2))
    return "GID type code " + std::to_string(card.gid_type) + " (expected 0 to 2)";
  return {};
}

/// "2" or "0-3, 7"; if there are many ranges, the rest is only counted.
std::string text_of(const std::vector<std::size_t>& ranks) {
  constexpr std::size_t ranges_max = 8;
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranges++ == ranges_max) return text + " and " + std::to_string(ranks.size() - i) + " more";
    const std::size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (i != first) text += "-" + std::to_string(ranks[i]);
  }
  return text;
}

/// Ranks whose ports can communicate with each other.
struct Group {
  std::string kind;
  std::vector<std::size_t> ranks = {};
  std::vector<std::string> names = {};  // of their ports, without repetition
};

std::string name_in(const PortCard& card) {
  return {card.name, strnlen(card.name, sizeof card.name)};
}

std::vector<Group> groups_of(std::span<const PortCard> all) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::string kind = kind_of(all[rank]);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& known) { return known.kind == kind; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.kind = std::move(kind)});
    group->ranks.push_back(rank);
    std::string name = name_in(all[rank]);
    if (std::find(group->names.begin(), group->names.end(), name) == group->names.end())
      group->names.push_back(std::move(name));
  }
  return groups;
}

/// "ranks 0-3: mlx5_0:1, mlx5_2:1, InfiniBand"
std::string text_of(const Group& group) {
  constexpr std::size_t names_max = 4;
  std::string text = (group.ranks.size() == 1 ? "rank " : "ranks ") + text_of(group.ranks) + ": ";
  for (std::size_t i = 0; i < std::min(group.names.size(), names_max); ++i)
    text += group.names[i] + ", ";
  if (group.names.size() > names_max)
    text += "and " + std::to_string(group.names.size() - names_max) + " others, ";
  return text + group.kind;
}

}  // namespace

PortCard card_of(const Port& port) {
  PortCard card{.name = {},
                .is_software = port.description.is_software(),
                .link_layer = static_cast<std::uint8_t>(port.description.link),
                .gid_type = static_cast<std::uint8_t>(port.gid.type),
                .is_ipv4 = is_ipv4_mapped(port.gid.gid),
                .path_mtu = static_cast<std::uint8_t>(port.description.attributes.active_mtu),
                .reserved = {},
                .subnet = be64toh(port.gid.gid.global.subnet_prefix),
                .gigabits_per_second = gigabits_of(port.description.attributes),
                .reserved_too = 0};
  assert(port.name().size() < sizeof card.name);
  std::strncpy(card.name, port.name().c_str(), sizeof card.name - 1);
  return card;
}

std::string kind_of(const PortCard& card) {
  if (std::string fault = fault_of(card); !fault.empty()) return fault;
  if (card.is_software != 0) return "software device";
  if (!has_roce_address(card)) return infiniband_of(card.subnet);
  std::string type = name_of(static_cast<GidType>(card.gid_type));
  // Packets of version 1 have no IP addresses.
  if (card.gid_type != static_cast<std::uint8_t>(GidType::roce_v2)) return type;
  return type + (card.is_ipv4 != 0 ? " with an IPv4 address" : " with an IPv6 address");
}

bool is_ethernet(const PortCard& card) noexcept {
  constexpr std::uint32_t slowest_infiniband = 40;  // of those that are emulated
  if (card.is_software == 0)
    return card.link_layer == static_cast<std::uint8_t>(LinkLayer::ethernet);
  return card.gigabits_per_second > 0 && card.gigabits_per_second < slowest_infiniband;
}

const PortCard& slowest_of(std::span<const PortCard> all) noexcept {
  assert(!all.empty());
  const auto known = [](const PortCard& card) { return card.gigabits_per_second > 0; };
  return *std::min_element(all.begin(), all.end(),
                           [&](const PortCard& left, const PortCard& right) {
                             if (known(left) != known(right)) return known(left);
                             return left.gigabits_per_second < right.gigabits_per_second;
                           });
}

std::string incompatibility(std::span<const PortCard> all) {
  const std::vector<Group> groups = groups_of(all);
  const bool faultless = std::all_of(all.begin(), all.end(),
                                     [](const PortCard& card) { return fault_of(card).empty(); });
  if (groups.size() <= 1 && faultless) return {};
  std::string text;
  for (const Group& group : groups) text += text_of(group) + "; ";
  const bool only_addresses = std::all_of(all.begin(), all.end(), [&](const PortCard& card) {
    return has_roce_address(card) && card.gid_type == all[0].gid_type;
  });
  return text + (only_addresses ? what_to_do_about_addresses : what_to_do);
}

}  // namespace tutti::verbs
