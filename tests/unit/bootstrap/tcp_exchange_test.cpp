// The TCP exchange with threads as ranks: meeting, exchanging, leaving, and what errors say.
#include "bootstrap/tcp_exchange.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "bootstrap/frame.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "support/exchanges.hpp"
#include "tcp_ranks.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

void expect_all_well(const std::vector<Ending>& endings) {
  for (const Ending& ending : endings) EXPECT_FALSE(ending.failed) << ending.text;
}

template <class Action>
Ending ending_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {true, error.code(), error.what(), {}};
  }
  return {};
}

/// Plays rank 0's hub towards one client.
class ScriptedHub {
 public:
  explicit ScriptedHub(const TcpOptions& options)
      : listener_(
            listen_at(resolve(parse_endpoint(options.rendezvous), options.rendezvous), "here")),
        secret_(options.secret) {}

  /// Waits for the client, and returns its hello.
  wire::Hello await_hello() {
    EXPECT_TRUE(within(5s, [&] {
      socket_ = detail::Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      return static_cast<bool>(socket_);
    }));
    EXPECT_EQ(hear(), wire::FrameType::hello);
    return front_of<wire::Hello>(payload_).value_or(wire::Hello{});
  }
  /// Asks the client for its proof, and returns it.
  wire::Proof challenge(const wire::Challenge& challenge) {
    say(wire::FrameType::challenge, bytes_of(challenge));
    EXPECT_EQ(hear(), wire::FrameType::proof);
    return front_of<wire::Proof>(payload_).value_or(wire::Proof{});
  }
  /// Waits for the client's hello and lets it in.
  void welcome() {
    const wire::Hello hello = await_hello();
    const wire::Challenge mine{.job = {7}, .nonce = {8}};
    EXPECT_EQ(challenge(mine).digest, prove(Prover::rank, secret_, hello, mine));
    say(wire::FrameType::proof, bytes_of(wire::Proof{prove(Prover::hub, secret_, hello, mine)}));
    say(wire::FrameType::welcome, {});
  }
  void say(wire::FrameType type, std::span<const std::byte> front,
           std::span<const std::byte> rest = {}) {
    std::vector<std::byte> stream;
    append_frame(stream, type, front, rest);
    EXPECT_EQ(::send(socket_.get(), stream.data(), stream.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(stream.size()));
  }
  /// The type of the client's next frame; nothing if it does not come within 5 s.
  std::optional<wire::FrameType> hear() {
    std::optional<Frame> frame;
    bool ended = false;
    EXPECT_TRUE(within(5s, [&] {
      frame = reader_.next();
      if (frame || ended) return true;
      std::size_t bytes = 0;
      ended = receive_some(socket_.get(), reader_.space(), bytes) == Reception::end;
      reader_.received(bytes);
      return false;
    }));
    if (!frame) return std::nullopt;
    payload_.assign(frame->payload.begin(), frame->payload.end());
    return frame->type;
  }
  void say_left(std::uint32_t rank) { say(wire::FrameType::left, bytes_of(wire::News{0, rank})); }
  void say_missing(std::uint64_t sequence, const std::vector<std::uint32_t>& ranks) {
    const wire::Missing head{sequence, static_cast<std::uint32_t>(ranks.size()), 0};
    say(wire::FrameType::missing, bytes_of(head), std::as_bytes(std::span{ranks}));
  }
  void say_gathered(std::uint64_t sequence) {
    say(wire::FrameType::gathered, bytes_of(wire::Step{sequence, 0}));
  }
  void hang_up() { socket_ = detail::Descriptor(); }

 private:
  UnsharedDescriptor listener_;
  std::string secret_;
  detail::Descriptor socket_;
  FrameReader reader_{1 << 20};
  std::vector<std::byte> payload_;  // of the last frame
};

// Protects: contributions arrive whole and in rank order: none, one byte, and more than one chunk.
TEST(TcpExchange, allgather_returns_contributions_in_rank_order) {
  expect_all_well(run_ranks(tcp_job(4), [](Exchange& exchange) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) + 3})
      test::gather_bytes(exchange, bytes);
  }));
}

