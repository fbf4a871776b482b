// Promise: whoever asks how long choosing takes gets a row for each shape, with the call that takes
// longest.
#include "microbench/choosing_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace tutti::bench {
namespace {

TEST(ChoosingTime, has_a_row_for_each_shape) {
  const std::vector<ChoiceCell> all = cells_of_choosing();
  for (const tune::Collective collective :
       {tune::Collective::barrier, tune::Collective::allreduce, tune::Collective::broadcast,
        tune::Collective::reduce, tune::Collective::reduce_scatter, tune::Collective::allgather,
        tune::Collective::alltoall, tune::Collective::gather, tune::Collective::scatter,
        tune::Collective::scan})
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const ChoiceCell& cell) {
      return cell.collective == collective && cell.nodes * cell.ranks_per_node == 4096;
    })) << tune::name_of(collective);

  std::vector<ChoiceCell> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const ChoiceCell& cell) { return cell.bytes == 2048; });
  const std::vector<ChoosingTime> times = time_choosing(some, tune::Knowledge(), 1);
  ASSERT_EQ(times.size(), some.size());
  for (const ChoosingTime& one : times) {
    EXPECT_GT(one.time.count(), 0) << one.cell.text();
    EXPECT_FALSE(one.choice.empty()) << one.cell.text();
  }
  const std::string table = table_of(times);
  std::printf("%s", table.c_str());
  EXPECT_NE(table.find("| 4096 | 1 | "), std::string::npos) << table;
  EXPECT_NE(table.find("| 512 | 8 | "), std::string::npos) << table;
  EXPECT_NE(table.find("| 13 | 8 | "), std::string::npos) << table;
}

}  // namespace
}  // namespace tutti::bench
