#include "microbench/tune_show.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tutti/detail/enumerators.hpp>
#include <tutti/detail/names.hpp>
#include <vector>

#include "microbench/report.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::bench {
namespace {

using tune::Parameter;

constexpr auto all_parameters = detail::enumerators<Parameter::fan_max>;

/// Columns as wide as their longest cell; those of numbers are aligned on the right.
std::string table_of(const std::vector<std::vector<std::string>>& rows,
                     const std::vector<bool>& is_number) {
  std::vector<std::size_t> widths(is_number.size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += is_number[i] ? fmt::format("  {:>{}}", row[i], widths[i])
                           : fmt::format("  {:<{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

/// "up to 255", "from 96", "from 2 to 8"; empty: any.
template <class Integer>
std::string range_text(const tune::Range<Integer>& range, const char* unit) {
  const tune::Range<Integer> any;
  if (range == any) return {};
  if (range.from == range.to) return fmt::format(", {} {}", range.from, unit);
  if (range.from == any.from) return fmt::format(", up to {} {}", range.to, unit);
  if (range.to == any.to) return fmt::format(", from {} {}", range.from, unit);
  return fmt::format(", {} to {} {}", range.from, range.to, unit);
}

std::string percent_text(plan::Picoseconds measured, plan::Picoseconds than) {
  if (than <= 0) return "-";
  return fmt::format("{:+.1f} %",
                     100 * (static_cast<double>(measured) / static_cast<double>(than) - 1));
}

}  // namespace

std::string time_text(plan::Picoseconds time) {
  const auto picoseconds = static_cast<double>(time);
  if (time < 1'000'000) return fmt::format("{:.1f} ns", picoseconds / 1e3);
  if (time < 1'000'000'000) return fmt::format("{:.3f} us", picoseconds / 1e6);
  return fmt::format("{:.3f} ms", picoseconds / 1e9);
}

std::string value_text(Parameter parameter, std::int64_t value) {
  const std::string key = key_of(parameter);
  if (key.ends_with("_ps")) return time_text(value);
  if (!key.ends_with("_fs")) return value == 0 ? "not known" : std::to_string(value);
  return value == 0 ? "no time" : fmt::format("{:.3g} GB/s", 1e6 / static_cast<double>(value));
}

const char* meaning_of(Parameter parameter) noexcept {
  return detail::name_in<Parameter::fan_max>(
      {"o + L between nodes", "o_r, a message received", "g, a message at a node's port",
       "g of a rank, a message sent", "G, bytes at a node's port", "gamma, a value combined",
       "gamma, bytes combined", "inside a node, until a message is seen",
       "inside a node, a message sent", "inside a node, a message received",
       "inside a node, bytes stored", "inside a node, a payload read in place",
       "inside a node, bytes read in place",
       "senders to one receiver, beyond which the model is off; informs only"},
      parameter);
}

std::string remark_on_model(const tune::Tuning& tuning) {
  const bool has_model =
      std::any_of(all_parameters.begin(), all_parameters.end(), [&](Parameter parameter) {
        return std::string_view(tune::origin_text(tuning.made_on, tuning.machine, parameter)) ==
               "model";
      });
  return has_model ? "model: measured on the software device, which only a card can show" : "";
}

std::string line_of(const tune::Fingerprint& made_on) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!made_on.device.empty()) add(made_on.device);
  if (!made_on.firmware.empty()) add("firmware " + made_on.firmware);
  if (!made_on.link.empty()) add(made_on.link);
  if (made_on.gigabits_per_second != 0) add(fmt::format("{} Gb/s", made_on.gigabits_per_second));
  if (made_on.mtu_bytes != 0) add(fmt::format("MTU {}", made_on.mtu_bytes));
  if (!made_on.cpu.empty()) add(made_on.cpu);
  if (made_on.registry != 0) add(fmt::format("schedules of version {}", made_on.registry));
  return text.empty() ? "not said: it holds everywhere" : text;
}

std::string call_text(const tune::Finding& finding) {
  std::string text = name_of(finding.collective);
  if (finding.collective != tune::Collective::barrier)
    text += fmt::format(" of {} bytes", finding.bytes);
  text += fmt::format(", {} {} of {} {}", finding.nodes, finding.nodes == 1 ? "node" : "nodes",
                      finding.ranks_per_node, finding.ranks_per_node == 1 ? "rank" : "ranks");
  if (finding.operators != tune::OperatorClass::none)
    text += fmt::format(", {}, {}", name_of(finding.agreement), name_of(finding.operators));
  return text;
}

std::string line_of(const tune::WritePlacement& placement) {
  if (placement == tune::WritePlacement{}) return {};
  return words_on_lines(placement) + "; " + words_on_order(placement);
}

std::string line_of(const tune::Rule& rule) {
  std::string text = name_of(rule.collective);
  text += range_text(rule.bytes, "bytes") + range_text(rule.ranks, "ranks") +
          range_text(rule.nodes, "nodes") + range_text(rule.ranks_per_node, "ranks a node");
  if (rule.agreement) text += std::string(", ") + name_of(*rule.agreement);
  std::string how;
  const auto add = [&](const std::string& part) { how += (how.empty() ? "" : ", ") + part; };
  if (rule.algorithm != Algorithm::automatic) add(name_of(rule.algorithm));
  if (rule.across != Across::automatic) add(std::string("across ") + name_of(rule.across));
  if (rule.tree != Tree::automatic) add(std::string("tree ") + name_of(rule.tree));
  if (!rule.per_round.empty()) add(tune::text_of(rule.per_round) + " a round");
  return text + ": " + (how.empty() ? "automatic" : how);
}

std::string show_tuning(const tune::Tuning& tuning) {
  std::string text = "made on: " + line_of(tuning.made_on) + "\n";
  if (!tune::is_described(tuning.machine)) {
    text += "machine: none, so that prices are those of the link's preset\n";
  } else {
    text += "machine \"" + tuning.machine.name + "\"\n";
    std::vector<std::vector<std::string>> rows{
        {"parameter", "value", "", "least", "most", "origin", "meaning"}};
    for (const Parameter parameter : all_parameters) {
      const tune::Figure& figure = tuning.machine[parameter];
      rows.push_back(
          {key_of(parameter), std::to_string(figure.value), value_text(parameter, figure.value),
           std::to_string(figure.low), std::to_string(figure.high),
           origin_text(tuning.made_on, tuning.machine, parameter), meaning_of(parameter)});
    }
    text += table_of(rows, {false, true, true, true, true, false, false});
    text += "  least and most: an interval in which the value lies with 95 % probability\n";
    if (const std::string remark = remark_on_model(tuning); !remark.empty())
      text += "  " + remark + "\n";
  }
  if (const std::string line = line_of(tuning.placement); !line.empty())
    text += "placement of writes: " + line + "\n";
  text += tuning.rules.empty() ? "rules: none\n" : "rules, of which the first that fits is taken\n";
  for (std::size_t i = 0; i < tuning.rules.size(); ++i)
    text += fmt::format("  {}  {}\n", i + 1, line_of(tuning.rules[i]));
  if (tuning.findings.empty()) return text + "findings: none\n";
  text += "findings\n";
  std::vector<std::vector<std::string>> rows{{"collective", "bytes", "nodes", "ranks a node",
                                              "agreement", "operator", "winner", "measured",
                                              "model", "off", "runner-up", "behind"}};
  for (const tune::Finding& finding : tuning.findings) {
    const auto second = std::min_element(
        finding.others.begin(), finding.others.end(),
        [](const auto& left, const auto& right) { return left.measured < right.measured; });
    const bool has_second = second != finding.others.end();
    const tune::Timing& winner = finding.winner;
    const bool has_operator = finding.operators != tune::OperatorClass::none;
    rows.push_back(
        {name_of(finding.collective), size_text(finding.bytes), std::to_string(finding.nodes),
         std::to_string(finding.ranks_per_node), has_operator ? name_of(finding.agreement) : "-",
         has_operator ? name_of(finding.operators) : "-",
         winner.choice + (finding.is_noisy ? " (noisy)" : ""), time_text(winner.measured),
         winner.predicted > 0 ? time_text(winner.predicted) : "-",
         percent_text(winner.measured, winner.predicted), has_second ? second->choice : "-",
         has_second ? percent_text(second->measured, winner.measured) : "-"});
  }
  text +=
      table_of(rows, {false, true, true, true, false, false, false, true, true, true, false, true});
  return text;
}

std::string show_difference(const NamedTuning& left, const NamedTuning& right) {
  const std::string lines = difference_of(left.tuning, right.tuning);
  if (lines.empty()) return left.name + " and " + right.name + " say the same\n";
  return "what: " + left.name + " | " + right.name + "\n" + lines;
}

}  // namespace tutti::bench
