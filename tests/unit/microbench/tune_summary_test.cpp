// Promise: the end of a tuning run says where the tuned choice differs from the untuned one, by how
// much, and where the file is; and a noisy finding never replaces a clean one.
#include "microbench/tune_summary.hpp"

#include <gtest/gtest.h>

#include "microbench/tune_session.hpp"

namespace tutti::bench {
namespace {

tune::Finding finding_of(std::uint64_t bytes, plan::Picoseconds time, bool is_noisy = false) {
  tune::Finding finding{.collective = tune::Collective::allreduce, .bytes = bytes};
  finding.winner = {"quick", time, 1'000'000};
  finding.others = {{"usual", 2'000'000, 1'500'000}};
  finding.is_noisy = is_noisy;
  return finding;
}

std::string summary_of(const std::vector<tune::Finding>& found, const TuneOptions& options) {
  tune::Tuning tuning;
  tuning.machine = tune::machine_preset("fdr");
  tuning.findings = found;
  const std::map<std::string, std::string> untuned_of{{"allreduce 8 B identical", "usual"},
                                                      {"allreduce 64 B identical", "quick"}};
  return tune_summary({.options = options,
                       .tuning = tuning,
                       .found = found,
                       .untuned_of = untuned_of,
                       .remarks = {"something else"},
                       .device = "soft0:1",
                       .rank_count = 2,
                       .node_count = 1,
                       .seconds = 3});
}

TEST(TuneSummary, differences_and_their_gain) {
  TuneOptions options;
  options.file = "/tmp/t.json";
  const std::string text =
      summary_of({finding_of(8, 1'600'000), finding_of(64, 1'000'000, true)}, options);
  for (const char* part :
       {"2 ranks, 1 node, soft0:1", "2 findings, 1 noisy; another choice than untuned in 1",
        "allreduce 8 B identical", "quick", "1.600", "usual", "2.000", "1.25",
        "Note: something else", "file: /tmp/t.json", "TUTTI_TUNING_FILE=/tmp/t.json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("allreduce 64 B"), std::string::npos) << text;
}

TEST(TuneSummary, what_no_time_was_left_for_is_not_said_to_be_unknown_to_these_ranks) {
  const std::vector<std::string> remarks = {
      "gap_ps could not be told: there are no samples of stream of two lengths; it is that of fdr",
      "something else",
      "inside_read_overhead_ps could not be told: there are no samples of inside_read of two "
      "lengths; it is that of fdr",
      "inside_read_per_byte_fs could not be told: there are no samples of inside_read of two "
      "lengths; it is that of fdr"};
  EXPECT_EQ(lines_of_fit(remarks, {tune::Probe::inside_read}, "fdr"),
            (std::vector<std::string>{
                "something else",
                "no time was left to measure these, which are those of the preset fdr: "
                "inside_read_overhead_ps, inside_read_per_byte_fs; give a longer --budget",
                "not measured with these ranks, but those of the preset fdr: gap_ps"}));
}

TEST(TuneSummary, the_gap_of_a_software_port_is_of_the_model) {
  TuneOptions options;
  tune::Tuning tuning;
  tuning.made_on.device = "soft0 emulating fdr";
  tuning.machine = tune::machine_preset("fdr");
  for (const auto parameter : {tune::Parameter::latency, tune::Parameter::gap})
    tuning.machine[parameter].origin = tune::Origin::measured;
  const std::vector<tune::Finding> found;
  const std::map<std::string, std::string> untuned_of;
  const std::vector<std::string> remarks;
  const auto has_model = [&] {
    return tune_summary({.options = options,
                         .tuning = tuning,
                         .found = found,
                         .untuned_of = untuned_of,
                         .remarks = remarks})
               .find("100.000 to 100.000) model\n") != std::string::npos;
  };
  EXPECT_TRUE(has_model());
  tuning.made_on.device = "mlx5_0";
  EXPECT_FALSE(has_model());
}

TEST(TuneSummary, what_a_stress_of_the_device_allows_and_forbids) {
  TuneOptions options;
  tune::Tuning tuning;
  const std::vector<tune::Finding> found;
  const std::map<std::string, std::string> untuned_of;
  const std::vector<std::string> remarks;
  const auto text = [&] {
    return tune_summary({.options = options,
                         .tuning = tuning,
                         .found = found,
                         .untuned_of = untuned_of,
                         .remarks = remarks});
  };
  EXPECT_EQ(text().find("placement"), std::string::npos) << text();
  tuning.made_on = {.device = "mlx5_0", .firmware = "16.35", .cpu = "EPYC"};
  tuning.placement = {.lines = 1'000'000, .words = 5};
  EXPECT_NE(text().find(
                "placement of writes: 1000000 lines were seen to come, all of them whole; 5 words"),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("TUTTI_NOTIFY=flag can be used with this file; each rank goes by the file "
                        "that it finds itself: copy it to all nodes\n"),
            std::string::npos)
      << text();
  EXPECT_EQ(text().find("=words"), std::string::npos) << text();
  tuning.placement.words = 1'000'000;
  EXPECT_NE(text().find("TUTTI_SHARED_NOTIFICATIONS=words can be used"), std::string::npos);
  tuning.placement.early_words = 1;
  EXPECT_NE(text().find("TUTTI_SHARED_NOTIFICATIONS=words is refused"), std::string::npos);
  // Counts alone allow nothing.
  tuning.made_on.firmware = "0.0.0";
  EXPECT_NE(text().find("it allows nothing: the device has no firmware version"),
            std::string::npos);
  EXPECT_EQ(text().find("can be used"), std::string::npos) << text();
  tuning.made_on.firmware = "16.35";
  tuning.placement = {.lines = 1'000'000};
  tuning.placement.torn_lines = 1;
  EXPECT_NE(text().find("1 of them torn"), std::string::npos);
  EXPECT_NE(text().find("TUTTI_NOTIFY=flag is refused with this file\n"), std::string::npos);
  tuning.placement = {.lines = 10};
  EXPECT_EQ(text().find("TUTTI_NOTIFY"), std::string::npos);
}

TEST(TuneSummary, the_file_that_every_program_finds) {
  TuneOptions options;
  options.is_default_file = true;
  const std::string text = summary_of({}, options);
  EXPECT_NE(text.find("TUTTI_TUNING=off"), std::string::npos) << text;
  EXPECT_EQ(text.find("TUTTI_TUNING_FILE"), std::string::npos) << text;
}

TEST(TuneSummary, a_noisy_finding_never_replaces_a_clean_one) {
  std::vector<tune::Finding> findings;
  take_in(findings, finding_of(8, 3, true));
  take_in(findings, finding_of(8, 4, true));
  EXPECT_EQ(findings.back().winner.measured, 4);
  take_in(findings, finding_of(8, 5));
  EXPECT_EQ(findings.back().winner.measured, 5);
  take_in(findings, finding_of(8, 6, true));
  EXPECT_EQ(findings.back().winner.measured, 5);
  take_in(findings, finding_of(8, 7));
  EXPECT_EQ(findings.back().winner.measured, 7);
  take_in(findings, finding_of(64, 8, true));
  EXPECT_EQ(findings.size(), 2u);
}

}  // namespace
}  // namespace tutti::bench
