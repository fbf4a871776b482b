// Promise: with TUTTI_TUNING=first_call, making an operation times a few schedules on memory of its
// own, in bounded time, and all ranks go on with the fastest; in virtual time it is no slower than
// the paper's best uniform n.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "runtime/first_call.hpp"
#include "runtime/tuning_append.hpp"
#include "support/device.hpp"
#include "support/scratch_folder.hpp"
#include "tune/file_text.hpp"
#include "tune/tuning_file.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti {
namespace {

namespace soft = verbs::soft;
using namespace std::chrono_literals;

template <class T>
std::vector<T> gathered(Exchange& exchange, const T& mine) {
  std::vector<T> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     20s);
  return all;
}

bool complete(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(20s) == Status::ok;
}

/// The makespan of a call, in picoseconds.
std::int64_t virtual_time_of(Operation& operation, Communicator& communicator, Exchange& exchange) {
  if (!complete(operation) || !complete(operation)) return -1;
  communicator.synchronize();
  soft::enter_virtual_time();
  const bool done = complete(operation);
  const std::int64_t taken = soft::VirtualTime::joined()->now();
  soft::leave_virtual_time();
  const std::vector<std::int64_t> all = gathered(exchange, done ? taken : -1);
  return *std::max_element(all.begin(), all.end());
}

Operation make(Communicator& communicator, std::size_t elements, std::vector<std::uint64_t>& source,
               std::vector<std::uint64_t>& target,
               const std::vector<std::uint32_t>& per_round = {}) {
  if (elements == 0) return barrier(communicator, {.per_round = per_round});
  return allreduce(communicator,
                   {.source = source.data(),
                    .target = target.data(),
                    .element_count = elements,
                    .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                    .per_round = per_round});
}

bool is_alike(Exchange& exchange, const Operation& operation) {
  std::string text = operation.algorithm();
  for (const std::uint32_t n : operation.per_round()) text += " " + std::to_string(n);
  struct {
    char text[120] = {};
  } mine;
  std::strncpy(mine.text, text.c_str(), sizeof mine.text - 1);
  for (const auto& theirs : gathered(exchange, mine))
    if (std::strcmp(theirs.text, mine.text) != 0) return false;
  return true;
}

std::string text_of(const std::vector<std::uint32_t>& per_round) {
  std::string text;
  for (const std::uint32_t n : per_round) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text;
}

/// The schedule has to be one over all ranks that goes by a vector.
bool names_what_runs(const Operation& operation) {
  return operation.explanation().starts_with("chosen: " + operation.algorithm() + " with " +
                                             text_of(operation.per_round()) + " a round, ");
}

int in_virtual_time(Exchange& exchange, std::size_t elements) {
  Context context({.device = "soft0", .tuning = TuningMode::first_call});
  Communicator communicator(context, exchange);
  std::vector<std::uint64_t> source(elements, 1), target(elements);
  Operation timed = make(communicator, elements, source, target);
  if (timed.explanation().find("first call: of ") == std::string::npos) return 2;
  if (!is_alike(exchange, timed) || !names_what_runs(timed)) return 3;
  const std::int64_t taken = virtual_time_of(timed, communicator, exchange);
  std::int64_t best = INT64_MAX;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    std::vector<std::uint32_t> per_round;
    for (std::uint32_t covered = 1; covered < exchange.rank_count(); covered *= n + 1)
      per_round.push_back(n);
    Operation uniform = make(communicator, elements, source, target, per_round);
    best = std::min(best, virtual_time_of(uniform, communicator, exchange));
  }
  if (taken <= 0 || best <= 0) return 4;
  if (taken > best && exchange.self() == Rank{0})
    std::fprintf(stderr, "%u ranks, %zu elements: %ld ps, and %ld with the best uniform n\n%s\n",
                 exchange.rank_count(), elements, static_cast<long>(taken), static_cast<long>(best),
                 timed.explanation().c_str());
  return taken <= best ? 0 : 5;
}

