// How long tutti would be expected to take for calls that MPI did, by the model that it chooses its
// schedules by, and by the tuning file that it would find.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shape.hpp"

namespace tutti::interposer {

class Expectation {
 public:
  /// Looks for the port and the tuning file, as a context does.
  Expectation();
  Expectation(const Expectation&) = delete;
  Expectation& operator=(const Expectation&) = delete;
  ~Expectation();

  /// What it goes by, for people; or, where it has nothing to go by, why.
  const std::string& source() const noexcept { return source_; }

  /// On how many nodes it takes these ranks to be, which a setting may say.
  std::uint32_t nodes(const std::vector<std::uint32_t>& node_of) const;

  /// Nanoseconds of one call, with blocks as in Shape, on ranks of these nodes.  Nothing if tutti
  /// has no schedule for it, or no price.
  std::optional<double> of(const ShapeKey& key, const std::vector<std::size_t>& blocks,
                           const std::vector<std::uint32_t>& node_of) const;

 private:
  struct Known;
  std::unique_ptr<Known> known_;
  std::string source_;
};

}  // namespace tutti::interposer
