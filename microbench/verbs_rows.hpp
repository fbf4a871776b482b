// Results of the cases of the verbs layer as values, and the three ways to print them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "microbench/report.hpp"

namespace tutti::bench {

/// What perftest says of the same.
struct AgainstPerftest {
  std::string tool;  // "ib_write_bw"
  double figure = 0;
  std::string unit;  // of the figure: "us", "messages/s" or "GB/s"
  double ratio = 0;  // the row's figure over it: the median of the ratios of the blocks
};

/// Absent means: does not apply.
struct VerbsRow {
  std::string name;
  std::size_t bytes = 0;
  std::optional<std::uint32_t> queue_pairs;
  std::optional<std::uint32_t> senders;
  double us = 0;  // median over the samples: of a message, a round, or a call
  double us_min = 0;
  double us_deviation = 0;  // median absolute deviation
  std::optional<double> messages_per_second;
  std::optional<double> gigabytes_per_second;
  bool is_model = false;  // only a card shows what this really is
  std::optional<AgainstPerftest> perftest;
  std::size_t iterations = 0;  // samples

  std::uint32_t ranks = 1;
  std::string device;
  std::string bootstrap;
  std::optional<std::string> fabric;
  bool is_virtual = false;
  bool oversubscribed = false;
};

struct VerbsReport : ReportFrame {
  std::vector<VerbsRow> rows;
};

std::string as_table(const VerbsReport& report);
/// One object per line.
std::string as_json(std::span<const VerbsRow> rows);
/// One row per line, with the keys of the JSON flattened; the first line names the columns.
std::string as_csv(std::span<const VerbsRow> rows);

}  // namespace tutti::bench
