// Strangers at the rendezvous: whoever is refused hears why, and the ranks of the job never notice.
#include "bootstrap/hub.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <optional>

#include "bootstrap/frame.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "tcp_ranks.hpp"
#include "tutti/detail/clock.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// A connection that may say anything.
class Stranger {
 public:
  /// Comes from 127.0.0.`host`.
  explicit Stranger(std::uint16_t port, std::uint32_t host = 1, Timeout limit = 5s)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    sockaddr_in origin = loopback(0);
    origin.sin_addr.s_addr = htonl(0x7f000000u + host);
    if (host != 1) {
      EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&origin), sizeof origin),
                0);
    }
    connected_ = within(limit, [&] {
      return ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof address) == 0;
    });
  }

  bool connected() const noexcept { return connected_; }

  /// Its end arrives as a reset instead of a close.
  void reset() {
    const linger at_once{1, 0};
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_ = detail::Descriptor();
  }
  /// Nothing more comes from it, and it stays.
  void half_close() noexcept { ::shutdown(socket_.get(), SHUT_WR); }
  /// Says as much as the network takes at the moment; nothing if the connection has ended.
  std::optional<std::size_t> flood(std::span<const std::byte> bytes) noexcept {
    const ssize_t taken =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno != EAGAIN) return std::nullopt;
    return static_cast<std::size_t>(std::max<ssize_t>(taken, 0));
  }

  void say(std::span<const std::byte> bytes) noexcept {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void say(const std::string& text) noexcept { say(std::as_bytes(std::span{text})); }
  void say(wire::FrameType type, std::span<const std::byte> payload) {
    std::vector<std::byte> stream;
    append_frame(stream, type, payload);
    say(stream);
  }

  /// The next frame, valid until this is called again; nothing if the hub closes instead.
  std::optional<Frame> frame() {
    for (;;) {
      if (const auto frame = reader_.next()) return frame;
      pollfd waiting{socket_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) != 1) return std::nullopt;
      std::size_t bytes = 0;
      if (receive_some(socket_.get(), reader_.space(), bytes) == Reception::end) {
        return std::nullopt;
      }
      reader_.received(bytes);
    }
  }
  /// Whether anything has come, even if only the end of the connection.
  bool has_heard() const noexcept {
    pollfd waiting{socket_.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  /// Its type and, for a refusal, the reason.
  std::optional<std::pair<wire::FrameType, wire::Refusal>> hear() {
    const auto next = frame();
    if (!next) return std::nullopt;
    return std::pair{next->type, front_of<wire::Refusal>(next->payload).value_or(wire::Refusal{})};
  }

  std::optional<wire::Challenge> say_hello(const wire::Hello& hello) {
    say(wire::FrameType::hello, bytes_of(hello));
    const auto next = frame();
    if (!next || next->type != wire::FrameType::challenge) return std::nullopt;
    return front_of<wire::Challenge>(next->payload);
  }
  /// Proves that it knows the secret, and checks that the hub does; nothing of what follows is
  /// read.  False: the hub does not take the proof.
  bool shake_hands(const wire::Hello& hello, const std::string& secret) {
    const auto challenge = say_hello(hello);
    EXPECT_TRUE(challenge);
    if (!challenge) return false;
    say(wire::FrameType::proof,
        bytes_of(wire::Proof{prove(Prover::rank, secret, hello, *challenge)}));
    const auto next = frame();
    if (!next || next->type != wire::FrameType::proof) return false;
    const auto proof = front_of<wire::Proof>(next->payload);
    EXPECT_EQ(proof->digest, prove(Prover::hub, secret, hello, *challenge));
    return true;
  }

 private:
  detail::Descriptor socket_;
  FrameReader reader_{1 << 20};
  bool connected_ = false;
};

std::uint16_t port_of(const TcpOptions& options) {
  return static_cast<std::uint16_t>(
      std::stoul(options.rendezvous.substr(options.rendezvous.rfind(':') + 1)));
}

wire::Hello hello_of(const TcpOptions& options) {
  return {.magic = wire::magic,
          .version = wire::protocol_version,
          .rank = index_of(options.rank),
          .rank_count = options.rank_count,
          .nonce = {1, 2, 3}};
}

/// Runs a job whose last rank comes only once `strangers` is done, so that they meet a hub that is
/// still waiting; all ranks then complete, long before the
/// time that they have is up.
void run_job_with(const std::vector<TcpOptions>& job, const std::function<void()>& strangers) {
  std::vector<TcpOptions> early(job.begin(), job.end() - 1);
  std::vector<Ending> endings;
  const auto body = [](Exchange& exchange) {
    for (int round = 0; round < 10; ++round) exchange.barrier(5s);
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
  };
  std::thread ranks([&] { endings = run_ranks(early, body); });
  strangers();
  const auto last = run_ranks({job.back()}, body);
  ranks.join();
  endings.push_back(last[0]);
  for (const Ending& ending : endings) EXPECT_FALSE(ending.failed) << ending.text;
  EXPECT_LT(last[0].took, 10s);
}

Ending refused_client(const TcpOptions& options) {
  return run_ranks({options}, [](Exchange&) { ADD_FAILURE() << "was let in"; })[0];
}

// Protects: another job's rank is refused with the reason, without the secret, while four complete.
TEST(Hub, refuses_a_wrong_secret) {
  const auto job = tcp_job(4);
  run_job_with(job, [&] {
    TcpOptions options = job[3];
    for (const char* secret : {"wrong donkey", "correct hors", "correct horse!", "c"}) {
      options.secret = secret;
      const Ending ending = refused_client(options);
      EXPECT_EQ(ending.code, ErrorCode::peer_failed);
      EXPECT_TRUE(ending.says("wrong secret")) << ending.text;
      EXPECT_FALSE(ending.says("donkey")) << ending.text;
      EXPECT_FALSE(ending.says("correct horse")) << ending.text;
    }
  });
}

// Protects: once all have met, whoever else comes is told that the rank is taken, not made to wait.
TEST(Hub, refuses_latecomers) {
  const auto job = tcp_job(2);
  for (const Ending& ending : run_ranks(job, [&](Exchange& exchange) {
         exchange.barrier(5s);
         if (exchange.self() == Rank{1}) {
           const Ending refused = refused_client(job[1]);
           EXPECT_EQ(refused.code, ErrorCode::peer_failed);
           EXPECT_TRUE(refused.says("rank 1: this rank is taken")) << refused.text;
           EXPECT_LT(refused.took, 10s);
         }
         exchange.barrier(5s);
       })) {
    EXPECT_FALSE(ending.failed) << ending.text;
  }
}

// Protects: of two ranks with one number, the second hears that the rank is taken, and the first
// completes with the others.
TEST(Hub, a_duplicate_rank_is_told_so) {
  const auto job = tcp_job(3);
  std::atomic<int> refused{0};
  // Nobody leaves before the duplicate has come.
  const auto body = [&](Exchange& exchange) {
    exchange.barrier(5s);
    EXPECT_TRUE(within(10s, [&] { return refused == 1; }));
  };
  const auto run_twin = [&] {
    const Ending ending = run_ranks({job[1]}, body)[0];
    if (!ending.failed) return;
    ++refused;
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_TRUE(ending.says("rank 1: this rank is taken")) << ending.text;
  };
  std::thread one(run_twin);
  std::thread other(run_twin);
  for (const Ending& ending : run_ranks({job[0], job[2]}, body)) {
    EXPECT_FALSE(ending.failed) << ending.text;
  }
  one.join();
  other.join();
  EXPECT_EQ(refused, 1);
}

// Protects: a rank of a job of another size hears both sizes.
TEST(Hub, refuses_another_size) {
  const auto job = tcp_job(3);
  run_job_with(job, [&] {
    TcpOptions options = job[2];
    options.rank_count = 5;
    const Ending ending = refused_client(options);
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_TRUE(ending.says("TUTTI_SIZE is 5 here and 3 there")) << ending.text;
  });
}

// Protects: ranks out of range and other versions are refused for what they are, and only to
// those who know the secret.
TEST(Hub, refuses_impossible_hellos) {
  const auto job = tcp_job(2);
  run_job_with(job, [&] {
    const auto answer = [&](const std::string& secret, std::uint32_t rank) {
      Stranger stranger(port_of(job[0]));
      wire::Hello hello = hello_of(job[1]);
      hello.rank = rank;
      const auto challenge = stranger.say_hello(hello);
      EXPECT_TRUE(challenge);
      stranger.say(wire::FrameType::proof,
                   bytes_of(wire::Proof{prove(Prover::rank, secret, hello, *challenge)}));
      auto heard = stranger.hear();
      if (heard && heard->first == wire::FrameType::proof) heard = stranger.hear();
      EXPECT_TRUE(heard && heard->first == wire::FrameType::refusal);
      return heard ? heard->second.reason : wire::Reason{99};
    };
    EXPECT_EQ(answer(job[0].secret, 2), wire::Reason::rank_range);
    EXPECT_EQ(answer("?", 2), wire::Reason::secret);
    EXPECT_EQ(answer("", 1), wire::Reason::secret);
    Stranger other(port_of(job[0]));
    wire::Hello hello = hello_of(job[1]);
    hello.version = 2;
    other.say(wire::FrameType::hello, bytes_of(hello));
    const auto heard = other.hear();
    EXPECT_TRUE(heard && heard->first == wire::FrameType::refusal);
    EXPECT_EQ(heard->second.reason, wire::Reason::version);
    EXPECT_EQ(heard->second.expected, wire::protocol_version);
  });
}

// Protects: what a rank has sent when it joined lets nobody else in who sends it again, and no part
// of a proof is taken for another rank, another number of ranks, or the other direction.
TEST(Hub, a_recorded_proof_is_worth_nothing) {
  const auto job = tcp_job(4);
  run_job_with(job, [&] {
    wire::Hello hello = hello_of(job[3]);
    hello.rank = 9;  // so that it knows the secret, but takes no place
    wire::Proof recorded;
    {
      Stranger rank(port_of(job[0]));
      const auto challenge = rank.say_hello(hello);
      ASSERT_TRUE(challenge);
      recorded = {prove(Prover::rank, job[3].secret, hello, *challenge)};
      rank.say(wire::FrameType::proof, bytes_of(recorded));
      const auto heard = rank.hear();
      ASSERT_TRUE(heard && heard->first == wire::FrameType::proof);
    }
    const auto refuses = [&](const std::function<wire::Proof(const wire::Challenge&)>& make) {
      Stranger stranger(port_of(job[0]));
      const auto challenge = stranger.say_hello(hello);
      ASSERT_TRUE(challenge);
      stranger.say(wire::FrameType::proof, bytes_of(make(*challenge)));
      const auto heard = stranger.hear();
      ASSERT_TRUE(heard && heard->first == wire::FrameType::refusal);
      EXPECT_EQ(heard->second.reason, wire::Reason::secret);
    };
    refuses([&](const wire::Challenge&) { return recorded; });
    refuses([&](const wire::Challenge& challenge) {
      return wire::Proof{prove(Prover::hub, job[3].secret, hello, challenge)};
    });
    for (std::uint32_t wire::Hello::*field : {&wire::Hello::rank, &wire::Hello::rank_count})
      refuses([&](const wire::Challenge& challenge) {
        wire::Hello other = hello;
        other.*field = 2;
        return wire::Proof{prove(Prover::rank, job[3].secret, other, challenge)};
      });
    // Both at once, without waiting for the challenge.
    Stranger blind(port_of(job[0]));
    std::vector<std::byte> stream;
    append_frame(stream, wire::FrameType::hello, bytes_of(hello));
    append_frame(stream, wire::FrameType::proof, bytes_of(recorded));
    blind.say(stream);
    auto heard = blind.hear();
    EXPECT_TRUE(heard && heard->first == wire::FrameType::challenge);
    heard = blind.hear();
    EXPECT_TRUE(heard && heard->first == wire::FrameType::refusal);
  });
}

// Protects: garbage, other protocols and lengths that lie are cut off without an answer.
TEST(Hub, cuts_off_garbage) {
  const auto job = tcp_job(4);
  run_job_with(job, [&] {
    for (const std::string& text : {std::string("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
                                    std::string("\x16\x03\x01\x02\x00\x01"
                                                "\x00\x01\xfc\x03",
                                                10),
                                    std::string(100'000, '\xff'), std::string(100'000, '\0')}) {
      Stranger stranger(port_of(job[0]));
      ASSERT_TRUE(stranger.connected());
      stranger.say(text);
      EXPECT_FALSE(stranger.hear());
    }
    Stranger liar(port_of(job[0]));
    liar.say(bytes_of(
        wire::FrameHeader{static_cast<std::uint32_t>(wire::FrameType::hello), UINT32_MAX}));
    EXPECT_FALSE(liar.hear());
    Stranger wrong_magic(port_of(job[0]));
    wrong_magic.say(wire::FrameType::hello, bytes_of(wire::Hello{}));
    EXPECT_FALSE(wrong_magic.hear());
    Stranger impatient(port_of(job[0]));
    impatient.say(wire::FrameType::goodbye, {});
    EXPECT_FALSE(impatient.hear());
  });
}

// Protects: connections that say nothing, or say it very slowly, keep nobody waiting, even if
// there are more of them than the hub keeps.
TEST(Hub, silent_and_slow_connections_delay_nobody) {
  const auto job = tcp_job(4);
  std::vector<std::unique_ptr<Stranger>> crowd;
  std::atomic<bool> over{false};
  std::thread dribbler;
  run_job_with(job, [&] {
    for (int number = 0; number < 200; ++number) {
      crowd.push_back(std::make_unique<Stranger>(port_of(job[0])));
      ASSERT_TRUE(crowd.back()->connected());
    }
    dribbler = std::thread([&] {
      std::vector<std::byte> stream;
      append_frame(stream, wire::FrameType::hello, bytes_of(hello_of(job[1])));
      for (const std::byte& byte : stream) {
        if (over) return;
        crowd.back()->say(std::span{&byte, 1});
        std::this_thread::sleep_for(5ms);
      }
    });
    // All of it comes while the crowd is there, except the last rank.
  });
  over = true;
  dribbler.join();
}

// Protects: a crowd of one host does not push out a rank of another one that is slow to say who it
// is.
TEST(Hub, a_crowd_pushes_out_only_its_own) {
  const auto job = tcp_job(4);
  std::vector<std::unique_ptr<Stranger>> crowd;
  run_job_with(job, [&] {
    Stranger slow(port_of(job[0]), 3);
    for (int number = 0; number < 400; ++number)
      crowd.push_back(std::make_unique<Stranger>(port_of(job[0]), 2));
    EXPECT_TRUE(slow.say_hello(hello_of(job[3])));
  });
}

// Protects: once all have met, the hub takes at most 16 connections in 100 ms, even if each
// stranger that is dropped connects again at once.
TEST(Hub, a_crowd_that_comes_again_is_taken_slowly_once_all_have_met) {
  const auto job = tcp_job(2);
  std::vector<std::unique_ptr<Stranger>> crowd;
  std::vector<Ending> endings;
  std::thread rank_0([&] {
    endings = run_ranks({job[0]}, [](Exchange& exchange) {
      for (int time = 0; time < 2; ++time) exchange.barrier(20s);
    });
  });
  constexpr int kept = 128 + 16, more = 8;  // so that fewer than 16 come at a time
  for (int number = 0; number < kept + more; ++number)
    crowd.push_back(std::make_unique<Stranger>(port_of(job[0])));
  const auto last = run_ranks({job[1]}, [&](Exchange& exchange) {
    exchange.barrier(20s);
    const Timeout begin = detail::MonotonicClock::read();
    Timeout took{};
    int dropped = 0;
    while (took < 500ms) {
      for (auto& stranger : crowd) {
        if (!stranger->has_heard()) continue;
        ++dropped;
        stranger = std::make_unique<Stranger>(port_of(job[0]));
      }
      took = detail::MonotonicClock::read() - begin;
    }
    EXPECT_GT(dropped, 0);
    // The first of them were dropped before all had met.
    EXPECT_LE(dropped, 16 + more + 16 * (1 + took / 100ms));
    exchange.barrier(20s);
  });
  rank_0.join();
  EXPECT_FALSE(endings[0].failed) << endings[0].text;
  EXPECT_FALSE(last[0].failed) << last[0].text;
}

/// Strangers of all kinds, again and again, until it ends.
class Siege {
 public:
  explicit Siege(std::uint16_t port) {
    for (int kind = 0; kind < 4; ++kind)
      threads_.emplace_back([this, port, kind] {
        const std::vector<std::byte> garbage(1 << 14, std::byte{0x5a});
        std::vector<std::unique_ptr<Stranger>> crowd;
        while (!over_) {
          crowd.push_back(std::make_unique<Stranger>(port, 1, 50ms));
          Stranger& stranger = *crowd.back();
          if (!stranger.connected()) continue;  // the job has not begun, or it is over
          ++count_;
          switch (kind) {
            case 0:
              stranger.reset();
              break;
            case 1:
              stranger.half_close();
              break;
            case 2:
              (void)stranger.flood(garbage);
              break;
            default:
              stranger.say(wire::FrameType::hello,
                           bytes_of(wire::Hello{wire::magic, wire::protocol_version, 1, 4, 0, {}}));
          }
          if (crowd.size() > 50) crowd.erase(crowd.begin());
        }
      });
  }
  ~Siege() {
    over_ = true;
    for (auto& thread : threads_) thread.join();
  }
  int count() const noexcept { return count_; }

 private:
  std::atomic<bool> over_{false};
  std::atomic<int> count_{0};
  std::vector<std::thread> threads_;
};

// Protects: a flood of resets, half-open connections, garbage and wrong secrets neither keeps a job
// from starting nor disturbs it while it runs.
TEST(Hub, a_flood_stops_no_job) {
  const auto job = tcp_job(4);
  const Siege siege(port_of(job[0]));
  for (const Ending& ending : run_ranks(job, [&](Exchange& exchange) {
         // Until the flood has gone on for a while beside the job.
         for (std::uint32_t go_on = 1; go_on != 0;) {
           go_on = exchange.self() == Rank{0} && siege.count() < 500 ? 1 : 0;
           std::array<std::uint32_t, 4> all{};
           exchange.allgather(std::as_bytes(std::span{&go_on, 1}),
                              std::as_writable_bytes(std::span{all}), 20s);
           go_on = all[0];
         }
         EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
       }))
    EXPECT_FALSE(ending.failed) << ending.text;
}

// Protects: where the process has few descriptors, a crowd takes them for a moment only.
TEST(Hub, a_crowd_that_takes_all_descriptors_delays_nobody) {
  auto job = tcp_job(2);
  for (TcpOptions& options : job) options.timeout = 60s;
  // The hub has a process of its own, because rank 1 needs descriptors, too.  That process is
  // forked before this one has threads.
  const pid_t hub_process = ::fork();
  if (hub_process == 0) {
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    rlimit few{};
    bool failed = next < 0 || ::getrlimit(RLIMIT_NOFILE, &few) != 0;
    few.rlim_cur = static_cast<rlim_t>(next + 16);
    failed = failed || ::setrlimit(RLIMIT_NOFILE, &few) != 0;
    const auto endings = run_ranks({job[0]}, [](Exchange& one) { one.barrier(60s); });
    if (endings[0].failed) std::fprintf(stderr, "rank 0: %s\n", endings[0].text.c_str());
    ::_exit(failed || endings[0].failed ? 1 : 0);
  }
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int number = 0; number < 400; ++number)
    crowd.push_back(std::make_unique<Stranger>(port_of(job[0]), 1, 20s));
  const auto last = run_ranks({job[1]}, [](Exchange& one) { one.barrier(60s); });
  int status = 0;
  EXPECT_EQ(::waitpid(hub_process, &status, 0), hub_process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(last[0].failed) << last[0].text;
  // A hub that waits before it accepts the next of 400 strangers needs 40 s.  One that waits until
  // the time of the strangers is over needs 5 s for every 11 of them.
  EXPECT_LT(last[0].took, 20s);
}

// Protects: whoever has been refused cannot keep the hub busy by talking on.
TEST(Hub, who_talks_on_after_a_refusal_is_cut_off) {
  const auto job = tcp_job(4);
  run_job_with(job, [&] {
    Stranger stranger(port_of(job[0]));
    wire::Hello hello = hello_of(job[1]);
    hello.version = 9;
    stranger.say(wire::FrameType::hello, bytes_of(hello));
    const std::vector<std::byte> garbage(1 << 14);
    std::size_t taken = 0;
    while (const auto bytes = stranger.flood(garbage)) {
      taken += *bytes;
      if (*bytes == 0) std::this_thread::sleep_for(1ms);
    }
    // What the buffers of both ends hold.
    EXPECT_LT(taken, std::size_t{32} << 20);
  });
}

// Protects: ranks that say goodbye and close at the same moment have left; that the hub cannot tell
// one of them about another does not make it a dead rank.
TEST(Hub, who_leaves_beside_others_is_not_taken_for_dead) {
  constexpr std::uint32_t rank_count = 40;
  const auto job = tcp_job(rank_count);
  std::thread others([&] {
    std::vector<std::unique_ptr<Stranger>> members;
    for (std::uint32_t rank = 1; rank < rank_count; ++rank) {
      members.push_back(std::make_unique<Stranger>(port_of(job[0])));
      EXPECT_TRUE(members.back()->shake_hands(hello_of(job[rank]), job[rank].secret));
    }
    for (const auto& member : members) {
      const auto heard = member->hear();
      EXPECT_TRUE(heard && heard->first == wire::FrameType::welcome);
    }
    for (const auto& member : members) member->say(wire::FrameType::goodbye, {});
  });
  for (const Ending& ending : run_ranks({job[0]}, [&](Exchange& exchange) {
         std::uint32_t left_count = 0;
         EXPECT_TRUE(within(5s,
                            [&] {
                              while (left_count + 1 < rank_count &&
                                     exchange.has_left(Rank{left_count + 1})) {
                                ++left_count;
                              }
                              return left_count + 1 == rank_count;
                            }))
             << "rank " << left_count + 1 << " has not left";
         EXPECT_EQ(exchange.incident().kind, Incident::Kind::none)
             << "rank " << index_of(exchange.incident().rank);
       })) {
    EXPECT_FALSE(ending.failed) << ending.text;
  }
  others.join();
}

// Protects: a rank that knows the secret but breaks the protocol is taken for dead, not believed.
TEST(Hub, a_broken_rank_counts_as_dead) {
  for (const auto type : {wire::FrameType::gathered, wire::FrameType::contribution,
                          wire::FrameType::incident, wire::FrameType{77}}) {
    const auto job = tcp_job(3);
    std::atomic<int> heard_count{0};
    std::thread impostor([&] {
      Stranger stranger(port_of(job[0]));
      EXPECT_TRUE(stranger.shake_hands(hello_of(job[2]), job[2].secret));
      const auto heard = stranger.hear();
      EXPECT_TRUE(heard && heard->first == wire::FrameType::welcome);
      stranger.say(type, bytes_of(wire::Step{UINT64_MAX, UINT64_MAX}));
      (void)stranger.hear();
    });
    for (const Ending& ending : run_ranks({job[0], job[1]}, [&](Exchange& exchange) {
           EXPECT_TRUE(
               within(2s, [&] { return exchange.incident().kind != Incident::Kind::none; }));
           EXPECT_EQ(exchange.incident().kind, Incident::Kind::died);
           EXPECT_EQ(exchange.incident().rank, Rank{2});
           // Both hear before either leaves.
           ++heard_count;
           EXPECT_TRUE(within(5s, [&] { return heard_count == 2; }));
         })) {
      EXPECT_FALSE(ending.failed) << ending.text;
    }
    impostor.join();
  }
}

}  // namespace
}  // namespace tutti::bootstrap
