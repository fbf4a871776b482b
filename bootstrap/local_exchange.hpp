// The exchange of ranks that share a Board: processes forked by run_local, or threads.  The parent
// waits for its children and so sees deaths; it reports them by the board as well.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "bootstrap/board.hpp"
#include "tutti/exchange.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

class LocalExchange final : public Exchange {
 public:
  /// The board is borrowed, and must outlive this.
  LocalExchange(Board& board, Rank self) noexcept;
  /// Leaves, unless die() was called or this is a child that the rank has forked.
  ~LocalExchange() override;

  Rank self() const noexcept override { return self_; }
  std::uint32_t rank_count() const noexcept override { return board_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override;
  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs, Timeout timeout) override;
  void barrier(Timeout timeout) override;
  Incident incident() noexcept override { return board_.incident(); }
  bool has_left(Rank rank) noexcept override { return board_.has_left(rank); }
  void announce(Incident incident) noexcept override;

  /// This rank's body has failed: announces to the others that it died.  In a forked child it does
  /// nothing.
  void die() noexcept;

 private:
  void exchange(const char* name, std::span<const std::byte> mine, std::span<std::byte> all,
                Timeout timeout);
  void post_and_await(const char* name, std::uint64_t total, std::span<const std::byte> chunk,
                      Deadline deadline, Timeout timeout);
  bool is_inherited() const noexcept;  // by a child that the rank has forked
  void await_all(const char* name, Deadline deadline, Timeout timeout);
  [[noreturn]] void fail(ErrorCode code, const std::string& text);

  Board& board_;
  Rank self_;
  pid_t process_;
  std::uint64_t step_ = 0;  // the last one that this rank has posted
  std::string broken_;      // why this rank's exchanges no longer match those of the others
  bool dead_ = false;
};

}  // namespace tutti::bootstrap
