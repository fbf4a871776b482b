// The transmit and the receive port of each node of a job in an emulated network.  They are in
// memory that the ranks inherit by fork.  All ranks of a node use the same two ports in virtual
// time, and also in real time if every rank has called join().  Otherwise each process has two
// ports of its own (SegmentHeader in layout.hpp).
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

  /// To be constructed before the ranks are forked.  `node_of[r]` is the number of the node of rank
  /// r, below `rank_count`; if `node_of` is empty, each rank is a node of its own.  All ports are
  /// free at first.  Throws Error{system} if there is not enough memory.
  explicit SharedPorts(std::uint32_t rank_count, std::span<const std::uint32_t> node_of = {});
  SharedPorts(const SharedPorts&) = delete;
  SharedPorts& operator=(const SharedPorts&) = delete;

  /// To be called in the process of `rank` before it opens the device.  In real time, `rank` is
  /// then this process's place in the network, and its messages pass these ports.  This object has
  /// to exist as long as the device is in use.
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
