#include "microbench/verbs_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "microbench/json_rows.hpp"

namespace tutti::bench {
namespace {

/// With as many digits as are worth reading.
std::string number(double value) {
  if (value == 0) return "0";
  const int digits = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, digits);
}

template <class T>
std::string or_dash(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

bool has_perftest(const VerbsReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const VerbsRow& row) { return row.perftest.has_value(); });
}
bool has_model(const VerbsReport& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const VerbsRow& row) { return row.is_model; });
}

Cells title(const VerbsReport& report) {
  Cells cells = {"case", "bytes", "pairs", "senders", "M messages/s", "GB/s", "us"};
  if (!report.brief) cells.insert(cells.end(), {"MAD", "min"});
  if (has_perftest(report)) cells.insert(cells.end(), {"perftest", "/perftest"});
  if (has_model(report)) cells.emplace_back("evidence");
  return cells;
}

/// In the unit of the column that the row is about; the row stands beside perftest.
double shown(const VerbsRow& row, double figure) {
  return row.perftest->unit == "messages/s" ? figure / 1e6 : figure;
}

Cells cells_of(const VerbsRow& row, const VerbsReport& report) {
  Cells cells = {row.name,
                 row.bytes > 0 ? size_text(row.bytes) : "-",
                 or_dash(row.queue_pairs),
                 or_dash(row.senders),
                 row.messages_per_second ? number(*row.messages_per_second / 1e6) : "-",
                 row.gigabytes_per_second ? number(*row.gigabytes_per_second) : "-",
                 number(row.us)};
  if (!report.brief) cells.insert(cells.end(), {number(row.us_deviation), number(row.us_min)});
  if (has_perftest(report)) {
    cells.push_back(row.perftest ? number(shown(row, row.perftest->figure)) : "-");
    cells.push_back(row.perftest ? fmt::format("{:.2f}", row.perftest->ratio) : "-");
  }
  if (has_model(report)) cells.emplace_back(row.is_model ? "model" : "measured");
  return cells;
}

std::string legend(const VerbsReport& report) {
  std::string text = fmt::format(
      "us: microseconds{} of rank 0's clock, of a message (latency: half a round trip; incast: "
      "until "
      "all have come; registration and connection: of a call); GB/s: 10^9 bytes a second.",
      !report.rows.empty() && report.rows.front().is_virtual ? " of virtual time" : "");
  if (has_perftest(report))
    text +=
        " perftest: what its tool says, in us, M messages/s or GB/s; /perftest: tutti-bench's "
        "figure "
        "over it, the median of those of each block.";
  if (has_model(report))
    text +=
        " model: an emulated device has no switch and no port that ranks share, so that only a "
        "card "
        "shows this (docs/on_a_cluster.md).";
  return wrapped(text, 100, 0, 2) + '\n';
}

double rounded(double value, double scale) {
  return std::round(value * scale) / scale;
}

Json json_of(const VerbsRow& row) {
  Json json;
  json["case"] = row.name;
  json["bytes"] = row.bytes;
  json["queue_pairs"] = or_null(row.queue_pairs);
  json["senders"] = or_null(row.senders);
  json["ranks"] = row.ranks;
  json["device"] = row.device;
  json["virtual"] = row.is_virtual;
  json["fabric"] = or_null(row.fabric);
  json["evidence"] = row.is_model ? "model" : "measured";
  json["iterations"] = row.iterations;
  json["messages_per_second"] =
      row.messages_per_second ? Json(std::round(*row.messages_per_second)) : Json(nullptr);
  json["gigabytes_per_second"] =
      row.gigabytes_per_second ? Json(rounded(*row.gigabytes_per_second, 1e6)) : Json(nullptr);
  json["us"] = rounded(row.us, 1e6);
  json["us_min"] = rounded(row.us_min, 1e6);
  json["us_deviation"] = rounded(row.us_deviation, 1e6);
  json["against"] = nullptr;
  if (row.perftest)
    json["against"] = {{"perftest",
                        {{"tool", row.perftest->tool},
                         {"figure", row.perftest->figure},
                         {"unit", row.perftest->unit},
                         {"ratio", row.perftest->ratio}}}};
  json["oversubscribed"] = row.oversubscribed;
  json["bootstrap"] = row.bootstrap;
  return json;
}

std::vector<Json> json_of(std::span<const VerbsRow> rows) {
  std::vector<Json> all;
  for (const VerbsRow& row : rows) all.push_back(json_of(row));
  return all;
}

}  // namespace

std::string as_table(const VerbsReport& report) {
  std::vector<Cells> lines = {title(report)};
  for (const VerbsRow& row : report.rows) lines.push_back(cells_of(row, report));
  return framed(report, lines, legend(report),
                !report.rows.empty() && report.rows.front().oversubscribed, "");
}

std::string as_json(std::span<const VerbsRow> rows) {
  return json_lines(json_of(rows));
}

std::string as_csv(std::span<const VerbsRow> rows) {
  static constexpr const char* perftest_keys[] = {"tool", "figure", "unit", "ratio"};
  return csv_lines(json_of(rows), "perftest", perftest_keys);
}

}  // namespace tutti::bench
