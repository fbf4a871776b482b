// Promise: whoever dies, and whenever, the ranks that are still there get a communicator of their
// own by shrink(), all the same one, on which results are right; a rank that is stopped is waited
// for, and named.
//
// process_shrink --runs=N --seed=S: the runs of Chaos are S .. S + N - 1; a failure prints the seed
// of its run.
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/detail/descriptor.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/number_options.hpp"
#include "support/sceneries.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::Meeting;
using test::Met;
using test::name_of_scenery;
using test::port_for;
using test::Scenery;

unsigned runs = 12;  // --runs=N
unsigned seed = 1;   // --seed=S

ContextOptions shrinkable_on(const Exchange& exchange, std::uint32_t ranks_per_node) {
  ContextOptions options = test::on_test_device(exchange);
  options.ranks_per_node = {ranks_per_node};
  options.shrinkable = true;
  options.detection_bound = 200ms;
  return options;
}

/// Says what is wrong, and in which rank, on standard error: a child's expectations are not heard.
class Judge {
 public:
  explicit Judge(Rank self) : self_(self) {}
  bool expect(bool holds, const std::string& what) {
    if (holds) return true;
    std::fprintf(stderr, "rank %u: %s\n", index_of(self_), what.c_str());
    ++wrong_;
    return false;
  }
  /// An exit status.
  int verdict() const noexcept { return wrong_ == 0 ? 0 : 3; }

 private:
  Rank self_;
  int wrong_ = 0;
};

/// Collectives of some ranks, each of which contributes a bit of its own, so that a sum says whose
/// contributions it has.
class Collectives {
 public:
  Collectives(Communicator& communicator, std::uint32_t bit)
      : ranks_(communicator.rank_count()),
        source_(block * ranks_, std::uint64_t{1} << bit),
        target_(block * ranks_),
        exchanged_(block * ranks_),
        root_(ranks_ - 1) {
    const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::uint64);
    for (const std::size_t count : {std::size_t{1}, block})
      operations_.push_back(allreduce(communicator, {.source = source_.data(),
                                                     .target = target_.data(),
                                                     .element_count = count,
                                                     .reduction = sum}));
    operations_.push_back(alltoall<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(source_), std::span(exchanged_)));
    operations_.push_back(
        broadcast(communicator, {.buffer = passed_on_.data(), .bytes = 8, .root = Rank{root_}}));
    is_root_ = index_of(communicator.rank()) == root_;
  }

  /// One of them; all ranks ask for the same.
  Status call(unsigned which) {
    which %= static_cast<unsigned>(operations_.size());
    if (which == 3) passed_on_[0] = is_root_ ? 0x1234 : 0;
    Status status = operations_[which].start();
    if (status == Status::ok) status = operations_[which].wait(30s);
    if (status != Status::ok) return status;
    if (which == 0) note(target_[0]);
    if (which == 1)
      for (std::size_t i = 0; i < block; ++i) note(target_[i]);
    if (which == 2) {
      std::uint64_t all = 0;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) all += exchanged_[rank * block];
      note(all);
    }
    if (which == 3 && passed_on_[0] != 0x1234) is_right_ = false;
    return status;
  }
  Status call_each() {
    for (unsigned which = 0; which < operations_.size(); ++which)
      if (const Status status = call(which); status != Status::ok) return status;
    return Status::ok;
  }
  /// A mask of the ranks whose contributions were in all results; nothing if results differ.
  std::optional<std::uint64_t> contributors() const {
    return is_right_ ? std::optional(seen_) : std::nullopt;
  }

 private:
  static constexpr std::size_t block = 300;
  void note(std::uint64_t sum) {
    if (seen_ != 0 && sum != seen_) is_right_ = false;
    seen_ = sum;
  }

  std::uint32_t ranks_;
  std::vector<std::uint64_t> source_, target_, exchanged_;
  std::vector<std::uint64_t> passed_on_ = std::vector<std::uint64_t>(1);
  std::uint32_t root_;
  bool is_root_ = false;
  std::vector<Operation> operations_;
  std::uint64_t seen_ = 0;
  bool is_right_ = true;
};

/// Its ranks are those of the mask, and results are right.
void expect_sound(Judge& judge, Communicator& communicator, std::uint32_t bit,
                  std::uint64_t members, const std::string& when) {
  Collectives collectives(communicator, bit);
  const Status status = collectives.call_each();
  judge.expect(status == Status::ok, when + ": " + communicator.failure().text);
  if (status != Status::ok) return;
  const auto contributors = collectives.contributors();
  judge.expect(contributors == members, when + ": contributions of " +
                                            std::to_string(contributors.value_or(0)) +
                                            " instead of " + std::to_string(members));
}

std::uint64_t all_of(std::uint32_t ranks) {
  return (std::uint64_t{1} << ranks) - 1;
}