TEST(TcpExchange, records_reach_partners_and_nobody_else) {
  expect_all_well(run_ranks(tcp_job(5), [](Exchange& exchange) {
    for (const std::size_t bytes : {1u, 24u, 1000u, 200'000u}) test::swap_records(exchange, bytes);
  }));
}

TEST(TcpExchange, what_is_equal_on_all_ranks_is_only_said_to_be) {
  expect_all_well(run_ranks(tcp_job(4), [](Exchange& exchange) {
    for (int turn = 0; turn < 3; ++turn) test::compare_bytes(exchange, true);
  }));
}

// Protects: rank 0's part of a set-up does not grow with the ranks, for each of them.
TEST(TcpExchange, what_is_relayed_for_a_rank_does_not_grow_with_the_ranks) {
  std::vector<std::uint64_t> each;
  for (const std::uint32_t ranks : {4u, 16u}) {
    std::uint64_t relayed = 0;
    expect_all_well(run_ranks(tcp_job(ranks), [&](Exchange& exchange) {
      std::vector<std::byte> mine(512), all(512 * std::size_t{ranks});
      EXPECT_TRUE(exchange.allgather_unless_equal(mine, all, 20s));
      const std::uint32_t self = index_of(exchange.self());
      const std::vector<Rank> partners{Rank{(self + 1) % ranks}, Rank{(self + ranks - 1) % ranks}};
      std::vector<std::byte> records(200), theirs(200);
      exchange.swap(partners, 100, records, theirs, 20s);
      if (self != 0) return;
      const Relayed sum = dynamic_cast<TcpExchange&>(exchange).relayed();
      EXPECT_GE(sum.received, ranks * (512u + 208u));
      relayed = sum.received + sum.sent;
    }));
    each.push_back(relayed / ranks);
  }
  EXPECT_EQ(each[0], each[1]);
  EXPECT_LT(each[0], 1200u);
}

/// Nobody leaves before all have heard that one differs, and nobody is said to be dead.
void expect_disagreement(const std::function<void(Exchange&)>& body) {
  std::atomic<int> heard{0};
  expect_all_well(run_ranks(tcp_job(5), [&](Exchange& exchange) {
    exchange.barrier(20s);
    const Ending ending = ending_of([&] { body(exchange); });
    EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
    EXPECT_TRUE(ending.says("records of ") && ending.says("200000")) << ending.text;
    ++heard;
    EXPECT_TRUE(within(20s, [&] { return heard == 5; }));
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
  }));
}

/// Swaps with all others.
void swap_with_all(Exchange& exchange, std::size_t record_bytes) {
  std::vector<Rank> partners;
  for (std::uint32_t rank = 0; rank < exchange.rank_count(); ++rank)
    if (Rank{rank} != exchange.self()) partners.push_back(Rank{rank});
  std::vector<std::byte> mine(partners.size() * record_bytes), theirs(mine.size());
  exchange.swap(partners, record_bytes, mine, theirs, 20s);
}

// Protects: records that the hub hands out before it knows that ranks disagree are not taken for
// something that no hub sends, which would be the death of rank 0, and then of the rank itself.
TEST(TcpExchange, records_that_come_before_a_disagreement_are_no_death) {
  for (const auto pause : {0ms, 300ms}) {
    const auto is_late = [&](Exchange& exchange) {
      if (exchange.self() != Rank{3}) return false;
      std::this_thread::sleep_for(pause);
      return true;
    };
    expect_disagreement([&](Exchange& exchange) {
      std::vector<std::byte> mine(8), all(40);
      if (is_late(exchange))
        exchange.allgather(mine, all, 20s);
      else
        swap_with_all(exchange, 200'000);
    });
    expect_disagreement(
        [&](Exchange& exchange) { swap_with_all(exchange, is_late(exchange) ? 100 : 200'000); });
  }
}

// Protects: records of two sizes that meet in the hub on their way to one rank are not taken for
// something else either.
TEST(TcpExchange, records_of_two_sizes_for_one_rank_are_no_death) {
  for (const auto pause : {0ms, 300ms})
    expect_disagreement([&](Exchange& exchange) {
      const std::uint32_t self = index_of(exchange.self());
      if (self == 3) std::this_thread::sleep_for(pause);
      swap_with_all(exchange, self == 2 ? 150'000 : 200'000);
    });
}

TEST(TcpExchange, ranks_that_do_different_things_hear_of_it) {
  // Nobody leaves before all have heard.
  const auto expect_mismatch = [](const std::function<void(Exchange&)>& body) {
    std::atomic<int> heard{0};
    expect_all_well(run_ranks(tcp_job(3), [&](Exchange& exchange) {
      const Ending ending = ending_of([&] { body(exchange); });
      EXPECT_EQ(ending.code, ErrorCode::mismatch);
      EXPECT_TRUE(ending.says("records of 8 bytes") || ending.says("records of 9 bytes"))
          << ending.text;
      ++heard;
      EXPECT_TRUE(within(20s, [&] { return heard == 3; }));
    }));
  };
  expect_mismatch([](Exchange& exchange) {
    std::vector<std::byte> mine(8), all(24);
    if (exchange.self() == Rank{1})
      exchange.swap({}, 8, {}, {}, 20s);
    else
      exchange.allgather(mine, all, 20s);
  });
  expect_mismatch([](Exchange& exchange) {
    exchange.swap({}, exchange.self() == Rank{2} ? 9 : 8, {}, {}, 20s);
  });
}

// Protects: no rank leaves a barrier before all have entered.
TEST(TcpExchange, barrier_waits_for_the_last_rank) {
  std::atomic<int> entered{0};
  expect_all_well(run_ranks(tcp_job(4), [&](Exchange& exchange) {
    for (int round = 1; round <= 20; ++round) {
      if (index_of(exchange.self()) == static_cast<std::uint32_t>(round % 4)) {
        std::this_thread::sleep_for(2ms);
      }
      ++entered;
      exchange.barrier(20s);
      EXPECT_GE(entered.load(), 4 * round);
    }
  }));
}

// Protects: a job of one rank needs nobody else.
TEST(TcpExchange, one_rank_is_a_job) {
  expect_all_well(run_ranks(tcp_job(1), [](Exchange& exchange) {
    const std::byte mine{7};
    std::byte all{};
    exchange.allgather(std::span{&mine, 1}, std::span{&all, 1}, 5s);
    EXPECT_EQ(all, mine);
  }));
}

// Protects: IPv6 rendezvous in brackets.
TEST(TcpExchange, ranks_meet_over_ipv6) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const detail::Descriptor probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    GTEST_SKIP() << "no IPv6 loopback here";
  }
  auto job = tcp_job(2);
  const std::string rendezvous = "[::1]" + job[0].rendezvous.substr(job[0].rendezvous.rfind(':'));
  for (auto& options : job) options.rendezvous = rendezvous;
  expect_all_well(run_ranks(job, [](Exchange& exchange) { exchange.barrier(5s); }));
}

// Protects: ranks may start in any order, also before rank 0 listens.
TEST(TcpExchange, rank_zero_may_come_late) {
  auto job = tcp_job(3);
  std::vector<Ending> late;
  std::thread rank_0([&] {
    std::this_thread::sleep_for(300ms);
    late = run_ranks({job[0]}, [](Exchange& exchange) { exchange.barrier(5s); });
  });
  expect_all_well(run_ranks({job[1], job[2]}, [](Exchange& exchange) { exchange.barrier(5s); }));
  rank_0.join();
  expect_all_well(late);
}

// Protects: if a rank does not come, every other one says which, in time.
TEST(TcpExchange, a_missing_rank_is_named_by_every_other) {
  auto job = tcp_job(4);
  for (auto& options : job) options.timeout = 3s;
  for (const Ending& ending : run_ranks({job[0], job[1], job[3]}, [](Exchange&) {})) {
    EXPECT_TRUE(ending.failed);
    EXPECT_EQ(ending.code, ErrorCode::timed_out);
    EXPECT_TRUE(ending.says("rank 2 did not come to " + job[0].rendezvous + " within 3 s"))
        << ending.text;
    EXPECT_LT(ending.took, 10s);
  }
}

// Protects: the same if rank 0 is the one that does not come.
TEST(TcpExchange, missing_rank_zero_is_named) {
  auto job = tcp_job(3);
  for (auto& options : job) options.timeout = 1s;
  for (const Ending& ending : run_ranks({job[1], job[2]}, [](Exchange&) {})) {
    EXPECT_EQ(ending.code, ErrorCode::timed_out);
    EXPECT_TRUE(ending.says("rank 0 did not come to " + job[0].rendezvous + " within 1 s"))
        << ending.text;
    EXPECT_TRUE(ending.says("Connection refused")) << ending.text;
    EXPECT_LT(ending.took, 10s);
  }
}

// Protects: when rank 0 gives up, the others need not wait for their own, later deadline.
TEST(TcpExchange, giving_up_is_passed_on) {
  auto job = tcp_job(3);
  job[0].timeout = 3s;
  const auto endings = run_ranks({job[0], job[1]}, [](Exchange&) {});
  EXPECT_TRUE(endings[1].says("rank 2 did not come")) << endings[1].text;
  EXPECT_LT(endings[1].took, 15s);
}

// Protects: what connects but never answers as rank 0 is reported as such, in time.
TEST(TcpExchange, a_silent_server_is_no_rank_zero) {
  auto job = tcp_job(2);
  job[1].timeout = 300ms;
  const std::vector addresses = resolve(parse_endpoint(job[1].rendezvous), job[1].rendezvous);
  const auto listener = listen_at(addresses, job[1].rendezvous);
  const auto endings = run_ranks({job[1]}, [](Exchange&) {});
  EXPECT_EQ(endings[0].code, ErrorCode::timed_out);
  EXPECT_TRUE(endings[0].says("does not answer")) << endings[0].text;
  EXPECT_LT(endings[0].took, 10s);
}

// Protects: a timeout of a barrier names exactly the ranks that did not enter.
TEST(TcpExchange, barrier_timeout_names_the_missing_ranks) {
  std::atomic<int> timed_out{0};
  expect_all_well(run_ranks(tcp_job(4), [&](Exchange& exchange) {
    if (index_of(exchange.self()) < 2) {
      const Ending ending = ending_of([&] { exchange.barrier(3s); });
      EXPECT_EQ(ending.code, ErrorCode::timed_out);
      EXPECT_EQ(ending.text, "barrier: ranks 2 and 3 did not come within 3 s");
      // Steps no longer line up, so it stays broken rather than go wrong.
      EXPECT_TRUE(ending_of([&] { exchange.barrier(200ms); }).says("out of step"));
      ++timed_out;
    }
    EXPECT_TRUE(within(20s, [&] { return timed_out == 2; }));
  }));
}

// Protects: ranks that disagree about the size all learn it, with the numbers.
TEST(TcpExchange, different_sizes_are_a_mismatch_on_every_rank) {
  std::atomic<int> disagreed{0};
  expect_all_well(run_ranks(tcp_job(3), [&](Exchange& exchange) {
    const std::vector<std::byte> mine(exchange.self() == Rank{1} ? 9 : 8);
    std::vector<std::byte> all(mine.size() * 3);
    const Ending ending = ending_of([&] { exchange.allgather(mine, all, 5s); });
    EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
    EXPECT_TRUE(ending.says("9")) << ending.text;
    ++disagreed;
    EXPECT_TRUE(within(5s, [&] { return disagreed == 3; }));
  }));
}

// Protects: a clean end is not a death, and waiting for one who has left ends at once.
TEST(TcpExchange, leaving_is_not_an_incident) {
  std::atomic<int> looked{0};
  std::atomic<int> waited{0};
  expect_all_well(run_ranks(tcp_job(3), [&](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{1}) return;
    EXPECT_TRUE(within(10s, [&] { return exchange.has_left(Rank{1}); }));
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
    EXPECT_FALSE(exchange.has_left(Rank{0}));
    ++looked;
    EXPECT_TRUE(within(5s, [&] { return looked == 2; }));
    const Ending ending = ending_of([&] { exchange.barrier(10s); });
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_EQ(ending.text, "barrier: rank 1 left without taking part");
    ++waited;
    EXPECT_TRUE(within(5s, [&] { return waited == 2; }));
  }));
}

// Protects: rank 0 may leave first; that is no incident.
TEST(TcpExchange, rank_zero_may_leave_first) {
  expect_all_well(run_ranks(tcp_job(3), [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{0}) return;
    EXPECT_TRUE(within(10s, [&] { return exchange.has_left(Rank{0}); }));
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
    const Ending ending = ending_of([&] { exchange.barrier(10s); });
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_TRUE(ending.says("rank 0")) << ending.text;
  }));
}

// Protects: the side channel outlives rank 0's exchange, and rank 0 is free as soon as nobody needs
// it any longer.
TEST(TcpExchange, rank_zero_relays_until_the_last_has_left) {
  const auto endings = run_ranks(tcp_job(4), [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{0}) return;
    EXPECT_TRUE(within(5s, [&] { return exchange.has_left(Rank{0}); }));
    if (exchange.self() == Rank{1}) return;
    EXPECT_TRUE(within(5s, [&] { return exchange.has_left(Rank{1}); }));
    if (exchange.self() == Rank{3}) std::this_thread::sleep_for(300ms);
  });
  expect_all_well(endings);
  EXPECT_GE(endings[0].took, 300ms);
  EXPECT_LT(endings[0].took, 15s);
}

// Protects: rank 0 does not relay for longer than its timeout, and whoever is still there then
// knows that no more news will come.
TEST(TcpExchange, rank_zero_relays_no_longer_than_its_timeout) {
  auto job = tcp_job(3);
  job[0].timeout = 3s;
  const auto endings = run_ranks(job, [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{0}) return;
    EXPECT_TRUE(within(5s, [&] { return exchange.has_left(Rank{0}); }));
    EXPECT_TRUE(within(20s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::aborted);
    EXPECT_EQ(exchange.incident().rank, Rank{0});
  });
  expect_all_well(endings);
  EXPECT_GE(endings[0].took, 3s);
  EXPECT_LT(endings[0].took, 15s);
}

// Protects: once all have heard of an incident there is nothing left to relay, and rank 0 is free.
TEST(TcpExchange, an_incident_ends_the_relaying_of_rank_zero) {
  const auto job = tcp_job(4);
  std::atomic<bool> rank_0_ended{false};
  std::thread rank_0([&] {
    const auto endings = run_ranks({job[0]}, [](Exchange& exchange) { exchange.barrier(5s); });
    expect_all_well(endings);
    rank_0_ended = true;
  });
  expect_all_well(run_ranks({job[1], job[2], job[3]}, [&](Exchange& exchange) {
    exchange.barrier(5s);
    EXPECT_TRUE(within(5s, [&] { return exchange.has_left(Rank{0}); }));
    if (exchange.self() == Rank{2}) exchange.announce({Incident::Kind::aborted, Rank{2}});
    EXPECT_TRUE(within(5s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
    EXPECT_EQ(exchange.incident().rank, Rank{2});
    EXPECT_TRUE(within(5s, [&] { return rank_0_ended.load(); }));
  }));
  rank_0.join();
}

// Protects: an error of rank 0's program does not cost it its timeout, because those that wait for
// it give up at once.
TEST(TcpExchange, a_throw_in_rank_zero_ends_soon) {
  const auto endings = run_ranks(tcp_job(3), [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{0}) throw Error(ErrorCode::mismatch, "expected by this test");
    exchange.barrier(20s);
  });
  EXPECT_EQ(endings[0].text, "expected by this test");
  for (const Ending& ending : endings) EXPECT_LT(ending.took, 15s) << ending.text;
  EXPECT_EQ(endings[1].code, ErrorCode::peer_failed);
  EXPECT_TRUE(endings[1].says("rank 0")) << endings[1].text;
}

// Protects: a side channel that is gone is an incident, even if rank 0 said goodbye before: nobody
// waits for news that cannot come.
TEST(TcpExchange, an_end_of_the_relay_is_an_incident) {
  const auto job = tcp_job(2);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    expect_all_well(run_ranks({job[1]}, [](Exchange& exchange) {
      EXPECT_TRUE(within(5s, [&] { return exchange.has_left(Rank{0}); }));
      EXPECT_TRUE(within(5s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
      EXPECT_EQ(exchange.incident().kind, Incident::Kind::aborted);
      EXPECT_EQ(exchange.incident().rank, Rank{0});
      // Nobody could repeat this one, so the first stays.
      exchange.announce({Incident::Kind::aborted, Rank{1}});
      EXPECT_EQ(exchange.incident().rank, Rank{0});
    }));
  });
  hub.welcome();
  hub.say_left(0);
  std::this_thread::sleep_for(50ms);
  hub.hang_up();
  rank_1.join();
}

/// Runs `body`, which has to end the process, in a process of its own.  That process may have
/// threads only if this one has none when it forks, so tests that use this function precede those
/// in which a hub outlives its exchange in this process.
template <class Body>
pid_t in_a_process(Body&& body) {
  const pid_t process = ::fork();
  if (process == 0) body();
  return process;
}

// Protects: when rank 0 has left, its process may end at any time, by itself or by a signal, and
// the other ranks do not fail.
TEST(TcpExchange, the_process_of_rank_zero_ends_although_others_have_not_left) {
  for (const bool is_killed : {false, true}) {
    const auto job = tcp_job(2);
    const pid_t leaves = in_a_process([&] {
      { TcpExchange exchange(job[0], {}, TcpExchange::End::quiet); }
      if (is_killed) ::raise(SIGKILL);
      std::exit(7);
    });
    TcpExchange exchange(job[1], {}, TcpExchange::End::quiet);
    int status = 0;
    EXPECT_TRUE(within(20s, [&] { return ::waitpid(leaves, &status, WNOHANG) == leaves; }));
    EXPECT_TRUE(is_killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 7)
        << status;
    EXPECT_TRUE(within(20s, [&] { return exchange.has_left(Rank{0}); }));
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
    exchange.announce({Incident::Kind::aborted, Rank{1}});  // which nobody hears
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
  }
}

// Protects: an exchange may be a static object that is older than what keeps hubs, and ends later.
TEST(TcpExchange, an_exchange_may_end_after_the_hubs_that_are_kept) {
  const auto job = tcp_job(1), later_job = tcp_job(1);
  const pid_t ends = in_a_process([&] {
    static std::optional<TcpExchange> older;
    { TcpExchange exchange(job[0], {}, TcpExchange::End::quiet); }
    older.emplace(later_job[0], UnsharedDescriptor(), TcpExchange::End::quiet);
    std::exit(7);
  });
  int status = 0;
  EXPECT_TRUE(within(20s, [&] { return ::waitpid(ends, &status, WNOHANG) == ends; }));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// Protects: a hub that outlives its exchange ends when the last rank has left.  In no test before
// this one does a hub of this process outlive its exchange.
TEST(TcpExchange, a_hub_that_goes_on_ends_with_the_last_rank) {
  const auto threads = [] {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/task"))
      ++count;
    return count;
  };
  const std::size_t before = threads();
  const auto job = tcp_job(2);
  std::thread rank_0([&] { TcpExchange exchange(job[0], {}, TcpExchange::End::quiet); });
  {
    TcpExchange exchange(job[1], {}, TcpExchange::End::quiet);
    rank_0.join();
    EXPECT_TRUE(within(20s, [&] { return exchange.has_left(Rank{0}); }));
  }
  EXPECT_TRUE(within(20s, [&] { return threads() <= before; }));
}

// Protects: ranks hear of a death also after rank 0 has left.
TEST(TcpExchange, a_death_after_a_quiet_end_is_heard_of) {
  const auto job = tcp_job(3);
  const pid_t dies = in_a_process([&] {
    TcpExchange exchange(job[2], {}, TcpExchange::End::quiet);
    (void)within(20s, [&] { return exchange.has_left(Rank{0}); });
    ::raise(SIGKILL);
  });
  std::thread rank_0([&] { TcpExchange exchange(job[0], {}, TcpExchange::End::quiet); });
  {
    TcpExchange exchange(job[1], {}, TcpExchange::End::quiet);
    EXPECT_TRUE(within(20s, [&] { return exchange.incident().kind == Incident::Kind::died; }));
    EXPECT_EQ(exchange.incident().rank, Rank{2});
    EXPECT_TRUE(exchange.has_left(Rank{0}));
  }
  rank_0.join();
  EXPECT_EQ(::waitpid(dies, nullptr, 0), dies);
}

// Protects: a side channel beside another exchange does not keep rank 0 from leaving, and the
// others go on hearing of each other.
TEST(TcpExchange, a_quiet_end_waits_for_nobody_and_news_goes_on) {
  const auto job = tcp_job(3);
  std::atomic<bool> rank_0_has_left{false};
  const auto ends_of = [&](std::uint32_t rank) {
    TcpExchange exchange(job[rank], {}, TcpExchange::End::quiet);
    if (rank == 0) return;
    EXPECT_TRUE(within(10s, [&] { return exchange.has_left(Rank{0}); }));
    EXPECT_TRUE(within(10s, [&] { return rank_0_has_left.load(); }));
    std::this_thread::sleep_for(50ms);
    if (rank == 2) {
      EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
      exchange.announce({Incident::Kind::aborted, Rank{2}});
    }
    EXPECT_TRUE(within(10s, [&] { return exchange.incident().kind == Incident::Kind::aborted; }));
    EXPECT_EQ(exchange.incident().rank, Rank{2});
  };
  std::thread rank_1(ends_of, 1), rank_2(ends_of, 2);
  std::thread rank_0([&] {
    ends_of(0);
    rank_0_has_left = true;
  });
  for (std::thread* thread : {&rank_0, &rank_1, &rank_2}) thread->join();
}

// Protects: such an end is told from the death of rank 0.
TEST(TcpExchange, an_end_that_was_to_be_quiet_without_a_goodbye_is_a_death) {
  const auto job = tcp_job(2);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    TcpExchange exchange(job[1], {}, TcpExchange::End::quiet);
    EXPECT_TRUE(within(5s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::died);
    EXPECT_EQ(exchange.incident().rank, Rank{0});
  });
  hub.welcome();
  hub.hang_up();
  rank_1.join();
}

// Protects: what listens at the rendezvous without knowing the secret gets no rank, whatever it
// says: an own proof, one that it has recorded, or news.
TEST(TcpExchange, a_hub_that_does_not_know_the_secret_is_not_trusted) {
  const auto job = tcp_job(2);
  const auto ending_with = [&](const std::function<void(ScriptedHub&)>& pretend) {
    ScriptedHub hub(job[0]);
    Ending ending;
    std::thread rank_1(
        [&] { ending = run_ranks({job[1]}, [](Exchange&) { ADD_FAILURE() << "trusts it"; })[0]; });
    pretend(hub);
    rank_1.join();
    EXPECT_EQ(ending.code, ErrorCode::peer_failed) << ending.text;
    EXPECT_FALSE(ending.says(job[0].secret)) << ending.text;
    return ending.text;
  };
  const wire::Challenge challenge{.job = {7}, .nonce = {8}};
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  wire::Proof recorded;
  std::string text = ending_with([&](ScriptedHub& hub) {
    const wire::Hello hello = hub.await_hello();
    (void)hub.challenge(challenge);
    recorded = {prove(Prover::hub, job[0].secret, hello, challenge)};
    hub.say(wire::FrameType::proof,
            bytes_of(wire::Proof{prove(Prover::hub, "guessed", hello, challenge)}));
  });
  EXPECT_TRUE(contains(text, "does not know the secret of this job")) << text;
  text = ending_with([&](ScriptedHub& hub) {
    (void)hub.await_hello();
    (void)hub.challenge(challenge);
    hub.say(wire::FrameType::proof, bytes_of(recorded));
  });
  EXPECT_TRUE(contains(text, "does not know the secret of this job")) << text;
  text = ending_with([&](ScriptedHub& hub) {  // the client's proof, back again
    (void)hub.await_hello();
    const wire::Proof proof = hub.challenge(challenge);
    hub.say(wire::FrameType::proof, bytes_of(proof));
  });
  EXPECT_TRUE(contains(text, "does not know the secret of this job")) << text;
  for (const auto type : {wire::FrameType::welcome, wire::FrameType::gave_up,
                          wire::FrameType::incident, wire::FrameType::proof}) {
    text = ending_with([&](ScriptedHub& hub) {
      (void)hub.await_hello();
      hub.say(type, bytes_of(recorded));
    });
    EXPECT_TRUE(contains(text, "is no rank 0 of tutti")) << text;
  }
}

// Protects: a rank whose rank 0 is of another version says both.
TEST(TcpExchange, versions_that_differ_are_named) {
  const auto job = tcp_job(2);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    const Ending ending = run_ranks({job[1]}, [](Exchange&) { ADD_FAILURE(); })[0];
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_TRUE(ending.says("this is protocol version 5, there it is 2")) << ending.text;
  });
  (void)hub.await_hello();
  hub.say(wire::FrameType::refusal, bytes_of(wire::Refusal{wire::Reason::version, 2}));
  rank_1.join();
}

