// What verbs promise, as a model that is simple because nothing in it happens at the same time: a
// command is applied, then every request that can be executed is executed, one after the other.
// The model says of each command whether it must succeed, which completions must come in which
// order with which status, how many events, and what the memory of both processes holds.
//
// Where the outcome would depend on time the model says so: see is_ambiguous(), agrees_with() and
// needs_rest().
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "party.hpp"

namespace tutti::conformance::fuzz {

inline constexpr std::uint64_t receive_id = std::uint64_t{1} << 63;  // in the ids of receives

/// A completion that must come.
struct Expected {
  std::uint64_t id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  bool has_immediate = false;
  std::uint32_t source = 0;
  std::uint64_t position = 0;  // of a send

  bool operator==(const Expected&) const = default;
};

struct Region {
  bool alive = false;
  std::uint32_t domain = 0;
  std::uint32_t access = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t key = 0;

  /// Offsets are those in the process's memory, which may be far outside.
  bool covers(std::uint64_t first, std::uint64_t count) const {
    return first >= offset && count <= bytes && first - offset <= bytes - count;
  }
};

struct Receive {
  std::uint64_t id = 0;
  std::vector<Piece> pieces;
};

struct Shared {
  bool alive = false;
  std::uint32_t domain = 0;
  ibv_qp_cap cap{};
  std::deque<Receive> receives;
};

struct Send {
  Work work;
  bool signaled = false;
  std::uint64_t position = 0;
  std::vector<std::byte> inline_data;
};

struct Pair {
  bool alive = false;
  std::uint32_t domain = 0;
  std::uint32_t send_queue = 0;
  std::uint32_t receive_queue = 0;
  std::uint32_t shared = none;
  bool signal_all = false;
  bool is_for_datagrams = false;
  ibv_qp_cap cap{};
  std::uint32_t number = 0;

  ibv_qp_state state = IBV_QPS_RESET;
  ibv_qp_attr attributes{};
  bool reachable = false;
  std::uint64_t sent = 0;
  std::uint64_t retired = 0;  // requests whose completions, or later ones, were polled
  std::deque<Send> pending;
  std::deque<Receive> receives;
  // Not polled yet; each in order, but in no order between them.
  std::deque<Expected> sends_done;
  std::deque<Expected> receives_done;
  std::uint32_t waits_for_shared = none;  // side * shared_count + slot

  std::uint32_t rights() const;
};

struct Queue {
  enum class Arming { idle, solicited, any } arming = Arming::idle;
};

struct Side {
  std::uint64_t base = 0;
  Memory memory{};
  std::array<Region, regions_count> regions;
  std::array<Shared, shared_count> shared;
  std::array<Pair, pairs_count> pairs;
  std::array<Queue, queues_count> queues;
  std::uint32_t events = 0;  // not taken yet

  const Region* region_of(std::uint32_t key) const;
};

class Model {
 public:
  std::array<Side, 2> sides;
  std::uint16_t lid = 0;
  /// A request may have to wait until the target's memory is mapped.
  bool any_request_may_wait = false;
  /// Queue pairs for datagrams are made, too.
  bool has_datagrams = false;
  /// Which queue pairs go first when several could go on.  Nobody promises an order.
  bool goes_backward = false;

  /// Applies the command; true when it must succeed.  `accepted`: how many requests.
  bool apply(const Command& command, std::uint32_t& accepted);
  /// Empty, or what is wrong with the completion.
  std::string take(std::uint32_t side, const ibv_wc& completion);

  bool is_waiting() const;
  bool has_completions(std::uint32_t side) const;
  /// Two requests want the same receive: nobody says who gets it.  Or a datagram for another
  /// process finds no receive, while the next command may post one before it arrives.
  bool is_ambiguous() const;
  /// Whether programs would see the same.
  bool agrees_with(const Model& other) const;
  /// The command's effects may take time.
  bool needs_rest() const { return needs_rest_; }

 private:
  enum class Kind { done, failed, not_ready, dropped };
  struct Outcome {
    Kind kind = Kind::done;
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::uint32_t bytes = 0;
    Pair* target = nullptr;  // fails, too
    std::uint32_t target_side = 0;
  };

  bool create_pair(const Command& command);
  bool destroy_shared(const Command& command);
  bool modify(const Command& command);
  bool post_send(const Command& command, std::uint32_t& accepted);
  bool post_receives(const Command& command, std::uint32_t& accepted);
  bool domain_is_used(std::uint32_t side, std::uint32_t domain) const;
  bool queue_is_used(std::uint32_t side, std::uint32_t queue) const;

  void advance();
  bool advance(std::uint32_t side, Pair& pair);
  bool advance_datagram(std::uint32_t side, Pair& pair);
  void deliver(std::uint32_t side, const Pair& pair, const Send& send);
  Outcome execute(std::uint32_t side, Pair& pair, const Send& send);
  Outcome check_local(const Side& side, const Pair& pair, const Send& send) const;
  Outcome check_remote(Side& side, Pair& target, const Send& send) const;
  Outcome take_receive(Pair& pair, Pair& target, const Send& send, std::vector<Piece>& pieces);
  void move_data(Side& from, Side& to, const Send& send, const std::vector<Piece>& pieces) const;
  Pair* find(std::uint32_t number, std::uint32_t& side);

  void complete_send(std::uint32_t side, Pair& pair, const Send& send, ibv_wc_status status,
                     std::uint32_t bytes);
  void complete_receive(std::uint32_t side, Pair& pair, const Expected& completion,
                        bool is_solicited);
  void notify(std::uint32_t side, std::uint32_t queue, bool is_urgent);
  void fail(std::uint32_t side, Pair& pair);
  static void forget(Pair& pair);

  bool needs_rest_ = false;
  bool may_be_lost_ = false;  // a datagram; or not, if it comes late
};

}  // namespace tutti::conformance::fuzz
