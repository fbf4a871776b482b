// Remembers what this process has measured together with its neighbours (copy_costs.hpp), as long
// as its context exists: later communicators of two processes take the figures of an earlier one.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "shm/copy_costs.hpp"

namespace tutti::shm {

/// Measured costs by neighbour; a neighbour is identified by the nonce of its mapping.
class KnownCosts {
 public:
  /// After this many failed attempts two processes stop measuring.  An attempt takes up to 20 ms,
  /// and where ranks share CPUs a later attempt rarely succeeds if earlier ones failed.
  static constexpr unsigned tries_max = 3;

  /// Empty: nothing is known.
  std::optional<CopyCosts> with(std::uint64_t nonce) const {
    const auto found = all_.find(nonce);
    return found == all_.end() ? std::nullopt : found->second.costs;
  }
  /// Whether there is nothing more to measure: what is asked for is known, or they have tried often
  /// enough.  `copies`: whether copies have to be measured as well, or only the latency of a word.
  bool is_settled(std::uint64_t nonce, bool copies) const {
    const auto found = all_.find(nonce);
    if (found == all_.end()) return false;
    const Entry& entry = found->second;
    return entry.failed_tries >= tries_max ||
           (entry.costs && (!copies || !entry.costs->is_word_alone));
  }
  /// `found`: what a try has found.  The try has failed if that is nothing, or a word alone where
  /// `copies` were asked for.
  void learn(std::uint64_t nonce, const std::optional<CopyCosts>& found, bool copies) {
    Entry& entry = all_[nonce];
    if (!found || (copies && found->is_word_alone)) ++entry.failed_tries;
    if (found && (!entry.costs || entry.costs->is_word_alone)) entry.costs = found;
  }

 private:
  struct Entry {
    std::optional<CopyCosts> costs = {};
    unsigned failed_tries = 0;
  };
  std::unordered_map<std::uint64_t, Entry> all_;
};

}  // namespace tutti::shm