/// Calls until the communicator fails; false: it did not within a minute.
bool call_until_failure(Communicator& communicator, std::uint32_t bit) try {
  Collectives collectives(communicator, bit);
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (unsigned which = 0; std::chrono::steady_clock::now() < end; ++which)
    if (collectives.call(which) != Status::ok) return true;
  return false;
} catch (const Error& error) {  // a rank has died while the operations were made
  return error.code() == ErrorCode::peer_failed;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "no error";
}

std::string with_code(ErrorCode code, const std::string& text) {
  return std::to_string(static_cast<int>(code)) + ": " + text;
}

class Shrink : public testing::TestWithParam<Scenery> {};
INSTANTIATE_TEST_SUITE_P(, Shrink,
                         testing::Values(Scenery{Meeting::local, 1}, Scenery{Meeting::tcp, 2},
                                         Scenery{Meeting::mute, 8}),
                         name_of_scenery);

/// Ranks die one after the other, rank 0 first, until one is left.
TEST_P(Shrink, goes_on_down_to_one_rank) {
  constexpr std::uint32_t ranks = 4;
  const Meeting meeting = GetParam().meeting;
  const std::uint32_t ranks_per_node = GetParam().ranks_per_node;
  const std::uint16_t port = port_for(meeting);
  const test::SharedCount sound;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& local) {
    const Met met(meeting, local, port);
    Exchange& exchange = *met;
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, ranks_per_node));
    auto communicator = std::make_unique<Communicator>(context, exchange);
    std::uint32_t sound_by_now = 0;
    for (std::uint32_t dead = 0; dead + 1 < ranks; ++dead) {
      expect_sound(judge, *communicator, self, all_of(ranks) & ~all_of(dead), "before a death");
      sound.add();
      sound_by_now += ranks - dead;
      if (self == dead && sound.comes_to(sound_by_now)) ::raise(SIGKILL);
      if (!judge.expect(call_until_failure(*communicator, self), "no failure was met")) break;
      auto next = std::make_unique<Communicator>(communicator->shrink(20s));
      communicator = std::move(next);
      judge.expect(communicator->rank_count() == ranks - 1 - dead, "rank_count");
      judge.expect(index_of(communicator->rank()) == self - 1 - dead, "rank");
    }
    expect_sound(judge, *communicator, self, all_of(ranks) & ~all_of(ranks - 1), "alone");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{1000 + SIGKILL, 1000 + SIGKILL, 1000 + SIGKILL, 0}));
}

/// Where nobody has died it is another communicator of the same ranks, as often as one likes, and
/// no descriptor remains of those that are gone.
TEST_P(Shrink, without_a_failure_duplicates) {
  constexpr std::uint32_t ranks = 3;
  const Meeting meeting = GetParam().meeting;
  const std::uint32_t ranks_per_node = GetParam().ranks_per_node;
  const std::uint16_t port = port_for(meeting);
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& local) {
    const Met met(meeting, local, port);
    Exchange& exchange = *met;
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, ranks_per_node));
    Communicator first(context, exchange);
    Collectives of_first(first, self);
    auto second = std::make_unique<Communicator>(first.shrink(20s));
    expect_sound(judge, *second, self, all_of(ranks), "the second");
    judge.expect(of_first.call_each() == Status::ok, "the first stays usable");
    std::size_t descriptors = 0;
    for (int time = 0; time < 8; ++time) {
      auto next = std::make_unique<Communicator>(second->shrink(20s));
      second = std::move(next);
      expect_sound(judge, *second, self, all_of(ranks), "a later one");
      if (time == 0) descriptors = open_descriptors();
    }
    // The thread that relays closes connections of the meeting a moment after it.
    for (int pause = 0; open_descriptors() > descriptors && pause < 10'000; ++pause)
      std::this_thread::sleep_for(1ms);
    judge.expect(open_descriptors() <= descriptors, std::to_string(open_descriptors()) +
                                                        " descriptors, there were " +
                                                        std::to_string(descriptors));
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), std::vector(ranks, 0));
}

