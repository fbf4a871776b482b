// Promise: a log gets a line now and then, not one for each step, and the bar says what is left.
#include "microbench/progress.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::bench {
namespace {

TEST(Progress, the_bar_grows) {
  EXPECT_EQ(bar_text(0, 4, 9.2, "probes"),
            "[" + std::string(30, '.') + "] 0 of 4, 10 s left, probes");
  EXPECT_EQ(bar_text(2, 4, 0, "x"),
            "[" + std::string(15, '#') + std::string(15, '.') + "] 2 of 4, 0 s left, x");
  EXPECT_EQ(bar_text(5, 4, -3, "x"), "[" + std::string(30, '#') + "] 5 of 4, 0 s left, x");
  EXPECT_EQ(bar_text(0, 0, 0, "x").substr(0, 32), "[" + std::string(30, '#') + "]");
}

TEST(Progress, a_log_gets_few_lines) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* const stream = std::tmpfile();
  ASSERT_NE(stream, nullptr);
  {
    Progress progress(stream, "tutti-tune");
    for (std::size_t step = 0; step < 1000; ++step) progress.show(step, 1000, 5, "steps");
    progress.say("a remark");
  }
  std::rewind(stream);
  std::string all;
  while (::getline(&text, &bytes, stream) > 0) all += text;
  std::free(text);
  std::fclose(stream);
  EXPECT_EQ(all, "tutti-tune: 0 of 1000, 5 s left, steps\ntutti-tune: a remark\n");
}

TEST(Progress, other_ranks_say_nothing) {
  Progress progress(nullptr, "tutti-tune");
  progress.show(1, 2, 3, "x");
  progress.say("y");
}

}  // namespace
}  // namespace tutti::bench
