// Promise: bad input is refused on every rank with a reason that names the value, never by a hang.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"
#include "support/tampering.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti {
namespace {

using namespace std::chrono_literals;

ContextOptions options_for_test() {
  ContextOptions options;
  options.device = "soft0";
  options.arena_bytes = 1u << 20;
  options.ranks_per_node = {1};  // everything goes through the device
  return options;
}

/// Runs `make` on `rank_count` ranks and expects every one to throw an Error with this code whose
/// text contains all of `words`.
void expect_refused(std::uint32_t rank_count, ErrorCode code, const std::vector<std::string>& words,
                    const std::function<void(Communicator&)>& make,
                    const ContextOptions& options = options_for_test()) {
  const auto results = run_local({.rank_count = rank_count}, [&](Exchange& exchange) {
    Context context(options);
    Communicator communicator(context, exchange);
    try {
      make(communicator);
    } catch (const Error& error) {
      int wrong = error.code() == code ? 0 : 1;
      for (const std::string& word : words)
        if (std::strstr(error.what(), word.c_str()) == nullptr) wrong = 1;
      if (wrong != 0)
        std::fprintf(stderr, "rank %u: code %d: %s\n", index_of(exchange.self()),
                     static_cast<int>(error.code()), error.what());
      // The communicator is still usable.
      Operation after = barrier(communicator);
      if (after.start() != Status::ok || after.wait(10s) != Status::ok) return 2;
      return wrong;
    }
    return 3;
  });
  for (const LocalResult& result : results) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_status, 0) << (words.empty() ? "" : words[0]);
  }
}

std::vector<std::uint64_t> buffer(std::size_t count) {
  return std::vector<std::uint64_t>(count);
}

AllreduceArguments sum_of(std::vector<std::uint64_t>& memory) {
  return {.source = memory.data(),
          .target = memory.data(),
          .element_count = memory.size(),
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64)};
}

TEST(Misuse, vector_that_does_not_cover_names_the_nearest_one) {
  expect_refused(13, ErrorCode::invalid_argument, {"1,1,1", "13 ranks", "use 1,1,1,1"},
                 [](Communicator& c) {
                   (void)barrier(c, {.per_round = {1, 1, 1}});
                 });
  expect_refused(13, ErrorCode::invalid_argument, {"per_round 3,2", "use 3,3"},
                 [](Communicator& c) {
                   (void)barrier(c, {.per_round = {3, 2}});
                 });
}

TEST(Misuse, zero_messages_a_round_are_refused) {
  expect_refused(2, ErrorCode::invalid_argument, {"per_round 3,0", "1 or more"},
                 [](Communicator& c) {
                   (void)barrier(c, {.per_round = {3, 0}});
                 });
}

TEST(Misuse, different_counts_are_named_on_every_rank) {
  expect_refused(3, ErrorCode::mismatch, {"rank 2", "allreduce"}, [](Communicator& c) {
    auto memory = buffer(c.rank() == Rank{2} ? 5 : 4);
    (void)allreduce(c, sum_of(memory));
  });
}

TEST(Misuse, different_operators_are_named_on_every_rank) {
  expect_refused(3, ErrorCode::mismatch, {"sum", "prod"}, [](Communicator& c) {
    auto memory = buffer(4);
    AllreduceArguments arguments = sum_of(memory);
    if (c.rank() == Rank{1})
      arguments.reduction = built_in_reduction(BuiltIn::product, ElementType::uint64);
    (void)allreduce(c, arguments);
  });
}

TEST(Misuse, different_collectives_are_named_on_every_rank) {
  expect_refused(2, ErrorCode::mismatch, {"allreduce", "barrier"}, [](Communicator& c) {
    auto memory = buffer(1);
    if (c.rank() == Rank{0})
      (void)barrier(c);
    else
      (void)allreduce(c, sum_of(memory));
  });
}

TEST(Misuse, different_vectors_are_refused_at_every_check_level) {
  ContextOptions unchecked = options_for_test();
  unchecked.check = CheckLevel::off;
  expect_refused(
      4, ErrorCode::mismatch, {"different plans"},
      [](Communicator& c) {
        (void)barrier(c, {.per_round = c.rank() == Rank{3} ? std::vector<std::uint32_t>{3}
                                                           : std::vector<std::uint32_t>{1, 1}});
      },
      unchecked);
}

TEST(Misuse, counts_that_would_overrun_a_slot_are_refused_even_unchecked) {
  ContextOptions unchecked = options_for_test();
  unchecked.check = CheckLevel::off;
  expect_refused(
      2, ErrorCode::mismatch, {"slots of"},
      [](Communicator& c) {
        auto memory = buffer(c.rank() == Rank{0} ? 1 : 100);
        (void)allreduce(c, sum_of(memory));
      },
      unchecked);
}