TEST(FirstCall, finds_the_best_n_in_virtual_time) {
  struct Case {
    const char* fabric;
    std::uint32_t ranks;
    std::size_t elements;
  };
  for (const auto& [fabric, ranks, elements] :
       {Case{"fdr", 9, 0}, Case{"qdr", 6, 1}, Case{"fdr", 13, 1}}) {
    ::setenv("TUTTI_SOFT_FABRIC", fabric, 1);
    soft::VirtualTime time(ranks);
    const std::size_t count = elements;
    const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
      time.join(index_of(exchange.self()));
      return in_virtual_time(exchange, count);
    });
    ::unsetenv("TUTTI_SOFT_FABRIC");
    for (const LocalResult& result : results)
      EXPECT_EQ(result.exit_status, 0) << fabric << ", " << ranks << " ranks";
  }
}

int on_nodes_of_several(Exchange& exchange, std::size_t elements) {
  std::int64_t times[2] = {};
  for (const TuningMode mode : {TuningMode::off, TuningMode::first_call}) {
    Context context({.device = "soft0", .ranks_per_node = {{3}}, .tuning = mode});
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(elements, 2), target(elements);
    Operation operation = make(communicator, elements, source, target);
    const bool is_timed = operation.explanation().find("first call: of ") != std::string::npos;
    if (is_timed != (mode == TuningMode::first_call)) return 2;
    if (!is_alike(exchange, operation)) return 3;
    std::int64_t& time = times[is_timed ? 1 : 0];
    time = virtual_time_of(operation, communicator, exchange);
    if (time <= 0 || target.back() != 2 * exchange.rank_count()) return 4;
  }
  return times[1] <= times[0] ? 0 : 5;
}

TEST(FirstCall, is_no_slower_than_the_model_where_nodes_have_several_ranks) {
  for (const std::size_t elements : {1u, 2048u}) {
    ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
    const std::vector<std::uint32_t> node_of = {0, 0, 0, 1, 1, 1, 2, 2, 2};
    soft::VirtualTime time(9, node_of);
    const auto results = run_local({.rank_count = 9}, [&](Exchange& exchange) {
      time.join(index_of(exchange.self()));
      return on_nodes_of_several(exchange, elements);
    });
    ::unsetenv("TUTTI_SOFT_FABRIC");
    for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0) << elements;
  }
}

/// Lets first calls have found that to be the fastest, for the only request that is known.
void pretend(Communicator& communicator, const std::string& choice) {
  auto& known = communicator.implementation().first_calls;
  if (known.size() == 1) known.begin()->second = {choice, "first call: of 2"};
}

int against_prices(Exchange& exchange) {
  Context context({.device = "soft0", .arena_bytes = 1u << 20, .tuning = TuningMode::first_call});
  Communicator communicator(context, exchange);
  std::vector<std::uint64_t> source(4096, 1), target(4096);
  constexpr const char* four = "two_partial_dissemination with 4 a round";
  constexpr const char* by_four =
      "chosen: two_partial_dissemination with 4 a round, by first calls\n  otherwise chosen: ";
  (void)make(communicator, 4096, source, target);
  pretend(communicator, four);
  {
    Operation known = make(communicator, 4096, source, target);
    if (known.per_round() != std::vector<std::uint32_t>{4} || !names_what_runs(known)) return 2;
    if (!known.explanation().starts_with(by_four) || !complete(known)) return 3;
  }
  // The arena is filled until there is nearly, but not quite, room for it.
  std::vector<Operation> others;
  for (;;) {
    try {
      (void)make(communicator, 4096, source, target, {4});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::limit_exceeded) return 4;
      break;
    }
    others.push_back(make(communicator, 512, source, target, {2, 1}));
  }
  Operation by_price = make(communicator, 4096, source, target);
  if (by_price.algorithm() == "two_partial_dissemination") return 5;
  if (!by_price.explanation().starts_with("chosen: " + by_price.algorithm())) return 6;
  if (by_price.explanation().find(std::string("there was no room for ") + four) ==
      std::string::npos)
    return 7;
  return complete(by_price) && target.back() == exchange.rank_count() ? 0 : 8;
}

