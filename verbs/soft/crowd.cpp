#include "verbs/soft/crowd.hpp"

#include <algorithm>
#include <bit>

#include "verbs/soft/segment.hpp"

namespace tutti::verbs::soft {

void mark(CrowdEntry& entry, std::uint32_t group) noexcept {
  assert(group < CrowdEntry::groups_count);
  // Release, twice: whoever takes the bit sees the completion, and whoever takes `any` sees the
  // bit.  Both are exchanged even if the value stays the same: see CrowdEntry.
  entry.groups[group / 64].fetch_or(std::uint64_t{1} << group % 64, std::memory_order_release);
  entry.any.exchange(1, std::memory_order_release);
}

// --- CrowdEntries -------------------------------------------------------------------------------

std::size_t CrowdEntries::take(Segment& segment) {
  if (unused_.empty()) {
    unused_.reserve(made_count_ + 1);  // giving all of them back needs no memory
    const std::size_t made = segment.allocate(sizeof(CrowdEntry));
    if (made == 0) return 0;
    ++made_count_;
    unused_.push_back(made);
  }
  const std::size_t offset = unused_.back();
  unused_.pop_back();
  assert(offset % line_bytes == 0);
  return offset;
}

void CrowdEntries::give_back(std::size_t offset) noexcept {
  assert(offset != 0);
  assert(unused_.size() < unused_.capacity());
  unused_.push_back(offset);
}

// --- Crowd --------------------------------------------------------------------------------------

void Crowd::open(CrowdEntry& entry, std::size_t offset, Watch& watch) noexcept {
  assert(!is_open());
  assert(offset != 0);
  entry_ = &entry;
  offset_ = offset;
  watch.expected.store(1, std::memory_order_relaxed);
  watch.sequence.store(&entry.any, std::memory_order_release);
}

void Crowd::reserve() {
  // An empty seat is room, too; but to look for one costs more than a little memory.
  if (members_.size() == members_.capacity()) members_.reserve(2 * members_.size() + word_bits);
  const std::size_t words = (members_.capacity() + word_bits - 1) / word_bits;
  if (expected_.size() < words) expected_.resize(words);
}

std::uint32_t Crowd::add(QueuePair& pair) noexcept {
  assert(is_open());
  const auto free = std::find(members_.begin(), members_.end(), nullptr);
  const auto seat = static_cast<std::uint32_t>(free - members_.begin());
  if (free != members_.end()) {
    *free = &pair;
  } else {
    assert(members_.size() < members_.capacity());
    members_.push_back(&pair);
  }
  assert(seat / word_bits < expected_.size());
  return seat;
}

void Crowd::remove(std::uint32_t seat) noexcept {
  assert(seat < members_.size());
  assert(members_[seat] != nullptr);
  settle(seat);
  members_[seat] = nullptr;
}

void Crowd::mark_seat(std::uint32_t seat) noexcept {
  assert(is_open());
  mark(*entry_, group_of(seat));
}

void Crowd::expect(std::uint32_t seat) noexcept {
  std::uint64_t& word = expected_[seat / word_bits];
  const std::uint64_t bit = std::uint64_t{1} << seat % word_bits;
  if ((word & bit) == 0) ++expected_count_;
  word |= bit;
}

void Crowd::settle(std::uint32_t seat) noexcept {
  assert(seat < members_.size());
  std::uint64_t& word = expected_[seat / word_bits];
  const std::uint64_t bit = std::uint64_t{1} << seat % word_bits;
  if ((word & bit) != 0) --expected_count_;
  word &= ~bit;
}

void Crowd::collect() noexcept {
  // Acquire: the bits of all who have set the word since it was taken last.  The loop must not look
  // before.  Relaxed where the value is only a hint: a word that is set later is found later.
  if (entry_->any.load(std::memory_order_relaxed) == 0 ||
      entry_->any.exchange(0, std::memory_order_acquire) == 0)
    return;
  for (std::uint32_t index = 0; index < CrowdEntry::words_count; ++index) {
    std::atomic<std::uint64_t>& word = entry_->groups[index];
    if (word.load(std::memory_order_relaxed) == 0) continue;
    // Acquire: the completions of all who have set a bit.
    for (std::uint64_t bits = word.exchange(0, std::memory_order_acquire); bits != 0;
         bits &= bits - 1)
      for (std::size_t seat = index * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
           seat < members_.size(); seat += CrowdEntry::groups_count)
        if (members_[seat] != nullptr) expect(static_cast<std::uint32_t>(seat));
  }
}

std::uint32_t Crowd::next() noexcept {
  assert(expected_count_ > 0);
  assert(turn_ / word_bits < expected_.size());
  std::size_t index = turn_ / word_bits;
  std::uint64_t word = expected_[index] & (~std::uint64_t{0} << turn_ % word_bits);
  while (word == 0) {
    if (++index == expected_.size()) index = 0;
    word = expected_[index];
  }
  const auto seat = static_cast<std::uint32_t>(index) * word_bits +
                    static_cast<std::uint32_t>(std::countr_zero(word));
  assert(seat < members_.size());
  turn_ = seat + 1 == members_.size() ? 0 : seat + 1;
  return seat;
}

void Crowd::keep_expected() noexcept {
  // Relaxed: only this side's polls need it.  An exchange all the same, so that what initiators
  // released stays with the word.
  if (expected_count_ > 0) entry_->any.exchange(1, std::memory_order_relaxed);
}

}  // namespace tutti::verbs::soft
