// The ports of a job's nodes in an emulated network.  Ranks of a node share one transmit port and
// one receive port, which are in memory that the ranks inherit by fork: in virtual time, and in
// real time if each rank has joined.  Else each process has ports of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::verbs::soft {

class SharedPorts {
 public:
  /// When the ports of a node are free again.
  struct Ports {
    std::atomic<Picoseconds> transmit;
    std::atomic<Picoseconds> receive;
  };

  /// Created before the ranks are forked.  `node_of` says which node each rank is of, from 0 on;
  /// empty: each is a node of its own.  All ports are free.  Throws Error where there is no memory
  /// for it.
  explicit SharedPorts(std::uint32_t rank_count, std::span<const std::uint32_t> node_of = {});
  SharedPorts(const SharedPorts&) = delete;
  SharedPorts& operator=(const SharedPorts&) = delete;

  /// Called in the process of `rank` before it opens the device: in real time, the rank is its
  /// place in the network, and its messages pass these ports.  The object must outlive the
  /// device's use.
  void join(std::uint32_t rank) noexcept;
  /// The object that this process has joined, or NULL.
  static SharedPorts* joined() noexcept;

  std::uint32_t rank() const noexcept { return rank_; }
  /// The ports of the rank's node, or NULL if the job has no such rank.
  Ports* ports_of(std::uint32_t rank) const noexcept;
  void free_all() noexcept;
  /// The instant from which times count in real time, by the monotonic clock.
  std::int64_t epoch_ns() const noexcept { return epoch_ns_; }

 private:
  struct Line;
  Line* lines() const noexcept;  // of the nodes, whose number is at most that of the ranks
  std::uint32_t* node_of() const noexcept;  // of the ranks, behind the lines

  std::uint32_t rank_count_;
  std::uint32_t rank_ = 0;
  std::int64_t epoch_ns_;
  detail::Mapping mapping_;
};

}  // namespace tutti::verbs::soft
