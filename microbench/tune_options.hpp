// The command line of tutti-tune as a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

#include "microbench/options.hpp"
#include "microbench/plan_request.hpp"

namespace tutti::bench {

enum class TuneMode : std::uint8_t { tune, check, show, explain, verify, diff, report };

/// What --verify judges.
enum class VerifiedPart : std::uint8_t {
  model,   // what is chosen by prices alone ...
  race,    // ... after a race of the call itself ...
  nearby,  // ... and by findings of other bytes and nodes, over a grid of calls
  fit,     // parameters of networks and their intervals
  noise,   // races of candidates whose times are known
  time,    // what choosing takes
};
const char* name_of(VerifiedPart part) noexcept;
/// Whether a part is about the cells of the grid, of which a budget may leave some out.
constexpr bool is_about_grid(VerifiedPart part) noexcept {
  return part <= VerifiedPart::nearby;
}

struct TuneOptions : RankOptions {
  TuneMode mode = TuneMode::tune;

  // What is measured.
  std::vector<Collective> collectives;  // in the order given, each once; no probes
  std::vector<std::size_t> bytes;
  std::chrono::duration<double> budget{60};
  std::chrono::duration<double> verify_budget{30.0 * 24 * 3600};  // of --verify
  std::vector<VerifiedPart> verified;                             // each once
  std::uint32_t percent_off = 5;  // each parameter that --verify chooses by
  std::uint64_t seed = 1;
  bool network_only = false;
  bool fresh = false;  // findings of the file and of a journal are forgotten

  std::string file;  // the tuning file: of --out, --show, --file, or where it is by default
  bool is_default_file = false;
  std::string other_file;  // of --diff: what `file` is compared with; of --report: the page

  PlanRequest explained = {};  // what --explain asks about

  std::string help;  // not empty: print this and end
};

/// Throws Error{invalid_argument} in one line that names the value and what was expected.
TuneOptions parse_tune_options(std::span<const char* const> arguments);

/// Where a file is written by default: the user's own of those that programs look for.  Empty: no
/// variable says where that is.
std::string default_tuning_file();

/// The collectives that there is something to find for, the most important ones first.
std::span<const Collective> tuned_collectives();

}  // namespace tutti::bench
