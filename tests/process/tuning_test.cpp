// Promise: whatever tuning files the ranks find - different ones, none, broken ones - they all make
// the same plan, by the table of rank 0 if they differ, or all refuse with the same words; nobody
// waits for ever.  Done-when 6 of the tuner.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning_agreement.hpp"
#include "runtime/tuning_table.hpp"
#include "support/device.hpp"
#include "support/scratch_folder.hpp"
#include "support/shared.hpp"
#include "tune/candidates.hpp"
#include "tune/choose.hpp"
#include "tune/tuning_file.hpp"
#include "verbs/device.hpp"
#include "verbs/driver.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

/// What a rank has come to.
struct Outcome {
  int is_refused;
  char text[1024];   // the refusal, or the plan
  char table[1024];  // which table is in force
};

using Outcomes = test::Shared<Outcome>;

void put(char (&to)[1024], const std::string& text) {
  std::strncpy(to, text.c_str(), sizeof to - 1);
}

/// The line that begins with that word.
std::string line_of(const std::string& text, const std::string& word) {
  const std::size_t begin = text.find(word);
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

/// What this device is, as a file has to say.
tune::Fingerprint fingerprint() {
  const verbs::Port port = verbs::open_port("soft0");
  return runtime::fingerprint_of(port, runtime::context_settings({}));
}

/// A table by which allreduces of 8 bytes go by that vector.
tune::Tuning table_of(const tune::Fingerprint& made_on, plan::PerRound per_round) {
  tune::Tuning tuning{.made_on = made_on, .machine = tune::machine_preset("hdr")};
  tune::Rule rule;
  rule.collective = tune::Collective::allreduce;
  rule.algorithm = Algorithm::two_partial;
  rule.per_round = std::move(per_round);
  tuning.rules.push_back(rule);
  return tuning;
}

/// What each rank finds.
class Files {
 public:
  /// The value of XDG_CONFIG_HOME for a rank.
  std::string home(std::size_t rank) const { return folder_.path(std::to_string(rank)); }
  std::string path(std::size_t rank) const { return home(rank) + "/tutti/tuning.json"; }
  void write(std::size_t rank, const std::string& text) const {
    folder_.write(std::to_string(rank) + "/tutti/tuning.json", text);
  }
  void make_directory(std::size_t rank) const { std::filesystem::create_directories(path(rank)); }
  void make_pipe(std::size_t rank) const {
    std::filesystem::create_directories(home(rank) + "/tutti");
    ASSERT_EQ(::mkfifo(path(rank).c_str(), 0600), 0);
  }

 private:
  test::ScratchFolder folder_;
};

/// Makes an allreduce of one number as rank `self`, and notes how it will go, or why not.
int run_rank(Exchange& exchange, const ContextOptions& options, Outcome& outcome) {
  try {
    Context context(options);
    Communicator communicator(context, exchange);
    const std::uint64_t mine = index_of(communicator.rank()) + 1;
    std::uint64_t sum = 0;
    Operation operation =
        allreduce<std::uint64_t>(communicator, std::span(&mine, 1), std::span(&sum, 1), tutti::sum);
    std::string plan = operation.algorithm();
    for (const std::uint32_t n : operation.per_round()) plan += " " + std::to_string(n);
    put(outcome.text, plan);
    put(outcome.table, line_of(operation.explanation(), "table: "));
    if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
    const std::uint64_t ranks = communicator.rank_count();
    return sum == ranks * (ranks + 1) / 2 ? 0 : 3;
  } catch (const Error& error) {
    outcome.is_refused = 1;
    put(outcome.text, error.what());
    return error.code() == ErrorCode::invalid_argument ? 0 : 4;
  }
}

ContextOptions options_for(const Exchange& exchange) {
  ContextOptions options = test::on_test_device(exchange);
  options.setup_timeout = 20s;
  options.tuning = TuningMode::file;
  return options;
}

/// All ranks have come to the same.
void expect_one_outcome(std::span<Outcome> all, const std::string& what) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    EXPECT_EQ(all[rank].is_refused, all[0].is_refused) << what << ", rank " << rank;
    EXPECT_STREQ(all[rank].text, all[0].text) << what << ", rank " << rank;
  }
}

