// Promise: the stress of a device passes where writes are placed in order, also in a network that
// delays them, and finds each way in which a device may not do so: lines that are torn, words that
// are, and words that are seen before what was written earlier.
#include "microbench/device_stress.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/cpu_set.hpp>
#include <vector>

#include "microbench/together.hpp"
#include "support/jobs.hpp"

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;
using tune::WritePlacement;

/// What an adverse device does to one of 16 requests that it can be done to.
enum class Fault : std::uint8_t {
  none,
  torn_line,     // the last word is placed first
  torn_word,     // half of a word is placed first
  torn_twice,    // half of the last word of a line is placed first, then the other half
  out_of_order,  // a chunk is placed after the word that follows it
  late_end,      // likewise the last line of a long chunk, by less than a microsecond
};

/// The software device, with a send function of its own for one process.
class AdverseDevice {
 public:
  static std::uint64_t torn() { return torn_; }

  AdverseDevice(ibv_context& device, Fault fault) {
    fault_ = fault;
    post_send_ = device.ops.post_send;
    if (fault != Fault::none) device.ops.post_send = post;
  }

 private:
  /// So long, whoever polls can see what is there and what is not.
  static void let_others_look() {
    const Timeout end = detail::MonotonicClock::read() + 50us;
    while (detail::MonotonicClock::read() < end) sched_yield();
  }
  /// Less than it takes to read a long chunk.
  static void let_others_look_shortly() {
    const Timeout end = detail::MonotonicClock::read() + 500ns;
    while (detail::MonotonicClock::read() < end) {
    }
  }
  static bool is_due() { return ++requests_ % 16 == 0; }

  /// The bytes from `from` to `to` of an inline request; only the last part may be signaled.
  static int post_part(ibv_qp* pair, const ibv_send_wr& whole, std::uint32_t from, std::uint32_t to,
                       bool is_last) {
    ibv_sge piece = *whole.sg_list;
    piece.addr += from;
    piece.length = to - from;
    ibv_send_wr part = whole;
    part.sg_list = &piece;
    part.wr.rdma.remote_addr += from;
    if (!is_last) part.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    ibv_send_wr* refused = nullptr;
    return post_send_(pair, &part, &refused);
  }

  static int post_late_end(ibv_qp* pair, const ibv_send_wr& request) {
    const std::uint32_t bytes = request.sg_list->length;
    held_piece_ = *request.sg_list;
    held_ = request;
    held_.sg_list = &held_piece_;
    held_piece_.addr += bytes - 64;
    held_piece_.length = 64;
    held_.wr.rdma.remote_addr += bytes - 64;
    is_held_ = true;
    return post_part(pair, request, 0, bytes - 64, false);
  }

  static int post(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** refused) {
    const std::uint32_t bytes = request->sg_list->length;
    if (fault_ == Fault::torn_line && bytes == 64 && is_due()) {
      if (const int error = post_part(pair, *request, 56, 64, false); error != 0) return error;
      let_others_look();
      return post_part(pair, *request, 0, 56, true);
    }
    if (fault_ == Fault::torn_twice && bytes == 64 && is_due()) {
      ++torn_;
      if (const int error = post_part(pair, *request, 56, 60, false); error != 0) return error;
      let_others_look();
      if (const int error = post_part(pair, *request, 60, 64, false); error != 0) return error;
      let_others_look();
      return post_part(pair, *request, 0, 56, true);
    }
    if (fault_ == Fault::late_end && bytes >= long_bytes && !is_held_)
      return post_late_end(pair, *request);
    if (fault_ == Fault::torn_word && bytes == 8 && is_due()) {
      if (const int error = post_part(pair, *request, 0, 4, false); error != 0) return error;
      let_others_look();
      return post_part(pair, *request, 4, 8, true);
    }
    if (fault_ == Fault::out_of_order && bytes != 8 && bytes != 64 && !is_held_ && is_due()) {
      // Its word follows at once; until that is taken, the memory stays as it is.
      held_piece_ = *request->sg_list;
      held_ = *request;
      held_.sg_list = &held_piece_;
      is_held_ = true;
      return 0;
    }
    if (const int error = post_send_(pair, request, refused); error != 0 || !is_held_) return error;
    if (fault_ == Fault::late_end)
      let_others_look_shortly();
    else
      let_others_look();
    is_held_ = false;
    return post_send_(pair, &held_, refused);
  }

