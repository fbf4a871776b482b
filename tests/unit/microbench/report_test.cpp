// Promise: the machine-readable forms have exactly the keys of the contract, in their order.
#include "microbench/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tutti::bench {
namespace {

Row a_row() {
  Row row;
  row.collective = "allreduce";
  row.bytes = 8;
  row.dtype = "double";
  row.op = "sum";
  row.ranks = 4;
  row.nodes = 4;
  row.device = "soft0:1";
  row.algorithm = "two_partial_dissemination";
  row.per_round = {1, 1};
  row.notify = "immediate";
  row.agreement = "relaxed";
  row.iterations = 2000;
  row.median_ns = 1234.56;
  row.correct = true;
  row.bootstrap = "local";
  return row;
}

std::vector<std::string> keys_of(const std::string& line) {
  std::vector<std::string> keys;
  const auto json = nlohmann::ordered_json::parse(line);
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

const std::vector<std::string> contract = {
    "collective", "bytes",          "dtype",     "op",        "ranks",   "nodes",   "device",
    "algorithm",  "per_round",      "notify",    "agreement", "virtual", "fabric",  "seed",
    "iterations", "min_ns",         "median_ns", "p99_ns",    "max_ns",  "correct", "bound_ns",
    "against",    "oversubscribed", "bootstrap", "transport"};

TEST(Report, json_has_the_keys_of_the_contract_in_their_order) {
  EXPECT_EQ(keys_of(as_json(std::vector{a_row()})), contract);
}

TEST(Report, json_is_one_object_per_line) {
  const std::string text = as_json(std::vector{a_row(), a_row()});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(Report, what_does_not_apply_is_null) {
  const auto json = nlohmann::json::parse(as_json(std::vector{Row{}}));
  for (const char* key : {"dtype", "op", "device", "algorithm", "notify", "agreement", "fabric",
                          "correct", "bound_ns", "against", "transport"})
    EXPECT_TRUE(json[key].is_null()) << key;
  EXPECT_TRUE(json["per_round"].is_array());
  EXPECT_EQ(json["virtual"], false);
}

TEST(Report, mpi_stands_beside) {
  Row row = a_row();
  row.mpi = {.name = "Open MPI 4.1.4", .median_ns = 10, .p99_ns = 20, .ratio = 0.125};
  const auto json = nlohmann::json::parse(as_json(std::vector{row}));
  EXPECT_EQ(json["against"]["mpi"]["name"], "Open MPI 4.1.4");
  EXPECT_EQ(json["against"]["mpi"]["median_ns"], 10);
  EXPECT_EQ(json["against"]["mpi"]["p99_ns"], 20);
  EXPECT_EQ(json["against"]["mpi"]["ratio"], 0.125);
}

TEST(Report, csv_has_as_many_fields_as_names) {
  Row with_mpi = a_row();
  with_mpi.mpi = {.name = "MPICH 4.0.2", .median_ns = 10, .p99_ns = 20};
  const std::string text = as_csv(std::vector{a_row(), with_mpi});
  std::vector<std::ptrdiff_t> commas;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    commas.push_back(std::count(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                text.begin() + static_cast<std::ptrdiff_t>(end), ','));
    begin = end + 1;
  }
  EXPECT_EQ(commas, std::vector<std::ptrdiff_t>(3, commas.front()));
  EXPECT_NE(text.find("1 1"), std::string::npos);
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(Report, shared_cpus_are_said_in_every_row_of_the_table) {
  Report report;
  report.rows = {a_row(), a_row()};
  for (Row& row : report.rows) row.oversubscribed = true;
  const std::string text = as_table(report);
  EXPECT_EQ(count_of("  oversubscribed\n", text), report.rows.size());
  EXPECT_EQ(count_of("not latencies", text), 1u);
}

TEST(Report, ratios_are_columns_and_the_legend_says_over_what) {
  Report report;
  report.rows = {a_row()};
  report.rows[0].mpi = {.name = "MPICH 4.0.2", .median_ns = 10, .p99_ns = 20, .ratio = 0.42};
  report.rows[0].bound = {.name = "1.25 memcpy", .ns = 5, .ratio = 1.07};
  const std::string text = as_table(report);
  EXPECT_NE(text.find("/MPI  /bound\n"), std::string::npos) << text;
  EXPECT_NE(text.find("0.42    1.07\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1.25 memcpy for allreduce 8"), std::string::npos) << text;
}

TEST(Report, a_table_of_what_was_measured_fits_a_terminal_of_100_columns) {
  Report report;
  Row row = a_row();
  row.collective = "reduce_scatter";
  row.per_round = {1, 1, 1};
  row.max_ns = 99'999'000;
  row.mpi = {.name = "MPICH 4.0.2", .median_ns = 99'999'000, .p99_ns = 99'999'000, .ratio = 0.42};
  row.bound = {.name = "0.75 memcpy", .ns = 5, .ratio = 11.07};
  report.rows = std::vector<Row>(20, row);
  for (const bool brief : {false, true}) {
    report.brief = brief;
    const std::string text = as_table(report);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(Report, a_brief_table_has_no_extremes) {
  Report report;
  report.rows = {a_row()};
  EXPECT_NE(as_table(report).find("  MAD "), std::string::npos);
  report.brief = true;
  EXPECT_EQ(as_table(report).find("  MAD "), std::string::npos);
}

TEST(Report, a_column_of_checks_is_there_if_a_result_was_wrong) {
  Report report;
  report.rows = {a_row(), a_row()};
  EXPECT_EQ(as_table(report).find("check"), std::string::npos);
  report.rows[1].correct = false;
  const std::string text = as_table(report);
  EXPECT_EQ(count_of("  WRONG\n", text), 1u);
  EXPECT_EQ(count_of("     ok\n", text), 1u);
}

TEST(Report, ratios_that_are_no_row_come_with_the_number_of_blocks) {
  Report report;
  report.rows = {a_row()};
  report.ratios = {{.what = "overlap of allreduce 8 B", .median = 1.5, .blocks = 20}};
  EXPECT_NE(as_table(report).find("1.500  (20 alternating blocks)"), std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
