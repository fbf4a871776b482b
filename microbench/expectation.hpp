// Bounds that a run is held against, from the file of --expect:
//
//   [ranks 2, nodes 1]                     # what the lines below are about
//   barrier         <= 1.15 floor          # its median is at most 1.15 times that of floor
//   reduce 8        <= 1.25 oneway  tripwire 5
//   every 8..8M     <= 1    mpi            # every collective with a payload, every size measured
//
// The tripwire is a limit of its own for machines whose times scatter.  A file may hold bounds for
// many runs: a run lists the bounds that it has not measured, and does not judge them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "microbench/options.hpp"

namespace tutti::bench {

inline constexpr double tripwire_default = 1.5;  // times the target
inline constexpr std::size_t tripwire_tries = 3;

struct Expectation {
  std::size_t line = 0;                  // of the file, from 1
  std::string text;                      // the bound as written, without its tripwire
  std::optional<Collective> collective;  // none: every one that has a payload
  std::size_t bytes_first = 0;           // both 0 where there is no payload to choose
  std::size_t bytes_last = 0;
  double target = 0;
  double tripwire = 0;
  std::optional<Collective> beside;  // a probe; none: MPI
  std::string condition;             // as written: "ranks 2, nodes 1"
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> nodes;
  std::optional<Notify> notify;
};

/// `text` is what `file` contains.  Throws Error{invalid_argument}, in one line that names the
/// line, the value and what was expected.
std::vector<Expectation> parse_expectations(std::string_view text, const std::string& file);

/// The properties of a row that decide which bounds are about it.
struct Measured {
  Collective collective;
  std::size_t bytes = 0;
  std::optional<Notify> notify = {};  // none: a probe
  bool beside_mpi = false;
};

/// One row to judge by one bound.
struct Pairing {
  std::size_t expectation = 0;        // index
  std::size_t row = 0;                // index
  std::optional<std::size_t> beside;  // index of a row; none: MPI
};

/// A bound about this kind of run for which the run has no row.
struct Gap {
  std::size_t expectation = 0;
  std::string reason;
};

struct Match {
  std::vector<Pairing> pairings;
  std::vector<Gap> gaps;
  std::size_t elsewhere = 0;  // bounds about other numbers of ranks or nodes, or another notify
};

Match match(std::span<const Expectation> expectations, std::span<const Measured> rows,
            std::uint32_t ranks, std::uint32_t nodes);

/// Whether `ratio` is within the bound; a ratio of 0 means that nothing was measured, and never is.
bool is_met(const Expectation& expectation, double ratio, bool tripwire) noexcept;

/// Number of ratios that miss their bound; there is one ratio for each pairing.
std::size_t missed(std::span<const Expectation> expectations, const Match& found,
                   std::span<const double> ratios, bool tripwire);

/// A line for each row that was judged and each bound that was not, and the sum of them.
std::string as_text(std::span<const Expectation> expectations, const Match& found,
                    std::span<const Measured> rows, std::span<const double> ratios, bool tripwire);

}  // namespace tutti::bench