// Protects: the secret, and no part of it, crosses the wire.
TEST(TcpExchange, the_secret_is_not_sent) {
  auto job = tcp_job(2);
  for (auto& options : job) options.secret = std::string(200, 'k') + "correct horse";
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] { (void)run_ranks({job[1]}, [](Exchange&) {}); });
  const wire::Hello hello = hub.await_hello();
  const wire::Proof proof = hub.challenge({});
  const auto says = [&](const auto& sent) {
    const auto bytes = bytes_of(sent);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return text.find("kkk") != std::string::npos || text.find("horse") != std::string::npos;
  };
  EXPECT_FALSE(says(hello));
  EXPECT_FALSE(says(proof));
  hub.say(wire::FrameType::refusal, bytes_of(wire::Refusal{wire::Reason::secret, 0}));
  rank_1.join();
}

// Protects: who is missing from one step is not taken for missing from the next.
TEST(TcpExchange, answers_about_an_earlier_step_are_ignored) {
  const auto job = tcp_job(3);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    expect_all_well(run_ranks({job[1]}, [](Exchange& exchange) {
      exchange.barrier(10s);
      exchange.barrier(10s);
    }));
  });
  hub.welcome();
  EXPECT_EQ(hub.hear(), wire::FrameType::contribution);
  hub.say_left(2);
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  hub.say_gathered(1);
  EXPECT_EQ(hub.hear(), wire::FrameType::contribution);
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  hub.say_missing(1, {2});
  hub.say_missing(2, {0});
  hub.say_gathered(2);
  EXPECT_EQ(hub.hear(), wire::FrameType::goodbye);
  rank_1.join();
}

