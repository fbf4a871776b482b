// Promise: rows of the verbs layer's cases say what was measured, in units that are named, in the
// table, in JSON and in CSV alike; what only a card can show is called a model; and figures of
// perftest are read from what its tools print.
#include "microbench/verbs_rows.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "microbench/perftest.hpp"

namespace tutti::bench {
namespace {

VerbsReport report() {
  VerbsRow rate;
  rate.name = "message_rate";
  rate.bytes = 8;
  rate.queue_pairs = 1;
  rate.us = 0.08;
  rate.us_min = 0.07;
  rate.messages_per_second = 12.5e6;
  rate.gigabytes_per_second = 0.1;
  rate.ranks = 3;
  rate.device = "soft0:1";
  rate.bootstrap = "local";
  rate.perftest = {.tool = "ib_write_bw", .figure = 10e6, .unit = "messages/s", .ratio = 1.25};
  VerbsRow incast;
  incast.name = "incast";
  incast.bytes = 65536;
  incast.senders = 2;
  incast.us = 21.4;
  incast.is_model = true;
  VerbsReport made;
  made.header = {{"device", "soft0:1"}};
  made.rows = {rate, incast};
  made.notes = {"a note"};
  return made;
}

TEST(VerbsRows, the_table_has_units_and_says_what_is_a_model) {
  const std::string text = as_table(report());
  std::istringstream lines(text);
  std::string line, rate, incast, title;
  while (std::getline(lines, line)) {
    if (line.starts_with("case")) title = line;
    if (line.starts_with("message_rate")) rate = line;
    if (line.starts_with("incast")) incast = line;
  }
  for (const char* const unit : {"M messages/s", "GB/s", " us ", "/perftest", "evidence"})
    EXPECT_NE(title.find(unit), std::string::npos) << title;
  for (const char* const cell : {" 12.50 ", " 0.100 ", " 0.080 ", " 10.00 ", " 1.25 ", "measured"})
    EXPECT_NE(rate.find(cell), std::string::npos) << cell << " in " << rate;
  for (const char* const cell : {" 64K ", " 2 ", " 21.40 ", "model"})
    EXPECT_NE(incast.find(cell), std::string::npos) << cell << " in " << incast;
  EXPECT_NE(text.find("model: an emulated device has no switch"), std::string::npos);
  EXPECT_NE(text.find("Note: a note"), std::string::npos);
  VerbsReport measured = report();
  measured.rows.resize(1);
  EXPECT_EQ(as_table(measured).find("evidence"), std::string::npos) << "nothing is a model";
}

TEST(VerbsRows, json_has_units_in_its_keys) {
  std::istringstream lines(as_json(report().rows));
  std::string line;
  std::getline(lines, line);
  const auto rate = nlohmann::json::parse(line);
  EXPECT_EQ(rate["case"], "message_rate");
  EXPECT_EQ(rate["messages_per_second"], 12.5e6);
  EXPECT_EQ(rate["us"], 0.08);
  EXPECT_EQ(rate["queue_pairs"], 1);
  EXPECT_EQ(rate["evidence"], "measured");
  EXPECT_EQ(rate["against"]["perftest"]["ratio"], 1.25);
  std::getline(lines, line);
  const auto incast = nlohmann::json::parse(line);
  EXPECT_EQ(incast["evidence"], "model");
  EXPECT_TRUE(incast["messages_per_second"].is_null());
  EXPECT_TRUE(incast["queue_pairs"].is_null());
  EXPECT_TRUE(incast["against"].is_null());
}

TEST(VerbsRows, csv_has_a_name_for_each_field) {
  std::istringstream lines(as_csv(report().rows));
  std::string line;
  const auto commas = [&lines, &line] {
    std::getline(lines, line);
    return std::count(line.begin(), line.end(), ',');
  };
  const auto names = commas();
  EXPECT_NE(line.find(",against_perftest_ratio,"), std::string::npos) << line;
  EXPECT_EQ(commas(), names);
  EXPECT_EQ(commas(), names) << line;
}

TEST(Perftest, figures_are_those_of_the_last_line_of_numbers) {
  EXPECT_EQ(last_line_of_numbers(R"(
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8          5000             90.10              88.20		     11.560000
 65536      1000             31000.5            30000.25            0.480004
---------------------------------------------------------------------------------------
)"),
            (std::vector<double>{65536, 1000, 31000.5, 30000.25, 0.480004}));
  EXPECT_TRUE(last_line_of_numbers("Couldn't connect to 127.0.0.1:1\n 5\n").empty());
}

}  // namespace
}  // namespace tutti::bench