  static constexpr std::uint32_t long_bytes = 32768;

  inline static Fault fault_ = Fault::none;
  inline static unsigned requests_ = 0;
  inline static std::uint64_t torn_ = 0;
  inline static int (*post_send_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static bool is_held_ = false;
  inline static ibv_send_wr held_;
  inline static ibv_sge held_piece_;
};

bool is_clean(const WritePlacement& seen) {
  return seen.torn_lines == 0 && seen.early_words == 0;
}
/// As the test began, before ranks are bound.
const bool shares_cpu = detail::allowed_cpus().list().size() < 2;
/// Nothing is seen to come by a rank that shares its CPU with the one that writes it.
bool is_clean_and_seen(const WritePlacement& seen) {
  return is_clean(seen) && ((seen.lines > 0 && seen.words > 0) || shares_cpu);
}

/// Each rank to a CPU of its own, if there are as many: else none may see anything come, where a
/// busy machine leaves both the same one.
void bind(Rank rank) {
  const std::vector<unsigned> cpus = detail::allowed_cpus().list();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[index_of(rank) % cpus.size()], &one);
  (void)::sched_setaffinity(0, sizeof one, &one);
}

void print(const char* who, const WritePlacement& seen) {
  std::printf("%s: %llu of %llu lines torn, %llu of %llu words early\n", who,
              static_cast<unsigned long long>(seen.torn_lines),
              static_cast<unsigned long long>(seen.lines),
              static_cast<unsigned long long>(seen.early_words),
              static_cast<unsigned long long>(seen.words));
}

/// Rank 0 writes by an adverse device, which rank 1 has to find, and reads what a good one writes.
template <class Finds>
int stress_with(Exchange& exchange, Fault fault, Finds finds) {
  const bool is_one = exchange.self() == Rank{0};
  bind(exchange.self());
  Station station(exchange, "soft0", stress_memory_bytes(),
                  std::vector<Cable>{Cable{.receives_max = 16}});
  const AdverseDevice adverse(*station.port().device, is_one ? fault : Fault::none);
  if (station.port().driver().keep_lines_whole(station.port().device.get()) != nullptr) return 3;
  const std::vector<WritePlacement> seen =
      gather(exchange, stress_cable(station, 0, is_one, 200ms));
  if (fault == Fault::torn_twice && is_one && seen[1].torn_lines > AdverseDevice::torn()) {
    std::printf("%llu of %llu\n", static_cast<unsigned long long>(seen[1].torn_lines),
                static_cast<unsigned long long>(AdverseDevice::torn()));
    return 4;
  }
  if (is_one) {
    print("of a good device", seen[0]);
    print("of an adverse one", seen[1]);
  }
  return !is_clean(seen[0]) ? 1 : finds(seen[1]) ? 0 : 2;
}

template <class Finds>
void expect_found(Fault fault, Finds finds) {
  const auto results = run_local(
      {.rank_count = 2}, [&](Exchange& exchange) { return stress_with(exchange, fault, finds); });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(2));
}

TEST(DeviceStress, passes_where_writes_are_placed_in_order) {
  expect_found(Fault::none, is_clean_and_seen);
}

TEST(DeviceStress, finds_lines_that_are_torn) {
  expect_found(Fault::torn_line, [](const WritePlacement& seen) {
    return seen.torn_lines > 0 && seen.torn_lines <= seen.lines;
  });
}

TEST(DeviceStress, finds_words_that_are_torn) {
  expect_found(Fault::torn_word, [](const WritePlacement& seen) {
    return seen.torn_lines > 0 && seen.torn_lines <= seen.lines;
  });
}