using Body = std::function<int(Exchange& exchange, Outcome& outcome)>;

/// Runs ranks as processes, each of which searches in its own directory.
void run(std::uint32_t ranks, const Files& files, const Outcomes& outcomes, const Body& body,
         const std::string& what) {
  const auto results = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    const std::size_t self = index_of(exchange.self());
    ::setenv("XDG_CONFIG_HOME", files.home(self).c_str(), 1);
    return body(exchange, outcomes[self]);
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_TRUE(results[rank].signal == 0 && results[rank].exit_status == 0)
        << what << ", rank " << rank << ": exit status " << results[rank].exit_status << ", signal "
        << results[rank].signal << ", " << outcomes[rank].text;
  expect_one_outcome(outcomes.all(), what);
}

int as_found(Exchange& exchange, Outcome& outcome) {
  return run_rank(exchange, options_for(exchange), outcome);
}

TEST(Tuning, the_table_that_all_ranks_find_is_in_force) {
  const Files files;
  const Outcomes outcomes(3);
  const tune::Tuning table = table_of(fingerprint(), {1, 1});
  for (std::size_t rank = 0; rank < 3; ++rank) files.write(rank, tune::text_of(table));
  run(3, files, outcomes, as_found, "one table");
  EXPECT_STREQ(outcomes[0].text, "two_partial_dissemination 1 1");
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(std::string(outcomes[rank].table).starts_with("table: " + files.path(rank) + ":"))
        << outcomes[rank].table;
}

TEST(Tuning, without_a_table_the_preset_of_the_link_is_in_force) {
  const Files files;
  const Outcomes outcomes(2);
  run(2, files, outcomes, as_found, "no table");
  EXPECT_NE(std::string(outcomes[0].table).find("prices are those of fdr"), std::string::npos)
      << outcomes[0].table;
}

TEST(Tuning, tables_that_differ_give_way_to_that_of_rank_0) {
  const Files files;
  const Outcomes outcomes(5);
  const tune::Fingerprint here = fingerprint();
  files.write(0, tune::text_of(table_of(here, {1, 1, 1})));
  files.write(1, tune::text_of(table_of(here, {4})));
  files.write(2, tune::text_of(table_of(here, {2, 1})));
  run(5, files, outcomes, as_found, "different tables");
  EXPECT_STREQ(outcomes[0].text, "two_partial_dissemination 1 1 1");
  EXPECT_NE(std::string(outcomes[4].table).find(files.path(0) + " of rank 0"), std::string::npos)
      << outcomes[4].table;
}

TEST(Tuning, a_long_table_of_rank_0_reaches_all_ranks) {
  const Files files;
  const Outcomes outcomes(6);
  tune::Tuning table = table_of(fingerprint(), {5});
  for (std::uint64_t i = 0; i < 400; ++i) {
    tune::Finding finding{.collective = tune::Collective::barrier,
                          .bytes = 0,
                          .nodes = static_cast<std::uint32_t>(2 + i),
                          .operators = tune::OperatorClass::none};
    finding.winner = {
        .choice = "dissemination with 1,1 a round", .measured = 2'000'000, .predicted = 2'000'000};
    table.findings.push_back(finding);
  }
  // The blanks at the end mean nothing, but make several steps of it.
  const std::string text = tune::text_of(table) + std::string(3 * runtime::bytes_of_step(6), ' ');
  files.write(0, text);
  run(6, files, outcomes, as_found, "a long table");
  EXPECT_STREQ(outcomes[5].text, "two_partial_dissemination 5");
}

