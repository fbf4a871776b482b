// Whether a tuning file holds for a machine, and in what two files differ.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tutti/detail/names.hpp>
#include <utility>
#include <vector>

#include "tune/json_text.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::tune {
namespace {

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

/// The driver's name for its devices, without what counts or locates them: "mlx5_" of "mlx5_0",
/// "roce" of "rocep65s0f0".
std::string_view kind_of(std::string_view device) {
  for (const std::string_view located : {"ibp", "rocep", "iwp"})
    if (device.starts_with(located) && device.size() > located.size() &&
        is_digit(device[located.size()]))
      return located;
  while (!device.empty() && is_digit(device.back())) device.remove_suffix(1);
  return device;
}

/// Adds "WHAT is LEFT there and RIGHT here" where both are known and differ.
class Differences {
 public:
  void compare(const std::string& what, std::string_view there, std::string_view here) {
    if (!there.empty() && !here.empty() && there != here)
      add(what, quotation_of(there), quotation_of(here));
  }
  void compare(const std::string& what, std::uint64_t there, std::uint64_t here,
               const std::string& unit = {}) {
    if (there != 0 && here != 0 && there != here)
      add(what, std::to_string(there) + unit, std::to_string(here) + unit);
  }
  void add(const std::string& what, const std::string& there, const std::string& here) {
    text_ += (text_.empty() ? "" : "; ") + what + " was " + there + ", here it is " + here;
  }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string text_of(const Tuning& tuning, Parameter parameter) {
  const Figure& figure = tuning.machine[parameter];
  return std::to_string(figure.value) + " (" + std::to_string(figure.low) + " to " +
         std::to_string(figure.high) + ", " +
         origin_text(tuning.made_on, tuning.machine, parameter) + ")";
}

std::string call_of(const Finding& finding) {
  std::string text = name_of(finding.collective);
  text += " of " + std::to_string(finding.bytes) + " bytes, " + std::to_string(finding.nodes) +
          " nodes of " + std::to_string(finding.ranks_per_node) + ", " + name_of(finding.agreement);
  if (finding.operators != OperatorClass::none)
    text += std::string(", ") + name_of(finding.operators);
  return text;
}

std::string call_of(const ProbeTime& one) {
  return std::string("probe ") + name_of(one.probe) + " of " + std::to_string(one.bytes) +
         " bytes, messages " + std::to_string(one.messages) + ", ranks " +
         std::to_string(one.ranks);
}
std::string text_of(const ProbeTime& one) {
  return "measured_ps " + std::to_string(one.measured) + ", predicted_ps " +
         std::to_string(one.predicted);
}

std::string text_of(const Timing& timing) {
  return timing.choice + ", measured_ps " + std::to_string(timing.measured) + ", predicted_ps " +
         std::to_string(timing.predicted);
}

std::string text_of(const Finding& finding) {
  std::string text = text_of(finding.winner);
  for (const Timing& other : finding.others) text += "; before " + text_of(other);
  return text + (finding.is_noisy ? "; noisy" : "");
}

/// A rule as the file has it.
std::string text_of(const Rule& rule) {
  const std::string file = text_of(Tuning{.rules = {rule}});
  const std::size_t begin = file.find('{', file.find('['));
  return file.substr(begin, file.rfind("\n  ]") - begin);
}

}  // namespace

Applicability applicability(const Fingerprint& of_file, const Fingerprint& of_machine) {
  Differences other;
  if (kind_of(of_file.device) != kind_of(of_machine.device))
    other.compare("device", of_file.device, of_machine.device);
  other.compare("link", of_file.link, of_machine.link);
  other.compare("rate", of_file.gigabits_per_second, of_machine.gigabits_per_second, " Gb/s");
  if (!other.empty())
    return {Applies::no, "the tuning file is for another network: " + other.text()};
  Differences stale;
  stale.compare("firmware", of_file.firmware, of_machine.firmware);
  stale.compare("MTU", of_file.mtu_bytes, of_machine.mtu_bytes, " bytes");
  stale.compare("CPU", of_file.cpu, of_machine.cpu);
  stale.compare("version of the schedules", of_file.registry, of_machine.registry);
  if (!stale.empty()) return {Applies::stale, "the tuning file is stale: " + stale.text()};
  return {};
}

std::string difference_of(const Tuning& left, const Tuning& right) {
  std::string text;
  const auto add = [&](const std::string& line) { text += line + "\n"; };
  const auto compare = [&](const std::string& what, const std::string& one,
                           const std::string& other) {
    if (one != other) add(what + ": " + one + " | " + other);
  };
  const Fingerprint &from = left.made_on, &to = right.made_on;
  compare("device", quotation_of(from.device), quotation_of(to.device));
  compare("firmware", quotation_of(from.firmware), quotation_of(to.firmware));
  compare("link", quotation_of(from.link), quotation_of(to.link));
  compare("gigabits_per_second", std::to_string(from.gigabits_per_second),
          std::to_string(to.gigabits_per_second));
  compare("mtu_bytes", std::to_string(from.mtu_bytes), std::to_string(to.mtu_bytes));
  compare("cpu", quotation_of(from.cpu), quotation_of(to.cpu));
  compare("registry", std::to_string(from.registry), std::to_string(to.registry));

  compare("machine", quotation_of(left.machine.name), quotation_of(right.machine.name));
  for (const Parameter parameter : detail::enumerators<Parameter::fan_max>)
    compare(key_of(parameter), text_of(left, parameter), text_of(right, parameter));

  compare("placement of lines", words_on_lines(left.placement), words_on_lines(right.placement));
  compare("placement of words", words_on_order(left.placement), words_on_order(right.placement));

  for (std::size_t i = 0; i < std::max(left.rules.size(), right.rules.size()); ++i)
    compare("rule " + std::to_string(i + 1),
            i < left.rules.size() ? text_of(left.rules[i]) : "none",
            i < right.rules.size() ? text_of(right.rules[i]) : "none");

  // Probes and findings are facts, whose order does not count.
  struct Call {
    std::string name;
    std::array<std::vector<std::string>, 2> of_sides = {};
  };
  std::vector<Call> calls;
  std::map<std::string, std::size_t> index_of;
  const auto note = [&](std::size_t side, const std::string& call, std::string fact) {
    const auto [known, is_new] = index_of.try_emplace(call, calls.size());
    if (is_new) calls.push_back({.name = known->first});
    calls[known->second].of_sides[side].push_back(std::move(fact));
  };
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const Tuning& tuning = side == 0 ? left : right;
    for (const ProbeTime& one : tuning.probe_times) note(side, call_of(one), text_of(one));
    for (const Finding& finding : tuning.findings) note(side, call_of(finding), text_of(finding));
  }
  const auto together = [](std::vector<std::string> texts) {
    std::sort(texts.begin(), texts.end());
    std::string all;
    for (const std::string& one : texts) all += (all.empty() ? "" : ", and ") + one;
    return all.empty() ? "not measured" : all;
  };
  for (const Call& call : calls)
    compare(call.name, together(call.of_sides[0]), together(call.of_sides[1]));
  return text;
}

}  // namespace tutti::tune
