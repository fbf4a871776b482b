#include "microbench/tune_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <tutti/detail/enumerators.hpp>
#include <tutti/detail/names.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>

#include "microbench/picture.hpp"
#include "microbench/report.hpp"
#include "microbench/tune_show.hpp"
#include "tune/corrections.hpp"

namespace tutti::bench {
namespace {

using tune::Collective;
using tune::Finding;
using tune::Timing;

constexpr double width = 560, height = 300, left = 64, top = 30, bottom = 250, legend_height = 16;
constexpr std::size_t panels_max = 24;
constexpr std::uint32_t ranks_shown_max = 96;
constexpr std::uint64_t bytes_shown_max = 4u << 20;

double microseconds(plan::Picoseconds time) {
  return static_cast<double>(time) / 1e6;
}

/// Payloads have a logarithm; those of none stand where a half byte would.
double shown_bytes(std::uint64_t bytes) {
  return bytes == 0 ? 0.5 : static_cast<double>(bytes);
}

/// An axis over all of some values, with room at both ends.
Axis logarithmic(const std::vector<double>& values, double begin, double end) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {.first = *least / 1.15,
          .last = *most * 1.15,
          .begin = begin,
          .end = end,
          .is_logarithmic = true};
}

std::vector<Mark> byte_marks(const Axis& axis, const std::set<std::uint64_t>& sizes) {
  std::vector<Mark> marks;
  double before = -100;
  for (const std::uint64_t bytes : sizes) {
    const double x = axis.at(shown_bytes(bytes));
    if (x - before < 34) continue;
    marks.push_back({shown_bytes(bytes), size_text(bytes)});
    before = x;
  }
  return marks;
}

/// Colours of names, in the order in which they come up.
class Colours {
 public:
  const char* of(const std::string& name) {
    return colour(numbers_.try_emplace(name, numbers_.size()).first->second);
  }

 private:
  std::map<std::string, std::size_t> numbers_;
};

/// Names with their colours below a picture, from `y` on.
void legend(Picture& picture, const std::vector<std::string>& names, Colours& colours, double y,
            double opacity = 1) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double at = y + legend_height * static_cast<double>(i);
    picture.box({left, at - 9}, 10, 10, colours.of(names[i]), opacity, names[i]);
    picture.text({left + 16, at}, names[i]);
  }
}

std::string figure_of(const std::string& svg) {
  return "<figure>\n" + svg + "</figure>\n";
}

// Latency over bytes.

struct Panel {
  Collective collective;
  std::uint32_t nodes, ranks_per_node;
  Agreement agreement;
  tune::OperatorClass operators;
  auto operator<=>(const Panel&) const = default;
};

