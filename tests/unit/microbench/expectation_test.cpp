// Promise: a file of bounds means what it says, a bad line is refused with its number, its value
// and what was expected, and each row is judged by the limit that was chosen.  All figures are
// invented.
#include "microbench/expectation.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

namespace tutti::bench {
namespace {

std::vector<Expectation> parse(std::string_view text) {
  return parse_expectations(text, "bounds.txt");
}

/// Refused, in one line that contains all of `parts`.
void expect_refused(std::string_view text, const std::vector<const char*>& parts) {
  try {
    parse(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    for (const char* part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

TEST(Expectation, a_bound_is_a_factor_of_a_probe_or_of_mpi) {
  const auto bounds = parse("# title\n\nwimm <= 2 floor # comment\n\tallreduce 8 <= 0.6 mpi\r\n");
  ASSERT_EQ(bounds.size(), 2u);
  EXPECT_EQ(bounds[0].collective, Collective::wimm);
  EXPECT_EQ(bounds[0].beside, Collective::floor);
  EXPECT_EQ(bounds[0].target, 2);
  EXPECT_EQ(bounds[0].line, 3u);
  EXPECT_EQ(bounds[1].collective, Collective::allreduce);
  EXPECT_EQ(bounds[1].bytes_first, 8u);
  EXPECT_EQ(bounds[1].bytes_last, 8u);
  EXPECT_FALSE(bounds[1].beside) << "MPI is no row of ours";
  EXPECT_EQ(bounds[1].text, "allreduce 8 <= 0.6 mpi");
}

TEST(Expectation, the_tripwire_is_one_and_a_half_times_the_target_unless_said) {
  EXPECT_EQ(parse("wimm <= 2 floor")[0].tripwire, 3);
  EXPECT_EQ(parse("wimm <= 2 floor tripwire 5")[0].tripwire, 5);
}

TEST(Expectation, a_section_holds_until_the_next_one) {
  const auto bounds = parse(
      "barrier <= 1 mpi\n[ranks 2, nodes 1]\nbarrier <= 2 mpi\n[notify flag]\nbarrier <= 3 wimm\n");
  EXPECT_FALSE(bounds[0].ranks);
  EXPECT_EQ(bounds[1].ranks, 2u);
  EXPECT_EQ(bounds[1].nodes, 1u);
  EXPECT_FALSE(bounds[2].ranks);
  EXPECT_EQ(bounds[2].notify, Notify::flag);
}

TEST(Expectation, bad_lines_are_named_with_what_was_expected) {
  expect_refused("", {"bounds.txt", "none"});
  expect_refused("# only\n[ranks 2]\n", {"bounds.txt", "none"});
  expect_refused("\ngossip 8 <= 1 mpi", {"bounds.txt:2", "\"gossip\"", "allreduce"});
  expect_refused("barrier 8 <= 1 mpi", {"bounds.txt:1", "\"8\"", "barrier has no choice of bytes"});
  expect_refused("allreduce <= 1 mpi", {"bounds.txt:1", "<=", "bytes"});
  expect_refused("allreduce x <= 1 mpi", {"bounds.txt:1", "x", "64K"});
  expect_refused("allreduce 8..x <= 1 mpi", {"bounds.txt:1", "x", "64K"});
  expect_refused("allreduce 64..8 <= 1 mpi", {"64..8", "smaller size first"});
  expect_refused("allreduce 8 < 1 mpi", {"\"<\"", "<="});
  expect_refused("allreduce 8 >= 1 mpi", {"\">=\"", "<="});
  for (const char* factor : {"x", "0", "-1", "1x", "nan", "inf"})
    expect_refused(std::string("barrier <= ") + factor + " mpi", {factor, "number above 0"});
  expect_refused("barrier <= 1", {"barrier <= 1", "mpi or a probe"});
  expect_refused("barrier <= 1 allreduce", {"allreduce", "floor, oneway, wimm or memcpy"});
  expect_refused("barrier <= 1 mpi 2", {"\"2\"", "tripwire"});
  expect_refused("barrier <= 1 mpi tripwire", {"factor of the tripwire"});
  expect_refused("barrier <= 2 mpi tripwire 1", {"\"1\"", "at least the target, 2"});
  expect_refused("barrier <= 1 mpi tripwire 2 3", {"\"3\"", "end of the line"});
  expect_refused("[ranks 2\nbarrier <= 1 mpi", {"bounds.txt:1", "]"});
  expect_refused("[ranks]\nbarrier <= 1 mpi", {"bounds.txt:1", "ranks N"});
  expect_refused("[hosts 2]\nbarrier <= 1 mpi", {"hosts 2", "ranks N, nodes N"});
  expect_refused("[ranks 0]\nbarrier <= 1 mpi", {"\"0\"", "from 1 on"});
  expect_refused("[notify word]\nbarrier <= 1 mpi", {"bounds.txt:1", "word", "immediate, flag"});
}

const std::vector<Measured> rows = {
    {.collective = Collective::floor, .bytes = 8},
    {.collective = Collective::barrier, .notify = Notify::immediate, .beside_mpi = true},
    {.collective = Collective::allreduce,
     .bytes = 8,
     .notify = Notify::immediate,
     .beside_mpi = true},
    {.collective = Collective::allreduce,
     .bytes = 1024,
     .notify = Notify::immediate,
     .beside_mpi = true},
    {.collective = Collective::memcpy, .bytes = 1024}};

TEST(Expectation, bounds_are_about_the_rows_they_name) {
  const Match found = match(
      parse("barrier <= 1 floor\nallreduce 8 <= 1 mpi\nallreduce 1K <= 2 memcpy"), rows, 2, 1);
  ASSERT_EQ(found.pairings.size(), 3u);
  EXPECT_EQ(found.pairings[0].row, 1u);
  EXPECT_EQ(found.pairings[0].beside, 0u);
  EXPECT_EQ(found.pairings[1].row, 2u);
  EXPECT_FALSE(found.pairings[1].beside);
  EXPECT_EQ(found.pairings[2].row, 3u);
  EXPECT_EQ(found.pairings[2].beside, 4u) << "the copy of as many bytes";
}

TEST(Expectation, every_is_what_has_a_payload_and_a_range_has_every_size_measured) {
  EXPECT_EQ(match(parse("every 8..8M <= 1 mpi"), rows, 2, 1).pairings.size(), 2u);
  EXPECT_EQ(match(parse("every 9..8M <= 1 mpi"), rows, 2, 1).pairings.size(), 1u);
}

TEST(Expectation, what_was_not_measured_is_said_and_not_judged) {
  const Match found =
      match(parse("reduce 8 <= 1 mpi\nbarrier <= 1 wimm\nfloor <= 1 mpi"), rows, 2, 1);
  EXPECT_TRUE(found.pairings.empty());
  ASSERT_EQ(found.gaps.size(), 3u);
  EXPECT_EQ(found.gaps[0].reason, "there is no such row");
  EXPECT_EQ(found.gaps[1].reason, "wimm is not measured beside it");
  EXPECT_EQ(found.gaps[2].reason, "it is not measured --against mpi");
}

TEST(Expectation, other_shapes_and_notifications_are_elsewhere) {
  const auto bounds = parse(
      "[ranks 4]\nbarrier <= 1 mpi\n[nodes 2]\nbarrier <= 1 mpi\n[notify flag]\nbarrier <= 1 mpi\n"
      "[ranks 2, nodes 1, notify immediate]\nbarrier <= 1 mpi");
  const Match found = match(bounds, rows, 2, 1);
  EXPECT_EQ(found.elsewhere, 3u);
  EXPECT_TRUE(found.gaps.empty());
  ASSERT_EQ(found.pairings.size(), 1u);
  EXPECT_EQ(found.pairings[0].expectation, 3u);
}

TEST(Expectation, the_limit_itself_is_met_and_nothing_measured_is_not) {
  const Expectation bound = parse("barrier <= 1.5 floor tripwire 2")[0];
  EXPECT_TRUE(is_met(bound, 1.5, false));
  EXPECT_FALSE(is_met(bound, 1.501, false));
  EXPECT_TRUE(is_met(bound, 2, true));
  EXPECT_FALSE(is_met(bound, 2.001, true));
  EXPECT_FALSE(is_met(bound, 0, false));
}

TEST(Expectation, every_judged_row_has_a_line_with_its_ratio_and_limit) {
  const auto bounds = parse(
      "barrier <= 1.15 floor\nallreduce 1K <= 0.5 mpi tripwire 0.9\n"
      "reduce 8 <= 1 mpi\n[ranks 4]\nbarrier <= 1 mpi");
  const Match found = match(bounds, rows, 2, 1);
  const std::vector<double> ratios = {1.064, 0.75};
  EXPECT_EQ(missed(bounds, found, ratios, false), 1u);
  EXPECT_EQ(missed(bounds, found, ratios, true), 0u);
  EXPECT_EQ(as_text(bounds, found, rows, ratios, false),
            "met      barrier                1.064 <= 1.15  floor   line 1\n"
            "NOT met  allreduce 1K           0.750 <= 0.5   mpi     line 2\n"
            "not measured: line 3, reduce 8 <= 1 mpi: there is no such row\n"
            "1 of 2 met, 1 line not measured, 1 line about other numbers of ranks or nodes, or "
            "another notify\n");
  EXPECT_NE(as_text(bounds, found, rows, ratios, true).find("0.750 <= 0.9 "), std::string::npos);
}

}  // namespace
}  // namespace tutti::bench