/// A rank that is stopped is late: the others time out and name it, and meet it once it goes on.
TEST_P(Shrink, waits_for_a_rank_that_is_stopped) {
  constexpr std::uint32_t ranks = 4, dead = 0, stopped = 1;  // the next leader
  const Meeting meeting = GetParam().meeting;
  const std::uint32_t ranks_per_node = GetParam().ranks_per_node;
  const std::uint16_t port = port_for(meeting);
  const test::SharedCount ready, timed_out;
  const auto results = run_local(
      {.rank_count = ranks,
       .on_started =
           [&](const std::vector<pid_t>& processes) {
             if (!ready.comes_to(ranks)) return;
             ::kill(processes[stopped], SIGSTOP);
             ::kill(processes[dead], SIGKILL);
             EXPECT_TRUE(timed_out.comes_to(2));
             ::kill(processes[stopped], SIGCONT);
           }},
      [&](Exchange& local) {
        const Met met(meeting, local, port);
        Exchange& exchange = *met;
        Judge judge(exchange.self());
        const std::uint32_t self = index_of(exchange.self());
        Context context(shrinkable_on(exchange, ranks_per_node));
        Communicator communicator(context, exchange);
        expect_sound(judge, communicator, self, all_of(ranks), "before");
        ready.add();
        judge.expect(call_until_failure(communicator, self), "no failure was met");
        if (self != stopped) {
          const std::string text = text_of([&] { (void)communicator.shrink(300ms); });
          judge.expect(text.starts_with(with_code(ErrorCode::timed_out,
                                                  "shrink: rank 1 did not come within 300 ms; ")),
                       text);
          timed_out.add();
        }
        Communicator survivors = communicator.shrink(20s);
        expect_sound(judge, survivors, self, all_of(ranks) & ~1u, "after");
        return judge.verdict();
      });
  EXPECT_EQ(codes_of(results), (std::vector{1000 + SIGKILL, 0, 0, 0}));
}

/// The ranks that call first wait for those that call later, whoever leads.
TEST(ShrinkOfLocalRanks, waits_for_ranks_that_call_late) {
  constexpr std::uint32_t ranks = 3;
  for (std::uint32_t late = 0; late < ranks; ++late) {
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      Judge judge(exchange.self());
      const std::uint32_t self = index_of(exchange.self());
      Context context(shrinkable_on(exchange, 1));
      Communicator communicator(context, exchange);
      if (self == late) std::this_thread::sleep_for(300ms);
      Communicator survivors = communicator.shrink(20s);
      expect_sound(judge, survivors, self, all_of(ranks), "after");
      return judge.verdict();
    });
    EXPECT_EQ(codes_of(results), std::vector(ranks, 0)) << "late: " << late;
  }
}

/// A rank that has destroyed its communicator is as gone as one that has died.
TEST(ShrinkOfLocalRanks, goes_on_without_one_that_has_left) {
  constexpr std::uint32_t ranks = 3;
  for (std::uint32_t leaving = 0; leaving < ranks; ++leaving) {
    const test::SharedCount done;
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      Judge judge(exchange.self());
      const std::uint32_t self = index_of(exchange.self());
      Context context(shrinkable_on(exchange, 2));
      std::optional<Communicator> communicator(std::in_place, context, exchange);
      if (self == leaving) {
        communicator.reset();
        judge.expect(done.comes_to(ranks - 1), "the others were not done");
        return judge.verdict();
      }
      Communicator survivors = communicator->shrink(20s);
      expect_sound(judge, survivors, self, all_of(ranks) & ~(1u << leaving), "after");
      done.add();
      return judge.verdict();
    });
    EXPECT_EQ(codes_of(results), std::vector(ranks, 0)) << "leaving: " << leaving;
  }
}

TEST(ShrinkOfLocalRanks, of_a_part_is_of_its_ranks) {
  constexpr std::uint32_t ranks = 5;
  const test::SharedCount ready;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 1));
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(self % 2);
    ready.add();
    if (self == 2 && ready.comes_to(ranks)) ::raise(SIGKILL);
    judge.expect(call_until_failure(*part, self), "no failure was met");
    Communicator survivors = part->shrink(20s);
    part.reset();
    expect_sound(judge, survivors, self, self % 2 == 0 ? 0b10001u : 0b01010u, "after");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 0, 1000 + SIGKILL, 0, 0}));
}

/// A rank that has destroyed one communicator may live on in another, which uses the same
/// connections.
TEST(ShrinkOfLocalRanks, leaves_a_rank_that_lives_on_in_another_its_connections) {
  constexpr std::uint32_t ranks = 5;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 1));
    Communicator whole(context, exchange);
    Collectives of_whole(whole, self);
    judge.expect(of_whole.call_each() == Status::ok, "the whole before");
    std::optional<Communicator> part = whole.split(self % 2), survivors;
    if (self == 2) part.reset();
    if (self == 0 || self == 4) {
      survivors.emplace(part->shrink(20s));
      expect_sound(judge, *survivors, self, 0b10001, "what is left of the part");
    }
    judge.expect(of_whole.call_each() == Status::ok,
                 std::string("the whole after: ") + whole.failure().text);
    expect_sound(judge, whole, self, all_of(ranks), "new operations of the whole");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), std::vector(ranks, 0));
}

/// The port at which this process listens on IPv4; 0: at none.
std::uint16_t port_listened_at() {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    sockaddr_in address{};
    socklen_t address_bytes = sizeof address;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 &&
        listens != 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0 &&
        address.sin_family == AF_INET)
      return ntohs(address.sin_port);
  }
  return 0;
}