std::string latency_pictures(const tune::Tuning& tuning, Colours& colours) {
  std::map<Panel, std::vector<const Finding*>> panels;
  for (const Finding& finding : tuning.findings)
    if (finding.collective != Collective::barrier)
      panels[{finding.collective, finding.nodes, finding.ranks_per_node, finding.agreement,
              finding.operators}]
          .push_back(&finding);
  std::string page;
  std::size_t drawn = 0;
  for (auto& [panel, findings] : panels) {
    std::sort(findings.begin(), findings.end(),
              [](const Finding* one, const Finding* other) { return one->bytes < other->bytes; });
    std::set<std::uint64_t> sizes;
    std::vector<double> times, bytes;
    // The fastest of each family, for each payload.
    std::map<std::string, std::map<std::uint64_t, Timing>> families;
    const auto add = [&](std::uint64_t size, const Timing& timing) {
      auto& known = families[tune::family_of(timing.choice)];
      const auto [place, is_new] = known.try_emplace(size, timing);
      if (!is_new && timing.measured < place->second.measured) place->second = timing;
      times.push_back(microseconds(timing.measured));
      if (timing.predicted > 0) times.push_back(microseconds(timing.predicted));
    };
    for (const Finding* finding : findings) {
      sizes.insert(finding->bytes);
      bytes.push_back(shown_bytes(finding->bytes));
      add(finding->bytes, finding->winner);
      for (const Timing& other : finding->others) add(finding->bytes, other);
    }
    if (sizes.size() < 2) continue;
    if (drawn++ == panels_max) {
      page += fmt::format("<p>Only the first {} are drawn; the table has all.</p>\n", panels_max);
      break;
    }
    std::vector<std::string> names;
    for (const auto& [family, timings] : families) names.push_back(family);
    std::string title = call_text(*findings.front());
    title.erase(title.find(" of "), title.find(',') - title.find(" of "));
    Picture picture(width, height + legend_height * static_cast<double>(names.size()),
                    "latency over bytes: " + title);
    const Axis x = logarithmic(bytes, left, width - 10), y = logarithmic(times, bottom, top);
    picture.text({left, 16}, title, Picture::Align::left, true);
    picture.grid(x, byte_marks(x, sizes), y, round_marks(y));
    for (const auto& [family, timings] : families) {
      std::vector<Picture::Place> measured, predicted;
      for (const auto& [size, timing] : timings) {
        measured.push_back({x.at(shown_bytes(size)), y.at(microseconds(timing.measured))});
        if (timing.predicted > 0)
          predicted.push_back({x.at(shown_bytes(size)), y.at(microseconds(timing.predicted))});
      }
      picture.curve(measured, colours.of(family));
      picture.curve(predicted, colours.of(family), true);
      for (const auto& [size, timing] : timings)
        picture.point({x.at(shown_bytes(size)), y.at(microseconds(timing.measured))},
                      colours.of(family),
                      fmt::format("{}, {} bytes: measured {}, model {}", timing.choice, size,
                                  time_text(timing.measured), time_text(timing.predicted)));
    }
    picture.text({left, bottom + 32}, "us over bytes; measured: points and lines, model: dashed");
    legend(picture, names, colours, bottom + 52);
    page += figure_of(picture.svg());
  }
  return page.empty() ? "<p>No call was measured for two payloads.</p>\n" : page;
}

// What is chosen.

/// Choices that differ in numbers alone have one colour.
std::string label_of(const tune::Choice& choice) {
  return tune::family_of(choice.name());
}

/// The messages per round of a choice, or of the schedule across nodes in it.
plan::PerRound per_round_of(const tune::Choice& choice) {
  if (!choice.variant().per_round.empty() || !choice.variant().across)
    return choice.variant().per_round;
  return per_round_of(*choice.variant().across);
}

tune::CollectiveRequest request_of(Collective collective, std::uint64_t bytes) {
  tune::CollectiveRequest request{.collective = collective};
  if (collective == Collective::barrier) return request;
  request.element_count = bytes / 8;
  request.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
  request.root = Rank{0};
  return request;
}