// Protects: the hub is asked once for every change that may matter, and no more.
TEST(TcpExchange, the_hub_is_asked_again_only_when_another_has_left) {
  const auto job = tcp_job(4);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    const auto endings = run_ranks({job[1]}, [](Exchange& exchange) { exchange.barrier(10s); });
    EXPECT_EQ(endings[0].code, ErrorCode::peer_failed);
    EXPECT_EQ(endings[0].text, "barrier: rank 3 left without taking part");
  });
  hub.welcome();
  EXPECT_EQ(hub.hear(), wire::FrameType::contribution);
  hub.say_left(2);  // after it has taken part, as the answer says
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  hub.say_missing(1, {0});
  std::this_thread::sleep_for(50ms);
  hub.say_left(3);
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  hub.say_missing(1, {3});
  EXPECT_EQ(hub.hear(), wire::FrameType::goodbye);
  rank_1.join();
}

// Protects: a timeout names who is missing at the deadline, not who was when somebody left.
TEST(TcpExchange, a_timeout_asks_again) {
  const auto job = tcp_job(4);
  ScriptedHub hub(job[0]);
  std::thread rank_1([&] {
    const auto endings = run_ranks({job[1]}, [](Exchange& exchange) { exchange.barrier(500ms); });
    EXPECT_EQ(endings[0].code, ErrorCode::timed_out);
    EXPECT_EQ(endings[0].text, "barrier: rank 3 did not come within 500 ms");
  });
  hub.welcome();
  EXPECT_EQ(hub.hear(), wire::FrameType::contribution);
  hub.say_left(2);
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  std::this_thread::sleep_for(600ms);
  hub.say_missing(1, {0, 3});
  EXPECT_EQ(hub.hear(), wire::FrameType::query);
  hub.say_missing(1, {3});
  EXPECT_EQ(hub.hear(), wire::FrameType::goodbye);
  rank_1.join();
}

