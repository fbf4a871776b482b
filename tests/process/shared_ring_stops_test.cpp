// Promise: a rank that is stopped once it has contributed to a call of Algorithm::shared_ring holds
// up no other rank in that call, whichever rank it is and whether or not it was ever needed before,
// and ends the call when it goes on, for payloads of any length for whose contributions the arena
// has room; where notifications are republished, who has to poll for them
// is named.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"
#include "support/ring_jobs.hpp"
#include "support/shared.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

struct Stops {
  Shape shape;
  std::vector<std::uint32_t> victims;
  std::uint64_t calls_before = 5;
  std::size_t repetitions = 1;
  Algorithm algorithm = Algorithm::shared_ring;
  Timeout patience = 10s;  // of the others, for a call in which ranks are stopped
  std::optional<SharedNotifications> shared_notifications = {};
  std::size_t chunk_bytes = 0;  // 0: as payloads are cut by default
  std::size_t elements = 3001, arena_bytes = 4u << 20;
  std::vector<std::string> said = {};             // by rank: what it says when its patience is over
  RingJob::Kind kind = RingJob::Kind::allreduce;  // of blocks: `elements` are those of all together
};

void note_longest(std::atomic<std::int64_t>& longest, Clock::duration time) {
  const std::int64_t ns = std::chrono::nanoseconds(time).count();
  for (std::int64_t before = longest.load(); before < ns;)
    if (longest.compare_exchange_weak(before, ns)) return;
}

/// 7: the others could not end the call while the victims were stopped.
int run_stops(Exchange& exchange, const Stops& stops, Board& board) {
  Context context = context_of(exchange, stops.shape, stops.arena_bytes, stops.shared_notifications,
                               stops.chunk_bytes);
  Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(communicator.rank()), ranks = communicator.rank_count();
  const auto others = static_cast<std::uint32_t>(ranks - stops.victims.size());
  const bool is_victim =
      std::find(stops.victims.begin(), stops.victims.end(), self) != stops.victims.end();
  board.process[self] = ::getpid();
  std::vector<std::size_t> counts(ranks, stops.elements / ranks);
  counts[0] += stops.elements % ranks;
  if (stops.kind == RingJob::Kind::allgather) counts[0] = counts.back();
  RingJob job(stops.kind, communicator, counts);
  Operation operation = job.make(communicator, stops.algorithm);
  std::uint64_t call = 0;
  std::uint32_t barriers = 0;
  const auto fill = [&] { job.fill(++call); };
  const auto calls = [&](std::uint64_t count) {
    while (count-- > 0) {
      fill();
      if (!run_once(operation) || !job.is_right(call)) return false;
    }
    return true;
  };
  if (!calls(stops.calls_before)) return 1;
  int outcome = 0;
  for (std::size_t i = 0; i < stops.repetitions; ++i) {
    // Once without: the victims have started before the others look at the time as well.
    if (stops.repetitions > 1) {
      fill();
      board.barrier(ranks, barriers);
      if (is_victim && operation.start() != Status::ok) return 2;
      board.barrier(ranks, barriers);
      const Clock::time_point begin = Clock::now();
      if (!is_victim && operation.start() != Status::ok) return 2;
      if (operation.wait(30s) != Status::ok) return 3;
      if (!is_victim) note_longest(board.without_ns[i], Clock::now() - begin);
      if (!job.is_right(call)) return 4;
    }
    fill();
    board.barrier(ranks, barriers);
    if (is_victim) {
      if (operation.start() != Status::ok) return 5;
      ::raise(SIGSTOP);
      if (operation.wait(30s) != Status::ok) return 6;
    } else {
      for (const std::uint32_t victim : stops.victims)
        while (!is_stopped(board.process[victim])) std::this_thread::sleep_for(50us);
      const Clock::time_point begin = Clock::now();
      if (operation.start() != Status::ok) return 5;
      const Status status = operation.wait(stops.patience);
      note_longest(board.with_stop_ns[i], Clock::now() - begin);
      if (status != Status::ok) outcome = status == Status::timed_out ? 7 : 8;
      if (!stops.said.empty() && !tells(operation.describe(), {stops.said[self].c_str()}))
        outcome = 13;
      if (status == Status::ok && !job.is_right(call)) return 9;
      if (++board.done == others * (i + 1))
        for (const std::uint32_t victim : stops.victims) {
          if (is_stopped(board.process[victim])) ++board.still_stopped;
          ::kill(board.process[victim], SIGCONT);
        }
      if (status != Status::ok && operation.wait(30s) != Status::ok) return 10;
    }
    if (!job.is_right(call)) return 11;
    if (!calls(3)) return 12;
  }
  return outcome;
}

