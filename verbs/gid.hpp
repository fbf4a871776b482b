// Chooses the entry of a port's GID table to use.  Pure, so that every rule is tested without a
// device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::verbs {

enum class GidType : std::uint8_t { infiniband, roce_v1, roce_v2 };
enum class LinkLayer : std::uint8_t { infiniband, ethernet };

struct GidCandidate {
  std::uint32_t index = 0;
  GidType type = GidType::infiniband;
  ibv_gid gid = {};
};

struct GidVerdict {
  GidCandidate candidate;
  std::string reason;  // why it was taken, or why it was not
};

struct GidChoice {
  std::optional<GidCandidate> chosen;
  std::vector<GidVerdict> verdicts;  // one per candidate, in table order
};

/// On Ethernet, a routable address comes before a link-local one, RoCE v2 before v1, IPv4-mapped
/// before IPv6, then the lowest index.  On InfiniBand the lowest index that is not empty is taken.
GidChoice choose_gid(LinkLayer link, std::span<const GidCandidate> table);

const char* name_of(GidType type) noexcept;
std::string text_of(const ibv_gid& gid);  // as an IPv6 address
bool is_ipv4_mapped(const ibv_gid& gid) noexcept;
bool is_link_local_ipv6(const ibv_gid& gid) noexcept;  // in fe80::/10

}  // namespace tutti::verbs
