// One of the two processes of the fuzzer: it executes one command after the other and reports what
// the device said.  Commands and replies are plain values that travel over a line, so that the same
// code serves the process that decides and the one that obeys.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "harness.hpp"

namespace tutti::conformance::fuzz {

// How many objects each process has: few, so that they meet.
inline constexpr std::uint32_t pairs_count = 4;
inline constexpr std::uint32_t regions_count = 8;
inline constexpr std::uint32_t shared_count = 2;
inline constexpr std::uint32_t domains_count = 2;
inline constexpr std::uint32_t queues_count = 2;
inline constexpr std::uint32_t channel_queue = 1;  // the other one has no channel
inline constexpr std::uint32_t none = ~std::uint32_t{0};

/// Local pieces lie in the first half, receives and what peers access in the second: what a request
/// reads and what it writes never overlap, which would have no defined outcome.
inline constexpr std::uint32_t memory_bytes = 4096;
inline constexpr std::uint32_t half_bytes = memory_bytes / 2;
using Memory = std::array<std::byte, memory_bytes>;

inline constexpr std::uint32_t pieces_max = 5;
inline constexpr std::uint32_t works_max = 3;
inline constexpr std::uint32_t polled_max = 8;

struct Piece {
  std::uint32_t offset;
  std::uint32_t length;
  std::uint32_t key;
};

/// A work request.  Of a datagram, `remote` is the number of the queue pair that it is for, and
/// `remote_key` the key of that; with an `operand` other than 0 it goes to another host.
struct Work {
  std::uint64_t id;
  std::int32_t opcode;
  std::uint32_t flags;
  std::uint32_t count;
  std::array<Piece, pieces_max> pieces;
  std::uint64_t remote;
  std::uint32_t remote_key;
  std::uint32_t immediate;
  std::uint64_t operand;
  std::uint64_t swap;
};

enum class Verb : std::uint32_t {
  create_shared,
  destroy_shared,
  create_pair,
  destroy_pair,
  modify,
  query,
  post_send,
  post_receive,
  post_shared,
  register_region,
  deregister,
  poll,
  arm,
  take_event,
  destroy_queue,
  deallocate_domain,
  scribble,
  show_memory,
  clear,
  end,
};

struct Command {
  Verb verb = Verb::end;
  std::uint32_t side = 0;
  std::uint32_t slot = 0;  // of the object in question
  // Properties of an object that is created or registered.
  std::uint32_t domain = 0;
  std::uint32_t send_queue = 0;
  std::uint32_t receive_queue = 0;
  std::uint32_t shared = 0;  // none: a private receive queue
  std::uint32_t signal_all = 0;
  std::uint32_t datagrams = 0;  // 1: a queue pair for these, 0: for a connection
  ibv_qp_cap cap{};
  std::uint32_t access = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t count = 0;  // of requests, or completions at most; 1: solicited only
  std::int32_t mask = 0;
  ibv_qp_attr attributes{};
  std::array<Work, works_max> works{};
  std::uint64_t random = 0;
};

struct Reply {
  std::int32_t error;
  std::uint32_t accepted;  // of the requests
  std::uint32_t number;    // of the queue pair; the key of the region
  std::uint32_t state;
  ibv_qp_cap cap;
  std::int32_t count;
  std::array<ibv_wc, polled_max> completions;
};

/// What the commands of the other must know.
struct Introduction {
  std::uint64_t base;
  std::uint16_t lid;
};

/// What Verb::scribble leaves at a place; the same in the model.
std::byte scribbled(std::uint64_t random, std::uint32_t offset);

class Party {
 public:
  explicit Party(Storage storage);
  ~Party();
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  Introduction introduction() const;
  Reply run(const Command& command);
  Memory memory() const;
  /// Until Verb::end.
  void serve(const Line& line);
  /// Destroys all that is left of a sequence of commands.
  void clear();

 private:
  void make_queue(std::uint32_t index);
  void make_handles(std::uint32_t domain);
  void destroy_handles(std::uint32_t domain);
  ibv_sge piece_of(const Piece& piece) const;
  void create_pair(const Command& command, Reply& reply);
  void create_shared(const Command& command, Reply& reply);
  void register_region(const Command& command, Reply& reply);
  void post_send(const Command& command, Reply& reply);
  void post_receives(const Command& command, Reply& reply);
  void take_event(Reply& reply) const;

  Device device_;
  Buffer buffer_;
  std::array<ibv_pd*, domains_count> domains_{};
  // By domain: to this host, and to another one.
  std::array<std::array<ibv_ah*, 2>, domains_count> handles_{};
  ibv_comp_channel* channel_;
  std::array<ibv_cq*, queues_count> queues_{};
  std::array<ibv_qp*, pairs_count> pairs_{};
  std::array<ibv_srq*, shared_count> shared_{};
  std::array<ibv_mr*, regions_count> regions_{};
};

}  // namespace tutti::conformance::fuzz