TEST(Misuse, one_ranks_error_is_heard_by_all) {
  expect_refused(3, ErrorCode::invalid_argument, {"null"}, [](Communicator& c) {
    auto memory = buffer(1);
    AllreduceArguments arguments = sum_of(memory);
    if (c.rank() == Rank{1}) arguments.source = nullptr;
    (void)allreduce(c, arguments);
  });
}

TEST(Misuse, size_that_does_not_fit_the_arena_names_the_setting) {
  ASSERT_EQ(::setenv("TUTTI_CHUNK_BYTES", "64M", 1), 0);  // in one piece
  expect_refused(2, ErrorCode::limit_exceeded, {"TUTTI_ARENA_BYTES", "1048576"},
                 [](Communicator& c) {
                   auto memory = buffer(1 << 20);
                   (void)allreduce(c, sum_of(memory));
                 });
  ASSERT_EQ(::unsetenv("TUTTI_CHUNK_BYTES"), 0);
}

// Before a table is made of the chunks, which would take seconds and hundreds of megabytes.
TEST(Misuse, payloads_of_too_many_chunks_are_refused_at_once) {
  const auto begin = std::chrono::steady_clock::now();
  auto* const nowhere = reinterpret_cast<std::byte*>(4096);
  constexpr std::size_t bytes = std::size_t{1} << 40;
  for (const std::uint32_t ranks_per_node : {1u, 2u}) {
    ContextOptions options = options_for_test();
    options.ranks_per_node = {ranks_per_node};
    options.single_copy_bytes = SIZE_MAX;
    expect_refused(
        2, ErrorCode::limit_exceeded, {"1099511627776 bytes", "4194304", "TUTTI_CHUNK_BYTES"},
        [&](Communicator& c) {
          (void)broadcast(c, {.buffer = nowhere, .bytes = bytes, .root = Rank{0}});
        },
        options);
    expect_refused(
        2, ErrorCode::limit_exceeded, {"1099511627776 bytes", "4194304", "TUTTI_CHUNK_BYTES"},
        [&](Communicator& c) {
          (void)allgather(c, {.source = nowhere, .target = nowhere + bytes, .bytes = bytes});
        },
        options);
  }
  expect_refused(2, ErrorCode::invalid_argument, {"18446744073709551615 bytes do not fit"},
                 [&](Communicator& c) {
                   (void)broadcast(c, {.buffer = nowhere, .bytes = SIZE_MAX, .root = Rank{0}});
                 });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

#if defined(__x86_64__)
TEST(Misuse, ranks_that_treat_subnormals_differently_are_told) {
  const auto make = [](Agreement agreement, BuiltIn which, ElementType type) {
    return [=](Communicator& c) {
      if (c.rank() == Rank{1}) _mm_setcsr(_mm_getcsr() | 0x8000);
      double memory = 0;
      (void)allreduce(c, {.source = &memory,
                          .target = &memory,
                          .element_count = 1,
                          .reduction = built_in_reduction(which, type),
                          .agreement = agreement});
      throw Error(ErrorCode::unsupported, "accepted");
    };
  };
  expect_refused(3, ErrorCode::mismatch, {"compute differently", "sum", "(FTZ)", "relaxed"},
                 make(Agreement::identical, BuiltIn::sum, ElementType::float64));
  expect_refused(3, ErrorCode::mismatch, {"compute differently", "min"},
                 make(Agreement::identical, BuiltIn::min, ElementType::float32));
  expect_refused(3, ErrorCode::unsupported, {"accepted"},
                 make(Agreement::relaxed, BuiltIn::sum, ElementType::float64));
  expect_refused(3, ErrorCode::unsupported, {"accepted"},
                 make(Agreement::identical, BuiltIn::sum, ElementType::int64));
}
#endif

// n = 1 and n = 2 have equal rounds, messages and slots for 5 ranks, and other peers.
TEST(Misuse, another_n_on_one_rank_is_refused_at_every_check_level) {
  for (const CheckLevel level : {CheckLevel::off, CheckLevel::local, CheckLevel::collective}) {
    ContextOptions options = options_for_test();
    options.check = level;
    expect_refused(
        5, ErrorCode::mismatch, {"different plans", "decomposition"},
        [](Communicator& c) {
          auto memory = buffer(3);
          AllreduceArguments arguments = sum_of(memory);
          arguments.algorithm = Algorithm::decomposition;
          arguments.per_round = {c.rank() == Rank{0} ? 1u : 2u};
          (void)allreduce(c, arguments);
        },
        options);
  }
}

TEST(Misuse, overlapping_buffers_are_refused) {
  expect_refused(2, ErrorCode::invalid_argument, {"overlap"}, [](Communicator& c) {
    auto memory = buffer(5);
    AllreduceArguments arguments = sum_of(memory);
    arguments.element_count = 4;
    arguments.target = memory.data() + 1;
    (void)allreduce(c, arguments);
  });
}

TEST(Misuse, empty_reduction_is_refused) {
  expect_refused(2, ErrorCode::invalid_argument, {"combine"}, [](Communicator& c) {
    std::uint64_t memory = 0;
    (void)allreduce(c, {.source = &memory, .target = &memory, .element_count = 1});
  });
}

TEST(Misuse, unknown_device_is_named_with_what_there_is) {
  ContextOptions options = options_for_test();
  options.device = "mlx9_9";
  try {
    const Context context(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_device);
    EXPECT_NE(std::string(error.what()).find("mlx9_9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("soft0"), std::string::npos);
  }
}

TEST(Misuse, different_check_levels_are_refused) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = options_for_test();
    if (exchange.self() == Rank{1}) options.check = CheckLevel::off;
    Context context(options);
    try {
      const Communicator communicator(context, exchange);
    } catch (const Error& error) {
      return error.code() == ErrorCode::mismatch ? 0 : 1;
    }
    return 2;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

using test::Tampering;

// Which allgather of a communicator is which: the first one introduces the ranks, and those of an
// operation exchange cards, how many letters there are, letters with endpoints, and verdicts.
constexpr int endpoints = 4;
constexpr int verdicts = 5;

TEST(SetUp, a_connection_that_fails_on_one_rank_is_heard_by_all_and_leaves_nothing) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Tampering garbled(exchange, endpoints, [&](std::span<std::byte> all) {
      if (exchange.self() != Rank{1}) return;
      for (std::byte& byte : all) byte ^= std::byte{0xff};
    });
    Context context(options_for_test());
    Communicator communicator(context, garbled);
    try {
      (void)barrier(communicator);
      return 1;
    } catch (const Error& error) {
      if (std::strstr(error.what(), "does not expect a connection") == nullptr) return 2;
      if ((exchange.self() != Rank{1}) != (std::strstr(error.what(), "rank 1: ") != nullptr))
        return 3;
    }
    Operation after = barrier(communicator);
    for (int call = 0; call < 100; ++call)
      if (after.start() != Status::ok || after.wait(10s) != Status::ok) return 4;
    return 0;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(SetUp, a_step_that_fails_on_one_rank_only_ends_the_communicator_on_all) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Tampering failing(exchange, verdicts, [&](std::span<std::byte>) {
      if (exchange.self() == Rank{1}) throw Error(ErrorCode::timed_out, "too late");
    });
    Context context(options_for_test());
    Communicator communicator(context, failing);
    try {
      Operation operation = barrier(communicator);
      if (exchange.self() == Rank{1}) return 1;
      Status status = operation.start();
      if (status == Status::ok) status = operation.wait(10s);
      if (status != Status::aborted) return 2;
    } catch (const Error& error) {
      // The others may be quick enough to be told while they still set up.
      if (exchange.self() == Rank{1} && error.code() != ErrorCode::timed_out) return 3;
    }
    return communicator.failure().peer == Rank{1} ? 0 : 4;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

// Calls of a set-up that ranks make together, by the name that an error has for them.
struct NamedCall {
  const char* name;
  std::function<void(Communicator&)> make;
};

const std::vector<NamedCall>& named_calls() {
  static const std::vector<NamedCall> calls = {
      {"synchronize", [](Communicator& c) { c.synchronize(); }},
      {"split", [](Communicator& c) { (void)c.split(0u); }},
      {"allocate", [](Communicator& c) { (void)c.allocate(64); }},
      {"allreduce",
       [](Communicator& c) {
         auto memory = buffer(2);
         (void)allreduce(c, sum_of(memory));
       }},
      {"allgatherv",  // which has an exchange more, before its cards
       [](Communicator& c) {
         std::vector<std::byte> mine(8), all(8 * c.rank_count());
         const std::vector<std::size_t> bytes(c.rank_count(), 8);
         (void)allgatherv(
             c, {.source = mine.data(), .target = all.data(), .blocks = {.bytes = bytes}});
       }},
  };
  return calls;
}

/// What `call` throws on this rank; empty if it throws nothing or something else.
std::string mismatch_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::mismatch) return error.what();
    std::fprintf(stderr, "code %d: %s\n", static_cast<int>(error.code()), error.what());
  }
  return "";
}

