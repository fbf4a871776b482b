#include "bootstrap/node_map.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tutti/detail/check.hpp"
#include "tutti/detail/descriptor.hpp"

namespace tutti::bootstrap {

namespace {

std::array<std::byte, 16> read_boot_id() noexcept {
  const detail::Descriptor file{::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)};
  char text[64];
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof text) : 0;
  std::array<std::byte, 16> boot{};
  std::size_t digits = 0;  // hexadecimal; the dashes between them are skipped
  for (ssize_t position = 0; position < bytes && digits < 2 * boot.size(); ++position) {
    const char character = text[position];
    unsigned value = 0;
    if (character >= '0' && character <= '9') {
      value = static_cast<unsigned>(character - '0');
    } else if (character >= 'a' && character <= 'f') {
      value = static_cast<unsigned>(character - 'a') + 10;
    } else {
      continue;
    }
    boot[digits / 2] =
        static_cast<std::byte>(std::to_integer<unsigned>(boot[digits / 2]) << 4 | value);
    ++digits;
  }
  return boot;
}

std::uint64_t namespace_number(const char* path) noexcept {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

bool same_boot(const HostIdentity& one, const HostIdentity& other) noexcept {
  return one.boot == other.boot && one.boot != std::array<std::byte, 16>{};
}

/// Renumbers the nodes of `node` by lowest rank and counts the ranks of each.
NodeMap in_rank_order(std::vector<Node> node) {
  NodeMap map;
  const auto rank_count = static_cast<std::uint32_t>(node.size());
  constexpr std::uint32_t unseen = UINT32_MAX;
  std::vector<std::uint32_t> name(rank_count, unseen);
  std::vector<std::uint32_t> members(rank_count, 0);
  map.local_rank.resize(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    std::uint32_t& renamed = name[index_of(node[rank])];
    if (renamed == unseen) renamed = map.node_count++;
    node[rank] = Node{renamed};
    map.local_rank[rank] = LocalRank{members[renamed]++};
  }
  map.node = std::move(node);
  return map;
}

/// SplitMix64 (Steele, Lea, Flood 2014).  Written out because the standard leaves the results of
/// std::shuffle and of its distributions to each library.
std::uint64_t next_random(std::uint64_t& state) noexcept {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

std::vector<std::uint32_t> sizes_of_nodes(const ImposedNodes& shape) {
  detail::check(!shape.ranks_per_node.empty(), "a shape has a size of nodes");
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t left = shape.rank_count; left > 0; left -= sizes.back()) {
    const std::size_t which = std::min(sizes.size(), shape.ranks_per_node.size() - 1);
    detail::check(shape.ranks_per_node[which] > 0, "a node holds at least one rank");
    sizes.push_back(std::min(left, shape.ranks_per_node[which]));
  }
  return sizes;
}

}  // namespace

HostIdentity host_identity() noexcept {
  return {.boot = read_boot_id(),
          .ipc_namespace = namespace_number("/proc/self/ns/ipc"),
          .uts_namespace = namespace_number("/proc/self/ns/uts"),
          .pid_namespace = namespace_number("/proc/self/ns/pid")};
}

bool may_share_memory(const HostIdentity& one, const HostIdentity& other) noexcept {
  return same_boot(one, other) && one.ipc_namespace != 0 &&
         one.ipc_namespace == other.ipc_namespace && one.uts_namespace == other.uts_namespace;
}

bool share_process_ids(const HostIdentity& one, const HostIdentity& other) noexcept {
  return same_boot(one, other) && one.pid_namespace != 0 &&
         one.pid_namespace == other.pid_namespace;
}

NodeMap node_map(std::span<const HostIdentity> hosts) {
  std::vector<Node> node;
  std::vector<std::uint32_t> lowest;  // rank of each node
  for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
    const auto found = std::find_if(lowest.begin(), lowest.end(), [&](std::uint32_t first) {
      return may_share_memory(hosts[first], hosts[rank]);
    });
    node.push_back(Node{static_cast<std::uint32_t>(found - lowest.begin())});
    if (found == lowest.end()) lowest.push_back(rank);
  }
  return in_rank_order(std::move(node));
}

NodeMap imposed_node_map(const ImposedNodes& shape) {
  const std::vector<std::uint32_t> room = sizes_of_nodes(shape);
  std::vector<Node> node;
  if (shape.placement == Placement::cyclic) {
    // Ranks are dealt like cards, to the nodes that have room.
    for (std::uint32_t turn = 0; node.size() < shape.rank_count; ++turn)
      for (std::uint32_t index = 0; index < room.size(); ++index)
        if (room[index] > turn) node.push_back(Node{index});
  } else {
    for (std::uint32_t index = 0; index < room.size(); ++index)
      node.insert(node.end(), room[index], Node{index});
  }
  if (shape.placement == Placement::random) {
    std::uint64_t state = shape.seed;
    for (std::uint32_t last = shape.rank_count; last > 1; --last)
      std::swap(node[last - 1], node[next_random(state) % last]);
  }
  return in_rank_order(std::move(node));
}

}  // namespace tutti::bootstrap