TEST(FirstCall, says_what_runs_and_goes_by_price_where_there_is_no_room_for_it) {
  ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
  soft::VirtualTime time(5);
  const auto results = run_local({.rank_count = 5}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return against_prices(exchange);
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

/// Binds each of two ranks to a CPU of its own, without which the model decides alone.
bool bind(std::size_t self) {
  const std::vector<unsigned> cpus = detail::allowed_cpus().list();
  if (cpus.size() < 2) return false;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[self], &one);
  return ::sched_setaffinity(0, sizeof one, &one) == 0;
}

constexpr int skipped = 77;

int in_real_time(Exchange& exchange) {
  if (!bind(index_of(exchange.self()))) return skipped;
  ContextOptions options = test::on_test_device(exchange);
  options.tuning = TuningMode::first_call;
  Context context(options);
  Communicator communicator(context, exchange);
  constexpr std::size_t elements = 300;
  std::vector<std::uint64_t> source(elements, 7), target(elements, 9);
  const Timeout before = detail::now();
  Operation first = make(communicator, elements, source, target);
  const Timeout taken = detail::now() - before;
  for (std::size_t i = 0; i < elements; ++i)
    if (source[i] != 7 || target[i] != 9) return 2;
  if (first.explanation().find("first call: ") == std::string::npos) return 3;
    // One more schedule may be begun, and the last operation is made besides.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr auto besides = 2s;
#else
  constexpr auto besides = 150ms;
#endif
  if (taken > runtime::first_call_time_max + besides) return 4;
  if (!is_alike(exchange, first)) return 5;
  if (!complete(first)) return 6;
  for (const std::uint64_t value : target)
    if (value != 14) return 7;
  // An equal request is known, and takes no more time than others do.
  Operation second = make(communicator, elements, source, target);
  if (second.explanation() != first.explanation()) return 8;
  if (!second.explanation().starts_with("chosen: " + second.algorithm())) return 11;
  if (second.algorithm() != first.algorithm() || second.per_round() != first.per_round()) return 9;
  Operation every[] = {
      barrier(communicator), broadcast(communicator, {.buffer = target.data(), .bytes = 2400}),
      allgather<std::uint64_t>(communicator, std::span(source).first(150), std::span(target))};
  for (Operation& one : every)
    if (!is_alike(exchange, one) || !complete(one)) return 10;
  return 0;
}

TEST(FirstCall, leaves_buffers_alone_ends_in_time_and_is_remembered) {
  const auto results = run_local({.rank_count = 2}, in_real_time);
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

/// On two ranks all vectors are one schedule, so that there is nothing to compare.
int on_two_ranks(Exchange& exchange) {
  Context context({.device = "soft0", .tuning = TuningMode::first_call});
  Communicator communicator(context, exchange);
  Operation operation = barrier(communicator);
  if (operation.explanation().find("or no other one") == std::string::npos) {
    std::fprintf(stderr, "%s\n", operation.explanation().c_str());
    return 2;
  }
  return complete(operation) ? 0 : 3;
}

TEST(FirstCall, races_no_schedule_against_itself) {
  ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
  soft::VirtualTime time(2);
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return on_two_ranks(exchange);
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

/// A folder for a user's configuration.
class Home {
 public:
  Home() { ::setenv("XDG_CONFIG_HOME", folder_.path().c_str(), 1); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;
  ~Home() { ::unsetenv("XDG_CONFIG_HOME"); }

  std::string file() const { return folder_.path("tutti/tuning.json"); }
  std::string text() const { return tune::text_of_file(file()).value_or(""); }
  tune::Tuning tuning() const { return tune::parse_tuning(text(), file()); }

 private:
  test::ScratchFolder folder_;
};

bool says(const Operation& operation, const std::string& words) {
  return operation.explanation().find(words) != std::string::npos;
}

/// Makes an allreduce of one number with a context of its own, and hands it to `look`, whose result
/// counts if it can be called.
template <class Look>
int with_operation(Exchange& exchange, TuningMode mode, bool appends, Look look) {
  Context context({.device = "soft0", .tuning = mode, .tuning_appends = appends});
  Communicator communicator(context, exchange);
  std::vector<std::uint64_t> source(1, 2), target(1);
  Operation operation = make(communicator, 1, source, target);
  if (!complete(operation) || target[0] != 2 * exchange.rank_count()) return 1;
  const int result = look(operation, context);
  communicator.synchronize();
  return result;
}

int appending(Exchange& exchange, const Home& home) {
  const bool is_first = exchange.self() == Rank{0};
  // Nothing is written unless it is asked for.
  int wrong = with_operation(exchange, TuningMode::first_call, false,
                             [&](auto&, auto&) { return home.text().empty() ? 0 : 2; });
  if (wrong != 0) return wrong;
  std::string algorithm;
  wrong = with_operation(
      exchange, TuningMode::first_call, true, [&](Operation& operation, Context& context) {
        algorithm = operation.algorithm();
        if (!is_first) return says(operation, "appended") ? 3 : 0;
        if (!says(operation, "first call: of ")) return 13;
        if (!says(operation, "; appended to " + home.file())) return 4;
        const tune::Tuning tuning = home.tuning();
        const auto& implementation = context.implementation();
        if (tuning.made_on !=
            runtime::fingerprint_of(implementation.fabric.port(), implementation.settings))
          return 5;
        if (tuning.findings.size() != 1) return 6;
        const tune::Finding& found = tuning.findings[0];
        const tune::Finding call{.collective = tune::Collective::allreduce,
                                 .bytes = 8,
                                 .nodes = exchange.rank_count(),
                                 .operators = tune::OperatorClass::exact};
        if (!found.is_about_same(call) || found.is_noisy || found.others.empty()) return 7;
        for (const tune::Timing& other : found.others)
          if (other.measured < found.winner.measured || other.predicted == 0) return 8;
        return operation.explanation().starts_with("chosen: " + found.winner.choice + ", ") ? 0 : 9;
      });
  if (wrong != 0) return wrong;
  const std::string text = home.text();
  // Later programs choose by it ...
  wrong = with_operation(exchange, TuningMode::file, false, [&](Operation& operation, auto&) {
    return says(operation, "measured to be the fastest") && operation.algorithm() == algorithm ? 0
                                                                                               : 10;
  });
  if (wrong != 0) return wrong;
  // ... and do not change it.
  wrong = with_operation(exchange, TuningMode::first_call, true, [&](Operation& operation, auto&) {
    return says(operation, home.file() + " has a finding of this call") == is_first ? 0 : 11;
  });
  return wrong != 0 ? wrong : home.text() == text ? 0 : 12;
}

/// Runs `of_rank` on five ranks in virtual time, on an emulated network; all must return 0.
void run_on_qdr(const Home& home, int (*of_rank)(Exchange&, const Home&)) {
  ::setenv("TUTTI_SOFT_FABRIC", "qdr", 1);
  constexpr std::uint32_t ranks = 5;
  soft::VirtualTime time(ranks);
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return of_rank(exchange, home);
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(FirstCall, appends_what_it_has_found_where_that_is_asked_for) {
  const Home home;
  run_on_qdr(home, appending);
  EXPECT_FALSE(std::filesystem::exists(home.file() + ".journal"));
}

/// A machine that may be `other`, but has other figures.
tune::Machine much_like(const tune::Machine& other) {
  tune::Machine machine = other;
  machine.name = "measured";
  for (tune::Figure& figure : machine.figures) {
    figure.low = figure.value - figure.value / 10;
    figure.high = figure.value + figure.value / 10;
    figure.value += figure.value / 25;
  }
  return machine;
}

/// Prices are then those of the preset, and are none on the machine of the file.
int appending_to_what_holds_the_preset(Exchange& exchange, const Home& home) {
  const auto appended = [&](Operation& operation, Context&) {
    return exchange.self() != Rank{0} || says(operation, "; appended to " + home.file()) ? 0 : 1;
  };
  const int wrong = with_operation(exchange, TuningMode::first_call, true, appended);
  if (wrong != 0) return wrong;
  if (exchange.self() == Rank{0}) {
    tune::Tuning tuning = home.tuning();
    tuning.findings.clear();
    tuning.machine = much_like(tune::machine_preset("qdr"));
    std::ofstream(home.file()) << tune::text_of(tuning);
  }
  if (with_operation(exchange, TuningMode::first_call, true, appended) != 0) return 2;
  if (exchange.self() != Rank{0}) return 0;
  const tune::Tuning tuning = home.tuning();
  if (tuning.findings.size() != 1 || tuning.findings[0].others.empty()) return 3;
  const tune::Finding& found = tuning.findings[0];
  return found.winner.predicted == 0 && found.others[0].predicted == 0 ? 0 : 4;
}

TEST(FirstCall, appends_no_prices_of_another_machine_than_that_of_the_file) {
  const Home home;
  run_on_qdr(home, appending_to_what_holds_the_preset);
}

tune::Finding some_finding(std::uint64_t bytes) {
  return {.collective = tune::Collective::broadcast,
          .bytes = bytes,
          .nodes = 2,
          .winner = {"a", 1, 5},
          .others = {{"b", 2, 5}}};
}

std::string refusal_of(const std::function<void()>& append) {
  try {
    append();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Appending, what_a_few_calls_cannot_tell_apart_is_close) {
  tune::Finding finding{.winner = {"a", 3200, 5}, .others = {{"b", 3301, 5}, {"c", 4000, 5}}};
  EXPECT_FALSE(runtime::is_close(finding));
  finding.others[0].measured = 3300;
  EXPECT_TRUE(runtime::is_close(finding));
  finding.others[0].measured = 3000;  // the winner is what was taken, as the margin was not met
  EXPECT_TRUE(runtime::is_close(finding));
}

TEST(Appending, takes_the_file_that_was_found_else_the_users_own) {
  const Home home;
  runtime::FoundTable found;
  EXPECT_EQ(runtime::file_to_append_to(found), home.file());
  found.table = runtime::TuningTable{.path = "/etc/tutti/tuning.json"};
  EXPECT_EQ(runtime::file_to_append_to(found), "/etc/tutti/tuning.json");
  found.table.reset();
  ::unsetenv("XDG_CONFIG_HOME");
  const std::string before = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::unsetenv("HOME");
  EXPECT_NE(refusal_of([&] { (void)runtime::file_to_append_to(found); }).find("HOME"),
            std::string::npos);
  if (!before.empty()) ::setenv("HOME", before.c_str(), 1);
}

TEST(Appending, never_touches_what_it_cannot_add_to) {
  const Home home;
  const tune::Fingerprint here{.device = "soft0", .firmware = "1", .cpu = "EPYC", .registry = 1};
  const tune::Machine machine = tune::machine_preset("fdr");
  const auto append = [&](std::uint64_t bytes) {
    return runtime::append_finding(home.file(), here, machine, some_finding(bytes));
  };
  EXPECT_EQ(append(8), "appended to " + home.file());
  EXPECT_EQ(append(16), "appended to " + home.file());
  EXPECT_EQ(append(8), home.file() + " has a finding of this call");
  ASSERT_EQ(home.tuning().findings.size(), 2u);
  EXPECT_EQ(home.tuning().findings[1].winner.predicted, 5);
  // A noisy one, by which nobody chooses, makes room for one that is not.
  tune::Finding noisy = some_finding(24);
  noisy.is_noisy = true;
  EXPECT_EQ(runtime::append_finding(home.file(), here, machine, noisy),
            "appended to " + home.file());
  EXPECT_EQ(runtime::append_finding(home.file(), here, machine, noisy),
            home.file() + " has a finding of this call");
  EXPECT_EQ(append(24), "appended to " + home.file());
  ASSERT_EQ(home.tuning().findings.size(), 3u);
  EXPECT_FALSE(home.tuning().findings[2].is_noisy);

  const auto expect_refused = [&](const std::string& text, const std::string& words) {
    std::ofstream(home.file()) << text;
    const std::string why = refusal_of([&] { (void)append(32); });
    EXPECT_NE(why.find(words), std::string::npos) << why;
    EXPECT_EQ(home.text(), text);
    EXPECT_FALSE(std::filesystem::exists(home.file() + ".journal"));
  };
  tune::Tuning other{.made_on = here};
  other.made_on.cpu = "Xeon";
  expect_refused(tune::text_of(other), "CPU was \"Xeon\"");
  other.made_on.device = "mlx5_0";
  expect_refused(tune::text_of(other), "another network");
  expect_refused("{", home.file() + ":1: ");
  tune::Rule rule;
  rule.across = Across::flat;
  expect_refused(tune::text_of({.rules = {rule}}), "would hold everywhere");
  // Prices on another machine are none on this one.
  other = {.made_on = here, .machine = tune::machine_preset("hdr")};
  std::ofstream(home.file()) << tune::text_of(other);
  EXPECT_EQ(append(8), "appended to " + home.file());
  EXPECT_EQ(home.tuning().findings[0].winner.predicted, 0);
  EXPECT_EQ(home.tuning().findings[0].others[0].predicted, 0);
  EXPECT_EQ(home.tuning().machine, other.machine);

  // A tuner that writes it, and one that was interrupted.
  const std::string before = home.text(), journal = home.file() + ".journal";
  {
    const detail::Descriptor lock(::open(journal.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
    EXPECT_NE(
        refusal_of([&] { (void)append(32); }).find("another process has locked it; wait until"),
        std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::exists(journal)) << "it is the tuner's";
  std::ofstream(journal) << "{}\n";
  EXPECT_NE(refusal_of([&] { (void)append(32); }).find("was interrupted"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(journal)) << "it is the tuner's";
  EXPECT_EQ(home.text(), before);
}

TEST(FirstCall, refuses_different_arguments_as_ever) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (!bind(index_of(exchange.self()))) return skipped;
    ContextOptions options = test::on_test_device(exchange);
    options.tuning = TuningMode::first_call;
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(9, 1), target(9);
    Operation same = make(communicator, 8, source, target);
    try {  // 8 elements are known, 9 are not
      Operation other = make(communicator, 8 + index_of(exchange.self()), source, target);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch) return 2;
    }
    return complete(same) && target[7] == 2 ? 0 : 3;
  });
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(FirstCall, is_left_to_the_model_where_ranks_share_cpus_and_where_it_is_said_how) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    if (!bind(0)) return skipped;
    ContextOptions options = test::on_test_device(exchange);
    options.tuning = TuningMode::first_call;
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(8, 1), target(8);
    Operation operation = make(communicator, 8, source, target);
    if (operation.explanation().find("first call") != std::string::npos) return 1;
    return complete(operation) ? 0 : 2;
  });
  if (results[0].exit_status == skipped) GTEST_SKIP() << "there are fewer than two CPUs";
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

TEST(ChoiceOfATuner, holds_until_it_is_taken_back) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(8, 1), target(8);
    const auto made = [&] { return make(communicator, 8, source, target); };
    const std::vector<std::uint32_t> usual = made().per_round();
    runtime::choose_only(communicator, "two_partial_dissemination with 1,1 a round");
    Operation asked = made();
    if (asked.per_round() != std::vector<std::uint32_t>{1, 1}) return 1;
    if (!complete(asked) || target[0] != 3) return 2;
    runtime::choose_only(communicator, "no such schedule");
    try {
      (void)made();
      return 3;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) return 4;
    }
    runtime::choose_only(communicator, "");
    return made().per_round() == usual ? 0 : 5;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

}  // namespace
}  // namespace tutti