/// Inside a node, what was raced decides, and what a person wrote; the rule of payloads otherwise.
TEST(Tuning, findings_and_rules_decide_between_flat_and_lanes_inside_a_node) {
  const tune::Fingerprint here = fingerprint();
  const auto finding = [](std::uint64_t bytes, const char* winner, const char* other) {
    tune::Finding found{.bytes = bytes,
                        .ranks_per_node = 2,
                        .operators = tune::OperatorClass::rounding,
                        .winner = {winner, 5'000'000, 5'000'000}};
    found.others.push_back({other, 10'000'000, 10'000'000});
    return found;
  };
  constexpr const char* flat = "recursive_multiplying with 1 a round";
  constexpr const char* lanes = "2 lanes, recursive_multiplying across";
  tune::Tuning found{.made_on = here, .machine = tune::machine_preset("hdr")};
  found.findings = {finding(2048, lanes, flat), finding(32768, flat, lanes),
                    finding(131072, flat, lanes)};
  tune::Tuning ruled{.made_on = here};
  ruled.rules = {{.bytes = {.to = 4096}, .across = Across::lanes}, {.across = Across::flat}};
  constexpr std::size_t sizes[] = {2048, 32768, 65536};
  // The function runs an allreduce of each size, checks its results, and returns what was chosen,
  // and why.
  const auto outcomes_of = [&](const tune::Tuning* tuning) {
    const Files files;
    const Outcomes outcomes(2);
    for (std::size_t rank = 0; tuning != nullptr && rank < 2; ++rank)
      files.write(rank, tune::text_of(*tuning));
    run(
        2, files, outcomes,
        [&](Exchange& exchange, Outcome& outcome) {
          ContextOptions options = options_for(exchange);
          options.ranks_per_node = {2};
          Context context(options);
          Communicator communicator(context, exchange);
          std::string text;
          for (const std::size_t bytes : sizes) {
            std::vector<double> mine(bytes / 8, 1.0 + index_of(exchange.self())), sum(bytes / 8);
            Operation operation = allreduce<double>(communicator, mine, std::span(sum), tutti::sum);
            if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
            if (std::any_of(sum.begin(), sum.end(), [](double one) { return one != 3.0; }))
              return 3;
            text += std::string(operation.algorithm()) + " ";
            put(outcome.table, operation.explanation());
          }
          put(outcome.text, text);
          return 0;
        },
        "in a node");
    return std::pair(std::string(outcomes[0].text), std::string(outcomes[0].table));
  };
  const std::string across = "lanes/recursive_multiplying ", over = "recursive_multiplying ";
  EXPECT_EQ(outcomes_of(nullptr).first, over + across + across);
  const auto [by_findings, why] = outcomes_of(&found);
  EXPECT_EQ(by_findings, across + over + over);
  EXPECT_NE(why.find("as measured for 32768 and 131072 bytes"), std::string::npos) << why;
  const auto [by_rules, rule] = outcomes_of(&ruled);
  EXPECT_EQ(by_rules, across + over + "chunked_fold ");
  EXPECT_NE(rule.find("as the rule for allreduce says"), std::string::npos) << rule;
}

/// Lanes of a reduce and a chain, which no rule takes between two ranks of a node.
TEST(Tuning, findings_decide_between_trees_lanes_and_chains_inside_a_node) {
  const Files files;
  const Outcomes outcomes(2);
  constexpr std::size_t bytes = 65536, count = bytes / sizeof(double);
  tune::Tuning found{.made_on = fingerprint(), .machine = tune::machine_preset("hdr")};
  const tune::Knowledge hdr = tune::untuned(found.machine);
  const auto racer = [&](tune::Collective collective, const std::string& family) {
    const tune::CollectiveRequest request{
        .collective = collective,
        .element_count = count,
        .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
        .root = Rank{0}};
    for (const tune::Choice& one :
         tune::candidates(request, {.rank_count = 2, .node_of = {Node{0}, Node{0}}}, hdr, 6))
      if (tune::family_of(one.name()) == family) return one.name();
    return "no " + family;
  };
  found.findings = {
      {.collective = tune::Collective::reduce,
       .bytes = bytes,
       .ranks_per_node = 2,
       .operators = tune::OperatorClass::rounding,
       .winner = {racer(tune::Collective::reduce, "lanes"), 5'000'000, 5'000'000}},
      {.collective = tune::Collective::broadcast,
       .bytes = bytes,
       .ranks_per_node = 2,
       .winner = {racer(tune::Collective::broadcast, "pipelined_chain"), 5'000'000, 5'000'000}}};
  for (std::size_t rank = 0; rank < 2; ++rank) files.write(rank, tune::text_of(found));
  run(
      2, files, outcomes,
      [&](Exchange& exchange, Outcome& outcome) {
        ContextOptions options = options_for(exchange);
        options.ranks_per_node = {2};
        Context context(options);
        Communicator communicator(context, exchange);
        const bool is_root = exchange.self() == Rank{0};
        std::vector<double> mine(count), sum(count), told(count);
        Operation reduced = reduce<double>(communicator, mine, std::span(sum), Rank{0}, tutti::sum);
        Operation sent = broadcast<double>(communicator, std::span(told), Rank{0});
        for (int call = 0; call < 50; ++call) {
          for (std::size_t i = 0; i < count; ++i)
            mine[i] = static_cast<double>(i) + call + (is_root ? 0 : 1);
          if (is_root) told = mine;
          for (Operation* const one : {&reduced, &sent})
            if (one->start() != Status::ok || one->wait(20s) != Status::ok) return 2;
          for (std::size_t i = 0; i < count; ++i) {
            const double first = static_cast<double>(i) + call;
            if (told[i] != first || (is_root && sum[i] != 2 * first + 1)) return 3;
          }
        }
        put(outcome.table, sent.explanation());
        put(outcome.text, std::string(reduced.algorithm()) + " " + std::string(sent.algorithm()));
        return 0;
      },
      "lanes and a chain");
  const std::string taken = outcomes[0].text;
  EXPECT_TRUE(taken.starts_with("lanes/")) << taken;
  EXPECT_TRUE(taken.ends_with(" pipelined_chain")) << taken << outcomes[0].table;
}

