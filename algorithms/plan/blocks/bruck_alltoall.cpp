// See bruck_alltoall.hpp.  The message of round k that goes j units ahead has slot n k + j - 1, and
// is put together in the partial of that number.
#include "plan/blocks/bruck_alltoall.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/blocks/blocks.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, std::uint32_t n)
      : rounds_(bruck_rounds(rank_count, n)), n_(n) {
    const BruckRegisters registers = bruck_registers(rounds_);
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "bruck_alltoall"};
    plan_.n = n;
    plan_.parts = static_cast<std::uint16_t>(rank_count);
    plan_.swaps_blocks = true;
    plan_.payloads = static_cast<std::uint16_t>(registers.payloads);
    plan_.slot_count = plan_.partial_count = static_cast<std::uint16_t>(registers.slots);
  }

  Plan built() && {
    for (std::size_t k = 0; k < rounds_.size(); ++k) {
      steps_.begin_round(rounds_[k].messages);
      if (k == 0) read_source();
      for (std::uint32_t j = 1; j <= rounds_[k].messages; ++j) send(k, j);
      for (std::uint32_t j = 1; j <= rounds_[k].messages; ++j) receive(k, j);
    }
    if (rounds_.empty()) read_source();
    return std::move(plan_);
  }

 private:
  Rank ahead(std::uint64_t distance) const {
    return rank_ahead(plan_.self, distance, plan_.rank_count);
  }
  Rank behind(std::uint64_t distance) const {
    return rank_behind(plan_.self, distance, plan_.rank_count);
  }
  std::uint16_t number_of(std::size_t k, std::uint32_t j) const {
    return static_cast<std::uint16_t>(n_ * k + j - 1);
  }
  std::uint64_t unit(std::size_t k) const { return rounds_[k].unit; }
  std::uint64_t next_unit(std::size_t k) const { return unit(k) * (n_ + std::uint64_t{1}); }

  std::uint32_t digit(std::uint64_t distance, std::size_t k) const {
    return static_cast<std::uint32_t>(distance / unit(k) % (n_ + std::uint64_t{1}));
  }

  /// All that is read of the source, so that the target may be written then.
  void read_source() {
    for (std::uint32_t distance = 1; distance < plan_.rank_count; ++distance) {
      steps_.begin_part(part_of(ahead(distance)));
      steps_.copy(source_register, outgoing(distance, 0));
    }
    steps_.begin_part(part_of(plan_.self));
    steps_.copy(source_register, target_register);
  }

  /// Where a block is put that has not gone by its digits from `k` on, one of which is not 0.
  Register outgoing(std::uint64_t distance, std::size_t k) const {
    while (digit(distance, k) == 0) ++k;
    const std::uint64_t before = distance / next_unit(k) * unit(k) + distance % unit(k);
    return partial_register(number_of(k, digit(distance, k)), static_cast<std::uint16_t>(before));
  }

  /// Distances of the blocks of a message: `unit` consecutive ones from each that is a multiple.
  template <class F>
  void for_runs(std::size_t k, std::uint32_t j, F&& f) const {
    for (std::uint64_t first = j * unit(k); first < plan_.rank_count; first += next_unit(k))
      f(first, std::min(unit(k), plan_.rank_count - first));
  }

  void send(std::size_t k, std::uint32_t j) {
    std::uint64_t last_run = 0, blocks = 0;
    for_runs(k, j, [&](std::uint64_t first, std::uint64_t length) {
      last_run = first;
      blocks += length;
    });
    steps_.begin_part(part_of(ahead(last_run)));
    const std::uint16_t number = number_of(k, j);
    const bool forwards = true;
    steps_.put(ahead(j * unit(k)), number, static_cast<std::uint16_t>(blocks),
               partial_register(number), forwards);
    blocks_.push_back(static_cast<std::uint16_t>(blocks));
  }

  void receive(std::size_t k, std::uint32_t j) {
    const std::uint16_t slot = number_of(k, j);
    steps_.begin_part(part_of(plan_.self));
    steps_.await(behind(j * unit(k)), slot, blocks_[slot]);
    std::uint16_t payload = 0;
    for_runs(k, j, [&](std::uint64_t first, std::uint64_t length) {
      const std::uint64_t to_go = first - j * unit(k);
      if (to_go > 0) {
        steps_.begin_part(part_of(ahead(to_go)));
        steps_.copy(slot_register(slot, payload), outgoing(first, k + 1),
                    static_cast<std::uint16_t>(length));
        payload = static_cast<std::uint16_t>(payload + length);
      } else {
        for (std::uint64_t distance = first; distance < first + length; ++distance) {
          steps_.begin_part(part_of(behind(distance)));
          steps_.copy(slot_register(slot, payload++), target_register);
        }
      }
    });
  }

  std::vector<BruckRound> rounds_;
  std::uint32_t n_;
  std::vector<std::uint16_t> blocks_ = {};  // of each message
  Plan plan_ = {};
  StepWriter steps_{plan_};
};

}  // namespace

std::vector<BruckRound> bruck_rounds(std::uint32_t rank_count, std::uint32_t n) {
  assert(rank_count >= 1 && n >= 1);
  std::vector<BruckRound> rounds;
  const std::uint64_t base = n + std::uint64_t{1};
  for (std::uint64_t unit = 1; unit < rank_count; unit *= base) {
    const std::uint64_t rest = std::max(rank_count % (unit * base), unit) - unit;
    const std::uint64_t blocks = rank_count / (unit * base) * unit + std::min(rest, unit);
    const std::uint64_t units = (rank_count + unit - 1) / unit;  // none is farther
    rounds.push_back({static_cast<std::uint32_t>(unit),
                      static_cast<std::uint32_t>(std::min(units, base) - 1),
                      static_cast<std::uint32_t>(blocks)});
  }
  return rounds;
}

BruckRegisters bruck_registers(const std::vector<BruckRound>& rounds) {
  BruckRegisters registers;
  for (const BruckRound& round : rounds) {
    registers.slots += round.messages;
    registers.payloads = std::max(registers.payloads, round.blocks);
  }
  return registers;
}

Plan bruck_alltoall(Rank self, std::uint32_t rank_count, std::uint32_t n) {
  assert(is_block_exchange(rank_count) && index_of(self) < rank_count && n >= 1);
  return Builder(self, rank_count, n).built();
}

}  // namespace tutti::plan
