// What a tuning file holds, as values: facts that were measured, and rules that people wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tutti/algorithm.hpp>
#include <vector>

#include "plan/core/per_round.hpp"
#include "tune/machine.hpp"
#include "tune/probe_times.hpp"
#include "tune/request.hpp"
#include "tune/write_placement.hpp"

namespace tutti::tune {

/// The machine that a file was made on.
struct Fingerprint {
  std::string device = {};    // "mlx5_0", "soft0"
  std::string firmware = {};  // as the driver says
  std::string link = {};      // "InfiniBand" or "Ethernet"
  std::uint32_t gigabits_per_second = 0;
  std::uint32_t mtu_bytes = 0;
  std::string cpu = {};        // model name of the system
  std::uint32_t registry = 0;  // registry_version of the library that made it
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
/// Where a parameter is from, as it is shown: "model" if it was measured where only a card can show
/// it: of the software device, the gap of the port that ranks share, and incast.
const char* origin_text(const Fingerprint& made_on, const Machine& machine,
                        Parameter parameter) noexcept;
/// Counts the changes of schedules and prices by which older findings mean something else.
inline constexpr std::uint32_t registry_version = 1;

/// Operators that the same schedules serve.
enum class OperatorClass : std::uint8_t {
  none,        // nothing is combined
  idempotent,  // contributions may enter twice
  exact,       // the order of operands does not show in the bits
  rounding,    // it does
  ordered,     // the operator does not commute
};
const char* name_of(OperatorClass operators) noexcept;
/// Whether there is an operator at all.
bool combines(Collective collective) noexcept;
OperatorClass operator_class_of(const CollectiveRequest& request) noexcept;

/// What a candidate took, and what the model says.
struct Timing {
  std::string choice = {};  // Choice::name()
  plan::Picoseconds measured = 0;
  plan::Picoseconds predicted = 0;
  friend bool operator==(const Timing&, const Timing&) = default;
};

/// One race: the winner, and those it was faster than.
struct Finding {
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;
  std::uint32_t nodes = 1;
  std::uint32_t ranks_per_node = 1;  // of the largest
  Agreement agreement = Agreement::identical;
  OperatorClass operators = OperatorClass::none;
  Timing winner = {};
  std::vector<Timing> others = {};
  bool is_noisy = false;  // RaceResult::is_noisy
  friend bool operator==(const Finding&, const Finding&) = default;

  /// Whether both are about the same call on the same shape.
  bool is_about_same(const Finding& other) const {
    return collective == other.collective && bytes == other.bytes && nodes == other.nodes &&
           ranks_per_node == other.ranks_per_node && agreement == other.agreement &&
           operators == other.operators;
  }
};

template <class Integer>
struct Range {
  Integer from = 0;
  Integer to = static_cast<Integer>(-1);  // inclusive
  bool contains(Integer value) const { return from <= value && value <= to; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Written by hand; the first that fits wins over everything that was measured, unless the call or
/// the environment says how it is done.
struct Rule {
  Collective collective = Collective::allreduce;
  Range<std::uint64_t> bytes = {};
  Range<std::uint32_t> ranks = {}, nodes = {}, ranks_per_node = {};
  std::optional<Agreement> agreement = {};
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  Tree tree = Tree::automatic;
  plan::PerRound per_round = {};
  friend bool operator==(const Rule&, const Rule&) = default;
};

struct Tuning {
  Fingerprint made_on = {};                 // empty: it holds everywhere
  Machine machine = {};                     // unless is_described(): the file has none
  std::vector<ProbeTime> probe_times = {};  // the machine was fitted to these
  WritePlacement placement = {};
  std::vector<Rule> rules = {};
  std::vector<Finding> findings = {};
  friend bool operator==(const Tuning&, const Tuning&) = default;
};

}  // namespace tutti::tune