/// Damages what one rank receives of long records.
class Damaging : public Exchange {
 public:
  Damaging(Exchange& inner, Rank whose) : inner_(inner), whose_(whose) {}
  Rank self() const noexcept override { return inner_.self(); }
  std::uint32_t rank_count() const noexcept override { return inner_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    inner_.allgather(mine, all, timeout);
  }
  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs,
            Timeout timeout) override {
    inner_.swap(partners, record_bytes, mine, theirs, timeout);
    if (self() == whose_ && record_bytes > 500 && !theirs.empty())
      theirs[theirs.size() - 9] ^= std::byte{1};
  }
  void barrier(Timeout timeout) override { inner_.barrier(timeout); }

 private:
  Exchange& inner_;
  Rank whose_;
};

TEST(Tuning, a_table_that_does_not_arrive_as_it_was_sent_is_refused_on_all_ranks) {
  const Files files;
  files.write(0, tune::text_of(table_of(fingerprint(), {1, 1})) + std::string(100, ' '));
  const Outcomes outcomes(4);
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    const std::size_t self = index_of(exchange.self());
    ::setenv("XDG_CONFIG_HOME", files.home(self).c_str(), 1);
    Damaging damaging(exchange, Rank{3});  // at the end of a branch, so that it spoils no other
    return run_rank(damaging, options_for(exchange), outcomes[self]);
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 4);  // a mismatch
  expect_one_outcome(outcomes.all(), "damaged");
  EXPECT_STREQ(outcomes[0].text,
               "rank 3 has not got the tuning file of rank 0 as it was sent; give all ranks one "
               "file, or set TUTTI_TUNING=off");
}

TEST(TuningLetter, is_refused_unless_it_is_what_the_card_announces) {
  const std::string text = tune::text_of(table_of(fingerprint(), {1, 1}));
  const Files files;
  files.write(0, text);
  ContextOptions named{.device = "soft0"};
  named.tuning_file = files.path(0);
  runtime::TuningCard card;
  {
    const runtime::FoundTable found =
        runtime::find_table(runtime::context_settings(named), fingerprint());
    ASSERT_TRUE(found.table);
    card = runtime::tuning_card_of(found);
  }
  const std::string letter = files.path(0) + '\0' + '\0' + text;
  EXPECT_EQ(runtime::table_of_letter(letter, card).tuning.rules.size(), 1u);
  std::string changed = letter;
  changed.back() = ' ';
  for (const std::string& wrong :
       {std::string(), std::string(letter.size(), 'x'), std::string("path\0", 5), changed,
        letter.substr(0, letter.size() - 1), letter + " "})
    EXPECT_THROW((void)runtime::table_of_letter(wrong, card), Error) << wrong.size();
}

