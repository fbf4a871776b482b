// An exchange that is honest but for one moment.
#pragma once

#include <functional>
#include <span>
#include <tutti/exchange.hpp>
#include <utility>

namespace tutti::test {

/// Passes everything on, except that something happens after the allgather with a given number.
class Tampering final : public Exchange {
 public:
  Tampering(Exchange& honest, int when, std::function<void(std::span<std::byte> all)> tamper)
      : honest_(honest), when_(when), tamper_(std::move(tamper)) {}
  Rank self() const noexcept override { return honest_.self(); }
  std::uint32_t rank_count() const noexcept override { return honest_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    honest_.allgather(mine, all, timeout);
    if (++count_ == when_) tamper_(all);
  }
  void barrier(Timeout timeout) override { honest_.barrier(timeout); }
  Incident incident() noexcept override { return honest_.incident(); }
  bool has_left(Rank rank) noexcept override { return honest_.has_left(rank); }
  void announce(Incident incident) noexcept override { honest_.announce(incident); }

 private:
  Exchange& honest_;
  int when_;
  int count_ = 0;
  std::function<void(std::span<std::byte> all)> tamper_;
};

}  // namespace tutti::test
