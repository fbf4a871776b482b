#include "microbench/tune_check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::bench {
namespace {

using tune::Figure;
using tune::Parameter;

/// A figure that is compared: a parameter, or its sum with others.  A latency is the time of whole
/// messages less overheads that other probes measure, so the sum is known at least as well, and is
/// a larger number.
struct Told {
  const char* text;
  Parameter parameter;
  std::vector<Parameter> with = {};
};
const std::vector<Told>& telling() {
  static const std::vector<Told> all = {
      {"a message, ps", Parameter::latency, {Parameter::receive_overhead}},
      {"a byte, fs", Parameter::per_byte},
      {"gap, ps", Parameter::gap},
      {"a message inside a node, ps",
       Parameter::inside_latency,
       {Parameter::inside_send_overhead, Parameter::inside_receive_overhead}},
      {"a byte inside a node, fs", Parameter::inside_per_byte},
      {"to receive inside a node, ps", Parameter::inside_receive_overhead}};
  return all;
}
constexpr std::size_t compared_most = 3;
/// Two runs may differ by more than the interval of either (other CPUs, other traffic), so a change
/// must also exceed a share of the figure.  A fifth is a judgement: prices that differ by less
/// seldom lead to another choice.
constexpr std::int64_t noise_share = 5;

Figure figure_of(const tune::Machine& machine, const Told& told) {
  Figure sum = machine[told.parameter];
  for (const Parameter other : told.with) {
    const std::int64_t more = machine[other].value;
    sum.value += more;
    sum.low += more;
    sum.high += more;
  }
  return sum;
}

/// Whether the interval is so narrow that twice or half the figure would show.
bool is_sure(const Figure& figure) {
  return figure.high - figure.low <= figure.value;
}

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
  for (const Told& told : telling()) {
    if (compared == compared_most) break;
    const Figure before = figure_of(file, told), after = figure_of(now, told);
    if (!is_measured(before) || !is_measured(after)) continue;
    const bool has_changed = differs(before, after);
    const bool is_told = has_changed || (is_sure(before) && is_sure(after));
    compared += is_told ? 1 : 0;
    check.has_changed |= has_changed;
    check.text +=
        fmt::format("{:<29}{:>14} then ({} to {}){:>14} now ({} to {})  {}\n", told.text,
                    before.value, before.low, before.high, after.value, after.low, after.high,
                    has_changed ? "changed"
                    : is_told   ? "the same"
                                : "too unsure to be compared");
  }
  check.text +=
      compared == 0       ? "Nothing can be compared: the file has no measured figure that these "
                            "ranks can measure again with a narrow interval.\n"
      : check.has_changed ? "The fabric has changed by more than noise: run tutti-tune again.\n"
                          : "The fabric is what it was, within noise.\n";
  return check;
}

}  // namespace tutti::bench
