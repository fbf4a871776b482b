// What this process has measured together with neighbours (copy_costs.hpp), for as long as it
// knows them: later communicators of two processes take the figures that an earlier one has found.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "shm/copy_costs.hpp"

namespace tutti::shm {

/// By the nonce of the neighbour's mapping.
class KnownCosts {
 public:
  /// So often two processes try in vain.  A try takes up to 20 ms, and where ranks share CPUs
  /// later ones seldom find what earlier ones have not.
  static constexpr unsigned tries_max = 3;

  /// Empty: nothing is known.
  std::optional<CopyCosts> with(std::uint64_t nonce) const {
    const auto found = all_.find(nonce);
    return found == all_.end() ? std::nullopt : found->second.costs;
  }
  /// Whether there is nothing more to measure: what is asked for is known, or they have tried often
  /// enough.  `copies`: copies are asked for, else a word alone.
  bool is_settled(std::uint64_t nonce, bool copies) const {
    const auto found = all_.find(nonce);
    if (found == all_.end()) return false;
    const Entry& entry = found->second;
    return entry.vain_tries >= tries_max ||
           (entry.costs && (!copies || !entry.costs->is_word_alone));
  }
  /// Empty: they have tried in vain.
  void learn(std::uint64_t nonce, const std::optional<CopyCosts>& found) {
    Entry& entry = all_[nonce];
    if (!found)
      ++entry.vain_tries;
    else if (!entry.costs || entry.costs->is_word_alone)
      entry.costs = found;
  }

 private:
  struct Entry {
    std::optional<CopyCosts> costs = {};
    unsigned vain_tries = 0;
  };
  std::unordered_map<std::uint64_t, Entry> all_;
};

}  // namespace tutti::shm
