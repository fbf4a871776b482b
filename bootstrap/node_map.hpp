// Which ranks may form a node.  All functions but host_identity() are pure: the identity of every
// rank goes in, Node and LocalRank of every rank come out.  Nodes are numbered by their lowest
// rank, and local ranks by rank, so every rank computes the same map from the same allgather.
//
//   hosts      a b a b c     node        0 1 0 1 2
//   rank       0 1 2 3 4     local rank  0 0 1 1 0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::bootstrap {

/// Where a process runs; a plain value that allgather can carry.  The numbers of namespaces are
/// valid only under the same boot.  All zero: unknown, and equal to no other identity.
struct HostIdentity {
  std::array<std::byte, 16> boot{};  // /proc/sys/kernel/random/boot_id
  std::uint64_t ipc_namespace = 0;
  std::uint64_t uts_namespace = 0;
  std::uint64_t pid_namespace = 0;
};
static_assert(sizeof(HostIdentity) == 40 && std::is_trivially_copyable_v<HostIdentity>);

/// The identity of the calling process.  Members that cannot be read stay zero.
HostIdentity host_identity() noexcept;

/// Whether two ranks may try to share memory: same boot, same IPC and UTS namespace.  Never true
/// for an unknown identity, so a rank without /proc becomes a node of its own.
bool may_share_memory(const HostIdentity& one, const HostIdentity& other) noexcept;

/// Whether process ids mean the same to both: same boot, same PID namespace.
bool share_process_ids(const HostIdentity& one, const HostIdentity& other) noexcept;

struct NodeMap {
  std::vector<Node> node;             // by rank
  std::vector<LocalRank> local_rank;  // by rank; counted in order of rank
  std::uint32_t node_count = 0;
};

/// `hosts` holds the identity of each rank, in rank order.
NodeMap node_map(std::span<const HostIdentity> hosts);

/// A node shape that is imposed instead of found, so that one machine can play several nodes.
struct ImposedNodes {
  std::uint32_t rank_count = 1;
  /// The size of each node, at least 1; the last entry is repeated for all further nodes.  The last
  /// node may hold fewer ranks.
  std::vector<std::uint32_t> ranks_per_node = {1};
  Placement placement = Placement::block;
  std::uint64_t seed = 0;  // for Placement::random only
};

NodeMap imposed_node_map(const ImposedNodes& shape);

}  // namespace tutti::bootstrap
