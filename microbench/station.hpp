// One rank's end of queue pairs to other ranks, with nothing but ibv_post_send, ibv_post_recv and
// ibv_poll_cq on them: what the microbenchmarks of the verbs layer and the probes of the tuner are
// made of.  Each waiting ends after call_timeout.
//
//   rank 0                                     rank 1
//   cable 0, queue 0 ---- messages that are waited for ---- cable 0, queue 0
//   cable 1, queue 1 ---- messages that may lie there ----- cable 1, queue 1
//   cable 2, queue 1 -------------------------------------- cable 2, queue 1
//
// Two completion queues, so that a program can look at one without seeing what is in the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/exchange.hpp>
#include <vector>

#include "microbench/probes.hpp"
#include "plan/cost/loggp.hpp"
#include "verbs/arena.hpp"
#include "verbs/queue_pair.hpp"

namespace tutti::bench {

/// A queue pair between two ranks.  All ranks have the same list.
struct Cable {
  Rank one{0}, other{1};
  std::uint32_t queue = 0;  // 0 or 1: whose completions are together
  std::uint32_t receives_max = 256;
};

/// What a request asks for.
struct Put {
  std::size_t bytes = 8;
  bool immediate = true;   // the receiver's program can see it
  bool signaled = false;   // besides those that are signaled now and then
  std::size_t offset = 0;  // of the bytes, in both memories
};

class Station {
 public:
  static constexpr std::uint32_t sends_max = 128;  // in flight, of a cable; perftest has as many

  /// Collective.  Opens the device (as ContextOptions::device) and connects the cables.  Every rank
  /// has `memory_bytes` that others write to, as many that they are written from, and further
  /// memory in the arena.  Throws Error, alike on all ranks.
  Station(Exchange& exchange, const std::string& device, std::size_t memory_bytes,
          std::vector<Cable> cables, std::size_t further_bytes = 0);
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;

  const verbs::Port& port() const noexcept { return port_; }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  verbs::Arena& arena() noexcept { return *arena_; }
  std::byte* source() const noexcept { return source_; }
  std::byte* target() const noexcept { return target_; }  // what others write to
  std::span<const Cable> cables() const noexcept { return cables_; }
  bool has(std::uint32_t cable) const noexcept { return ends_[cable].pair != nullptr; }
  const verbs::QueuePair& pair_of(std::uint32_t cable) const noexcept { return *ends_[cable].pair; }

  /// Writes into the memory of the other end; waits while sends_max requests are in flight.  Throws
  /// RunFailed, as everything below.
  void put(std::uint32_t cable, const Put& what);
  /// Takes the next message of that cable.
  void take(std::uint32_t cable);
  /// As take(), of a rank that sends by cables of queue 1: it also polls their completions, which
  /// otherwise would make virtual time go on in small steps.
  void take_while_sending(std::uint32_t cable);
  /// Takes so many messages, of any cables of queue 1.
  void take_of_queue_1(std::size_t messages);
  /// Waits until all requests of a cable have been acknowledged.
  void flush(std::uint32_t cable);
  /// In real time: waits until the last request of a cable has arrived.  What is on its way in an
  /// emulated network needs the polls of its sender, who may be about to block, or to end.
  void settle(std::uint32_t cable);
  /// Looks at a queue once; in virtual time, time passes if nothing is there.
  void poll(std::uint32_t queue);

 private:
  struct End {
    std::unique_ptr<verbs::QueuePair> pair;
    std::uint32_t index = 0;
    Rank peer{0};
    std::uint32_t queue = 0;
    std::uint64_t target = 0;  // the other end's memory
    std::uint32_t key = 0;
    std::uint32_t posted = 0, completed = 0, signaled = 0;  // requests; the last signaled one
    std::uint32_t arrived = 0;                              // messages that were not taken
    std::uint32_t used = 0, refill = 0;                     // receives
  };
  struct Address;

  void make_ends(Rank self);
  void connect(std::uint32_t cable, const Address& remote);
  void post_receives(End& end, std::uint32_t count);
  void post(End& end, const Put& what, bool signaled);

  verbs::Port port_;
  verbs::ProtectionDomainHandle domain_;
  std::unique_ptr<verbs::Arena> arena_;
  std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::vector<Cable> cables_;
  std::array<verbs::CompletionQueueHandle, 2> queues_;
  std::vector<End> ends_;                 // by cable
  std::array<std::size_t, 2> arrived_{};  // messages that were not taken, by queue
};

/// Messages for a receiver that answers each burst; two bursts are in flight at most.
struct Flow {
  std::uint32_t control = 0;          // the cable of the answers
  std::vector<std::uint32_t> cables;  // of queue 1, which take turns
  std::size_t bytes = 8;
  std::uint32_t burst = 64;  // messages
  bool immediates = true;    // else only the last message of a burst has one, on the only cable
};
void send(Station& station, const Flow& flow, std::size_t bursts);
void receive(Station& station, const Flow& flow, std::size_t bursts);

/// The time of the device's users, virtual while they are in virtual time.
plan::Picoseconds instant() noexcept;

/// As long as it lives, this rank is in virtual time if its process has joined one.  All ranks of
/// the run have to be.
class InVirtualTime {
 public:
  InVirtualTime() noexcept;
  InVirtualTime(const InVirtualTime&) = delete;
  InVirtualTime& operator=(const InVirtualTime&) = delete;
  ~InVirtualTime();
};

}  // namespace tutti::bench
