#include "microbench/tune_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "microbench/tune_cells.hpp"
#include "microbench/tune_show.hpp"

namespace tutti::bench {
namespace {

/// A finding whose winner is not what is taken without a file.
struct Difference {
  const tune::Finding* finding;
  const tune::Timing* untuned;
  double gain() const {
    return static_cast<double>(untuned->measured) /
           static_cast<double>(std::max<plan::Picoseconds>(finding->winner.measured, 1));
  }
};

constexpr std::size_t differences_most = 20;

double microseconds(plan::Picoseconds time) {
  return static_cast<double>(time) / 1e6;
}

std::optional<Difference> difference_of(const tune::Finding& finding,
                                        const std::map<std::string, std::string>& untuned_of) {
  const auto untuned = untuned_of.find(title_of(finding));
  if (untuned == untuned_of.end() || untuned->second == finding.winner.choice) return {};
  for (const tune::Timing& other : finding.others)
    if (other.choice == untuned->second) return Difference{&finding, &other};
  return {};
}

std::string network_text(const tune::Tuning& tuning) {
  const tune::Machine& machine = tuning.machine;
  const auto figure = [&](tune::Parameter parameter, double unit, const char* name) {
    const tune::Figure& one = machine[parameter];
    const double scale = 1 / unit;
    if (one.origin != tune::Origin::measured) return std::string();
    const std::string_view origin = tune::origin_text(tuning.made_on, machine, parameter);
    return fmt::format("  {:<44}{:>10.3f}  (95 %: {:.3f} to {:.3f}){}\n", name,
                       static_cast<double>(one.value) * scale, static_cast<double>(one.low) * scale,
                       static_cast<double>(one.high) * scale, origin == "model" ? " model" : "");
  };
  return figure(tune::Parameter::latency, 1e6, "between nodes: o + L, us") +
         figure(tune::Parameter::gap, 1e3, "gap of a port, ns a message") +
         figure(tune::Parameter::rank_gap, 1e3, "gap of a rank, ns a message") +
         figure(tune::Parameter::per_byte, 1e6, "port, ns a byte") +
         figure(tune::Parameter::inside_latency, 1e3, "inside a node: latency, ns") +
         figure(tune::Parameter::inside_per_byte, 1e6, "memory of a node, ns a byte");
}

/// What a stress of the device has seen, and what follows from it.
std::string placement_text(const tune::Tuning& tuning) {
  const std::string line = line_of(tuning.placement);
  if (line.empty()) return {};
  std::string text = "placement of writes: " + line;
  if (const std::string why = why_placement_differs(tuning.made_on, tuning.made_on); !why.empty())
    return text + "; it allows nothing: " + why + "\n";
  bool allows = false;
  const auto follows = [&](tune::Evidence evidence, const char* setting) {
    if (evidence == tune::Evidence::violated)
      text += fmt::format("; {} is refused with this file", setting);
    if (evidence != tune::Evidence::holds) return;
    text += fmt::format("; {} can be used with this file", setting);
    allows = true;
  };
  follows(evidence_for_lines(tuning.placement), "TUTTI_NOTIFY=flag");
  follows(evidence_for_order(tuning.placement), "TUTTI_SHARED_NOTIFICATIONS=words");
  if (allows) text += "; each rank goes by the file that it finds itself: copy it to all nodes";
  return text + "\n";
}

std::string plural(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string table_of(const std::vector<Difference>& differences) {
  std::size_t width = 5, other_width = 7;
  const std::size_t count = std::min(differences.size(), differences_most);
  for (std::size_t i = 0; i < count; ++i) {
    width = std::max(width, differences[i].finding->winner.choice.size());
    other_width = std::max(other_width, differences[i].untuned->choice.size());
  }
  std::string text = fmt::format("\n{:<32}{:<{}}  {:>10}  {:<{}}  {:>10}  {:>6}\n", "", "tuned",
                                 width, "us", "untuned", other_width, "us", "gain");
  for (std::size_t i = 0; i < count; ++i) {
    const Difference& one = differences[i];
    text += fmt::format("{:<32}{:<{}}  {:>10.3f}  {:<{}}  {:>10.3f}  {:>6.2f}{}\n",
                        title_of(*one.finding), one.finding->winner.choice, width,
                        microseconds(one.finding->winner.measured), one.untuned->choice,
                        other_width, microseconds(one.untuned->measured), one.gain(),
                        one.finding->is_noisy ? "  noisy" : "");
  }
  if (differences.size() > count)
    text += fmt::format("and {} with less gain.\n", differences.size() - count);
  return text;
}

}  // namespace

std::string title_of(const tune::Finding& finding) {
  for (const Collective collective : tuned_collectives())
    if (tuned_as(collective) == finding.collective)
      return text_of(Cell{collective, finding.bytes, finding.agreement});
  return tune::name_of(finding.collective);
}

std::vector<std::string> lines_of_fit(const std::vector<std::string>& remarks,
                                      const std::set<tune::Probe>& untried,
                                      const std::string& preset) {
  constexpr std::string_view no_samples = " could not be told: there are no samples of ";
  std::vector<std::string> lines, missing, late;
  for (const std::string& remark : remarks) {
    const std::size_t at = remark.find(no_samples);
    if (at == std::string::npos) {
      lines.push_back(remark);
      continue;
    }
    const std::string_view probe =
        std::string_view(remark).substr(at + no_samples.size());  // "one_way of two lengths; ..."
    const bool is_late = std::any_of(untried.begin(), untried.end(), [&](tune::Probe one) {
      return probe.substr(0, probe.find(' ')) == name_of(one);
    });
    (is_late ? late : missing).push_back(remark.substr(0, at));
  }
  if (!late.empty())
    lines.push_back(fmt::format(
        "no time was left to measure these, which are those of the preset {}: {}; give a longer "
        "--budget",
        preset, fmt::join(late, ", ")));
  if (!missing.empty())
    lines.push_back(fmt::format("not measured with these ranks, but those of the preset {}: {}",
                                preset, fmt::join(missing, ", ")));
  return lines;
}

std::string tune_summary(const TuneFindings& findings) {
  const TuneOptions& options = findings.options;
  std::vector<Difference> differences;
  std::size_t noisy = 0;
  for (const tune::Finding& one : findings.found) {
    if (one.is_noisy) ++noisy;
    if (const auto difference = difference_of(one, findings.untuned_of))
      differences.push_back(*difference);
  }
  std::stable_sort(
      differences.begin(), differences.end(),
      [](const Difference& left, const Difference& right) { return left.gain() > right.gain(); });

  std::string text = fmt::format(
      "tutti-tune: {}, {}, {}{}, {:.2f} s of a budget of {:g} s\n",
      plural(findings.rank_count, "rank"), plural(findings.node_count, "node"), findings.device,
      options.virtual_time ? ", " + options.fabric + " in virtual time" : "", findings.seconds,
      options.budget.count());
  const std::string network = network_text(findings.tuning);
  text += network.empty() ? "network: nothing was measured; the preset is in force\n"
                          : "network\n" + network;
  text += placement_text(findings.tuning);
  if (!findings.found.empty()) {
    text += fmt::format("{}, {} noisy; another choice than untuned in {}\n",
                        plural(findings.found.size(), "finding"), noisy,
                        differences.empty() ? "none" : std::to_string(differences.size()));
    if (!differences.empty()) text += table_of(differences);
  }
  for (const std::string& remark : findings.remarks) text += "Note: " + remark + "\n";
  text += fmt::format("\nfile: {}\n", options.file);
  text += options.is_default_file
              ? "Every program that is started by this user finds it there; TUTTI_TUNING=off goes "
                "without.\n"
              : fmt::format("Programs find it by TUTTI_TUNING_FILE={}.\n", options.file);
  return text;
}

}  // namespace tutti::bench