/// Another program has got the port of a dead rank, and accepts connections there in silence.
TEST(ShrinkOfLocalRanks, knows_that_a_process_has_ended_whatever_listens_at_its_port) {
  constexpr std::uint32_t ranks = 4;
  for (const std::uint32_t dead : {0u, 2u}) {
    const test::SharedCount ready, port, taken;
    detail::Descriptor stranger;
    const auto take_port = [&] {
      stranger = detail::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int yes = 1;
      (void)::setsockopt(stranger.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      const sockaddr_in address = test::loopback(static_cast<std::uint16_t>(port.number()));
      return ::bind(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
                 0 &&
             ::listen(stranger.get(), 64) == 0;
    };
    const auto results =
        run_local({.rank_count = ranks,
                   .on_started =
                       [&](const std::vector<pid_t>& processes) {
                         if (!ready.comes_to(ranks)) return;
                         ::kill(processes[dead], SIGKILL);
                         bool is_taken = false;
                         for (int pause = 0; !is_taken && pause < 10'000; ++pause) {
                           std::this_thread::sleep_for(1ms);
                           is_taken = take_port();
                         }
                         EXPECT_TRUE(is_taken);
                         taken.add();
                       }},
                  [&](Exchange& exchange) {
                    Judge judge(exchange.self());
                    const std::uint32_t self = index_of(exchange.self());
                    Context context(shrinkable_on(exchange, 2));
                    Communicator communicator(context, exchange);
                    expect_sound(judge, communicator, self, all_of(ranks), "before");
                    if (self == dead)
                      for (std::uint16_t count = port_listened_at(); count > 0; --count) port.add();
                    ready.add();
                    judge.expect(call_until_failure(communicator, self), "no failure was met");
                    judge.expect(taken.comes_to(1), "nobody has taken the port");
                    Communicator survivors = communicator.shrink(20s);
                    expect_sound(judge, survivors, self, all_of(ranks) & ~(1u << dead), "after");
                    return judge.verdict();
                  });
    std::vector<int> codes(ranks, 0);
    codes[dead] = 1000 + SIGKILL;
    EXPECT_EQ(codes_of(results), codes) << "dead: " << dead;
  }
}

/// Buffers of the failed operation are registered no longer when a neighbour may still write them,
/// which costs the ranks that are still there their connection: they make another one.
TEST(ShrinkOfLocalRanks, connections_that_are_lost_are_made_anew) {
  constexpr std::uint32_t ranks = 4;
  for (unsigned run = 0; run < 4; ++run) {
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      Judge judge(exchange.self());
      const std::uint32_t self = index_of(exchange.self());
      ContextOptions options = shrinkable_on(exchange, 1);
      options.register_buffers = true;
      Context context(options);
      Communicator communicator(context, exchange);
      // No rank waits for anything in this one, so none learns of the death through it.
      std::optional<Communicator> part;
      if (run % 4 >= 2) part = communicator.split(0);
      std::vector<std::uint64_t> source(50'000, self), target(50'000);
      auto operation = std::make_unique<Operation>(allreduce(
          communicator, {.source = source.data(),
                         .target = target.data(),
                         .element_count = source.size(),
                         .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                         .algorithm = run % 2 == 0 ? Algorithm::ring : Algorithm::chunked_fold}));
      judge.expect(operation->algorithm().find("zero_copy") != std::string::npos,
                   operation->algorithm());
      Status status = Status::ok;
      for (unsigned call = 0; status == Status::ok; ++call) {
        status = operation->start();
        if (self == 1 && call == 3 + run) {
          for (unsigned i = 0; i < 7 * run; ++i) (void)operation->test();
          ::raise(SIGKILL);
        }
        if (status == Status::ok) status = operation->wait(20s);
      }
      if (self % 2 == 0) operation.reset();
      Communicator survivors = communicator.shrink(20s);
      operation.reset();
      expect_sound(judge, survivors, self, all_of(ranks) & ~2u, "after");
      return judge.verdict();
    });
    EXPECT_EQ(codes_of(results), (std::vector{0, 1000 + SIGKILL, 0, 0})) << "run " << run;
  }
}

/// The ranks to which this one has a connection that the next set-up would use.
std::vector<std::uint32_t> connected_from(Communicator& communicator) {
  const Communicator::Implementation& ranks = communicator.implementation();
  std::vector<std::uint32_t> connected;
  for (std::uint32_t rank = 0; rank < ranks.process_of.size(); ++rank)
    if (ranks.context.fabric.connections().has(ranks.process_of[rank])) connected.push_back(rank);
  return connected;
}

