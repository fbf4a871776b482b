// Promise: when ranks give up calls together (Communicator::cancel()), whatever the collective, its
// schedule and its transport, and wherever each rank is in them, no process writes into their
// targets any more, and all later calls are right, as are those of other communicators meanwhile;
// ranks that do not come, die or do something else are named.
//
// cancel --runs=N --seed=S: the random runs are S .. S + N - 1; a failure prints the seed of its
// run.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "support/collective_jobs.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/number_options.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::CollectiveJob;
using test::Kind;
using test::RunningCollective;

unsigned runs = 3;  // --runs=N
unsigned seed = 1;  // --seed=S

struct Setting {
  std::uint32_t rank_count = 3;
  std::vector<std::uint32_t> ranks_per_node = {1};
  std::optional<Notify> notify = {};
  std::optional<SharedNotifications> shared_notifications = {};
  std::optional<std::size_t> single_copy_bytes = {};
  bool register_buffers = false;
  WaitPolicy wait = WaitPolicy::automatic;

  std::string text() const {
    std::string text = std::to_string(rank_count) + " ranks, nodes of";
    for (const std::uint32_t size : ranks_per_node) text += " " + std::to_string(size);
    if (notify == Notify::flag) text += ", flag";
    if (shared_notifications) text += ", republished";
    if (single_copy_bytes) text += ", single copy";
    if (register_buffers) text += ", registered buffers";
    if (wait == WaitPolicy::block) text += ", block";
    return text;
  }
  ContextOptions options(const Exchange& exchange) const {
    ContextOptions options = test::on_test_device(exchange);
    options.arena_bytes = 32u << 20;
    options.ranks_per_node = ranks_per_node;
    options.notify = notify;
    options.shared_notifications = shared_notifications;
    options.single_copy_bytes = single_copy_bytes;
    options.register_buffers = register_buffers;
    options.wait = wait;
    return options;
  }
};

void run(const Setting& setting, const std::function<int(Exchange&)>& body) {
  SCOPED_TRACE(setting.text());
  EXPECT_EQ(test::codes_of(test::launch({.rank_count = setting.rank_count}, body)),
            std::vector<int>(setting.rank_count));
}

