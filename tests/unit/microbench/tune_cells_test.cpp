// Promise: every cell that is asked for is there once, and those that most programs ask for come
// first.
#include "microbench/tune_cells.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <tutti/status.hpp>

#include "microbench/tune_options.hpp"
#include "microbench/tune_racers.hpp"

namespace tutti::bench {
namespace {

TEST(TuneCells, every_cell_is_there_once) {
  const std::vector<std::size_t> bytes{1024, 8, 64};
  const std::vector<Cell> cells = cells_of(tuned_collectives(), bytes, 4);
  // A barrier; three with three agreements each; seven others.
  EXPECT_EQ(cells.size(), 1 + 3 * 3 * 3 + 7 * 3u);
  for (const Cell& cell : cells) EXPECT_EQ(std::count(cells.begin(), cells.end(), cell), 1);
}

TEST(TuneCells, small_identical_allreduces_and_barriers_come_first) {
  const std::vector<std::size_t> bytes{8, 64, 1 << 20};
  const std::vector<Cell> cells = cells_of(tuned_collectives(), bytes, 4);
  ASSERT_GT(cells.size(), 2u);
  EXPECT_EQ(cells[0], (Cell{Collective::allreduce, 8, Agreement::identical}));
  EXPECT_EQ(cells[1], (Cell{.collective = Collective::barrier}));
  const auto place = [&](const Cell& cell) {
    return std::find(cells.begin(), cells.end(), cell) - cells.begin();
  };
  EXPECT_LT(place({Collective::allreduce, 8, Agreement::relaxed}),
            place({Collective::allreduce, 8, Agreement::reproducible}));
  EXPECT_LT(place({Collective::broadcast, 64}), place({Collective::broadcast, 1 << 20}));
}

TEST(TuneCells, buffers_that_are_too_large_are_left_out) {
  const std::vector<std::size_t> bytes{tuned_buffer_bytes_max};
  const std::vector<Collective> collectives{Collective::allreduce, Collective::alltoall};
  const std::vector<Cell> cells = cells_of(collectives, bytes, 2);
  EXPECT_EQ(cells.size(), 3u);
  for (const Cell& cell : cells) EXPECT_EQ(cell.collective, Collective::allreduce);
}

TEST(TuneCells, a_cell_has_a_text) {
  EXPECT_EQ(text_of(Cell{.collective = Collective::barrier}), "barrier");
  EXPECT_EQ(text_of(Cell{Collective::allreduce, 8, Agreement::relaxed}), "allreduce 8 B relaxed");
  EXPECT_EQ(text_of(Cell{Collective::alltoall, 8}), "alltoall 8 B");
}

TEST(TuneCells, every_collective_has_a_schedule) {
  for (const Collective collective : tuned_collectives())
    EXPECT_STREQ(tune::name_of(tuned_as(collective)), name_of(collective));
}

TEST(TuneCells, what_cannot_be_timed_between_hosts_is_named) {
  const Collective some[] = {Collective::allreduce, Collective::reduce, Collective::scan};
  const std::string remark = remark_on_untimed(some);
  EXPECT_NE(remark.find("reduce, scan"), std::string::npos) << remark;
  EXPECT_EQ(remark_on_untimed(std::span(some).first(1)), "");
  EXPECT_THROW(remark_on_untimed(std::span(some).subspan(1)), Error);
}

}  // namespace
}  // namespace tutti::bench