bool still_works(Communicator& communicator) {
  Operation after = barrier(communicator);
  return after.start() == Status::ok && after.wait(10s) == Status::ok &&
         communicator.failure().status == Status::ok;
}

/// Rank 2 makes another call than the others, for every pair of calls.
int confuse(Communicator& communicator) {
  const bool is_odd_one = communicator.rank() == Rank{2};
  for (const NamedCall& usual : named_calls()) {
    for (const NamedCall& odd : named_calls()) {
      if (&usual == &odd) continue;
      const std::string text = mismatch_of([&] { (is_odd_one ? odd : usual).make(communicator); });
      std::string expected = std::string("ranks make different calls: ranks 0, 1 and 3 call ") +
                             usual.name + ", rank 2 calls " + odd.name +
                             "; every rank has to make the same calls in the same order";
      // Operations have cards, which say more; each rank compares its own with another one's.
      const bool are_operations =
          std::strncmp(usual.name, "all", 3) == 0 && std::strncmp(odd.name, "all", 3) == 0 &&
          usual.name != std::string("allocate") && odd.name != std::string("allocate");
      const bool is_as_expected =
          are_operations ? text.find("different operations: rank ") != std::string::npos &&
                               text.find(usual.name) != std::string::npos &&
                               text.find(odd.name) != std::string::npos
                         : text == expected;
      if (!is_as_expected) {
        std::fprintf(stderr, "%s and %s: \"%s\"\n", usual.name, odd.name, text.c_str());
        return 1;
      }
    }
    if (!still_works(communicator)) return 2;
  }
  return 0;
}