// Protects: everybody hears of the same first incident, also if two announce at once.
TEST(TcpExchange, all_hear_of_the_same_incident) {
  std::atomic<std::uint32_t> heard[4] = {};
  std::atomic<int> done{0};
  expect_all_well(run_ranks(tcp_job(4), [&](Exchange& exchange) {
    exchange.barrier(5s);
    const std::uint32_t self = index_of(exchange.self());
    if (self >= 2) exchange.announce({.kind = Incident::Kind::aborted, .rank = exchange.self()});
    EXPECT_TRUE(within(1s, [&] { return exchange.incident().kind == Incident::Kind::aborted; }));
    heard[self] = index_of(exchange.incident().rank);
    ++done;
    EXPECT_TRUE(within(5s, [&] { return done == 4; }));
  }));
  for (const auto& rank : heard) EXPECT_EQ(rank.load(), heard[0].load());
  EXPECT_GE(heard[0].load(), 2u);
}

// Protects: the last words of a rank that leaves at once are not lost.
TEST(TcpExchange, an_announcement_survives_its_rank) {
  expect_all_well(run_ranks(tcp_job(3), [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{0}) {
      exchange.announce({.kind = Incident::Kind::aborted, .rank = Rank{0}});
      return;
    }
    EXPECT_TRUE(within(1s, [&] { return exchange.incident().kind == Incident::Kind::aborted; }));
    EXPECT_EQ(exchange.incident().rank, Rank{0});
  }));
}