TEST(TuningLetter, has_a_bound_and_goes_in_steps_whose_memory_is_bounded) {
  EXPECT_NO_THROW(runtime::require_sendable({.letter_bytes = runtime::letter_bytes_max}));
  for (const std::uint64_t bytes : {runtime::letter_bytes_max + 1, UINT64_MAX})
    EXPECT_THROW(runtime::require_sendable({.letter_bytes = bytes}), Error);
  // Which all exchanges have room for, with a rank's number.
  EXPECT_EQ(runtime::bytes_of_step(2), (64u << 10) - 4);
  EXPECT_EQ(runtime::bytes_of_step(256), (64u << 10) - 4);
  EXPECT_EQ(runtime::bytes_of_step(4096), (4u << 10) - 4);
  EXPECT_EQ(runtime::bytes_of_step(1u << 20), (1u << 10) - 4);
}

TEST(Tuning, what_is_stale_is_said_of_what_counts) {
  tune::Fingerprint newer = fingerprint(), other = newer;
  ++newer.registry;
  other.firmware = "another";
  tune::Tuning rules = table_of(other, {1, 1});
  rules.machine = {};
  const auto stale = [](const tune::Tuning& tuning, TuningMode mode) {
    const Files files;
    files.write(0, tune::text_of(tuning));
    ContextOptions options{.device = "soft0"};
    options.tuning_file = files.path(0);
    options.tuning = mode;
    const runtime::FoundTable found =
        runtime::find_table(runtime::context_settings(options), fingerprint());
    return found.table ? found.table->stale : "no table";
  };
  // By rules and findings, both; by the machine alone, what changes a machine.
  EXPECT_NE(stale(table_of(newer, {1}), TuningMode::file), "");
  EXPECT_NE(stale(table_of(other, {1}), TuningMode::file), "");
  EXPECT_NE(stale(rules, TuningMode::file), "");
  EXPECT_EQ(stale(table_of(newer, {1}), TuningMode::model), "");
  EXPECT_NE(stale(table_of(other, {1}), TuningMode::model), "");
  EXPECT_EQ(stale(rules, TuningMode::model), "");
}

TEST(Tuning, what_was_seen_of_the_placement_of_writes_is_said_of_this_very_device_alone) {
  using Says = verbs::FoundFact::Says;
  const Files files;
  const tune::Fingerprint here{.device = "mlx5_0", .firmware = "16.35", .cpu = "EPYC"};
  runtime::ContextSettings settings;
  settings.tuning_file = files.path(0);
  const auto found = [&](const tune::Fingerprint& made_on, const tune::WritePlacement& seen) {
    files.write(0, tune::text_of({.made_on = made_on, .placement = seen}));
    return runtime::found_placement(runtime::find_table(settings, here));
  };
  const std::uint64_t enough = tune::placed_writes_needed;
  verbs::FoundPlacement placement = found(here, {.lines = enough, .words = enough - 1});
  EXPECT_EQ(placement.lines.says, Says::holds);
  EXPECT_EQ(placement.lines.source,
            "by " + files.path(0) + ", 1000000 lines were seen to come, all of them whole");
  EXPECT_EQ(placement.order.says, Says::nothing);
  EXPECT_NE(placement.order.source.find("but 1000000 are needed"), std::string::npos);
  placement = found(here, {.lines = enough, .torn_lines = 1, .words = enough});
  EXPECT_EQ(placement.lines.says, Says::violated);
  EXPECT_EQ(placement.order.says, Says::holds);
  tune::Fingerprint other = here;
  other.firmware = "16.36";
  placement = found(other, {.lines = enough, .torn_lines = 1, .words = enough});
  EXPECT_EQ(placement.lines.says, Says::nothing);
  EXPECT_EQ(placement.order.says, Says::nothing);
  EXPECT_NE(placement.lines.source.find("the firmware was \"16.36\", here it is \"16.35\""),
            std::string::npos)
      << placement.lines.source;
  EXPECT_EQ(found(here, {}).lines.source, "");
  settings.tuning = TuningMode::off;
  EXPECT_EQ(found(here, {.lines = enough}).lines.says, Says::nothing);
  settings.tuning = TuningMode::file;
  files.write(0, "{");
  placement = runtime::found_placement(runtime::find_table(settings, here));
  EXPECT_EQ(placement.lines.says, Says::nothing);
  EXPECT_NE(placement.lines.source.find(files.path(0) + ":1: "), std::string::npos);
}

