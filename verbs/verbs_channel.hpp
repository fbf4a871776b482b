// What the fabric between nodes keeps for one operation: its puts, ready to post, and the words in
// which its messages arrive.  A message says that it is there in one of two ways.
//   immediate  VerbsFabric::poll() writes the word, on the owning thread, after it has polled the
//              completion; the payload was placed before that completion.  VerbsFabric::take()
//              reads the word on the same thread.
//   line       The peer's device writes the word after the rest of the line
//              (Driver::keep_lines_whole); on the devices that promise it, that is a store with
//              release by the peer's CPU.  take() reads the word with acquire; without the pair,
//              the payload that is read then could be the one before.
//
// A word counts the messages of its slot and is never reset.  Each operation of a context counts
// lines from another number, so that a line that a peer writes too late, into memory that another
// operation uses by then, is no message of that operation.
//
// After J. Liu, J. Wu, D. K. Panda, "High performance RDMA-based MPI implementation over
// InfiniBand", International Journal of Parallel Programming 32 (3), 2004: receivers that poll the
// end of what was written.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <tutti/detail/republished.hpp>
#include <vector>

#include "verbs/connection.hpp"

namespace tutti::verbs {

class VerbsChannel {
 public:
  VerbsChannel(std::size_t put_count, std::uint32_t slot_count)
      : puts_{std::vector<PreparedPut>(put_count), std::vector<PreparedPut>(put_count)},
        arrivals_(2 * std::size_t{slot_count}),
        slot_count_(slot_count) {
    for (Arrival& arrival : arrivals_) arrival.word = &arrival.raised;
  }
  VerbsChannel(const VerbsChannel&) = delete;  // arrivals point at themselves
  VerbsChannel& operator=(const VerbsChannel&) = delete;

  /// Lines that arrive here are numbered from there on: the first one is one more.
  std::uint64_t numbers_from() const noexcept { return numbers_from_; }

  /// Forgets all puts, and has room for so many.
  void make_room(std::size_t put_count) {
    puts_ = {std::vector<PreparedPut>(put_count), std::vector<PreparedPut>(put_count)};
  }

  void prepare(const Connection& connection, std::uint32_t parity, std::size_t put,
               const NotifiedWrite& write);
  void prepare_line(const Connection& connection, std::uint32_t parity, std::size_t put,
                    const LineWrite& write);
  /// VerbsFabric::sent() waits until this put, which is prepared for both parities, has left.
  void await_sent(std::size_t put);
  /// Says which connection a put stands for that is not prepared: VerbsFabric::drain() then waits
  /// for everything that VerbsFabric::write() sends there.
  void assign(std::size_t put, const Connection& connection) noexcept;

  /// Makes a put, in both parities, send the memory that lies `by` bytes further on, with its key.
  void move_local(std::size_t put, std::ptrdiff_t by, std::uint32_t local_key) noexcept {
    for (std::uint32_t parity = 0; parity < 2; ++parity) {
      PreparedPut& moved = put_at(parity, put);
      assert(moved.line == nullptr);
      moved.piece.addr += static_cast<std::uint64_t>(by);
      moved.piece.lkey = local_key;
    }
  }

  /// Lines from that connection will arrive in the slot, which is one line.  Must be called before
  /// the peer may send any.
  void await_lines(std::uint32_t parity, std::uint32_t slot, std::byte* line,
                   const Connection& connection);
  bool awaits_lines(std::uint32_t parity, std::uint32_t slot) const noexcept {
    return arrivals_[place_of(parity, slot)].connection != no_connection;
  }
  /// Messages are told to the ranks of this node by these words, one for each slot, instead of
  /// being taken here.  Must be called before anything can arrive.
  void republish(const detail::RepublishedWords& words);
  /// received() counts the messages of this channel that come by that connection.
  void count_received(const Connection& connection) {
    received_.push_back({.connection = connection.index, .count = 0});
  }
  std::uint64_t received(const Connection& connection) const noexcept {
    for (const Received& one : received_)
      if (one.connection == connection.index) return one.count;
    return 0;
  }

  /// Reserves a receive for one message per call that the peer will send.  Throws Error.
  void reserve_receive(Connection& connection);

  /// The connections that it uses, see VerbsFabric::use().
  std::span<const std::uint32_t> used() const noexcept { return used_; }

  /// As if nothing had been sent or had come.  Nothing of this channel may be on its way, in either
  /// direction, and its peers do the same before they send again.
  void forget_messages() noexcept;

 private:
  friend class VerbsFabric;
  /// One slot of one parity.
  struct Arrival {
    std::uint64_t* word = nullptr;  // number of the last message: `raised`, or the end of the slot
    std::uint64_t taken = 0;        // number of the last message that was taken
    std::uint64_t raised = 0;       // by poll()
    std::uint32_t connection = no_connection;  // that writes the slot, if by lines

    /// Acquire pairs with the release of the peer that writes the line; where poll() writes the
    /// word, it costs nothing.
    std::uint64_t last() const noexcept {
      return std::atomic_ref(*word).load(std::memory_order_acquire);
    }
  };
  struct Received {
    std::uint32_t connection;
    std::uint64_t count;
  };
  struct Sent {
    std::uint32_t connection;
    std::uint64_t posted;  // up to the last send that is awaited
  };

  PreparedPut& put_at(std::uint32_t parity, std::size_t put) noexcept {
    assert(parity < 2);
    assert(put < puts_[parity].size());
    return puts_[parity][put];
  }
  std::size_t place_of(std::uint32_t parity, std::uint32_t slot) const noexcept {
    assert(parity < 2);
    assert(slot < slot_count_);
    return parity * slot_count_ + slot;
  }

  std::array<std::vector<PreparedPut>, 2> puts_;  // by parity, in the order of the plan
  std::deque<OutgoingLine> lines_;                // of the puts that send lines
  std::vector<Arrival> arrivals_;                 // [parity][slot]
  std::uint32_t slot_count_;                      // 0 if there are words instead
  detail::RepublishedWords words_;
  std::vector<Received> received_;  // by connection whose messages are counted
  std::uint32_t id_ = 0;
  std::uint64_t numbers_from_ = 0;
  std::vector<Sent> sent_;               // by connection that has awaited sends
  std::vector<std::uint32_t> used_;      // connections, see VerbsFabric::use()
  std::vector<std::uint32_t> reserved_;  // connections on which receives are reserved, one each
};

}  // namespace tutti::verbs
