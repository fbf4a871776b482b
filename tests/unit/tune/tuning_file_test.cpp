// Promises: a tuning file is read as it is meant or refused as a whole, with its name, the line and
// what was expected; what is written is read as it was; files hold for the machines they say.
#include "tune/tuning_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "tune/json_text.hpp"
#include "tuning_texts.hpp"

namespace tutti::tune {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    (void)parse_tuning(text, "a.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(TuningFile, every_value_of_the_example_is_read) {
  const Tuning tuning = parse_tuning(test::tuning_example, "a.json");
  EXPECT_EQ(tuning.made_on, (Fingerprint{.device = "mlx5_0",
                                         .firmware = "16.35.2000",
                                         .link = "InfiniBand",
                                         .gigabits_per_second = 100,
                                         .mtu_bytes = 4096,
                                         .cpu = "EPYC \"7763\" \\ \xc2\xb5",
                                         .registry = 1}));
  EXPECT_EQ(tuning.machine.name, "measured");
  EXPECT_EQ(tuning.machine[Parameter::latency],
            (Figure{.value = 850000, .low = 840000, .high = 861000, .origin = Origin::measured}));
  EXPECT_EQ(tuning.machine[Parameter::inside_read_overhead],
            (Figure{.value = 500000, .low = 500000, .high = 500000, .origin = Origin::given}));
  EXPECT_EQ(
      tuning.probe_times,
      (std::vector<ProbeTime>{
          {.probe = Probe::one_way, .bytes = 16, .measured = 901'200, .predicted = 902'353}}));
  EXPECT_EQ(tuning.placement,
            (WritePlacement{.lines = 1'200'000, .words = 900'000, .early_words = 2}));
  ASSERT_EQ(tuning.rules.size(), 3u);
  EXPECT_EQ(tuning.rules[0], (Rule{.collective = Collective::allreduce,
                                   .bytes = {.to = 255},
                                   .nodes = {.from = 96, .to = 96},
                                   .agreement = Agreement::relaxed,
                                   .algorithm = Algorithm::two_partial,
                                   .per_round = {4, 4, 3}}));
  EXPECT_EQ(
      tuning.rules[1],
      (Rule{.collective = Collective::broadcast, .ranks = {.from = 2}, .tree = Tree::binomial}));
  EXPECT_EQ(tuning.rules[2], (Rule{.collective = Collective::barrier, .across = Across::leader}));
  ASSERT_EQ(tuning.findings.size(), 2u);
  EXPECT_EQ(tuning.findings[0],
            (Finding{.collective = Collective::allreduce,
                     .bytes = 8,
                     .nodes = 96,
                     .ranks_per_node = 1,
                     .agreement = Agreement::identical,
                     .operators = OperatorClass::rounding,
                     .winner = {"recursive_multiplying with 7,3,2 a round", 6000000, 5800000},
                     .others = {{"canonical_dissemination with 5,3,3 a round", 6500000, 5900000},
                                {"recursive_multiplying with 5,3,3 a round", 6600000, 6000000}}}));
  EXPECT_TRUE(tuning.findings[1].is_noisy);
}

TEST(TuningFile, examples_of_the_documentation_are_read) {
  std::ifstream file(TUTTI_TEST_TEXTS "/choosing_and_tuning.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::vector<Tuning> examples;
  for (std::size_t at = page.find("```json\n"); at != std::string::npos;
       at = page.find("```json\n", at + 1)) {
    const std::size_t begin = at + 8;
    examples.push_back(parse_tuning(page.substr(begin, page.find("```", begin) - begin), "docs"));
  }
  ASSERT_EQ(examples.size(), 2u) << "in " << page.size() << " bytes of documentation";
  EXPECT_EQ(examples[0].findings.size(), 2u);
  EXPECT_EQ(examples[1].rules.size(), 1u);
}

TEST(TuningFile, what_is_wrong_is_refused_at_its_line_with_its_value) {
  for (const test::RefusedEdit& edit : test::refused_edits) {
    ASSERT_NE(test::tuning_example.find(edit.from), std::string::npos) << edit.from;
    const std::string refusal = refusal_of(edited(edit));
    const std::string place = "a.json:" + std::to_string(edit.line) + ": ";
    EXPECT_TRUE(refusal.starts_with(place))
        << refusal << "\nexpected line " << edit.line << " for\n"
        << edit.to;
    EXPECT_NE(refusal.find(edit.says), std::string::npos) << refusal << "\nlacks " << edit.says;
  }
}

TEST(TuningFile, every_text_that_ends_early_is_refused) {
  const std::string& whole = test::tuning_example;
  for (std::size_t size = 0; size < whole.find_last_of('}'); ++size)
    ASSERT_NE(refusal_of(whole.substr(0, size)), "") << size;
}

TEST(TuningFile, absurd_sizes_are_refused) {
  const std::string finding = line_of(parse_tuning(test::tuning_example, "a.json").findings[1]);
  const auto file_of = [](const std::string& key, const std::string& item, std::size_t count) {
    std::string text = R"({"format": "tutti tuning 1", ")" + key + "\": [" + item;
    for (std::size_t i = 1; i < count; ++i) text += "," + item;
    return text + "]}";
  };
  const std::string rule = R"({"collective": "barrier", "across": "flat"})";
  EXPECT_EQ(refusal_of(file_of("findings", finding, 8192)), "");
  EXPECT_NE(
      refusal_of(file_of("findings", finding, 8193)).find("has 8193 items; expected at most 8192"),
      std::string::npos);
  EXPECT_EQ(refusal_of(file_of("rules", rule, 1024)), "");
  EXPECT_NE(refusal_of(file_of("rules", rule, 1025)).find("expected at most 1024"),
            std::string::npos);
  EXPECT_NE(refusal_of(file_of("rules", "0", 100'000)).find("a list of more than 65536"),
            std::string::npos);
  EXPECT_NE(refusal_of(std::string(100'000, '[')).find("nested deeper than 6"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(json_bytes_max + 1, ' '))
                .find("8388609 bytes; expected at most 8388608"),
            std::string::npos);
  std::string members = R"({"format": "tutti tuning 1")";
  for (int i = 0; i < 40; ++i) members += ", \"" + std::to_string(i) + "\": 0";
  EXPECT_NE(refusal_of(members + "}").find("more than 32 members"), std::string::npos);
  std::string list = "[0";
  for (int i = 1; i < 65536; ++i) list += ",0";
  std::string lists = "[" + list + "]";
  for (int i = 1; i < 17; ++i) lists += "," + list + "]";
  EXPECT_NE(refusal_of(lists + "]").find("more than 1048576 values"), std::string::npos);
}

TEST(TuningFile, what_is_written_is_read_as_it_was) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Tuning tuning = test::RandomTuning(seed).tuning();
    const std::string text = text_of(tuning);
    EXPECT_TRUE(parse_tuning(text, "a.json") == tuning) << text;
    for (const Finding& finding : tuning.findings) {
      const std::string line = line_of(finding);
      EXPECT_EQ(line.find('\n'), std::string::npos);
      EXPECT_TRUE(parse_finding(line, "journal", 7) == finding) << line;
    }
  }
  EXPECT_TRUE(parse_tuning(text_of(Tuning{}), "a.json") == Tuning{});
  const Tuning example = parse_tuning(test::tuning_example, "a.json");
  EXPECT_TRUE(parse_tuning(text_of(example), "a.json") == example);
}

TEST(TuningFile, a_rule_that_keeps_those_below_from_its_calls_is_written_as_such) {
  const Tuning tuning{.rules = {{.collective = Collective::reduce, .bytes = {.to = 8}},
                                {.collective = Collective::allreduce}}};
  EXPECT_TRUE(parse_tuning(text_of(tuning), "a.json") == tuning);
}

TEST(TuningFile, nothing_is_written_that_would_be_refused) {
  const auto finding = parse_tuning(test::tuning_example, "a.json").findings[0];
  const auto is_refused = [](const Tuning& tuning) {
    try {
      (void)text_of(tuning);
    } catch (const Error& error) {
      return std::string(error.what()).starts_with("the tuning to be written:");
    }
    return false;
  };
  Finding other = finding;
  other.winner.choice = "ring";
  EXPECT_TRUE(is_refused({.findings = {finding, other}}));
  EXPECT_TRUE(is_refused({.made_on = {.device = "a\nb"}}));
  EXPECT_TRUE(is_refused({.made_on = {.device = "\xff"}}));
  EXPECT_TRUE(is_refused({.rules = {{.bytes = {.from = 2, .to = 1}, .across = Across::flat}}}));
  Tuning nameless{.machine = machine_preset("fdr")};
  nameless.machine.name.clear();
  EXPECT_TRUE(is_refused(nameless));
}

TEST(TuningFile, a_line_of_a_journal_is_refused_with_its_number) {
  const std::string line = line_of(parse_tuning(test::tuning_example, "a.json").findings[0]);
  for (const std::string& wrong : {line.substr(0, line.size() / 2), line + line, std::string("{}"),
                                   std::string(), std::string("[]")})
    try {
      (void)parse_finding(wrong, "a.journal", 12);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("a.journal:12: ")) << error.what();
    }
}

TEST(TuningFile, a_file_holds_for_its_machine_and_is_stale_or_refused_on_others) {
  const Fingerprint here = parse_tuning(test::tuning_example, "a.json").made_on;
  const auto applies = [&](auto change) {
    Fingerprint there = here;
    change(there);
    const Applicability found = applicability(there, here);
    EXPECT_EQ(found.why.empty(), found.applies == Applies::yes);
    return found;
  };
  EXPECT_EQ(applies([](Fingerprint&) {}).applies, Applies::yes);
  EXPECT_EQ(applies([](Fingerprint& there) { there.device = "mlx5_1"; }).applies, Applies::yes);
  EXPECT_EQ(applies([](Fingerprint& there) { there = {}; }).applies, Applies::yes);
  EXPECT_EQ(applies([](Fingerprint& there) { there.firmware.clear(); }).applies, Applies::yes);
  EXPECT_EQ(applies([](Fingerprint& there) { there.firmware = "16.36"; }).applies, Applies::stale);
  EXPECT_EQ(applies([](Fingerprint& there) { there.cpu = "Xeon"; }).applies, Applies::stale);
  EXPECT_EQ(applies([](Fingerprint& there) { there.mtu_bytes = 1024; }).applies, Applies::stale);
  const Applicability registry = applies([](Fingerprint& there) { there.registry = 7; });
  EXPECT_EQ(registry.applies, Applies::stale);
  EXPECT_EQ(registry.why, "the tuning file is stale: version of the schedules was 7, here it is 1");
  EXPECT_EQ(applies([](Fingerprint& there) { there.link = "Ethernet"; }).applies, Applies::no);
  EXPECT_EQ(applies([](Fingerprint& there) { there.device = "mlx4_0"; }).applies, Applies::no);
  const Applicability rate = applies([](Fingerprint& there) {
    there.gigabits_per_second = 56;
    there.cpu = "Xeon";
  });
  EXPECT_EQ(rate.applies, Applies::no);
  EXPECT_EQ(rate.why,
            "the tuning file is for another network: rate was 56 Gb/s, here it is 100 Gb/s");
  EXPECT_EQ(applicability({.device = "rocep65s0f0"}, {.device = "rocep1s0f1"}).applies,
            Applies::yes);
  EXPECT_EQ(applicability({.device = "soft0"}, {.device = "rxe0"}).applies, Applies::no);
}

TEST(TuningFile, without_the_gap_of_a_rank_is_one_of_an_earlier_version) {
  std::string text = test::tuning_example;
  const std::size_t at = text.find("\"rank_gap_ps\"");
  ASSERT_NE(at, std::string::npos);
  text.erase(at, text.find('\n', at) - at);
  Tuning expected = parse_tuning(test::tuning_example, "a.json");
  expected.machine[Parameter::rank_gap] = {};
  EXPECT_EQ(parse_tuning(text, "a.json"), expected);
}

TEST(TuningFile, differences_have_a_line_each) {
  const Tuning left = parse_tuning(test::tuning_example, "a.json");
  EXPECT_EQ(difference_of(left, left), "");
  Tuning right = left;
  std::swap(right.findings[0], right.findings[1]);
  EXPECT_EQ(difference_of(left, right), "");
  right.made_on.firmware = "17";
  right.machine[Parameter::gap].value = 100001;
  right.placement.torn_lines = 3;
  right.rules.pop_back();
  right.findings[0].winner.measured = 1;  // of the barrier
  right.findings[1].bytes = 16;
  EXPECT_EQ(
      difference_of(left, right),
      "firmware: \"16.35.2000\" | \"17\"\n"
      "gap_ps: 100000 (99000 to 104000, measured) | 100001 (99000 to 104000, measured)\n"
      "placement of lines: 1200000 lines were seen to come, all of them whole | 1200000 lines were "
      "seen to come, 3 "
      "of them torn\n"
      "rule 3: {\"collective\": \"barrier\", \"across\": \"leader\"} | none\n"
      "allreduce of 8 bytes, 96 nodes of 1, identical, rounding: recursive_multiplying with 7,3,2 "
      "a "
      "round, measured_ps 6000000, predicted_ps 5800000; before canonical_dissemination with 5,3,3 "
      "a "
      "round, measured_ps 6500000, predicted_ps 5900000; before recursive_multiplying with 5,3,3 a "
      "round, measured_ps 6600000, predicted_ps 6000000 | not measured\n"
      "barrier of 0 bytes, 96 nodes of 1, identical: dissemination with 4,4,3 a round, measured_ps "
      "5100000, predicted_ps 5000000; noisy | dissemination with 4,4,3 a round, measured_ps 1, "
      "predicted_ps 5000000; noisy\n"
      "allreduce of 16 bytes, 96 nodes of 1, identical, rounding: not measured | "
      "recursive_multiplying with 7,3,2 a round, measured_ps 6000000, predicted_ps 5800000; before "
      "canonical_dissemination with 5,3,3 a round, measured_ps 6500000, predicted_ps 5900000; "
      "before "
      "recursive_multiplying with 5,3,3 a round, measured_ps 6600000, predicted_ps 6000000\n");
  Tuning changed = left;
  changed.findings[0].is_noisy = true;
  EXPECT_NE(difference_of(left, changed), "");
}

TEST(TuningFile, operators_are_told_apart_by_what_serves_them) {
  const auto of = [](Collective collective, const Reduction& reduction) {
    return operator_class_of({.collective = collective, .reduction = reduction});
  };
  const auto sum = built_in_reduction(BuiltIn::sum, ElementType::float64);
  EXPECT_EQ(of(Collective::barrier, {}), OperatorClass::none);
  EXPECT_EQ(of(Collective::allgather, {}), OperatorClass::none);
  EXPECT_EQ(of(Collective::allreduce, sum), OperatorClass::rounding);
  EXPECT_EQ(of(Collective::scan, sum), OperatorClass::rounding);
  EXPECT_EQ(of(Collective::reduce, built_in_reduction(BuiltIn::max, ElementType::float64)),
            OperatorClass::idempotent);
  EXPECT_EQ(of(Collective::reduce_scatter, built_in_reduction(BuiltIn::sum, ElementType::int64)),
            OperatorClass::exact);
  EXPECT_EQ(of(Collective::allreduce, {.element_bytes = 8}), OperatorClass::ordered);
  EXPECT_STREQ(name_of(OperatorClass::rounding), "rounding");
}

}  // namespace
}  // namespace tutti::tune
