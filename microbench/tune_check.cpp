#include "microbench/tune_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::bench {
namespace {

using tune::Figure;
using tune::Parameter;

constexpr Parameter telling[] = {
    Parameter::latency,        Parameter::per_byte,        Parameter::gap,
    Parameter::inside_latency, Parameter::inside_per_byte, Parameter::inside_receive_overhead};
constexpr std::size_t compared_most = 3;
/// An interval is about the minutes of its own fit.  It says nothing of what differs from run to
/// run (the CPUs that were given, what else is on the network), so that a change has to be larger,
/// too.  A fifth is a judgement: prices that differ by less seldom lead to another choice.
constexpr std::int64_t noise_share = 5;

bool differs(const Figure& file, const Figure& now) {
  const std::int64_t distance =
      now.value > file.value ? now.value - file.value : file.value - now.value;
  const bool apart = now.low > file.high || now.high < file.low;
  return apart && distance > file.value / noise_share;
}

}  // namespace

std::vector<tune::Probe> probes_to_check(bool is_one_node) {
  using tune::Probe;
  if (is_one_node) return {Probe::inside_one_way, Probe::inside_store, Probe::inside_take};
  return {Probe::one_way, Probe::stream, Probe::waiting, Probe::shared_port};
}

NetworkCheck check_network(const tune::Machine& file, const tune::Machine& now) {
  NetworkCheck check;
  std::size_t& compared = check.compared;
  const auto is_measured = [](const Figure& figure) {
    return figure.origin == tune::Origin::measured;
  };
  for (const Parameter parameter : telling) {
    if (compared == compared_most) break;
    const Figure& before = file[parameter];
    const Figure& after = now[parameter];
    if (!is_measured(before) || !is_measured(after)) continue;
    ++compared;
    const bool has_changed = differs(before, after);
    check.has_changed |= has_changed;
    check.text +=
        fmt::format("{:<28}{:>14} then ({} to {}){:>14} now ({} to {})  {}\n",
                    tune::key_of(parameter), before.value, before.low, before.high, after.value,
                    after.low, after.high, has_changed ? "changed" : "the same");
  }
  check.text +=
      compared == 0       ? "Nothing can be compared: the file has no measured figure that these "
                            "ranks can measure again.\n"
      : check.has_changed ? "The fabric has changed by more than noise: run tutti-tune again.\n"
                          : "The fabric is what it was, within noise.\n";
  return check;
}

}  // namespace tutti::bench