/// Also where the context has another communicator that contains the dead rank, and no rank has
/// waited in that one.
TEST(ShrinkOfLocalRanks, begins_anew_whatever_has_not_been_waited_in) {
  enum class Besides { a_part, another_line, what_another_line_was_shrunk_to };
  constexpr std::uint32_t ranks = 3, dead = 1;
  for (const Besides besides :
       {Besides::a_part, Besides::another_line, Besides::what_another_line_was_shrunk_to}) {
    const test::SharedCount ready;
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      Judge judge(exchange.self());
      const std::uint32_t self = index_of(exchange.self());
      Context context(shrinkable_on(exchange, 1));
      Communicator whole(context, exchange);
      std::optional<Communicator> other, third;
      if (besides == Besides::a_part) other = whole.split(0);
      if (besides != Besides::a_part) other.emplace(context, exchange);
      if (besides == Besides::what_another_line_was_shrunk_to) third.emplace(other->shrink(20s));
      std::optional<Collectives> of_other;
      of_other.emplace(third ? *third : *other, self);
      judge.expect(of_other->call_each() == Status::ok, "before");
      judge.expect(connected_from(whole).size() == ranks - 1, "there are connections");
      ready.add();
      if (self == dead && ready.comes_to(ranks)) ::raise(SIGKILL);
      judge.expect(call_until_failure(whole, self), "no failure was met");
      Communicator survivors = whole.shrink(20s);
      judge.expect(connected_from(survivors).empty(), "a connection has been kept");
      const auto begin = std::chrono::steady_clock::now();
      of_other.reset();
      judge.expect(std::chrono::steady_clock::now() - begin < test::patiently(2s),
                   "the old operations wait");
      expect_sound(judge, survivors, self, all_of(ranks) & ~(1u << dead), "after");
      return judge.verdict();
    });
    std::vector<int> codes(ranks, 0);
    codes[dead] = 1000 + SIGKILL;
    EXPECT_EQ(codes_of(results), codes) << "besides: " << static_cast<int>(besides);
  }
}

/// Both ends of a connection keep it, or neither does, even if only one rank knows of the failure.
TEST(ShrinkOfLocalRanks, begins_anew_between_two_ranks_of_which_one_has_not_heard_of_the_failure) {
  constexpr std::uint32_t ranks = 3;
  const test::SharedCount made;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 1));
    Communicator whole(context, exchange);
    std::optional<Collectives> collectives;
    collectives.emplace(whole, self);
    judge.expect(collectives->call_each() == Status::ok, "before");
    if (self == 0)
      whole.implementation().fail(Status::aborted, Rank{0}, "as if it had met something", nullptr);
    Communicator survivors = whole.shrink(20s);
    // The communicator has not failed on ranks 1 and 2, which may keep their connection.
    const std::vector<std::uint32_t> kept = connected_from(survivors);
    judge.expect(kept == (self == 0 ? std::vector<std::uint32_t>{} : std::vector{3 - self}),
                 std::to_string(kept.size()) + " connections have been kept");
    // Operations are destroyed when the other end of their connection is closed and no new one
    // exists.
    made.add();
    judge.expect(made.comes_to(ranks), "somebody is late");
    const auto begin = std::chrono::steady_clock::now();
    collectives.reset();
    judge.expect(std::chrono::steady_clock::now() - begin < test::patiently(2s),
                 "the old operations wait");
    expect_sound(judge, survivors, self, all_of(ranks), "after");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
}

/// A call of the old communicator is in flight on a rank that does not know of its failure, and
/// needs a connection that both ends have given up.
TEST(ShrinkOfLocalRanks, what_the_old_communicator_misses_does_not_concern_the_next) {
  constexpr std::uint32_t ranks = 3;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 1));
    Communicator whole(context, exchange);
    std::uint64_t number = self, passed_on = 0;
    const auto pass_on = [&](std::uint32_t root) {
      passed_on = number;
      return broadcast(whole, {.buffer = &passed_on, .bytes = 8, .root = Rank{root}});
    };
    Operation first = pass_on(1), second = pass_on(2);
    if (self == 0)
      whole.implementation().fail(Status::aborted, Rank{0}, "as if it had met something", nullptr);
    Communicator survivors = whole.shrink(20s);
    Collectives collectives(survivors, self);
    if (self != 0) judge.expect((self == 1 ? first : second).start() == Status::ok, "start");
    const auto end = std::chrono::steady_clock::now() + 1s;
    std::uint64_t goes_on = 1;
    Operation agree =
        allreduce(survivors, {.source = &number,
                              .target = &goes_on,
                              .element_count = 1,
                              .reduction = built_in_reduction(BuiltIn::min, ElementType::uint64)});
    do {
      const Status status = collectives.call_each();
      if (!judge.expect(status == Status::ok, survivors.failure().text)) break;
      number = std::chrono::steady_clock::now() < end ? 1 : 0;
      if (!judge.expect(agree.start() == Status::ok && agree.wait(20s) == Status::ok,
                        survivors.failure().text))
        break;
    } while (goes_on != 0);
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
}

