// The text of a tuning file: JSON, whose schema is tuning.schema.json.
#pragma once

#include <string>
#include <string_view>

#include "tune/tuning.hpp"

namespace tutti::tune {

/// Throws Error{invalid_argument}, "NAME:LINE: reason", for anything it does not know: a key, a
/// value out of its range, a text that ends early, facts that contradict each other.  Such a file
/// is refused as a whole.
Tuning parse_tuning(std::string_view text, const std::string& name);

/// A text that parse_tuning() gives the same value for, with a line for each fact.  Throws
/// Error{invalid_argument} for values that no file may have.
std::string text_of(const Tuning& tuning);

/// A finding in one line of JSON, and back, as a journal has them.
std::string line_of(const Finding& finding);
Finding parse_finding(std::string_view line, const std::string& name, std::size_t line_number);

/// Whether a file holds for a machine.  What one of both does not know does not count, nor does
/// the number of a device: mlx5_1 is a device like mlx5_0.
enum class Applies : std::uint8_t {
  yes,
  stale,  // other firmware, MTU, CPU or version of the registry: it is used, and that is said
  no,     // another kind of device, link or rate
};
struct Applicability {
  Applies applies = Applies::yes;
  std::string why = {};  // a sentence; empty: yes
};
Applicability applicability(const Fingerprint& of_file, const Fingerprint& of_machine);

/// What differs between two, a line each, "what: left | right"; empty: nothing.  The order of
/// findings does not count, that of rules does.
std::string difference_of(const Tuning& left, const Tuning& right);

}  // namespace tutti::tune
