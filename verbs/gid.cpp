#include "verbs/gid.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cassert>
#include <tuple>
#include <tutti/detail/enumerators.hpp>

namespace tutti::verbs {
namespace {

/// Whether it is in fe80::/10, or 169.254/16 as an IPv4-mapped address.
bool is_link_local(const ibv_gid& gid) {
  return is_link_local_ipv6(gid) ||
         (is_ipv4_mapped(gid) && gid.raw[12] == 169 && gid.raw[13] == 254);
}

bool is_empty(const ibv_gid& gid) {
  return std::all_of(gid.raw, gid.raw + 16, [](uint8_t byte) { return byte == 0; });
}

/// The properties that decide, the most important one first; smaller is better.
auto rank_of(const GidCandidate& candidate) {
  return std::tuple(is_link_local(candidate.gid), candidate.type != GidType::roce_v2,
                    !is_ipv4_mapped(candidate.gid), candidate.index);
}

std::string reason_against(const GidCandidate& loser, const GidCandidate& winner) {
  assert(loser.index != winner.index);
  if (is_empty(loser.gid)) return "empty entry";
  if (is_link_local(loser.gid) && !is_link_local(winner.gid))
    return "link-local address, and a routable one is there";
  if (loser.type != winner.type && loser.type != GidType::roce_v2)
    return std::string(name_of(loser.type)) + ", and " + name_of(winner.type) + " is there";
  if (is_ipv4_mapped(winner.gid) && !is_ipv4_mapped(loser.gid))
    return "IPv6, and an IPv4 address is there";
  return "as good, but a higher index";
}

}  // namespace

bool is_ipv4_mapped(const ibv_gid& gid) noexcept {
  return std::all_of(gid.raw, gid.raw + 10, [](uint8_t byte) { return byte == 0; }) &&
         gid.raw[10] == 0xff && gid.raw[11] == 0xff;
}

bool is_link_local_ipv6(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

const char* name_of(GidType type) noexcept {
  return detail::name_in<GidType::roce_v2>({"IB", "RoCE v1", "RoCE v2"}, type);
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

GidChoice choose_gid(LinkLayer link, std::span<const GidCandidate> table) {
  GidChoice choice;
  for (const GidCandidate& candidate : table) {
    if (is_empty(candidate.gid)) continue;
    const bool better = !choice.chosen || (link == LinkLayer::infiniband
                                               ? candidate.index < choice.chosen->index
                                               : rank_of(candidate) < rank_of(*choice.chosen));
    if (better) choice.chosen = candidate;
  }
  for (const GidCandidate& candidate : table) {
    if (choice.chosen && candidate.index == choice.chosen->index)
      choice.verdicts.push_back({candidate, "taken"});
    else if (is_empty(candidate.gid) || !choice.chosen)
      choice.verdicts.push_back({candidate, "empty entry"});
    else if (link == LinkLayer::infiniband)
      choice.verdicts.push_back({candidate, "a lower index is there"});
    else
      choice.verdicts.push_back({candidate, reason_against(candidate, *choice.chosen)});
  }
  assert(choice.verdicts.size() == table.size());
  return choice;
}

}  // namespace tutti::verbs
