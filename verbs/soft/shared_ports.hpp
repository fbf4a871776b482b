// The ports of a job's nodes in an emulated network.  Ranks of a node share one transmit port and
// one receive port, which are in memory that the ranks inherit by fork: in virtual time, and in
// real time where one program starts all ranks.  Else each process has ports of its own.
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

  /// Called in the process of a rank before it opens the device: in real time its messages pass
  /// these ports.  The object must outlive the device's use.
  void join() noexcept { joined_one = this; }
  /// The object that this process has joined, or NULL.
  static SharedPorts* joined() noexcept { return joined_one; }

  /// The ports of the rank's node, or NULL if the job has no such rank.
  Ports* ports_of(std::uint32_t rank) const noexcept;
  void free_all() noexcept;
  /// The instant from which times count in real time, by the monotonic clock.
  std::int64_t epoch_ns() const noexcept { return epoch_ns_; }

 private:
  struct Seat;
  Seat& seat(std::uint32_t rank) const noexcept;

  inline static SharedPorts* joined_one = nullptr;
  std::uint32_t rank_count_;
  std::int64_t epoch_ns_;
  detail::Mapping mapping_;
};

}  // namespace tutti::verbs::soft
