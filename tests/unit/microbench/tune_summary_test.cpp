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