/// A rank may learn only after the shrink that the old communicator has failed.  That failure does
/// not concern connections that were made since: they end in good order, and operations over them
/// go on.
TEST(ShrinkOfLocalRanks,
     a_failure_of_the_old_communicator_does_not_concern_connections_made_since) {
  constexpr std::uint32_t ranks = 2;
  enum class Then { nothing, uses_the_old_one };
  for (const Then then : {Then::nothing, Then::uses_the_old_one}) {
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      Judge judge(exchange.self());
      const std::uint32_t self = index_of(exchange.self());
      Context context(shrinkable_on(exchange, 1));
      Communicator whole(context, exchange);
      expect_sound(judge, whole, self, all_of(ranks), "before");
      const auto fail = [&] {
        whole.implementation().fail(Status::aborted, Rank{0}, "as if it had met something",
                                    nullptr);
      };
      if (then == Then::nothing && self == 0) fail();
      Communicator survivors = whole.shrink(20s);
      expect_sound(judge, survivors, self, all_of(ranks), "after");
      judge.expect(connected_from(survivors) == std::vector{1 - self}, "there is a connection");
      if (then == Then::uses_the_old_one)
        expect_sound(judge, whole, self, all_of(ranks), "the old one");
      fail();
      const verbs::Connections& connections = whole.implementation().context.fabric.connections();
      judge.expect(connections.has_met_failure() == (then == Then::uses_the_old_one),
                   "which connections have met the failure");
      expect_sound(judge, survivors, self, all_of(ranks), "later");
      return judge.verdict();
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(ranks)) << static_cast<int>(then);
  }
}

/// A call of the old communicator is in flight on a rank that does not know of its failure, and
/// only receives on a connection that both ends have given up.
TEST(ShrinkOfLocalRanks, a_call_that_awaits_a_message_on_a_connection_that_was_let_go_fails) {
  constexpr std::uint32_t ranks = 2;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 1));
    Communicator whole(context, exchange);
    std::uint64_t number = self;
    Operation passing =
        broadcast(whole, {.buffer = &number, .bytes = sizeof number, .root = Rank{0}});
    if (self == 1) judge.expect(passing.start() == Status::ok, "start");
    if (self == 0)
      whole.implementation().fail(Status::aborted, Rank{0}, "as if it had met something", nullptr);
    Communicator survivors = whole.shrink(20s);
    if (self == 1) {
      judge.expect(passing.wait(10s) == Status::transport_failed, "the old call has no failure");
      const Failure& failure = whole.failure();
      judge.expect(failure.peer == Rank{0} &&
                       std::string(failure.text).find("was let go") != std::string::npos,
                   failure.text);
    }
    expect_sound(judge, survivors, self, all_of(ranks), "after");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(ranks));
}

/// What a communicator that is being made does with its exchange.
struct Steps {
  std::vector<Timeout> timeouts = {};
  std::size_t without_memory = SIZE_MAX;  // the step in which there is none
  std::vector<Incident> announced = {};
};

/// An exchange each of whose steps takes some time.
class SlowExchange final : public Exchange {
 public:
  static constexpr Timeout pause = 20ms;
  SlowExchange(Exchange& given, Steps& steps) : given_(given), steps_(steps) {}
  Rank self() const noexcept override { return given_.self(); }
  std::uint32_t rank_count() const noexcept override { return given_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    if (steps_.timeouts.size() == steps_.without_memory) throw std::bad_alloc();
    steps_.timeouts.push_back(timeout);
    std::this_thread::sleep_for(pause);
    given_.allgather(mine, all, 20s);
  }
  void barrier(Timeout) override { given_.barrier(20s); }
  void announce(Incident incident) noexcept override { steps_.announced.push_back(incident); }

 private:
  Exchange& given_;
  Steps& steps_;
};

/// Makes a communicator as shrink() does after all ranks of `whole` have met over `exchange`.
void make_shrunk(Communicator& whole, Exchange& exchange, Steps& steps, Timeout timeout) {
  std::vector<Rank> ranks;
  for (std::uint32_t rank = 0; rank < whole.rank_count(); ++rank) ranks.push_back(Rank{rank});
  Communicator::Implementation made(
      whole.implementation(), std::make_unique<SlowExchange>(exchange, steps), ranks, timeout);
}

TEST(ShrinkOfLocalRanks, each_step_has_what_the_steps_before_have_left_of_the_timeout) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    Context context(shrinkable_on(exchange, 2));
    Communicator whole(context, exchange);
    Steps steps;
    make_shrunk(whole, exchange, steps, 10s);
    const std::vector<Timeout>& given = steps.timeouts;
    judge.expect(given.size() >= 3, std::to_string(given.size()) + " steps");
    judge.expect(given.at(0) <= 10s, "the first step has more than all");
    for (std::size_t i = 1; i < given.size(); ++i)
      judge.expect(given[i] <= given[i - 1] - SlowExchange::pause,
                   "step " + std::to_string(i) + " has not less than the one before");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 0}));
}