/// Every kind, with messages that are copied, that stay with their sender and that go in chunks,
/// and every schedule that can be asked for by name.
std::vector<CollectiveJob> all_jobs(const Setting& setting) {
  const Rank last{setting.rank_count - 1};
  std::vector<CollectiveJob> jobs = {
      {.kind = Kind::barrier},
      {.kind = Kind::allreduce, .count = 1, .may_move = true},
      {.kind = Kind::allreduce, .count = 600},
      {.kind = Kind::allreduce, .count = 40'000},
      {.kind = Kind::allreduce, .count = 5'003, .algorithm = Algorithm::shared_ring},
      {.kind = Kind::allreduce, .count = 90'001, .algorithm = Algorithm::shared_ring},
      {.kind = Kind::allreduce, .count = 40'000, .in_segments = true},
      {.kind = Kind::allreduce, .count = 140'000, .in_segments = true},
      {.kind = Kind::allreduce_ssp, .count = 5},
      {.kind = Kind::allreduce_ssp, .count = 5, .slack = 2},
      {.kind = Kind::broadcast, .count = 1, .root = last},
      {.kind = Kind::broadcast, .count = 600, .may_move = true},
      {.kind = Kind::broadcast, .count = 70'000, .root = last},
      {.kind = Kind::broadcast, .count = 140'000, .root = last, .in_segments = true},
      {.kind = Kind::broadcast, .count = 100, .data_fraction = 0.5},
      {.kind = Kind::reduce, .count = 1, .root = last, .may_move = true},
      {.kind = Kind::reduce, .count = 600},
      {.kind = Kind::reduce, .count = 40'000, .root = last},
      {.kind = Kind::reduce, .count = 140'000, .in_segments = true},
      {.kind = Kind::reduce, .count = 100, .root = last, .data_fraction = 0.25},
      {.kind = Kind::scan, .count = 3},
      {.kind = Kind::exscan, .count = 700},
      {.kind = Kind::allgather, .count = 5},
      {.kind = Kind::allgather, .count = 3'000},
      {.kind = Kind::allgather, .count = 3'000, .algorithm = Algorithm::shared_ring},
      {.kind = Kind::allgather, .count = 9'000, .in_segments = true},
      {.kind = Kind::alltoall, .count = 1},
      {.kind = Kind::alltoall, .count = 3'000},
      {.kind = Kind::gather, .count = 5, .root = last},
      {.kind = Kind::gather, .count = 3'000},
      {.kind = Kind::scatter, .count = 5},
      {.kind = Kind::scatter, .count = 3'000, .root = last},
      {.kind = Kind::reduce_scatter, .count = 5},
      {.kind = Kind::reduce_scatter, .count = 3'000},
      {.kind = Kind::reduce_scatter, .count = 3'000, .algorithm = Algorithm::shared_ring}};
  for (const Algorithm algorithm :
       {Algorithm::dissemination, Algorithm::two_partial, Algorithm::recursive_multiplying,
        Algorithm::nway, Algorithm::nway_inverse, Algorithm::decomposition,
        Algorithm::decomposition_digits, Algorithm::canonical_dissemination,
        Algorithm::chunked_fold, Algorithm::ring, Algorithm::circulant,
        Algorithm::canonical_halving})
    for (const std::size_t count : {std::size_t{19}, std::size_t{40'000}})
      jobs.push_back({.kind = Kind::allreduce, .count = count, .algorithm = algorithm});
  for (const Across across : {Across::leader, Across::lanes})
    jobs.push_back({.kind = Kind::allreduce, .count = 5'000, .across = across});
  return jobs;
}

/// Null, on all ranks, if the job cannot be done there.
std::unique_ptr<RunningCollective> made(Communicator& communicator, const CollectiveJob& job) {
  try {
    return std::make_unique<RunningCollective>(communicator, job);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
      return nullptr;
    throw;
  }
}

/// Says what went wrong.
int fails(const RunningCollective& collective, const char* what) {
  std::fprintf(stderr, "%s: %s\n", collective.text().c_str(), what);
  return 1;
}

/// Runs calls, all of which have to be right.
int check(RunningCollective& collective, std::uint64_t& call, std::uint32_t count) {
  const std::uint64_t first = call + 1;
  while (count-- > 0) {
    Status status = collective.start(++call);
    if (status == Status::ok) status = collective.operation().wait(30s);
    if (status != Status::ok)
      return fails(collective,
                   (name_of(status) + (": " + collective.operation().describe())).c_str());
    const std::uint64_t slack = collective.slack();
    if (!collective.is_right(call, std::max(first, call > slack ? call - slack : 1))) return 1;
  }
  return 0;
}

/// Calls until one takes longer than `patience`, at most so many.
void call_in_vain(RunningCollective& collective, std::uint64_t& call, std::uint32_t count,
                  Timeout patience) {
  while (count-- > 0)
    if (collective.start(++call) != Status::ok ||
        collective.operation().wait(patience) != Status::ok)
      return;
}

class EveryCollective : public testing::TestWithParam<Setting> {};

/// One rank never starts, some time out, others may have ended and even be a call ahead.
TEST_P(EveryCollective, is_right_after_a_call_that_one_rank_never_started) {
  const Setting& setting = GetParam();
  run(setting, [&](Exchange& exchange) {
    Context context(setting.options(exchange));
    Communicator communicator(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    std::uint32_t late = 0, count = 0;
    for (const CollectiveJob& job : all_jobs(setting)) {
      const auto one = made(communicator, job);
      if (!one) continue;
      RunningCollective& collective = *one;
      ++count;
      late = (late + 1) % setting.rank_count;
      std::uint64_t call = 0;
      if (check(collective, call, late % 3) != 0) return 1;
      if (self != late) call_in_vain(collective, call, 4, 500us);
      communicator.cancel();
      if (collective.operation().in_flight()) return fails(collective, "is in flight");
      // Calls are given up again at once, and from where an operation has just begun.
      if (self == late) call_in_vain(collective, call, 1, 0us);
      communicator.cancel();
      collective.mark();
      communicator.synchronize();
      if (!collective.is_untouched()) return fails(collective, "was written to");
      call = 1000;  // no sum of earlier calls is taken for a later one
      if (check(collective, call, job.count > 10'000 ? 3 : 20) != 0) return 1;
    }
    return count > 40 ? 0 : 2;
  });
}

/// Several operations at once, of which ranks have begun unequally many calls.
void play(unsigned of) {
  std::mt19937 script(of);
  const auto below = [](std::mt19937& random, std::uint32_t end) {
    return static_cast<std::uint32_t>(random() % end);
  };
  Setting setting{.rank_count = 2 + below(script, 4)};
  switch (below(script, 4)) {
    case 0:
      setting.ranks_per_node = {setting.rank_count};
      if (below(script, 2) == 0) setting.single_copy_bytes = 1;
      break;
    case 1:
      setting.ranks_per_node = {2, 1};
      break;
    case 2:
      setting.ranks_per_node = {1, 2};
      if (below(script, 2) == 0) setting.shared_notifications = SharedNotifications::republished;
      break;
    default:
      setting.register_buffers = below(script, 2) == 0;
      break;
  }
  if (below(script, 2) == 0) setting.notify = Notify::flag;
  if (below(script, 4) == 0) setting.wait = WaitPolicy::block;
  SCOPED_TRACE("--seed=" + std::to_string(of) + " --runs=1");
  run(setting, [&](Exchange& exchange) {
    Context context(setting.options(exchange));
    Communicator communicator(context, exchange), another(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    std::vector<CollectiveJob> jobs = all_jobs(setting);
    std::mt19937 alike(of), own(of * 100 + self);
    std::shuffle(jobs.begin(), jobs.end(), alike);
    std::vector<std::unique_ptr<RunningCollective>> collectives;
    while (collectives.size() < 8 && !jobs.empty()) {
      if (auto one = made(communicator, jobs.back())) collectives.push_back(std::move(one));
      jobs.pop_back();
    }
    RunningCollective meanwhile(another, {.kind = Kind::allreduce, .count = 600});
    std::uint64_t call_meanwhile = 0;
    std::vector<std::uint64_t> calls(collectives.size());
    for (std::uint64_t round = 1; round <= 40; ++round) {
      if (meanwhile.start(++call_meanwhile) != Status::ok) return 2;
      std::vector<std::uint32_t> left(collectives.size());
      for (std::uint32_t& count : left) count = below(own, 4);
      // Turns go to operations in any order; each makes further calls as long as they end.
      for (std::uint32_t turns = below(own, 60); turns > 0; --turns) {
        const std::size_t which = below(own, static_cast<std::uint32_t>(collectives.size()));
        RunningCollective& collective = *collectives[which];
        if (collective.operation().in_flight()) {
          if (collective.operation().wait(std::chrono::microseconds(below(own, 100))) < Status::ok)
            return fails(collective, "has failed");
        } else if (left[which] > 0) {
          --left[which];
          if (collective.start(++calls[which]) != Status::ok) return 3;
        }
      }
      communicator.cancel();
      for (const auto& collective : collectives) collective->mark();
      if (meanwhile.operation().wait(30s) != Status::ok ||
          !meanwhile.is_right(call_meanwhile, call_meanwhile))
        return fails(meanwhile, "has failed meanwhile");
      if (below(alike, 4) == 0) communicator.synchronize();
      for (std::size_t i = 0; i < collectives.size(); ++i) {
        if (!collectives[i]->is_untouched()) return fails(*collectives[i], "was written to");
        calls[i] = 1000 * round;
        if (below(alike, 2) == 0 && check(*collectives[i], calls[i], 1 + below(alike, 3)) != 0)
          return 1;
      }
    }
    return 0;
  });
}

TEST(Cancel, gives_up_whatever_is_in_flight) {
  for (unsigned i = 0; i < runs && !testing::Test::HasFailure(); ++i) play(seed + i);
}

TEST(Cancel, of_a_part_leaves_the_whole_alone_and_the_other_way_round) {
  const Setting setting{.rank_count = 4, .ranks_per_node = {2}};
  run(setting, [&](Exchange& exchange) {
    Context context(setting.options(exchange));
    Communicator whole(context, exchange);
    const std::uint32_t self = index_of(exchange.self());
    auto part = whole.split(self / 2);
    RunningCollective of_whole(whole, {.kind = Kind::allreduce, .count = 3'000});
    RunningCollective of_part(*part, {.kind = Kind::allreduce, .count = 3'000});
    std::uint64_t whole_call = 0, part_call = 0;
    for (std::uint64_t round = 0; round < 10; ++round) {
      if (of_whole.start(++whole_call) != Status::ok) return 1;
      if (self % 2 == 0) call_in_vain(of_part, part_call, 1, 100us);
      part->cancel();
      if (of_whole.operation().wait(30s) != Status::ok ||
          !of_whole.is_right(whole_call, whole_call))
        return 2;
      part_call = whole_call = 1000 * (round + 1);
      if (of_part.start(++part_call) != Status::ok) return 3;
      if (self != 0) call_in_vain(of_whole, whole_call, 1, 100us);
      whole.cancel();
      if (of_part.operation().wait(30s) != Status::ok || !of_part.is_right(part_call, part_call))
        return 4;
      whole_call = 1000 * (round + 1) + 500;
      if (check(of_part, part_call, 3) != 0 || check(of_whole, whole_call, 3) != 0) return 5;
    }
    return 0;
  });
}

/// A root may end its calls, and its operation, while others have not begun.
TEST(Cancel, ends_what_destroyed_operations_wait_for) {
  for (const std::vector<std::uint32_t>& nodes : {std::vector<std::uint32_t>{1}, {3}}) {
    const Setting setting{.rank_count = 3, .ranks_per_node = nodes};
    run(setting, [&](Exchange& exchange) {
      ContextOptions options = setting.options(exchange);
      options.arena_bytes = 4u << 20;
      Context context(options);
      Communicator communicator(context, exchange);
      for (int round = 0; round < 30; ++round) {  // more than there is room for at once
        RunningCollective collective(communicator, {.kind = Kind::broadcast, .count = 70'000});
        std::uint64_t call = 0;
        if (check(collective, call, 1) != 0) return 1;
        if (exchange.self() == Rank{0}) {
          call_in_vain(collective, call, 2, 2ms);
          if (!collective.operation().in_flight()) collective.destroy_operation();
        }
        communicator.cancel();
      }
      return 0;
    });
  }
}

TEST(Cancel, is_allowed_when_nothing_is_in_flight) {
  const Setting setting{.rank_count = 2};
  run(setting, [&](Exchange& exchange) {
    Context context(setting.options(exchange));
    Communicator communicator(context, exchange);
    communicator.cancel();  // nothing was ever made
    RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 1});
    std::uint64_t call = 0;
    for (int round = 0; round < 3; ++round) {
      communicator.cancel();
      communicator.cancel();
      if (check(collective, call, 3) != 0) return 1;
    }
    return collective.operation().describe().find("call 3") != std::string::npos ? 0 : 2;
  });
  run({.rank_count = 1}, [&](Exchange& exchange) {
    Context context(Setting{}.options(exchange));
    Communicator communicator(context, exchange);
    RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 1});
    std::uint64_t call = 0;
    communicator.cancel();
    return check(collective, call, 3);
  });
}

TEST(Cancel, is_refused_on_all_ranks_when_one_calls_something_else_and_calls_go_on) {
  const Setting setting{.rank_count = 3};
  run(setting, [&](Exchange& exchange) {
    Context context(setting.options(exchange));
    Communicator communicator(context, exchange);
    RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 5'000});
    std::uint64_t call = 0;
    const bool is_late = exchange.self() == Rank{2};
    if (!is_late) call_in_vain(collective, call, 1, 1ms);
    try {
      if (is_late)
        communicator.synchronize();
      else
        communicator.cancel();
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch ||
          std::string(error.what()).find("ranks 0 and 1 call cancel, rank 2 calls synchronize") ==
              std::string::npos)
        return 2;
    }
    if (communicator.failure().status != Status::ok) return 3;
    if (is_late && collective.start(++call) != Status::ok) return 4;
    if (collective.operation().wait(30s) != Status::ok || !collective.is_right(call, call))
      return 5;
    return check(collective, call, 3);
  });
}

TEST(Cancel, names_a_rank_that_does_not_come) {
  if (!test::launches_processes) GTEST_SKIP() << "ranks are threads";
  test::SharedCount failed;
  run({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = Setting{}.options(exchange);
    options.setup_timeout = 200ms;
    Context context(options);
    Communicator communicator(context, exchange);
    RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 5'000});
    if (exchange.self() == Rank{1}) return failed.comes_to(2) ? 0 : 1;
    std::uint64_t call = 0;
    call_in_vain(collective, call, 1, 1ms);
    int code = 2;
    try {
      communicator.cancel();
    } catch (const Error& error) {
      const bool is_first = error.code() == ErrorCode::timed_out &&
                            std::string(error.what()).find("rank 1") != std::string::npos;
      code = is_first || error.code() == ErrorCode::peer_failed ? 0 : 3;
    }
    failed.add();
    if (code == 0 && collective.operation().in_flight()) code = 4;
    if (code == 0 && communicator.failure().status == Status::ok) code = 5;
    if (code == 0 && collective.start(++call) == Status::ok) code = 6;
    return code;
  });
}

/// The rank dies at different moments of the cancellation.
TEST(Cancel, fails_when_a_rank_dies_meanwhile) {
  if (!test::launches_processes) GTEST_SKIP() << "ranks are threads";
  for (const std::vector<std::uint32_t>& nodes : {std::vector<std::uint32_t>{1}, {2, 1}})
    for (unsigned moment = 0; moment < 6; ++moment) {
      const auto codes = test::codes_of(run_local({.rank_count = 3}, [&](Exchange& exchange) {
        ContextOptions options = Setting{.ranks_per_node = nodes}.options(exchange);
        options.setup_timeout = 20s;
        Context context(options);
        Communicator communicator(context, exchange);
        RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 40'000});
        std::uint64_t call = 0;
        std::thread killer;
        communicator.synchronize();
        if (exchange.self() == Rank{1}) {
          killer = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::microseconds(1 + 700 * moment));
            ::kill(::getpid(), SIGKILL);
          });
        } else {
          call_in_vain(collective, call, 1, 100us);
        }
        try {
          for (;;) {
            communicator.cancel();
            call_in_vain(collective, call, 1, 100us);
          }
        } catch (const Error& error) {
          const Failure& failure = communicator.failure();
          if (failure.status == Status::peer_failed && failure.peer == Rank{1}) return 0;
          std::fprintf(stderr, "%s; %s\n", error.what(), failure.text);
          return 2;
        }
      }));
      EXPECT_EQ(codes, (std::vector<int>{0, 1000 + SIGKILL, 0})) << "moment " << moment;
    }
}

enum class Breaks {
  at_once,    // a completion has an error
  in_silence  // nothing that is sent leaves, and no error says so
};

/// The connection between ranks 1 and 2 breaks.
int cancel_over_broken_connection(Exchange& exchange, Breaks how) {
  ContextOptions options = Setting{}.options(exchange);
  options.setup_timeout = how == Breaks::at_once ? 20s : test::patiently(2s);
  Context context(options);
  Communicator communicator(context, exchange);
  const Rank self = exchange.self();
  RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 5});
  std::uint64_t call = 0;
  if (check(collective, call, 2) != 0) return 1;
  communicator.synchronize();
  if (self == Rank{1}) {
    verbs::Connections& connections = context.implementation().fabric.connections();
    verbs::Connection& broken = connections.last_to(communicator.implementation().process_of[2]);
    if (how == Breaks::at_once)
      connections.fail(broken, {.process = broken.process,
                                .completion = IBV_WC_REM_ACCESS_ERR,
                                .what = "it is broken for a test"});
    else
      broken.sends.close();
  }
  try {
    communicator.cancel();
    return 2;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::peer_failed && error.code() != ErrorCode::timed_out) return 3;
  }
  const Failure& failure = communicator.failure();
  const bool names_an_end = failure.peer == Rank{1} || failure.peer == Rank{2};
  const bool names_the_other = names_an_end && failure.peer != self;
  const bool is_right =
      failure.status == Status::transport_failed || failure.status == Status::peer_failed
          ? names_the_other
          : failure.status == Status::aborted && names_an_end;
  // The rank that has met the error reports a failure of the transport.
  const bool has_met = how == Breaks::at_once && self == Rank{1};
  if (is_right && (!has_met || failure.status == Status::transport_failed)) return 0;
  std::fprintf(stderr, "rank %u: %s\n", index_of(self), failure.text);
  return 4;
}

TEST(Cancel, over_a_connection_that_is_broken_names_one_of_its_ends_on_all_ranks) {
  for (const Breaks how : {Breaks::at_once, Breaks::in_silence})
    run({.rank_count = 4},
        [&](Exchange& exchange) { return cancel_over_broken_connection(exchange, how); });
}

/// An exchange in which there is no memory for an allgather.
class Exhausted final : public Exchange {
 public:
  explicit Exhausted(Exchange& given) : given_(given) {}
  Rank self() const noexcept override { return given_.self(); }
  std::uint32_t rank_count() const noexcept override { return given_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    if (left == 0) throw std::bad_alloc();
    if (left > 0) --left;
    given_.allgather(mine, all, timeout);
  }
  void barrier(Timeout timeout) override { given_.barrier(timeout); }
  Incident incident() noexcept override { return given_.incident(); }
  bool has_left(Rank rank) noexcept override { return given_.has_left(rank); }
  void announce(Incident incident) noexcept override { given_.announce(incident); }

  int left = -1;  // how many allgathers still succeed; below 0: all

 private:
  Exchange& given_;
};

/// The others do not wait for the rank without memory.
TEST(Cancel, of_a_rank_without_memory_fails_on_all_ranks_at_once) {
  for (int step = 0; step < 2; ++step)
    run({.rank_count = 3, .ranks_per_node = {3}}, [&](Exchange& given) {
      Exhausted exchange(given);
      ContextOptions options = Setting{.ranks_per_node = {3}}.options(exchange);
      options.setup_timeout = 20s;
      Context context(options);
      Communicator communicator(context, exchange);
      RunningCollective collective(communicator, {.kind = Kind::allreduce, .count = 5});
      std::uint64_t call = 0;
      if (check(collective, call, 2) != 0) return 1;
      const bool is_exhausted = exchange.self() == Rank{1};
      if (is_exhausted) exchange.left = step;
      const auto begin = std::chrono::steady_clock::now();
      try {
        communicator.cancel();
        return 2;
      } catch (const Error& error) {
        if (error.code() != (is_exhausted ? ErrorCode::system : ErrorCode::peer_failed)) return 3;
      }
      if (std::chrono::steady_clock::now() - begin > 8s) return 4;
      const Failure& failure = communicator.failure();
      return failure.status == Status::aborted && failure.peer == Rank{1} ? 0 : 5;
    });
}

std::vector<Setting> settings() {
  return test::all_or_sanitized<Setting>(
      {{.rank_count = 3},
       {.rank_count = 2, .notify = Notify::flag},
       {.rank_count = 3, .ranks_per_node = {3}},
       {.rank_count = 2, .ranks_per_node = {2}, .single_copy_bytes = 1},
       {.rank_count = 4, .ranks_per_node = {2}},
       {.rank_count = 5,
        .ranks_per_node = {2, 1},
        .shared_notifications = SharedNotifications::republished}},
      {{.rank_count = 3, .notify = Notify::flag},
       {.rank_count = 2, .ranks_per_node = {2}, .single_copy_bytes = 1},
       {.rank_count = 3,
        .ranks_per_node = {2, 1},
        .shared_notifications = SharedNotifications::republished}});
}

INSTANTIATE_TEST_SUITE_P(Cancel, EveryCollective, testing::ValuesIn(settings()));

}  // namespace
}  // namespace tutti

int main(int count, char** values) {
  testing::InitGoogleTest(&count, values);
  tutti::test::read_options(count, values, {{"--runs", tutti::runs}, {"--seed", tutti::seed}});
  return RUN_ALL_TESTS();
}
