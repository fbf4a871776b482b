// Promise: a tuning file is shown with every fact it has, in units for people.
#include "microbench/tune_show.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::bench {
namespace {

using tune::Parameter;

tune::Tuning example() {
  tune::Tuning tuning;
  tuning.made_on = {.device = "mlx5_0",
                    .firmware = "16.35",
                    .link = "InfiniBand",
                    .gigabits_per_second = 56,
                    .mtu_bytes = 4096,
                    .cpu = "EPYC",
                    .registry = 1};
  tuning.machine = tune::machine_preset("fdr");
  tuning.machine.name = "lab";
  tuning.machine[Parameter::gap] = {
      .value = 101'000, .low = 99'000, .high = 104'500, .origin = tune::Origin::measured};
  tuning.placement = {.lines = 2'000'000, .words = 1'500'000};
  tuning.rules = {{.collective = tune::Collective::allreduce,
                   .bytes = {.to = 255},
                   .ranks = {.from = 3},
                   .nodes = {.from = 96, .to = 96},
                   .ranks_per_node = {.from = 2, .to = 4},
                   .agreement = Agreement::relaxed,
                   .algorithm = Algorithm::two_partial,
                   .across = Across::flat,
                   .per_round = {4, 4, 3}},
                  {.collective = tune::Collective::reduce, .tree = Tree::binomial},
                  {.collective = tune::Collective::allreduce}};
  tuning.findings = {{.collective = tune::Collective::allreduce,
                      .bytes = 4096,
                      .nodes = 96,
                      .ranks_per_node = 1,
                      .operators = tune::OperatorClass::rounding,
                      .winner = {"ring", 6'000'000, 5'000'000},
                      .others = {{"circulant", 9'000'000, 1}, {"chunked_fold", 6'600'000, 0}}},
                     {.collective = tune::Collective::barrier,
                      .nodes = 2,
                      .winner = {"dissemination with 1 a round", 900'000, 0},
                      .is_noisy = true}};
  return tuning;
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find(line + "\n"), std::string::npos) << "lacks: " << line << "\nhas:\n" << text;
}

TEST(TuneShow, every_fact_is_shown) {
  const std::string text = show_tuning(example());
  expect_line(text,
              "made on: mlx5_0, firmware 16.35, InfiniBand, 56 Gb/s, MTU 4096, EPYC, schedules of "
              "version 1");
  expect_line(text, "machine \"lab\"");
  expect_line(text,
              "  gap_ps                      101000   101.0 ns   99000  104500  measured  g, a "
              "message at a node's port");
  expect_line(text,
              "  per_byte_fs                 147059   6.8 GB/s  147059  147059  preset    G, bytes "
              "at a node's port");
  expect_line(
      text,
      "placement of writes: 2000000 lines were seen to come, all of them whole; 1500000 words were "
      "seen to come, all of them after what was written earlier");
  expect_line(text,
              "  1  allreduce, up to 255 bytes, from 3 ranks, 96 nodes, 2 to 4 ranks a node, "
              "relaxed: two_partial_dissemination, across flat, 4,4,3 a round");
  expect_line(text, "  2  reduce: tree binomial");
  expect_line(text, "  3  allreduce: automatic");
  expect_line(text,
              "  allreduce      4K     96             1  identical  rounding  ring                 "
              "              "
              "   6.000 us  5.000 us  +20.0 %  chunked_fold  +10.0 %");
  expect_line(
      text,
      "  barrier         0      2             1  -          -         dissemination with 1 a "
      "round (noisy)  900.0 ns         -        -  -                   -");
}

TEST(TuneShow, what_only_a_card_can_show_is_of_the_model) {
  tune::Tuning tuning = example();
  const auto origin = [&](Parameter parameter) {
    tuning.machine[parameter].origin = tune::Origin::measured;
    const std::string text = show_tuning(tuning);
    const std::size_t line = text.find("\n  " + std::string(key_of(parameter)) + " ");
    const std::string words = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
    return words.find("  model ") != std::string::npos      ? "model"
           : words.find("  measured ") != std::string::npos ? "measured"
                                                            : "neither";
  };
  for (const Parameter parameter : {Parameter::gap, Parameter::fan_max, Parameter::latency}) {
    tuning.made_on.device = "mlx5_0";
    EXPECT_STREQ(origin(parameter), "measured") << key_of(parameter);
    EXPECT_EQ(show_tuning(tuning).find("model: "), std::string::npos);
    for (const char* device : {"soft0", "soft1 emulating qdr"}) {
      tuning.made_on.device = device;
      EXPECT_STREQ(origin(parameter), parameter == Parameter::latency ? "measured" : "model")
          << key_of(parameter) << " of " << device;
    }
  }
  EXPECT_NE(show_tuning(tuning).find("model: measured on the software device"), std::string::npos);
  EXPECT_NE(show_tuning(tuning).find("informs only"), std::string::npos);
  tune::Tuning other = tuning;
  other.machine[Parameter::gap].value += 1;
  EXPECT_NE(show_difference({"a", tuning}, {"b", other}).find("104500, model)"), std::string::npos);
}

TEST(TuneShow, a_file_of_nothing_says_so) {
  EXPECT_EQ(show_tuning({}),
            "made on: not said: it holds everywhere\n"
            "machine: none, so that prices are those of the link's preset\n"
            "rules: none\nfindings: none\n");
}

TEST(TuneShow, a_difference_has_the_names_of_the_files) {
  const tune::Tuning left = example();
  tune::Tuning right = left;
  right.made_on.firmware = "17";
  EXPECT_EQ(show_difference({"a.json", left}, {"b.json", right}),
            "what: a.json | b.json\nfirmware: \"16.35\" | \"17\"\n");
  EXPECT_EQ(show_difference({"a.json", left}, {"b.json", left}),
            "a.json and b.json say the same\n");
}

TEST(TuneShow, units_for_people) {
  EXPECT_EQ(time_text(0), "0.0 ns");
  EXPECT_EQ(time_text(999'949), "999.9 ns");
  EXPECT_EQ(time_text(1'234'567), "1.235 us");
  EXPECT_EQ(time_text(1'234'567'000), "1.235 ms");
  EXPECT_EQ(value_text(Parameter::per_byte, 0), "no time");
  EXPECT_EQ(value_text(Parameter::inside_per_byte, 100'000), "10 GB/s");
  EXPECT_EQ(value_text(Parameter::fan_max, 0), "not known");
  EXPECT_EQ(value_text(Parameter::fan_max, 12), "12");
}

}  // namespace
}  // namespace tutti::bench
