#include "microbench/json_rows.hpp"

#include <cmath>

#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

/// Rounds to tenths of a nanosecond, which are finer than any clock here resolves.
Json tenths(double ns) {
  return std::round(ns * 10) / 10;
}

Json thousandths(double ns) {
  return std::round(ns * 1000) / 1000;
}

Json json_of(const Row& row) {
  // Virtual time is exact, in picoseconds.
  const auto rounded = [&](double ns) { return row.is_virtual ? thousandths(ns) : tenths(ns); };
  Json json;
  json["collective"] = row.collective;
  json["bytes"] = row.bytes;
  json["dtype"] = or_null(row.dtype);
  json["op"] = or_null(row.op);
  json["ranks"] = row.ranks;
  json["nodes"] = row.nodes;
  json["device"] = or_null(row.device);
  json["algorithm"] = or_null(row.algorithm);
  json["per_round"] = row.per_round;
  json["notify"] = or_null(row.notify);
  json["agreement"] = or_null(row.agreement);
  json["virtual"] = row.is_virtual;
  json["fabric"] = or_null(row.fabric);
  json["seed"] = row.seed;
  json["iterations"] = row.iterations;
  json["min_ns"] = rounded(row.min_ns);
  json["median_ns"] = rounded(row.median_ns);
  json["p99_ns"] = rounded(row.p99_ns);
  json["max_ns"] = rounded(row.max_ns);
  json["correct"] = or_null(row.correct);
  json["bound_ns"] = row.bound ? tenths(row.bound->ns) : Json(nullptr);
  json["against"] = nullptr;
  if (row.mpi)
    json["against"] = {{"mpi",
                        {{"name", row.mpi->name},
                         {"median_ns", tenths(row.mpi->median_ns)},
                         {"p99_ns", tenths(row.mpi->p99_ns)},
                         // All digits: a reader rounds it once, as the table does.
                         {"ratio", row.mpi->ratio}}}};
  json["oversubscribed"] = row.oversubscribed;
  json["bootstrap"] = row.bootstrap;
  json["transport"] = or_null(row.transport);
  return json;
}

std::string csv_text(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_array()) {
    std::string text;
    for (const Json& entry : value) {
      if (!text.empty()) text += ' ';
      text += entry.dump();
    }
    return text;
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Names contain neither commas nor quotes, so no field needs quoting.
void append(std::string& line, const std::string& field) {
  if (!line.empty()) line += ',';
  line += field;
}

std::vector<Json> json_of(std::span<const Row> rows) {
  std::vector<Json> all;
  for (const Row& row : rows) all.push_back(json_of(row));
  return all;
}

}  // namespace

std::string json_lines(std::span<const Json> rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + '\n';
  return text;
}

std::string csv_lines(std::span<const Json> rows, const std::string& beside,
                      std::span<const char* const> beside_keys) {
  std::string names;
  std::string lines;
  for (const Json& row : rows) {
    names.clear();
    std::string line;
    for (const auto& [key, value] : row.items()) {
      if (key != "against") {
        append(names, key);
        append(line, csv_text(value));
        continue;
      }
      for (const char* const beside_key : beside_keys) {
        append(names, "against_" + beside + '_' + beside_key);
        append(line, value.is_null() ? "" : csv_text(value[beside][beside_key]));
      }
    }
    lines += line + '\n';
  }
  return names + '\n' + lines;
}

std::string as_json(std::span<const Row> rows) {
  return json_lines(json_of(rows));
}

std::string as_csv(std::span<const Row> rows) {
  static constexpr const char* mpi_keys[] = {"name", "median_ns", "p99_ns", "ratio"};
  return csv_lines(json_of(rows), "mpi", mpi_keys);
}

}  // namespace tutti::bench
