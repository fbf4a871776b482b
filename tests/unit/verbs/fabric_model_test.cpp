// Promise: a network's description is understood or refused with the place and what was expected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <tutti/status.hpp>

#include "verbs/soft/fabric_model.hpp"

namespace tutti::verbs::soft {
namespace {

FabricModel read(const std::string& text) {
  const std::string name = "fabric_model_test." + std::to_string(::getpid()) + ".json";
  std::ofstream(name) << text;
  struct Remove {
    const std::string& name;
    ~Remove() { std::remove(name.c_str()); }
  } remove{name};
  return read_fabric_model(name);
}

std::string refusal(const std::string& text) {
  try {
    (void)read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(FabricModel, presets_have_the_published_rates) {
  const FabricModel fdr = read_fabric_model("fdr");
  EXPECT_EQ(fdr.latency, 700'000);
  EXPECT_EQ(fdr.send_overhead, 150'000);
  EXPECT_EQ(fdr.receive_overhead, 50'000);
  EXPECT_EQ(fdr.gap, 100'000);
  EXPECT_EQ(fdr.wire_time(6800), 1'000'000);
  EXPECT_EQ(fdr.port_time(8), 100'000);
  EXPECT_EQ(fdr.port_time(6800), 1'000'000);
  for (const char* name : {"qdr", "edr", "hdr", "ndr", "roce100", "roce25", "roce10"})
    EXPECT_GT(read_fabric_model(name).latency, 0) << name;
  EXPECT_EQ(read_fabric_model("roce25").wire_time(2900), 1'000'000);
  EXPECT_EQ(read_fabric_model("roce10").wire_time(1160), 1'000'000);
}

TEST(FabricModel, a_file_changes_a_preset) {
  const FabricModel model = read(
      R"({"preset": "fdr", "latency_us": 1.5, "messages_per_second": 1e6, "work_us": 0.01,
          "rank_gap_us": 0.07,
          "work_gigabytes_per_second": 8, "latencies_us": [[0, 3], [4, 0]],
          "faults": {"seed": 9, "slow": [{"place": 1, "factor": 2}]}})");
  EXPECT_EQ(model.latency, 1'500'000);
  EXPECT_EQ(model.gap, 1'000'000);
  EXPECT_EQ(model.rank_gap, 70'000);
  EXPECT_EQ(model.send_overhead, 150'000);
  EXPECT_EQ(model.work_time(8000), 1'010'000);
  EXPECT_EQ(model.latency_between(0, 1), 3'000'000);
  EXPECT_EQ(model.latency_between(1, 0), 4'000'000);
  EXPECT_EQ(model.latency_between(0, 2), 1'500'000) << "outside of the matrix";
  EXPECT_EQ(model.faults.seed, 9u);
  ASSERT_EQ(model.faults.slow.size(), 1u);
  EXPECT_EQ(model.faults.slow[0].factor, 2);
}

TEST(FabricModel, mistakes_are_named_with_their_place) {
  struct Mistake {
    const char* text;
    std::vector<const char*> said;
  };
  const Mistake mistakes[] = {
      {"{\"latency_us\": 1,\n  oops}", {"line 2, column 3"}},
      {"[1]", {"[1]", "an object"}},
      {R"({"latency_us": 1e400})", {"1e400"}},
      {"{\"latencies_us\": [[[[[[[[[[[[1]]]]]]]]]]]]}", {"nested"}},
      {R"({"messages_per_second": 1e-7})", {"messages_per_second", "from 1"}},
      {R"({"latncy_us": 1})", {"latncy_us", "latency_us"}},
      {R"({"preset": "sdr"})", {"sdr", "qdr, fdr, edr, hdr, ndr, roce100, roce25, roce10"}},
      {R"({"latency_us": -1})", {"latency_us", "-1", "from 0"}},
      {R"({"latency_us": "fast"})", {"latency_us", "fast", "a number"}},
      {R"({"gigabytes_per_second": 0})", {"gigabytes_per_second", "0"}},
      {R"({"latencies_us": [[1, 2], [3]]})", {"latencies_us", "square"}},
      {R"({"latencies_us": [[1, "x"], [3, 4]]})", {"latencies_us", "\"x\""}},
      {R"({"faults": {"drop_probability": 1.5}})", {"drop_probability", "1.5", "to 1"}},
      {R"({"faults": {"seed": -3}})", {"seed", "-3"}},
      {R"({"faults": {"slow": [{"factor": 2}]}})", {"\"slow\" lacks \"place\""}},
      {R"({"faults": {"slow": [{"plce": 1}]}})", {"\"plce\" is unknown in \"slow\"", "factor"}},
      {R"({"faults": {"slow": [{"place": 1}]}})", {"\"slow\" lacks \"factor\""}},
      {R"({"faults": {"delay_probability": 1}})", {"delay_us"}},
      {R"({"faults": {"link_down": [{"place": 0, "from_us": 5, "until_us": 5}]}})", {"from_us"}},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string said = refusal(mistake.text);
    for (const char* part : mistake.said)
      EXPECT_NE(said.find(part), std::string::npos) << mistake.text << "\n  " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

// Protects: what a file has is quoted in one line, and not at length.
TEST(FabricModel, mistakes_are_named_in_a_short_line) {
  EXPECT_NE(refusal(R"({"gap\n\u0007": 1})").find(R"("gap\n\u0007" is unknown in the file)"),
            std::string::npos);
  const std::string much(10'000, '7');
  for (const std::string& text :
       {"{\"" + much + "\": 1}", "{\"gap_us\": \"" + much + "\"}", "{\"gap_us\": " + much + "}",
        "{\"" + much, "{\"faults\": {\"" + much + "\": 1}}", much})
    EXPECT_LT(refusal(text).size(), 1000u) << text.substr(0, 30);
}

TEST(FabricModel, what_is_neither_preset_nor_file_is_refused) {
  for (const std::string name : {"fddr", "", "/", "/dev/zero"}) {
    try {
      (void)read_fabric_model(name);
      FAIL() << "accepted: " << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("\"" + name + "\""), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("qdr, fdr"), std::string::npos);
    }
  }
  EXPECT_NE(refusal(std::string(std::size_t{17} << 20, ' ')).find("at most"), std::string::npos);
}

}  // namespace
}  // namespace tutti::verbs::soft