TEST(DeviceStress, counts_a_line_once_whatever_is_wrong_with_it) {
  expect_found(Fault::torn_twice, [](const WritePlacement& seen) {
    return seen.torn_lines > 0 && seen.torn_lines <= seen.lines;
  });
}

/// By less than it takes to read all of a chunk from its beginning.
TEST(DeviceStress, finds_an_end_of_a_chunk_that_is_late_by_half_a_microsecond) {
  if (shares_cpu) GTEST_SKIP() << "there are fewer than two CPUs";
  expect_found(Fault::late_end, [](const WritePlacement& seen) {
    return seen.early_words > 0 && seen.early_words <= seen.words;
  });
}

TEST(DeviceStress, finds_words_that_are_seen_before_what_was_written_earlier) {
  expect_found(Fault::out_of_order, [](const WritePlacement& seen) {
    return seen.early_words > 0 && seen.early_words <= seen.words && seen.torn_lines == 0;
  });
}

/// What stress_device() says to ranks of these nodes, 0 if all hear the same and it is as expected.
template <class Expected>
std::vector<int> codes_of_stress(const std::vector<Node>& nodes, Expected expected) {
  return test::codes_of(
      run_local({.rank_count = static_cast<std::uint32_t>(nodes.size())}, [&](Exchange& exchange) {
        bind(exchange.self());
        const WritePlacement sum =
            stress_device(exchange, nodes, {.device = "soft0", .time = 100ms});
        for (const WritePlacement& one : gather(exchange, sum))
          if (one != sum) return 1;
        if (exchange.self() == Rank{0}) print("all pairs", sum);
        return expected(sum) ? 0 : 2;
      }));
}

TEST(DeviceStress, all_ranks_hear_what_all_pairs_have_seen) {
  EXPECT_EQ(codes_of_stress({Node{0}, Node{0}, Node{1}, Node{1}, Node{2}}, is_clean),
            std::vector<int>(5));
  // Inside a node, nothing is written by the device.
  const auto is_nothing = [](const WritePlacement& seen) { return seen == WritePlacement{}; };
  EXPECT_EQ(codes_of_stress({Node{0}, Node{0}}, is_nothing), std::vector<int>(2));
}

TEST(DeviceStress, nothing_is_said_of_a_software_device_whose_lines_the_kernel_copies) {
  ::setenv("TUTTI_SOFT_TRANSPORT", "cma", 1);
  const auto is_nothing = [](const WritePlacement& seen) { return seen == WritePlacement{}; };
  EXPECT_EQ(codes_of_stress({Node{0}, Node{1}}, is_nothing), std::vector<int>(2));
  ::unsetenv("TUTTI_SOFT_TRANSPORT");
}

TEST(DeviceStress, all_ranks_hear_that_one_has_another_machine_than_rank_0) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    tune::Fingerprint mine{.device = "mlx5_0", .firmware = "16.35", .cpu = "EPYC"};
    if (!why_not_of_rank_0(exchange, mine).empty()) return 1;
    if (exchange.self() == Rank{2}) mine.cpu = "Xeon";
    return why_not_of_rank_0(exchange, mine).find("rank 2 it differs: the CPU was \"EPYC\"") ==
                   std::string::npos
               ? 2
               : 0;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(3));
}

TEST(DeviceStress, passes_in_a_network_that_delays_messages) {
  const std::string file = "/tmp/tutti_stress." + std::to_string(::getpid()) + ".json";
  std::ofstream(file)
      << R"({"preset": "fdr", "faults": {"delay_probability": 0.05, "delay_us": 20}})";
  ::setenv("TUTTI_SOFT_FABRIC", file.c_str(), 1);
  EXPECT_EQ(codes_of_stress({Node{0}, Node{1}}, is_clean_and_seen), std::vector<int>(2));
  ::unsetenv("TUTTI_SOFT_FABRIC");
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace tutti::bench