TEST(Tuning, words_that_are_allowed_by_what_was_seen_follow_no_longer_chunks_than_were_looked_at) {
  verbs::Port port;
  port.description.driver = &verbs::libibverbs_driver();
  EXPECT_EQ(runtime::chunk_bytes_before_words_max(port), 65536u);
  port.description.driver = &verbs::soft_driver();
  EXPECT_EQ(runtime::chunk_bytes_before_words_max(port), UINT64_MAX);
}

/// Nobody has asked for words; where the file of one rank forbids it what others do unasked, none
/// does, and nobody is refused.  What is asked for stays asked for.
TEST(Tuning, a_file_of_one_rank_that_forbids_words_is_heard_by_all) {
  const Files files;
  files.write(
      1, tune::text_of({.made_on = fingerprint(), .placement = {.words = 9, .early_words = 1}}));
  const auto codes = [&](std::optional<SharedNotifications> asked) {
    std::vector<int> all;
    for (const LocalResult& result : run_local({.rank_count = 2}, [&](Exchange& exchange) {
           ContextOptions options = options_for(exchange);
           options.device = "soft0";
           options.shared_notifications = asked;
           if (exchange.self() == Rank{1}) options.tuning_file = files.path(1);
           Context context(options);
           try {
             Communicator communicator(context, exchange);
             return communicator.implementation().shared_notifications ==
                            SharedNotifications::republished
                        ? 1
                        : 2;
           } catch (const Error& error) {
             return error.code() == ErrorCode::mismatch ? 3 : 4;
           }
         }))
      all.push_back(result.exit_status);
    return all;
  };
  EXPECT_EQ(codes({}), std::vector<int>(2, 1));
  EXPECT_EQ(codes(SharedNotifications::words), std::vector<int>(2, 2));
}

/// The software device promises both, and would keep it; a file that has seen otherwise counts
/// more.
TEST(Tuning, one_violation_forbids_flags_and_words) {
  const Files files;
  const tune::Fingerprint here = fingerprint();
  const auto results = run_local({.rank_count = 1}, [&](Exchange& exchange) {
    ContextOptions options = options_for(exchange);
    options.device = "soft0";
    options.tuning_file = files.path(0);
    const auto words_are_in_force = [&] {
      Context context(options);
      return context.implementation().shared_notifications == SharedNotifications::words;
    };
    files.write(0, tune::text_of({.made_on = here, .placement = {.lines = 2, .words = 9}}));
    if (!words_are_in_force()) return 1;
    files.write(0, tune::text_of(
                       {.made_on = here, .placement = {.lines = 2, .words = 9, .early_words = 1}}));
    if (words_are_in_force()) return 2;
    options.notify = Notify::flag;
    if (words_are_in_force()) return 3;  // but flags can be used
    files.write(0, tune::text_of({.made_on = here, .placement = {.lines = 7, .torn_lines = 3}}));
    try {
      const Context context(options);
      return 4;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() != ErrorCode::unsupported ||
          text.find(files.path(0) + ", 7 lines were seen to come, 3 of them torn") ==
              std::string::npos) {
        std::fprintf(stderr, "%s\n", text.c_str());
        return 5;
      }
    }
    return 0;
  });
  EXPECT_EQ(results[0].signal, 0);
  EXPECT_EQ(results[0].exit_status, 0);
}

TEST(Tuning, where_rank_0_has_no_table_none_is_in_force) {
  const Files files;
  const Outcomes with(3), without(3);
  files.write(2, tune::text_of(table_of(fingerprint(), {2})));
  run(3, files, with, as_found, "rank 2 alone");
  const Files none;
  run(3, none, without, as_found, "nobody");
  EXPECT_STREQ(with[0].text, without[0].text);
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(std::string(with[rank].table).starts_with("table: none: rank 0 has none"))
        << with[rank].table;
}