tune::Topology topology_of(std::uint32_t nodes, std::uint32_t ranks_per_node) {
  tune::Topology topology{.rank_count = nodes * ranks_per_node};
  if (ranks_per_node > 1)
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
      topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

/// Nothing where such a request is refused, as a file's rule may ask for the impossible.
std::optional<tune::Choice> chosen(const Chooser& choose, const tune::CollectiveRequest& request,
                                   const tune::Topology& topology) {
  try {
    return choose(request, topology);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string vector_picture(Collective collective, std::uint64_t bytes, const Chooser& choose,
                           Colours& colours) {
  struct Column {
    std::uint32_t ranks;
    std::string label;
    plan::PerRound per_round;
  };
  std::vector<Column> columns;
  std::vector<std::string> names;
  double most = 1;
  for (std::uint32_t ranks = 2; ranks <= ranks_shown_max; ++ranks)
    if (const auto choice = chosen(choose, request_of(collective, bytes), topology_of(ranks, 1))) {
      columns.push_back({ranks, label_of(*choice), per_round_of(*choice)});
      if (std::find(names.begin(), names.end(), columns.back().label) == names.end())
        names.push_back(columns.back().label);
      double sum = 0;
      for (const std::uint32_t entry : columns.back().per_round) sum += entry;
      most = std::max(most, sum);
    }
  const std::string title =
      std::string(name_of(collective)) +
      (collective == Collective::barrier ? "" : fmt::format(" of {} bytes", bytes));
  Picture picture(width, height + legend_height * static_cast<double>(names.size()),
                  "messages per round over nodes: " + title);
  picture.text({left, 16}, title, Picture::Align::left, true);
  const Axis x{.first = 2, .last = ranks_shown_max + 1, .begin = left, .end = width - 10};
  const Axis y{.first = 0, .last = most, .begin = bottom, .end = top};
  std::vector<Mark> marks;
  for (const std::uint32_t ranks : {2u, 8u, 16u, 32u, 48u, 64u, 80u, 96u})
    marks.push_back({ranks + 0.5, std::to_string(ranks)});
  picture.grid(x, marks, y, round_marks(y));
  for (const Column& column : columns) {
    double below = 0;
    for (std::size_t round = 0; round < column.per_round.size(); ++round) {
      const double above = below + column.per_round[round];
      picture.box({x.at(column.ranks) + 0.3, y.at(above) + 0.3}, x.at(3) - x.at(2) - 0.6,
                  y.at(below) - y.at(above) - 0.6, colours.of(column.label),
                  round % 2 == 0 ? 1 : 0.6,
                  fmt::format("{} nodes: {} with {} a round", column.ranks, column.label,
                              tune::text_of(column.per_round)));
      below = above;
    }
    if (column.per_round.empty())  // none to choose: a mark at the foot says which schedule it is
      picture.box({x.at(column.ranks) + 0.3, bottom - 3}, x.at(3) - x.at(2) - 0.6, 3,
                  colours.of(column.label), 1,
                  fmt::format("{} nodes: {}", column.ranks, column.label));
  }
  picture.text({left, bottom + 32},
               "messages, a box for each round (the first below), over nodes of one rank");
  legend(picture, names, colours, bottom + 52);
  return figure_of(picture.svg());
}

/// The smallest payload from which another schedule is chosen, to 1/16 of it: sizes between two
/// that choose differently are halved.
std::uint64_t crossover(const Chooser& choose, Collective collective,
                        const tune::Topology& topology, std::uint64_t below, std::uint64_t above,
                        const std::string& label_below) {
  while (above - below > std::max<std::uint64_t>(8, below / 16)) {
    const std::uint64_t middle = (below + above) / 16 * 8;
    const auto choice = chosen(choose, request_of(collective, middle), topology);
    (choice && label_of(*choice) == label_below ? below : above) = middle;
  }
  return above;
}

std::string crossover_picture(Collective collective, std::uint32_t ranks_per_node,
                              const Chooser& choose) {
  Colours colours;
  const std::vector<std::uint32_t> nodes = {2, 4, 8, 16, 32, 64, 96};
  constexpr double row_height = 28;
  constexpr double band_opacity = 0.55;  // letters on it can be read on light and dark ground
  struct Band {
    std::uint64_t from, to;
    std::string label;
  };
  std::vector<std::vector<Band>> rows;
  std::vector<std::string> names;
  for (const std::uint32_t count : nodes) {
    auto& bands = rows.emplace_back();
    const tune::Topology topology = topology_of(count, ranks_per_node);
    std::uint64_t before = 8;
    for (std::uint64_t bytes = 8; bytes <= bytes_shown_max; bytes *= 2) {
      const auto choice = chosen(choose, request_of(collective, bytes), topology);
      const std::string label = choice ? label_of(*choice) : "refused";
      if (bands.empty()) {
        bands.push_back({bytes, bytes, label});
      } else if (bands.back().label != label) {
        const std::uint64_t from =
            crossover(choose, collective, topology, before, bytes, bands.back().label);
        bands.back().to = from;
        bands.push_back({from, bytes, label});
      } else {
        bands.back().to = bytes;
      }
      if (std::find(names.begin(), names.end(), label) == names.end()) names.push_back(label);
      before = bytes;
    }
  }
  const double foot = top + row_height * static_cast<double>(nodes.size());
  const std::string title = fmt::format("{}, {} {} a node", name_of(collective), ranks_per_node,
                                        ranks_per_node == 1 ? "rank" : "ranks");
  Picture picture(width, foot + 50 + legend_height * static_cast<double>(names.size()),
                  "what is chosen over bytes: " + title);
  picture.text({left, 16}, title, Picture::Align::left, true);
  const Axis x{.first = 8,
               .last = static_cast<double>(bytes_shown_max),
               .begin = left,
               .end = width - 10,
               .is_logarithmic = true};
  const Axis y{.first = 0, .last = 1, .begin = foot, .end = top};
  picture.grid(x, byte_marks(x, {8, 64, 512, 4096, 32768, 262144, 2097152}), y, {});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double at = top + row_height * static_cast<double>(i);
    picture.text({left - 6, at + row_height / 2 + 4}, fmt::format("{} nodes", nodes[i]),
                 Picture::Align::right);
    for (const Band& band : rows[i]) {
      const double from = x.at(static_cast<double>(band.from)),
                   to = x.at(static_cast<double>(band.to));
      picture.box(
          {from, at + 3}, std::max(to - from, 1.0), row_height - 6, colours.of(band.label),
          band_opacity,
          fmt::format("{} nodes, {} to {} bytes: {}", nodes[i], band.from, band.to, band.label));
      if (band.from > 8 && to - from > 44)
        picture.text({from + 4, at + row_height / 2 + 4}, size_text(band.from / 8 * 8));
    }
  }
  picture.text({left, foot + 32},
               "bytes; the figure in a band is the payload it begins at, to a sixteenth");
  legend(picture, names, colours, foot + 52, band_opacity);
  return figure_of(picture.svg());
}

// The model.

std::string model_picture(const tune::Tuning& tuning, Colours& colours) {
  std::vector<double> times;
  std::vector<std::string> names;
  const auto each = [&](const auto& use) {
    for (const Finding& finding : tuning.findings) {
      if (finding.winner.predicted > 0) use(finding, finding.winner);
      for (const Timing& other : finding.others)
        if (other.predicted > 0) use(finding, other);
    }
  };
  each([&](const Finding& finding, const Timing& timing) {
    times.push_back(microseconds(timing.measured));
    times.push_back(microseconds(timing.predicted));
    const std::string name = name_of(finding.collective);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  });
  if (times.empty()) return "<p>Nothing was measured that has a price.</p>\n";
  Picture picture(width, height + legend_height * static_cast<double>(names.size()),
                  "model against measurement");
  const Axis x = logarithmic(times, left, width - 10), y = logarithmic(times, bottom, top);
  picture.text({left, 16}, "measured over model, us", Picture::Align::left, true);
  picture.grid(x, round_marks(x), y, round_marks(y));
  for (const double factor : {1.0, 0.9, 1.1}) {
    // Within the picture: measured = factor model.
    const double from = std::max(x.first, x.first / factor), to = std::min(x.last, x.last / factor);
    picture.line({x.at(from), y.at(from * factor)}, {x.at(to), y.at(to * factor)},
                 factor == 1.0 ? 0.8 : 0.3);
  }
  each([&](const Finding& finding, const Timing& timing) {
    picture.point({x.at(microseconds(timing.predicted)), y.at(microseconds(timing.measured))},
                  colours.of(name_of(finding.collective)),
                  fmt::format("{}: {}, measured {}, model {}{}", call_text(finding), timing.choice,
                              time_text(timing.measured), time_text(timing.predicted),
                              finding.is_noisy ? ", noisy" : ""));
  });
  picture.text({left, bottom + 32}, "lines: equal, and a tenth more or less");
  legend(picture, names, colours, bottom + 52);
  return figure_of(picture.svg());
}

struct Residual {
  std::uint64_t bytes;
  double percent;
  std::string name, says;
};

std::string residual_picture(const std::vector<Residual>& residuals, const std::string& title,
                             Colours& colours) {
  if (residuals.empty()) return "<p>There is nothing to compare with the model.</p>\n";
  std::vector<double> bytes;
  std::vector<std::string> names;
  std::set<std::uint64_t> sizes;
  double most = 1;
  for (const Residual& residual : residuals) {
    bytes.push_back(shown_bytes(residual.bytes));
    sizes.insert(residual.bytes);
    most = std::max(most, std::abs(residual.percent));
    if (std::find(names.begin(), names.end(), residual.name) == names.end())
      names.push_back(residual.name);
  }
  Picture picture(width, height + legend_height * static_cast<double>(names.size()), title);
  const Axis x = logarithmic(bytes, left, width - 10);
  const Axis y{.first = -1.1 * most, .last = 1.1 * most, .begin = bottom, .end = top};
  picture.text({left, 16}, title, Picture::Align::left, true);
  picture.grid(x, byte_marks(x, sizes), y, round_marks(y));
  picture.line({left, y.at(0)}, {width - 10, y.at(0)}, 0.8);
  for (const Residual& residual : residuals)
    picture.point({x.at(shown_bytes(residual.bytes)), y.at(residual.percent)},
                  colours.of(residual.name), residual.says);
  picture.text({left, bottom + 32}, "measured less model, in % of the measured time, over bytes");
  legend(picture, names, colours, bottom + 52);
  return figure_of(picture.svg());
}

/// Draws how far off the fitted machine is for the messages of the probes.
std::string fit_picture(const tune::Tuning& tuning, Colours& colours) {
  if (tuning.probe_times.empty())
    return "<p>The file has no times that its machine was fitted to.</p>\n";
  std::vector<Residual> residuals;
  for (const tune::ProbeTime& one : tuning.probe_times) {
    if (one.measured <= 0) continue;
    const double percent =
        100 * static_cast<double>(one.measured - one.predicted) / static_cast<double>(one.measured);
    residuals.push_back({one.bytes, percent, name_of(one.probe),
                         fmt::format("{}: {} x {} bytes, measured {}, model {}, {:+.1f} %",
                                     name_of(one.probe), one.messages, one.bytes,
                                     time_text(one.measured), time_text(one.predicted), percent)});
  }
  return residual_picture(residuals, "residuals of the fit", colours);
}

std::string residual_pictures(const tune::Tuning& tuning, Colours& colours) {
  std::vector<Residual> residuals;
  for (const Finding& finding : tuning.findings) {
    const Timing& winner = finding.winner;
    if (winner.predicted <= 0) continue;
    const double percent = 100 * static_cast<double>(winner.measured - winner.predicted) /
                           static_cast<double>(winner.measured);
    residuals.push_back(
        {finding.bytes, percent, name_of(finding.collective),
         fmt::format("{}: {}, {:+.1f} %", call_text(finding), winner.choice, percent)});
  }
  return residual_picture(residuals, "residuals of the winners", colours);
}

/// What is said where a figure is the model's.
std::string paragraph_of_model(const tune::Tuning& tuning) {
  const std::string remark = remark_on_model(tuning);
  return remark.empty() ? "" : "<p>" + escaped(remark) + ".</p>\n";
}

std::string machine_table(const tune::Tuning& tuning) {
  const tune::Machine& machine = tuning.machine;
  if (!tune::is_described(machine))
    return "<p>The file has no machine: prices are those of the link's preset.</p>\n";
  std::string rows =
      "<table><tr><th>parameter<th>value<th><th>95 % interval<th>origin<th>meaning</tr>\n";
  for (const tune::Parameter parameter : detail::enumerators<tune::Parameter::fan_max>) {
    const tune::Figure& figure = machine[parameter];
    rows += fmt::format(
        "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{} to {}<td>{}<td>{}</tr>\n",
        key_of(parameter), figure.value, escaped(value_text(parameter, figure.value)), figure.low,
        figure.high, origin_text(tuning.made_on, machine, parameter),
        escaped(meaning_of(parameter)));
  }
  return rows + "</table>\n" + paragraph_of_model(tuning);
}

std::string paragraph_of_placement(const tune::Tuning& tuning) {
  const std::string line = line_of(tuning.placement);
  return line.empty() ? "" : "<p>Placement of writes: " + escaped(line) + ".</p>\n";
}

std::string finding_table(const tune::Tuning& tuning) {
  if (tuning.findings.empty()) return "<p>None.</p>\n";
  std::string rows = "<table><tr><th>call<th>schedule<th>measured<th>model<th>noisy</tr>\n";
  for (const Finding& finding : tuning.findings) {
    const auto row = [&](const std::string& call, const Timing& timing, bool is_winner) {
      rows += fmt::format(
          "<tr><td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>\n", escaped(call),
          is_winner ? "<b>" + escaped(timing.choice) + "</b>" : escaped(timing.choice),
          time_text(timing.measured),
          timing.predicted > 0 ? time_text(timing.predicted) : std::string("-"),
          is_winner && finding.is_noisy ? "noisy" : "");
    };
    row(call_text(finding), finding.winner, true);
    for (const Timing& other : finding.others) row("", other, false);
  }
  return rows + "</table>\n";
}

constexpr const char* style = R"(:root { color-scheme: light dark }
body { background: Canvas; color: CanvasText; font: 15px/1.45 sans-serif; max-width: 1200px;
  margin: 2em auto; padding: 0 1em }
h2 { margin-top: 2em }
figure { display: inline-block; margin: 0 1em 1em 0; break-inside: avoid }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 13px }
th, td { text-align: left; padding: 2px 10px 2px 0; border-bottom: 1px solid #8885;
  vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums }
@media print { :root { color-scheme: light } body { max-width: none; margin: 0 } }
)";

}  // namespace

