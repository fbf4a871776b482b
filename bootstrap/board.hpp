// What the ranks of one machine share: an anonymous shared mapping, made before they are forked (or
// started as threads).  Each rank writes only its own column; others read it once its `posted`
// count allows that.  Two slots per rank are enough without acknowledgements: a rank that posts
// step s + 2 has seen every rank post s + 1, and each did that only after it had read step s.
//
//              rank 0            rank 1            rank 2
//   posted       7                 7                 6         <- step 7 waits for rank 2
//   slot 0     step 6            step 6            step 6
//   slot 1     step 7            step 7            step 5
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "tutti/exchange.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti::bootstrap {

/// Any rank or thread may call any function, except that a rank posts for itself only.
class Board {
 public:
  /// The size of one rank's chunk in one step.  It keeps 100 ranks below 16 MiB, touched on use
  /// only.
  static constexpr std::size_t chunk_bytes_max = std::size_t{64} << 10;

  /// Throws Error{system}.
  explicit Board(std::uint32_t rank_count);

  std::uint32_t rank_count() const noexcept { return rank_count_; }

  /// Publishes the chunk of `rank` for step `step`, counted from 1.  Every rank must have posted
  /// step - 1.  `total_bytes` says what this chunk is a part of, for others to compare.
  void post(Rank rank, std::uint64_t step, std::uint64_t total_bytes,
            std::span<const std::byte> chunk) noexcept;
  bool has_posted(Rank rank, std::uint64_t step) const noexcept;
  /// Ranks that have not posted `step`, in order.
  std::vector<Rank> missing(std::uint64_t step) const;
  /// `rank` must have posted `step`, and the caller must not have posted step + 1.
  std::uint64_t total_bytes(Rank rank, std::uint64_t step) const noexcept;
  std::span<const std::byte> chunk(Rank rank, std::uint64_t step) const noexcept;

  Incident incident() const noexcept;
  void announce(Incident incident) noexcept;
  bool has_left(Rank rank) const noexcept;
  void leave(Rank rank) noexcept;

  /// Grows with every change here.  Read it, look around, then sleep until it differs.
  std::uint32_t changes() const noexcept;
  void sleep_while(std::uint32_t changes, Timeout at_most) const noexcept;

 private:
  struct Head;
  struct Column;
  Head& head() const noexcept;
  Column& column(Rank rank) const noexcept;
  std::byte* slot(Rank rank, std::uint64_t step) const noexcept;
  void wake_all() noexcept;

  std::uint32_t rank_count_;
  detail::Mapping mapping_;
};

}  // namespace tutti::bootstrap
