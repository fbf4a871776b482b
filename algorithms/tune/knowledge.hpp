// What choices are made from: the machine, and what a tuning file adds to it.  It is the same on
// every rank of a communicator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tune/corrections.hpp"
#include "tune/machine.hpp"
#include "tune/tuning.hpp"

namespace tutti::tune {

/// Whether tuning may change bits of results (TUTTI_TUNING_BITS).
enum class TuningBits : std::uint8_t {
  free,  // within what the agreement promises
  keep,  // results have the bits that they would have untuned
};

struct Knowledge {
  Machine machine = machine_preset("fdr");  // as the file describes it, if there is one
  std::vector<Rule> rules = {};
  std::vector<Finding> findings = {};
  Corrections corrections = {};  // of the findings
  TuningBits bits = TuningBits::free;
  Machine untuned = machine_preset("fdr");  // by which schedules would be priced without a file

  /// Whether the file does not contradict the machine that is assumed without a file: no finding of
  /// it may correct prices, and all its intervals contain the figures of that machine.  Schedules
  /// are then those that are chosen without a file.
  bool keeps_to_untuned() const {
    return machine != untuned && corrections.empty() && machine.may_be(untuned);
  }
  /// The machine by which schedules are priced.
  const Machine& priced() const { return keeps_to_untuned() ? untuned : machine; }
};

/// Returns the knowledge of a program that has no file: prices on this machine alone.
Knowledge untuned(const Machine& machine);
/// Returns the knowledge of a program that has this file.
Knowledge tuned(const Machine& machine, Tuning tuning, TuningBits bits);

}  // namespace tutti::tune