/// Otherwise the others would wait for the rank without memory, and its hub for them.
TEST(ShrinkOfLocalRanks, a_rank_without_memory_tells_the_others_that_it_gives_up) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 2));
    Communicator whole(context, exchange);
    for (std::size_t step = 0;; ++step) {
      Steps steps;
      steps.without_memory = step;
      bool is_made = false;
      try {
        make_shrunk(whole, exchange, steps, 10s);
        is_made = true;
      } catch (const std::bad_alloc&) {
      }
      if (is_made) {
        judge.expect(step >= 3, "there are steps");
        break;
      }
      const std::string name = "step " + std::to_string(step);
      // Both ranks give up, and both name the one that was first.
      judge.expect(
          steps.announced.size() == 1 && steps.announced[0].kind == Incident::Kind::aborted,
          name + " has told nobody");
    }
    expect_sound(judge, whole, self, all_of(2), "the whole after");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 0}));
}

/// The nodes of all ranks.
std::vector<std::uint32_t> nodes_of(Communicator& communicator) {
  std::vector<std::uint32_t> numbers;
  for (const Node node : communicator.implementation().neighbours.nodes.node)
    numbers.push_back(index_of(node));
  return numbers;
}

/// Ranks stay on the nodes of the imposed shape.  A new shape could put ranks of two hosts on one
/// node, which they cannot share.
TEST(ShrinkOfLocalRanks, keeps_the_nodes_that_were_imposed_on_all_ranks) {
  constexpr std::uint32_t ranks = 6;
  const test::SharedCount ready;
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    const std::uint32_t self = index_of(exchange.self());
    Context context(shrinkable_on(exchange, 3));
    Communicator whole(context, exchange);
    std::optional<Communicator> part = whole.split(self == 5 ? 1 : 0);
    ready.add();
    if (self == 1 && ready.comes_to(ranks)) ::raise(SIGKILL);
    judge.expect(call_until_failure(whole, self), "no failure was met");
    std::optional<Communicator> survivors(whole.shrink(20s));
    judge.expect(nodes_of(*survivors) == std::vector<std::uint32_t>{0, 0, 1, 1, 1}, "the whole");
    expect_sound(judge, *survivors, self, all_of(ranks) & ~2u, "the whole");
    survivors.emplace(survivors->shrink(20s));
    judge.expect(nodes_of(*survivors) == std::vector<std::uint32_t>{0, 0, 1, 1, 1}, "once more");
    if (self == 5) return judge.verdict();
    Communicator of_part = part->shrink(20s);
    judge.expect(nodes_of(of_part) == std::vector<std::uint32_t>{0, 0, 1, 1}, "a part");
    expect_sound(judge, of_part, self, 0b11101, "a part");
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 1000 + SIGKILL, 0, 0, 0, 0}));
}

TEST(ShrinkOfLocalRanks, needs_the_option) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    const std::string text = text_of([&] { (void)communicator.shrink(1s); });
    judge.expect(text.starts_with(with_code(ErrorCode::invalid_argument,
                                            "shrink: this communicator cannot be shrunk; set "
                                            "TUTTI_SHRINKABLE=1 ")),
                 text);
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 0}));
}

TEST(ShrinkOfLocalRanks, option_is_alike_on_all_ranks) {
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    Judge judge(exchange.self());
    ContextOptions options = test::on_test_device(exchange);
    options.shrinkable = exchange.self() != Rank{1};
    Context context(options);
    const std::string text = text_of([&] { Communicator communicator(context, exchange); });
    judge.expect(text == with_code(ErrorCode::mismatch,
                                   exchange.self() == Rank{1}
                                       ? "rank 0 can be shrunk, this rank cannot: set "
                                         "TUTTI_SHRINKABLE (or shrinkable in code) alike everywhere"
                                       : "rank 1 cannot be shrunk, this rank can: set "
                                         "TUTTI_SHRINKABLE (or shrinkable in code) alike "
                                         "everywhere"),
                 text);
    return judge.verdict();
  });
  EXPECT_EQ(codes_of(results), (std::vector{0, 0, 0}));
}

/// The events of a run of Chaos, which follow from its seed.
struct Script {
  std::uint32_t ranks, ranks_per_node;
  Meeting meeting;
  std::vector<std::uint32_t> killed;   // together, from outside
  std::vector<std::uint32_t> falling;  // within their first shrink, or soon after
  std::chrono::microseconds killed_after, falls_after;
  bool keeps_old;  // communicators are destroyed at the end, not once they are shrunk

