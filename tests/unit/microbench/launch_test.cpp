// Promise: an error that all ranks know is reported once; an error that one rank has met is
// reported by that rank.
#include "microbench/launch.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <tutti/bootstrap.hpp>

#include "microbench/together.hpp"
#include "support/scratch_folder.hpp"

namespace tutti::bench {
namespace {

using test::content_of;

/// What three ranks print on standard error.
std::string said_by_ranks(const std::function<void(Exchange&)>& run) {
  const test::ScratchFolder folder;
  const std::string file = folder.path("errors");
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    if (std::freopen(file.c_str(), "a", stderr) == nullptr) return 5;
    return exit_status_of("program", exchange.self(), exchange.self() == Rank{0}, [&] {
      run(exchange);
      return 0;
    });
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, exit_failure);
  return content_of(file);
}

TEST(Launch, an_error_that_all_ranks_have_is_said_once) {
  const std::string text = said_by_ranks([](Exchange& exchange) {
    together(exchange, [&] {
      if (exchange.self() == Rank{0})
        throw Error(ErrorCode::system, "a.journal: No space left on device; make room");
    });
  });
  EXPECT_EQ(text, "program: rank 0: a.journal: No space left on device; make room\n");
}

TEST(Launch, what_one_rank_has_met_it_says) {
  const std::string text = said_by_ranks([](Exchange& exchange) {
    throw Error(ErrorCode::system, "disk " + std::to_string(index_of(exchange.self())));
  });
  for (const char* line : {"rank 0: disk 0\n", "rank 1: disk 1\n", "rank 2: disk 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::bench