TEST(Tuning, a_file_that_is_named_and_wrong_is_refused_on_all_ranks_in_the_same_words) {
  const Files files;
  const tune::Tuning table = table_of(fingerprint(), {2});
  const std::string whole = tune::text_of(table);
  files.write(1, whole.substr(0, whole.size() / 2));
  files.make_directory(2);
  files.make_pipe(3);
  struct Case {
    std::size_t rank;  // whose file it is; 0: there is none
    const char* says;
  };
  for (const Case& wrong : {Case{0, "cannot be opened"}, Case{1, "tuning.json:"},
                            Case{2, "is no regular file"}, Case{3, "is no regular file"}}) {
    const Outcomes outcomes(4);
    run(
        4, files, outcomes,
        [&](Exchange& exchange, Outcome& outcome) {
          ContextOptions options = options_for(exchange);
          if (exchange.self() == Rank{2}) options.tuning_file = files.path(wrong.rank);
          return run_rank(exchange, options, outcome);
        },
        wrong.says);
    EXPECT_EQ(outcomes[0].is_refused, 1);
    const std::string text = outcomes[0].text;
    EXPECT_TRUE(text.starts_with("rank 2: TUTTI_TUNING_FILE (or tuning_file in code): ")) << text;
    EXPECT_NE(text.find(files.path(wrong.rank)), std::string::npos) << text;
    EXPECT_NE(text.find(wrong.says), std::string::npos) << text;
    EXPECT_NE(text.find("; name another file, or set TUTTI_TUNING=off"), std::string::npos) << text;
  }
}

TEST(Tuning, files_that_are_found_and_wrong_are_left_aside) {
  const tune::Fingerprint here = fingerprint();
  const std::string whole = tune::text_of(table_of(here, {2}));
  tune::Fingerprint other = here;
  other.gigabits_per_second = 7;
  const Files files;
  files.write(0, whole.substr(0, whole.size() - 3));
  files.make_directory(1);
  files.write(2, tune::text_of(table_of(other, {2})));
  files.make_pipe(3);
  const Outcomes outcomes(4);
  run(4, files, outcomes, as_found, "wrong files");
  EXPECT_EQ(outcomes[0].is_refused, 0) << outcomes[0].text;
  EXPECT_TRUE(std::string(outcomes[0].table).starts_with("table: none was found"))
      << outcomes[0].table;
  runtime::ContextSettings settings = runtime::context_settings({});
  for (const std::size_t rank : {0u, 1u, 2u, 3u}) {
    ::setenv("XDG_CONFIG_HOME", files.home(rank).c_str(), 1);
    const runtime::FoundTable found = runtime::find_table(settings, here);
    ::unsetenv("XDG_CONFIG_HOME");
    EXPECT_FALSE(found.table || found.refusal);
    ASSERT_GE(found.remarks.size(), 1u) << rank;
    EXPECT_NE(found.remarks[0].find(files.path(rank)), std::string::npos) << found.remarks[0];
  }
}

TEST(Tuning, modes_that_differ_are_refused) {
  const Files files;
  for (const bool bits : {false, true}) {
    const Outcomes outcomes(3);
    const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
      ContextOptions options = options_for(exchange);
      if (exchange.self() == Rank{2}) {
        options.tuning = bits ? TuningMode::file : TuningMode::off;
        options.tuning_keeps_bits = bits;
      }
      return run_rank(exchange, options, outcomes[index_of(exchange.self())]);
    });
    for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 4);  // a mismatch
    expect_one_outcome(outcomes.all(), "modes");
    EXPECT_STREQ(outcomes[0].text,
                 bits
                     ? "ranks choose differently: TUTTI_TUNING_BITS is free on rank 0, and keep on "
                       "rank 2: set it (or tuning_keeps_bits in code) alike everywhere"
                     : "ranks choose differently: TUTTI_TUNING is file on rank 0, and off on rank "
                       "2: set it (or tuning in code) alike everywhere");
  }
}