  explicit Script(unsigned of) {
    std::mt19937 random(of);
    const auto below = [&](std::uint32_t end) {
      return static_cast<std::uint32_t>(random() % end);
    };
    ranks = 2 + below(5);
    ranks_per_node = 1 + below(ranks);
    meeting = static_cast<Meeting>(below(3));
    std::vector<std::uint32_t> order(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) order[rank] = rank;
    std::shuffle(order.begin(), order.end(), random);
    const std::uint32_t deaths = 1 + below(ranks - 1);
    const std::uint32_t together = 1 + below(std::min(deaths, 2u));
    killed.assign(order.begin(), order.begin() + together);
    falling.assign(order.begin() + together, order.begin() + deaths);
    killed_after = std::chrono::microseconds(below(30'000));
    falls_after = std::chrono::microseconds(below(below(2) == 0 ? 2'000 : 20'000));
    keeps_old = below(2) == 0;
  }
  std::string words() const {
    std::string text = std::to_string(ranks) + " ranks, " + std::to_string(ranks_per_node) +
                       " a node, meeting " + std::to_string(static_cast<int>(meeting)) + ", killed";
    for (const std::uint32_t rank : killed) text += " " + std::to_string(rank);
    if (!falling.empty()) text += ", falling";
    for (const std::uint32_t rank : falling) text += " " + std::to_string(rank);
    return text;
  }
  bool falls(std::uint32_t rank) const {
    return std::find(falling.begin(), falling.end(), rank) != falling.end();
  }
  bool survives(std::uint32_t rank) const {
    return std::find(killed.begin(), killed.end(), rank) == killed.end() && !falls(rank);
  }
  std::uint64_t survivors() const {
    std::uint64_t mask = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      if (survives(rank)) mask |= std::uint64_t{1} << rank;
    return mask;
  }
};

/// Collectives, on what is left of the communicator after each death, until all have died that will
/// die.  It takes the ranks of the last one from what they contribute.
int live_through(Exchange& exchange, const Script& script, const test::SharedCount& begun) {
  Judge judge(exchange.self());
  const std::uint32_t self = index_of(exchange.self());
  const auto left = static_cast<std::uint32_t>(std::popcount(script.survivors()));
  Context context(shrinkable_on(exchange, script.ranks_per_node));
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.push_back(std::make_unique<Communicator>(context, exchange));
  std::thread falling;
  for (;;) {
    Communicator& communicator = *communicators.back();
    try {
      const bool is_last = communicator.rank_count() == left;
      Collectives collectives(communicator, self);
      Status status = Status::ok;
      for (unsigned call = 0; status == Status::ok && (call < 20 || !is_last); ++call) {
        status = collectives.call(call);
        if (communicators.size() == 1 && call == 4) begun.add();
      }
      if (!judge.expect(collectives.contributors().has_value(), "results are wrong")) break;
      if (status == Status::ok) {
        judge.expect(collectives.contributors() == script.survivors(), "whose results those are");
        break;
      }
    } catch (const Error& error) {  // a rank has died while the operations were made
      if (!judge.expect(
              error.code() == ErrorCode::peer_failed || error.code() == ErrorCode::timed_out,
              error.what()))
        break;
    }
    if (script.falls(self) && !falling.joinable())
      falling = std::thread([&] {
        std::this_thread::sleep_for(script.falls_after);
        ::kill(::getpid(), SIGKILL);
      });
    try {
      auto next = std::make_unique<Communicator>(communicator.shrink(20s));
      if (!script.keeps_old) communicators.clear();
      communicators.push_back(std::move(next));
    } catch (const Error& error) {
      judge.expect(false, error.what());
      break;
    }
  }
  if (falling.joinable()) falling.join();
  return judge.verdict();
}

void play(unsigned of) {
  const Script script(of);
  SCOPED_TRACE("--seed=" + std::to_string(of) + " --runs=1: " + script.words());
  const std::uint16_t port = port_for(script.meeting);
  const test::SharedCount begun;
  const auto results = run_local({.rank_count = script.ranks,
                                  .on_started =
                                      [&](const std::vector<pid_t>& processes) {
                                        if (!begun.comes_to(script.ranks)) return;
                                        std::this_thread::sleep_for(script.killed_after);
                                        for (const std::uint32_t rank : script.killed)
                                          ::kill(processes[rank], SIGKILL);
                                      }},
                                 [&](Exchange& local) {
                                   const Met met(script.meeting, local, port);
                                   return live_through(*met, script, begun);
                                 });
  for (std::uint32_t rank = 0; rank < script.ranks; ++rank) {
    EXPECT_EQ(results[rank].signal, script.survives(rank) ? 0 : SIGKILL) << "rank " << rank;
    EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank;
  }
}

TEST(ShrinkChaos, survivors_go_on_whoever_dies_and_whenever) {
  for (unsigned run = 0; run < runs && !HasFailure(); ++run) play(seed + run);
}

}  // namespace
}  // namespace tutti

int main(int count, char** values) {
  testing::InitGoogleTest(&count, values);
  tutti::test::read_options(count, values, {{"--runs", tutti::runs}, {"--seed", tutti::seed}});
  return RUN_ALL_TESTS();
}