class DifferentCalls : public testing::TestWithParam<bool> {};

/// Runs `body` on four ranks that have met on this machine or over TCP.
void expect_all_well(bool over_tcp, const std::function<int(Exchange&)>& body) {
  const std::uint16_t port = over_tcp ? test::free_port() : std::uint16_t{0};
  const auto results = run_local({.rank_count = 4}, [&](Exchange& local) {
    const auto tcp = over_tcp ? test::meet_over_tcp(index_of(local.self()), 4, port) : nullptr;
    return body(tcp ? *tcp : local);
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(4));
}

TEST_P(DifferentCalls, are_named_on_every_rank_and_the_communicator_goes_on) {
  expect_all_well(GetParam(), [](Exchange& exchange) {
    Context context(options_for_test());
    Communicator communicator(context, exchange);
    return confuse(communicator);
  });
}

TEST_P(DifferentCalls, on_communicators_that_share_an_exchange_are_named_too) {
  expect_all_well(GetParam(), [](Exchange& exchange) {
    Context context(options_for_test());
    Communicator one(context, exchange), other(context, exchange);
    const bool is_odd_one = exchange.self() == Rank{2};
    const auto says = [](const std::string& text, const char* what) {
      if (text.find(what) == std::string::npos) std::fprintf(stderr, "\"%s\"\n", text.c_str());
      return text.find(what) != std::string::npos;
    };
    if (!says(mismatch_of([&] { (is_odd_one ? other : one).synchronize(); }),
              "ranks 0, 1 and 3 call synchronize on one communicator, rank 2 calls synchronize on "
              "another communicator"))
      return 1;
    const auto makes = [&] {
      if (is_odd_one)
        Communicator third(context, exchange);
      else
        other.synchronize();
    };
    if (!says(mismatch_of(makes), "rank 2 calls Communicator;")) return 2;
    // Operations have numbers, which must agree afterwards, too.
    if (!says(mismatch_of([&] { (void)barrier(is_odd_one ? other : one); }),
              "ranks 0, 1 and 3 call barrier on one communicator, rank 2 calls barrier on another "
              "communicator"))
      return 3;
    const auto makes_operation = [&] {
      if (is_odd_one)
        Communicator third(context, exchange);
      else
        (void)barrier(one);
    };
    if (!says(mismatch_of(makes_operation), "rank 2 calls Communicator;")) return 4;
    return still_works(one) && still_works(other) ? 0 : 5;
  });
}

INSTANTIATE_TEST_SUITE_P(Bootstrap, DifferentCalls, testing::Values(false, true),
                         [](const auto& over_tcp) { return over_tcp.param ? "tcp" : "local"; });

// Ranks of a part introduce themselves in another way, over the whole.
TEST(Misuse, different_calls_on_a_part_are_named_too) {
  expect_all_well(false, [](Exchange& exchange) {
    Context context(options_for_test());
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(0u);
    if (const int wrong = confuse(*part); wrong != 0) return wrong;
    return still_works(whole) ? 0 : 3;
  });
}

TEST(Misuse, too_many_live_operations_are_refused_with_the_numbers) {
  expect_refused(2, ErrorCode::limit_exceeded, {"too many live operations", "254 receives"},
                 [](Communicator& c) {
                   std::vector<Operation> live;
                   for (int i = 0; i < 200; ++i) live.push_back(barrier(c));
                 });
}

}  // namespace
}  // namespace tutti
