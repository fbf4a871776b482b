// The fabric inside a node: a put is a copy into the peer's slot and a word that announces it.
// Nothing has to be polled, and there is always room.
#pragma once

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tutti/detail/copy.hpp>
#include <vector>

#include "shm/mailbox.hpp"
#include "shm/peer_memory.hpp"
#include "shm/sleeper.hpp"

namespace tutti::shm {

/// A put that is repeated in every call.
struct PreparedStore {
  const std::byte* local = nullptr;
  // The peer's slot, as mapped here; null: the put is not for a peer of this node.
  std::byte* remote = nullptr;
  SequenceWord* word = nullptr;
  std::size_t bytes = 0;          // that are copied
  std::uint64_t messages = 0;     // how many were sent so far
  std::size_t message_bytes = 0;  // of the payload, also of one that stays where it is
};

/// A slot here that a peer of this node writes.
struct AwaitedSlot {
  SequenceWord* word = nullptr;  // null: the slot is not for a peer of this node
  std::uint64_t messages = 0;    // how many were taken so far
};

/// A rank of this node whose memory is read here: by its process, except for its mapping.
struct Lender {
  PeerProcess process = {};
  std::span<const std::byte> mapping = {};  // its mapping, as mapped here
  std::uint64_t address = 0;                // where the mapping starts in its own process
  const SequenceWord* withdrawn = nullptr;  // 1: its user has got the memory back
};

/// The state of one operation: by parity, then in the order of the plan or by slot.
class NodeChannel {
 public:
  NodeChannel(std::size_t put_count, std::size_t slot_count)
      : stores_{std::vector<PreparedStore>(put_count), std::vector<PreparedStore>(put_count)},
        awaited_{std::vector<AwaitedSlot>(slot_count), std::vector<AwaitedSlot>(slot_count)} {}

  void make_room(std::size_t put_count) {
    for (std::vector<PreparedStore>& stores : stores_) stores.resize(put_count);
  }
  void prepare(std::uint32_t parity, std::size_t put, const PreparedStore& store) {
    assert(parity < stores_.size());
    assert(put < stores_[parity].size());
    stores_[parity][put] = store;
  }
  void await(std::uint32_t parity, std::uint32_t slot, SequenceWord* word) {
    assert(parity < awaited_.size());
    assert(slot < awaited_[parity].size());
    awaited_[parity][slot] = {.word = word, .messages = 0};
  }

  /// From now on wakes the reader of a put, which may sleep.  The put has been prepared for both
  /// parities.  `waker` is borrowed.
  void wake_by(std::size_t put, const Waker& waker) {
    assert(put < stores_[0].size());
    wakers_.resize(stores_[0].size());
    wakers_[put] = &waker;
  }
  /// Called after a put, if wake_by() was called for any.
  void wake(std::size_t put) const noexcept {
    assert(put < wakers_.size());
    if (wakers_[put] != nullptr) wakers_[put]->wake();
  }

  /// Sets the lender whose memory is read for messages that arrive in the slot.
  void read_from(std::uint32_t slot, const Lender& lender) {
    assert(slot < awaited_[0].size());
    assert(lender.withdrawn != nullptr);
    lenders_.resize(awaited_[0].size());
    lenders_[slot] = lender;
  }
  /// Reads memory that the writer of the slot has named.  Returns 0 or an errno, which then is the
  /// result of all further reads.  read_from() must have been called for the slot.
  int read(std::uint32_t slot, std::uint64_t from, std::byte* into, std::size_t bytes) noexcept {
    assert(slot < lenders_.size());
    if (read_error_ != 0) return read_error_;
    if (const std::byte* const there = mapped(slot, from, bytes)) {
      detail::copy_memory(into, there, bytes);
    } else {
      read_error_ = lenders_[slot].process.read(from, into, bytes);
    }
    return was_lent(slot);
  }
  /// The memory that read() would copy from, if it is mapped here; else, or if an earlier read has
  /// failed, null.
  const std::byte* mapped(std::uint32_t slot, std::uint64_t from,
                          std::size_t bytes) const noexcept {
    assert(slot < lenders_.size());
    const Lender& lender = lenders_[slot];
    const std::uint64_t offset = from - lender.address;
    const bool is_inside =
        offset <= lender.mapping.size() && bytes <= lender.mapping.size() - offset;
    return is_inside && read_error_ == 0 ? lender.mapping.data() + offset : nullptr;
  }
  /// To be called after mapped memory was read: 0, or the errno of read() if its user has it back.
  int was_lent(std::uint32_t slot) noexcept {
    assert(slot < lenders_.size());
    if (read_error_ == 0 && is_withdrawn(lenders_[slot].withdrawn)) read_error_ = ECANCELED;
    return read_error_;
  }
  int read_error() const noexcept { return read_error_; }

  /// As if nothing had been put or had arrived.  Nobody reads or writes the slots meanwhile, and
  /// the peers do the same before they put again.
  void forget_messages() noexcept {
    for (std::vector<PreparedStore>& stores : stores_)
      for (PreparedStore& store : stores) store.messages = 0;
    for (std::vector<AwaitedSlot>& slots : awaited_)
      for (AwaitedSlot& slot : slots) {
        slot.messages = 0;
        if (slot.word != nullptr) clear(slot.word);
      }
  }

  bool holds_put(std::uint32_t parity, std::size_t put) const noexcept {
    return stores_[parity][put].remote != nullptr;
  }
  bool holds_slot(std::uint32_t parity, std::uint32_t slot) const noexcept {
    return awaited_[parity][slot].word != nullptr;
  }

  /// Copies the payload, then stores the word.  Only if it holds that put.
  void put(std::uint32_t parity, std::size_t put) noexcept {
    assert(holds_put(parity, put));
    PreparedStore& store = stores_[parity][put];
    copy_payload(store.remote, store.local, store.bytes);
    announce(store.word, ++store.messages);
  }

  /// In simulated time: copies the payload and counts the message, which the caller announces.
  const PreparedStore& put_silently(std::uint32_t parity, std::size_t put) noexcept {
    assert(holds_put(parity, put));
    PreparedStore& store = stores_[parity][put];
    copy_payload(store.remote, store.local, store.bytes);
    ++store.messages;
    return store;
  }

  /// Takes the next message of the slot if it has arrived, and returns whether it has.  The channel
  /// must hold that slot.
  bool take(std::uint32_t parity, std::uint32_t slot) noexcept {
    assert(holds_slot(parity, slot));
    AwaitedSlot& awaited = awaited_[parity][slot];
    if (!has_come(awaited.word, awaited.messages + 1)) return false;
    ++awaited.messages;
    return true;
  }
  /// Fetches the word of the slot, which will be looked at soon.  The channel must hold the slot.
  [[gnu::always_inline]] void expect(std::uint32_t parity, std::uint32_t slot) const noexcept {
    assert(holds_slot(parity, slot));
    __builtin_prefetch(awaited_[parity][slot].word);
  }
  /// Whether the next message has arrived in the slot; it is not taken.
  bool arrived(std::uint32_t parity, std::uint32_t slot) const noexcept {
    assert(holds_slot(parity, slot));
    const AwaitedSlot& awaited = awaited_[parity][slot];
    return has_come(awaited.word, awaited.messages + 1);
  }

 private:
  std::array<std::vector<PreparedStore>, 2> stores_;
  std::array<std::vector<AwaitedSlot>, 2> awaited_;
  std::vector<Lender> lenders_;       // by slot
  std::vector<const Waker*> wakers_;  // by put; empty: no reader sleeps
  int read_error_ = 0;                // the first one
};

}  // namespace tutti::shm