// Protects: a rank that waits in a barrier gives up when it hears of an incident.
TEST(TcpExchange, an_incident_ends_waiting) {
  expect_all_well(run_ranks(tcp_job(3), [](Exchange& exchange) {
    if (exchange.self() == Rank{2}) {
      std::this_thread::sleep_for(100ms);
      exchange.announce({.kind = Incident::Kind::aborted, .rank = Rank{2}});
      EXPECT_TRUE(within(1s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
      return;
    }
    const Ending ending = ending_of([&] { exchange.barrier(10s); });
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_TRUE(ending.says("rank 2 has aborted")) << ending.text;
  }));
}

// Protects: every wrong setting names its variable, and no text contains the secret.
TEST(TcpExchange, wrong_options_name_their_variable) {
  const auto refused = [](const std::function<void(TcpOptions&)>& spoil) {
    TcpOptions options = tcp_options(free_port(), 0, 2);
    options.timeout = 100ms;
    spoil(options);
    const Ending ending = ending_of([&] { (void)tcp_exchange(options); });
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument) << ending.text;
    EXPECT_FALSE(ending.says("correct horse")) << ending.text;
    return ending.text;
  };
  const auto starts = [](const std::string& text, const std::string& front) {
    return text.rfind(front, 0) == 0 ? ::testing::AssertionSuccess()
                                     : ::testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(starts(refused([](TcpOptions& options) { options.rank_count = 0; }), "TUTTI_SIZE=0"));
  EXPECT_TRUE(starts(refused([](TcpOptions& options) { options.rank = Rank{2}; }), "TUTTI_RANK=2"));
  EXPECT_TRUE(starts(refused([](TcpOptions& options) { options.secret.clear(); }), "TUTTI_SECRET"));
  EXPECT_TRUE(starts(refused([](TcpOptions& options) { options.secret.assign(257, 'x'); }),
                     "TUTTI_SECRET"));
  EXPECT_TRUE(starts(refused([](TcpOptions& options) { options.timeout = Timeout::zero(); }),
                     "TUTTI_BOOTSTRAP_TIMEOUT"));
  for (const char* rendezvous :
       {"", "foo", ":5555", "foo:", "foo:0", "foo:65536", "foo:12x", "::1:5555", "[]:5555"}) {
    EXPECT_EQ(refused([&](TcpOptions& options) { options.rendezvous = rendezvous; }),
              "TUTTI_RENDEZVOUS=\"" + std::string(rendezvous) +
                  "\": expected host:port, for example 10.0.0.1:5555, or [address]:port for IPv6");
  }
  // A label of more than 63 characters cannot be asked for, so no name server is.
  EXPECT_NE(refused([](TcpOptions& options) {
              options.rendezvous = std::string(100, 'x') + ":5555";
            }).find("is unknown here"),
            std::string::npos);
}

// Protects: a port that is in use, and an address of another host, say so and what to do.
TEST(TcpExchange, rank_zero_says_why_it_cannot_listen) {
  TcpOptions options = tcp_options(free_port(), 0, 2);
  const std::vector addresses = resolve(parse_endpoint(options.rendezvous), options.rendezvous);
  const auto other_job = listen_at(addresses, options.rendezvous);
  Ending ending = ending_of([&] { (void)tcp_exchange(options); });
  EXPECT_EQ(ending.code, ErrorCode::system);
  EXPECT_TRUE(ending.says("\"" + options.rendezvous + "\"")) << ending.text;
  EXPECT_TRUE(ending.says("choose another")) << ending.text;

  options.rendezvous = "192.0.2.1:5555";  // reserved for documentation, so nobody's
  ending = ending_of([&] { (void)tcp_exchange(options); });
  EXPECT_TRUE(ending.says("must name an address of the host on which rank 0 runs")) << ending.text;
}

}  // namespace
}  // namespace tutti::bootstrap