/// How the ranks ended, and whether all victims were stopped until the others had ended the call.
std::vector<int> codes_with_stops(const Stops& stops, Board& board) {
  const auto codes =
      codes_of(run_local({.rank_count = ranks_of(stops.shape)},
                         [&](Exchange& exchange) { return run_stops(exchange, stops, board); }));
  EXPECT_EQ(board.still_stopped, stops.victims.size() * stops.repetitions);
  return codes;
}

TEST(SharedRing, a_stopped_rank_holds_up_nobody) {
  for (const Stops& stops :
       {Stops{{2, 2}, {0}}, Stops{{2, 2}, {1}}, Stops{{2, 2}, {3}}, Stops{{3, 3}, {0, 5}},
        Stops{{3, 3}, {1, 2, 3, 4}}, Stops{{3}, {0}}, Stops{{2, 1, 2}, {1, 3}}}) {
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
        << text_of(stops.shape) << ", first victim " << stops.victims[0];
  }
}

TEST(SharedRing, nor_does_one_that_is_stopped_in_the_very_first_call) {
  for (const Stops& stops :
       {Stops{{2, 2}, {0}, 0}, Stops{{2, 2}, {3}, 0}, Stops{{3, 3}, {1, 4}, 0}}) {
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
        << text_of(stops.shape) << ", first victim " << stops.victims[0];
  }
}

/// 24 KB in two laps of 16 KiB or less.
TEST(SharedRing, nor_does_one_that_is_stopped_when_all_laps_are_in_flight) {
  for (Stops stops : {Stops{{2, 2}, {0}}, Stops{{2, 2}, {3}}, Stops{{2, 2}, {1, 2}, 0}}) {
    stops.chunk_bytes = 4096;
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
        << text_of(stops.shape) << ", first victim " << stops.victims[0];
  }
}

/// Six laps of 4 KiB, and room for contributions to all of them.
TEST(SharedRing, nor_does_one_that_is_stopped_in_a_payload_of_more_laps_than_are_in_flight) {
  for (Stops stops :
       {Stops{{2, 2}, {0}}, Stops{{2, 2}, {3}, 0}, Stops{{3, 3}, {0, 1, 5}}, Stops{{3}, {0}}}) {
    stops.chunk_bytes = 1024;
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
        << text_of(stops.shape) << ", first victim " << stops.victims[0];
  }
}

/// Blocks of one lap, and of six with room for contributions to all of them.
TEST(SharedRing, nor_does_one_that_is_stopped_in_either_half) {
  using Kind = RingJob::Kind;
  for (const Kind kind : {Kind::allgather, Kind::allgatherv, Kind::reduce_scatter})
    for (Stops stops : {Stops{{2, 2}, {0}}, Stops{{2, 2}, {3}, 0}, Stops{{3, 1, 2}, {1, 5}}})
      for (const std::size_t chunk_bytes : {0u, 1024u}) {
        stops.kind = kind;
        stops.chunk_bytes = chunk_bytes;
        const Shared<Board> board;
        EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
            << text_of(stops.shape) << ", first victim " << stops.victims[0] << ", chunks of "
            << chunk_bytes;
      }
}

/// In the default arena.
TEST(SharedRing, nor_does_one_that_is_stopped_in_eight_mebibytes_of_16_ranks) {
  for (const std::uint32_t victim : {0u, 6u}) {
    const Stops stops{.shape = {4, 4, 4, 4},
                      .victims = {victim},
                      .calls_before = 1,
                      .patience = 30s,
                      .elements = 1u << 20,
                      .arena_bytes = 16u << 20};
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(16)) << "victim " << victim;
  }
}