Chooser by_price(const tune::Tuning& tuning) {
  const plan::Network network = tune::is_described(tuning.machine)
                                    ? tuning.machine.network()
                                    : tune::machine_preset("fdr").network();
  return [network](const tune::CollectiveRequest& request, const tune::Topology& topology) {
    return tune::choose(request, topology, network);
  };
}

std::string report_page(const tune::Tuning& tuning, const std::string& name,
                        const Chooser& choose) {
  Colours families, choices, collectives, residuals, probes;
  std::uint32_t ranks_per_node = 1;
  for (const Finding& finding : tuning.findings)
    ranks_per_node = std::max(ranks_per_node, std::min<std::uint32_t>(finding.ranks_per_node, 64));
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>\n{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>Made on: {2}.</p>\n",
      escaped("Tuning of tutti: " + name), style, escaped(line_of(tuning.made_on)));
  page += "<h2>Machine</h2>\n" + machine_table(tuning) + paragraph_of_placement(tuning);
  page +=
      "<h2>Latency over bytes</h2>\n<p>Of each family of schedules the fastest that was "
      "measured.</p>\n" +
      latency_pictures(tuning, families);
  page +=
      "<h2>Messages per round over nodes</h2>\n<p>What is chosen with this file for nodes of "
      "one rank, measured or not.</p>\n";
  page += vector_picture(Collective::barrier, 0, choose, choices);
  page += vector_picture(Collective::allreduce, 8, choose, choices);
  page += vector_picture(Collective::allreduce, 2040, choose, choices);
  page +=
      "<h2>Crossovers</h2>\n<p>Which schedule is chosen with this file for which payload; "
      "sums of doubles with identical results.</p>\n";
  page += crossover_picture(Collective::allreduce, 1, choose);
  if (ranks_per_node > 1) page += crossover_picture(Collective::allreduce, ranks_per_node, choose);
  page += crossover_picture(Collective::broadcast, ranks_per_node, choose);
  page += "<h2>Model against measurement</h2>\n" + model_picture(tuning, collectives);
  page += residual_pictures(tuning, residuals);
  page +=
      "<h2>Residuals of the fit</h2>\n<p>The least times of the network probes, less the times "
      "that the machine of this file predicts.</p>\n" +
      fit_picture(tuning, probes);
  page += "<h2>Rules</h2>\n";
  if (tuning.rules.empty()) {
    page += "<p>None.</p>\n";
  } else {
    page += "<ol>\n";
    for (const tune::Rule& rule : tuning.rules) page += "<li>" + escaped(line_of(rule)) + "</li>\n";
    page += "</ol>\n";
  }
  page += "<h2>Findings</h2>\n" + finding_table(tuning);
  return page + "</body>\n</html>\n";
}

}  // namespace tutti::bench
