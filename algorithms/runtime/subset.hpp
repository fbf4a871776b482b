// How ranks of a communicator that become one of their own introduce themselves: by an allreduce
// over the communicator that they come from, so that any exchange will do and only they take part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <tutti/communicator.hpp>
#include <tutti/operation.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "runtime/set_up_call.hpp"

namespace tutti::runtime {

/// Borrows the communicator, which must outlive it.  Incidents are those of that communicator's
/// exchange.  They include ranks that are not members, and then name no rank.
class SubsetExchange final : public Exchange {
 public:
  /// Collective over `whole`, whose ranks may name different members; `members` are ranks there, in
  /// their new order, this one among them.  Throws Error.
  SubsetExchange(Communicator& whole, std::vector<Rank> members);

  Rank self() const noexcept override { return self_; }
  std::uint32_t rank_count() const noexcept override;
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override;
  void barrier(Timeout timeout) override { allgather({}, {}, timeout); }
  Incident incident() noexcept override;
  bool has_left(Rank rank) noexcept override;
  void announce(Incident incident) noexcept override;

 private:
  /// What a rank contributes to one allreduce; zero where others contribute.
  struct Block {
    std::uint64_t total_bytes = 0;  // of its whole contribution
    std::array<std::byte, sizeof(SetUpBlock)> payload = {};
  };

  /// One allreduce: `own_` of every rank to `all_`.
  void exchange_blocks(Timeout timeout);
  Rank rank_here(Rank rank_there) const noexcept;
  Rank rank_there(Rank rank_here) const noexcept;

  Communicator::Implementation& whole_;
  std::vector<Rank> members_;
  Rank self_;
  bool out_of_step_ = false;
  std::vector<Block> own_, all_;  // by member
  Operation operation_;           // from own_ to all_
};

/// Communicator::split(), on a rank that may have found something wrong before: then every rank
/// throws.
std::optional<Communicator> split(Communicator& whole, std::optional<std::uint32_t> color,
                                  std::int64_t key, const std::optional<Error>& error);

}  // namespace tutti::runtime