TEST(Tuning, is_inherited_by_what_is_split_off_and_changed_by_its_modes) {
  const Files files;
  const tune::Tuning table = table_of(fingerprint(), {1, 1});
  files.write(0, tune::text_of(table));  // of rank 0 of the whole, which one part does not have
  const auto results = run_local({.rank_count = 6}, [&](Exchange& exchange) {
    ::setenv("XDG_CONFIG_HOME", files.home(index_of(exchange.self())).c_str(), 1);
    for (const TuningMode mode : {TuningMode::file, TuningMode::model, TuningMode::off}) {
      ContextOptions options = options_for(exchange);
      options.tuning = mode;
      Context context(options);
      Communicator whole(context, exchange);
      std::optional<Communicator> part = whole.split(index_of(whole.rank()) % 2);
      std::uint64_t mine = 1, sum = 0;
      const Operation operation =
          allreduce<std::uint64_t>(*part, std::span(&mine, 1), std::span(&sum, 1), tutti::sum);
      const std::string text = operation.explanation();
      // Without the rule, three ranks need one round.
      const bool by_rule = operation.per_round() == std::vector<std::uint32_t>{1, 1};
      const bool has_machine = text.find("machine hdr") != std::string::npos;
      if (by_rule != (mode == TuningMode::file)) return 1;
      if (has_machine != (mode != TuningMode::off)) return 2;
      if ((text.find("of which the machine alone counts") != std::string::npos) !=
          (mode == TuningMode::model))
        return 3;
    }
    return 0;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

/// One run of what agreement has to stand: each rank finds, or is given, something by chance.
/// Returns whether all have refused.
bool run_by_chance(std::uint64_t seed, const std::vector<std::string>& tables) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::uint64_t count) { return random() % count; };
  const auto ranks = static_cast<std::uint32_t>(2 + one_of(7));
  const Files files;
  std::vector<bool> is_named(ranks);
  bool may_be_refused = false;
  const bool is_mostly_right = one_of(2) == 0;
  const std::string& usual = tables[one_of(tables.size())];
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    bool is_right = true;
    switch (is_mostly_right ? one_of(3) : one_of(7)) {
      case 0:
        files.write(rank, tables[one_of(tables.size())]);
        break;
      case 1:
      case 2:
        files.write(rank, usual);
        break;
      case 3:  // half-written
        files.write(rank, usual.substr(0, one_of(usual.size() - 2)));
        is_right = false;
        break;
      case 4:
        files.make_directory(rank);
        is_right = false;
        break;
      case 5:
        files.make_pipe(rank);
        is_right = false;
        break;
      default:
        is_right = false;  // none
    }
    is_named[rank] = one_of(is_right ? 3 : 6) == 0;
    may_be_refused = may_be_refused || (is_named[rank] && !is_right);
  }
  const Outcomes outcomes(ranks);
  const std::string what = "seed " + std::to_string(seed);
  run(
      ranks, files, outcomes,
      [&](Exchange& exchange, Outcome& outcome) {
        ContextOptions options = options_for(exchange);
        const std::size_t self = index_of(exchange.self());
        if (is_named[self]) options.tuning_file = files.path(self);
        return run_rank(exchange, options, outcome);
      },
      what);
  EXPECT_EQ(outcomes[0].is_refused != 0, may_be_refused) << what << ": " << outcomes[0].text;
  const bool names_a_rank = std::string(outcomes[0].text).starts_with("rank ");
  EXPECT_EQ(names_a_rank, may_be_refused) << what << ": " << outcomes[0].text;
  return outcomes[0].is_refused != 0;
}

// TUNING_RUNS=500 for the whole of it (soak_agreement_on_tuning_files).
TEST(Tuning, whatever_ranks_find_they_make_one_plan_or_refuse_alike) {
  const tune::Fingerprint here = fingerprint();
  tune::Fingerprint stale = here, foreign = here;
  stale.firmware = "another";
  foreign.device = "mlx5_7";
  std::vector<std::string> tables;
  for (const tune::Fingerprint& made_on : {here, here, stale, foreign})
    for (const plan::PerRound& vector : {plan::PerRound{1, 1, 1}, {7}, {3, 1}})
      tables.push_back(tune::text_of(table_of(made_on, vector)));
  const char* const given = std::getenv("TUNING_RUNS");
  const int runs = given != nullptr ? std::atoi(given) : 20;
  int refusals = 0;
  for (int seed = 1; seed <= runs; ++seed)
    refusals += run_by_chance(static_cast<std::uint64_t>(seed), tables) ? 1 : 0;
  std::printf("%d runs of 2 to 8 ranks: in %d all make one plan, in %d all refuse alike%s\n", runs,
              runs - refusals, refusals, HasFailure() ? ", but for those above" : "");
}

}  // namespace
}  // namespace tutti
