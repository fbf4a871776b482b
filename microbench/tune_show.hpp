// A tuning file for people: as tables, and what two of them differ in.
#pragma once

#include <string>

#include "tune/tuning.hpp"

namespace tutti::bench {

/// "1.234 us", "850.0 ns": four digits or more.
std::string time_text(plan::Picoseconds time);
/// A parameter as people read it: "850.0 ns", "6.80 GB/s", "12", "not known".
std::string value_text(tune::Parameter parameter, std::int64_t value);
/// What a parameter is: "o + L between nodes".
const char* meaning_of(tune::Parameter parameter) noexcept;
/// What "model" is, if any parameter is from there, as a line without its end; else nothing.
std::string remark_on_model(const tune::Tuning& tuning);
/// The device, firmware, link and CPU, in one line; what is not known is left out.
std::string line_of(const tune::Fingerprint& made_on);
/// What a stress of the device has seen, in one line; empty: there was none.
std::string line_of(const tune::WritePlacement& placement);
/// The call that a finding is about: "allreduce of 8 bytes, 96 nodes of 8 ranks, identical,
/// rounding".
std::string call_text(const tune::Finding& finding);
/// A rule in one line.
std::string line_of(const tune::Rule& rule);

/// The machine with intervals and origin, rules, and findings with winner, runner-up, and what was
/// measured against what the model says.
std::string show_tuning(const tune::Tuning& tuning);

struct NamedTuning {
  std::string name;  // of the file
  const tune::Tuning& tuning;
};
/// What two files differ in, a line each below their names, or that they say the same.
std::string show_difference(const NamedTuning& left, const NamedTuning& right);

}  // namespace tutti::bench
