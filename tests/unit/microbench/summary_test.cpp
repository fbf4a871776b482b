// Promise: the summary counts the rows in which tutti was faster, names the best and the worst, and
// draws each row where its ratio is.  All figures are invented.
#include "microbench/summary.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

Row a_row(const char* collective, std::size_t bytes, double ratio) {
  Row row;
  row.collective = collective;
  row.bytes = bytes;
  row.ranks = 2;
  row.correct = true;
  row.mpi = {.name = "Open MPI 4.1.4", .median_ns = 100, .p99_ns = 200, .ratio = ratio};
  return row;
}

std::string summary(const std::vector<Row>& rows) {
  return summary_of(parse_results(as_json(rows), "rows.json"));
}

void expect_part(const std::string& text, const char* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Summary, counts_and_names_the_best_and_the_worst) {
  Row probe = a_row("floor", 8, 0);
  probe.mpi.reset();
  const std::string text =
      summary({probe, a_row("barrier", 0, 0.41), a_row("allreduce", 1024, 0.25),
               a_row("reduce", 1 << 20, 1.13), a_row("reduce", 8, 1)});
  expect_part(text, "faster than Open MPI 4.1.4 in 2 of 4 rows.");  // 1 is as fast
  expect_part(text, "best   0.25 of its time   allreduce of 1 KiB, 2 ranks of one node");
  expect_part(text, "worst  1.13 of its time   reduce of 1 MiB, 2 ranks of one node");
  expect_part(text, "is right");
}

TEST(Summary, a_ratio_has_the_digits_that_the_table_of_its_run_has) {
  // Rounded to thousandths before, these would end in another digit.
  Report report;
  report.rows = {a_row("barrier", 0, 0.3746), a_row("reduce", 8, 1.1246)};
  const std::string table = as_table(report), text = summary(report.rows);
  for (const char* ratio : {"0.37", "1.12"}) {
    expect_part(table, ratio);
    expect_part(text, (std::string(ratio) + " of its time").c_str());
  }
}

TEST(Summary, a_mark_stands_where_its_ratio_is) {
  const std::string text = summary({a_row("allreduce", 8, 0.5), a_row("allreduce", 64, 0.5),
                                    a_row("allreduce", 512, 1.25), a_row("reduce", 8, 3)});
  const std::string first(20, ' '), gap(19, ' ');
  expect_part(text, ("  allreduce       " + first + "2" + gap + "|").c_str());
  expect_part(text, "|         o            0.50 to 1.25\n");
  expect_part(text, "|                   >  3.00\n");
}

TEST(Summary, ranks_that_share_cpus_are_counted_apart) {
  Row shared = a_row("barrier", 0, 0.1);
  shared.ranks = 4;
  shared.nodes = 4;
  shared.oversubscribed = true;
  const std::string text = summary({a_row("barrier", 0, 0.5), shared});
  expect_part(text, "in 1 of 1 rows.\n  best   0.50");
  expect_part(text, "in 1 of 1 rows of more ranks than CPUs.\n  best   0.10");
  expect_part(text, "4 ranks, each a node of its own, which share CPUs: not latencies\n");
}

TEST(Summary, what_was_not_checked_is_said) {
  Row unchecked = a_row("barrier", 0, 0.5);
  unchecked.correct.reset();
  expect_part(summary({unchecked, a_row("allreduce", 8, 0.5)}), "1 of 2 rows were checked");
}

TEST(Summary, fits_a_terminal_of_100_columns) {
  const std::string text =
      summary({a_row("reduce_scatter", 8, 0.5), a_row("reduce_scatter", 64, 9)});
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Summary, other_files_are_refused) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      parse_results(text, "rows.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Row alone = a_row("barrier", 0, 0.5);
  alone.mpi.reset();
  expect_part(refusal(as_json(std::vector{alone})), "rows.json: no row stands beside MPI");
  expect_part(refusal(""), "no row stands beside MPI");
  expect_part(refusal(as_json(std::vector{alone}) + "x\n"), "rows.json:2: \"x\": expected");
  expect_part(refusal("{\"against\":{}}\n"), "rows.json:1");
}

}  // namespace
}  // namespace tutti::bench