/// Twenty laps of 4 KiB, and no room for more than those in flight: the third is not contributed
/// to.
TEST(SharedRing, payloads_wait_for_a_stopped_rank_where_there_is_no_room) {
  for (const auto notifications : {SharedNotifications::words, SharedNotifications::republished})
    for (const std::uint32_t victim : {0u, 3u}) {
      Stops stops{.shape = {2, 2},
                  .victims = {victim},
                  .repetitions = 2,
                  .patience = 300ms,
                  .shared_notifications = notifications,
                  .chunk_bytes = 1024,
                  .elements = 10'000,
                  .arena_bytes = 64u << 10};
      if (notifications == SharedNotifications::words) stops.said.assign(4, "lap 3 of 20, waiting");
      const Shared<Board> board;
      std::vector<int> expected(4, 7);
      expected[victim] = 0;
      EXPECT_EQ(codes_with_stops(stops, *board), expected) << "victim " << victim;
    }
}

/// The control: a ring with a plan waits for every rank.
TEST(SharedRing, a_ring_with_a_plan_is_held_up) {
  const Shared<Board> board;
  EXPECT_EQ(codes_with_stops(
                {.shape = {2, 2}, .victims = {1}, .algorithm = Algorithm::ring, .patience = 300ms},
                *board),
            (std::vector<int>{7, 0, 7, 7}));
}

/// Which ranks are those, depends on the node before: each of its ranks sends to one.
TEST(Republished, a_stopped_rank_to_which_nobody_sends_holds_up_nobody) {
  for (Stops stops : {Stops{{2, 1, 2}, {4}}, Stops{{1, 2}, {2}}, Stops{{1, 3}, {2, 3}},
                      Stops{{1, 2}, {2}, 0}, Stops{{3}, {0}}, Stops{{3}, {1, 2}, 0}}) {
    stops.shared_notifications = SharedNotifications::republished;
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)))
        << text_of(stops.shape) << ", first victim " << stops.victims[0];
  }
}

TEST(Republished, what_comes_to_a_stopped_rank_waits_and_it_is_named) {
  const char* const first = "; of this node, ranks 0 have to poll for them";
  const char* const second = "; of this node, ranks 1 have to poll for them";
  const Stops stops{.shape = {1, 2},
                    .victims = {1},
                    .patience = 300ms,
                    .shared_notifications = SharedNotifications::republished,
                    .said = {first, "", second}};
  const Shared<Board> board;
  EXPECT_EQ(codes_with_stops(stops, *board), (std::vector<int>{7, 0, 7}));
  // The control: with words no rank waits.
  Stops words = stops;
  words.shared_notifications = SharedNotifications::words;
  words.patience = 10s;
  words.said = {};
  const Shared<Board> other;
  EXPECT_EQ(codes_with_stops(words, *other), std::vector<int>(3));
}

/// In nodes of two ranks, both ranks are sent to, each by one rank of the node before, which sends
/// whichever chunks it has found.
TEST(Republished, all_go_on_when_a_stopped_rank_does) {
  for (const std::uint32_t victim : {0u, 1u, 3u}) {
    const Shared<Board> board;
    const auto codes = codes_with_stops({.shape = {2, 2},
                                         .victims = {victim},
                                         .repetitions = 3,
                                         .patience = 100ms,
                                         .shared_notifications = SharedNotifications::republished},
                                        *board);
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_TRUE(codes[rank] == 0 || (codes[rank] == 7 && rank != victim)) << codes[rank];
  }
}

/// Reports both times; that they are alike cannot be asked of more ranks than there are CPUs.
TEST(SharedRing, a_stop_costs_the_others_no_time_to_speak_of) {
  constexpr std::size_t repetitions = 21;
  for (const Stops& stops :
       {Stops{{2, 2}, {1}, 5, repetitions}, Stops{{3, 3}, {1}, 5, repetitions}}) {
    const Shared<Board> board;
    EXPECT_EQ(codes_with_stops(stops, *board), std::vector<int>(ranks_of(stops.shape)));
    const auto median_us = [&](const std::atomic<std::int64_t>* times) {
      std::vector<std::int64_t> sorted(times, times + repetitions);
      std::sort(sorted.begin(), sorted.end());
      return static_cast<double>(sorted[repetitions / 2]) / 1000;
    };
    const double with_us = median_us(board->with_stop_ns),
                 without_us = median_us(board->without_ns);
    std::printf(
        "%s, 24 KB: the last of the others ends after %.0f us, with a stopped rank after "
        "%.0f us (medians of %zu)\n",
        text_of(stops.shape).c_str(), without_us, with_us, repetitions);
    EXPECT_LT(with_us, 20 * without_us + 20'000);
  }
}

}  // namespace
}  // namespace tutti
