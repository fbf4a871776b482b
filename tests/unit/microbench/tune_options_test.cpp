// Promise: a command line of tutti-tune means what it says, and a bad one is refused in one line
// that names the value and what was expected.
#include "microbench/tune_options.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tutti/status.hpp>

namespace tutti::bench {
namespace {

TuneOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-tune");
  return parse_tune_options(arguments);
}

/// Refused, in one line that contains all of `parts`.
void expect_refused(const std::vector<const char*>& arguments,
                    const std::vector<const char*>& parts) {
  std::string text = "accepted";
  try {
    parse(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    text = error.what();
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TuneOptions, without_any_everything_is_tuned_within_a_minute) {
  ::setenv("XDG_CONFIG_HOME", "/tmp/somewhere", 1);
  const TuneOptions options = parse({});
  EXPECT_EQ(options.mode, TuneMode::tune);
  EXPECT_EQ(options.collectives.size(), tuned_collectives().size());
  EXPECT_EQ(options.budget, std::chrono::duration<double>(60));
  EXPECT_EQ(options.file, "/tmp/somewhere/tutti/tuning.json");
  EXPECT_TRUE(options.is_default_file);
  EXPECT_FALSE(options.local);
}

TEST(TuneOptions, the_file_is_where_the_environment_says) {
  ::setenv("XDG_CONFIG_HOME", "relative", 1);  // by its specification, such a value does not count
  ::setenv("HOME", "/home/anna", 1);
  EXPECT_EQ(default_tuning_file(), "/home/anna/.config/tutti/tuning.json");
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(default_tuning_file(), "");
  ::unsetenv("XDG_CONFIG_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(default_tuning_file(), "");
  expect_refused({}, {"--out", "HOME"});
  EXPECT_EQ(parse({"--out", "t.json"}).file, "t.json");
}

TEST(TuneOptions, what_reads_takes_the_file_that_programs_take) {
  ::setenv("TUTTI_TUNING_FILE", "named.json", 1);
  ::setenv("XDG_CONFIG_HOME", "/tmp/somewhere", 1);
  EXPECT_EQ(parse({"--explain", "barrier", "--ranks", "4"}).file, "named.json");
  EXPECT_FALSE(parse({"--check"}).is_default_file);
  EXPECT_EQ(parse({"--check", "--file", "t.json"}).file, "t.json");
  EXPECT_EQ(parse({}).file, "/tmp/somewhere/tutti/tuning.json");
  ::unsetenv("TUTTI_TUNING_FILE");
  EXPECT_TRUE(parse({"--check"}).is_default_file);
}

TEST(TuneOptions, settings_that_findings_would_not_say_are_refused) {
  for (const char* name : {"TUTTI_WAIT", "TUTTI_NOTIFY", "TUTTI_CHUNK_BYTES", "TUTTI_PER_ROUND"}) {
    ::setenv(name, "1", 1);
    expect_refused({"--out", "t.json"}, {name, "unset it"});
    EXPECT_EQ(parse({"--show", "t.json"}).mode, TuneMode::show);
    ::unsetenv(name);
  }
}

TEST(TuneOptions, values_are_understood) {
  const TuneOptions options =
      parse({"--local", "4", "--collectives", "barrier,scan", "--bytes", "8,1K", "--budget", "2.5",
             "--out", "t.json", "--fresh", "--seed", "7", "--virtual-time", "--fabric", "qdr",
             "--ranks-per-node", "2"});
  EXPECT_EQ(options.local, 4u);
  EXPECT_EQ(options.collectives, (std::vector<Collective>{Collective::barrier, Collective::scan}));
  EXPECT_EQ(options.bytes, (std::vector<std::size_t>{8, 1024}));
  EXPECT_EQ(options.budget.count(), 2.5);
  EXPECT_TRUE(options.fresh && options.virtual_time && !options.is_default_file);
  EXPECT_EQ(options.ranks_per_node, (std::vector<std::uint32_t>{2}));
}

TEST(TuneOptions, bad_values_are_refused) {
  expect_refused({"--out", "t", "--budget", "0"}, {"--budget=\"0\"", "from 1", "60"});
  expect_refused({"--out", "t", "--budget", "nan"}, {"--budget=\"nan\""});
  expect_refused({"--out", "t", "--budget", "5s"}, {"--budget=\"5s\""});
  expect_refused({"--out", "t", "--collectives", "gossip"},
                 {"--collectives=\"gossip\"", "allreduce", "barrier", "exscan"});
  expect_refused({"--out", "t", "--collectives", "floor"}, {"floor", "allreduce"});
  expect_refused({"--out", "t", "--collectives", "scan,scan"}, {"scan is there twice"});
  expect_refused({"--out", "t", "--bytes", "12"}, {"--bytes=\"12\"", "multiple of 8"});
  expect_refused({"--out", "t", "--bytes", "0"}, {"--bytes=\"0\"", "from 8"});
  expect_refused({"--out", "t", "--local", "0"}, {"--local=\"0\""});
  expect_refused({"--out", "t", "--seed", "x"}, {"--seed=\"x\""});
  expect_refused({"--out", ""}, {"--out=\"\"", "name of a file"});
  expect_refused({"--out", "t", "--virtual-time"}, {"--virtual-time", "--local"});
  expect_refused({"--out", "t", "--virtual-time", "--local", "2"},
                 {"--virtual-time", "--fabric", "qdr"});
  expect_refused({"--out", "t", "--local", "2", "--fabric", "fddr"}, {"fddr", "qdr"});
  expect_refused({"--explain", "gossip", "--ranks", "4"}, {"gossip", "allreduce"});
  expect_refused({"--explain", "allreduce"}, {"--ranks"});
}

TEST(TuneOptions, what_does_nothing_is_refused) {
  expect_refused({"--show", "t", "--check"}, {"--show with --check", "leave one out"});
  expect_refused({"--show", "t", "--budget", "5"}, {"--budget", "leave it out"});
  expect_refused({"--ranks", "5", "--out", "t"}, {"--ranks", "--explain"});
  expect_refused({"--file", "t"}, {"--file", "--explain"});
  expect_refused({"--check", "--out", "t"}, {"--out", "--file"});
  expect_refused({"--diff", "a"}, {"--diff"});
  expect_refused({"--explain", "barrier", "--ranks", "4", "--fabric", "fdr", "--file", "t"},
                 {"--fabric with --file"});
}

TEST(TuneOptions, what_is_verified) {
  using Parts = std::vector<VerifiedPart>;
  EXPECT_EQ(parse({"--verify"}).mode, TuneMode::verify);
  const Parts grid{VerifiedPart::model, VerifiedPart::race, VerifiedPart::nearby};
  EXPECT_EQ(parse({"--verify"}).verified, grid);
  const TuneOptions short_run = parse({"--verify", "--budget", "2", "--seed", "5"});
  EXPECT_EQ(short_run.verified, grid);
  EXPECT_EQ(short_run.verify_budget.count(), 2);
  EXPECT_EQ(short_run.percent_off, 5u);
  EXPECT_EQ(parse({"--verify", "model", "--percent-off", "0"}).percent_off, 0u);
  expect_refused({"--verify", "--percent-off", "51"}, {"--percent-off=\"51\"", "50"});
  expect_refused({"--verify", "--percent-off", "-1"}, {"--percent-off=\"-1\""});
  expect_refused({"--verify", "fit,noise", "--percent-off", "5"},
                 {"--percent-off with --verify fit,noise", "model,race,nearby", "leave it out"});
  expect_refused({"--show", "t", "--percent-off", "5"}, {"--percent-off", "with --verify"});
  EXPECT_EQ(parse({"--verify", "noise,fit"}).verified,
            (Parts{VerifiedPart::noise, VerifiedPart::fit}));
  EXPECT_EQ(parse({"--verify=time,race", "--budget", "9"}).verified,
            (Parts{VerifiedPart::time, VerifiedPart::race}));
  for (const VerifiedPart part : {VerifiedPart::model, VerifiedPart::race, VerifiedPart::nearby,
                                  VerifiedPart::fit, VerifiedPart::noise, VerifiedPart::time})
    EXPECT_EQ(parse({"--verify", name_of(part)}).verified, Parts{part});
  expect_refused({"--verify", "modal"},
                 {"--verify=\"modal\"", "one of model, race, nearby, fit, noise, time"});
  expect_refused({"--verify", "fit,"}, {"--verify=\"\"", "model"});
  expect_refused({"--verify", ""}, {"--verify=\"\"", "model"});
  expect_refused({"--verify", "fit,time,fit"}, {"--verify=\"fit,time,fit\"", "fit is there twice"});
  expect_refused({"--verify", "fit,noise", "--budget", "5"},
                 {"--budget with --verify fit,noise", "model,race,nearby", "leave it out"});
  expect_refused({"--verify", "--show", "t"}, {"--show with --verify", "leave one out"});
  expect_refused({"--verify", "fit", "race"}, {"race"});
}

TEST(TuneOptions, modes_that_need_no_ranks) {
  EXPECT_EQ(parse({"--show", "t"}).file, "t");
  const TuneOptions difference = parse({"--diff", "a", "b"});
  EXPECT_EQ(difference.mode, TuneMode::diff);
  EXPECT_EQ(difference.file + difference.other_file, "ab");
  const TuneOptions page = parse({"--report", "t.html", "--file", "t"});
  EXPECT_EQ(page.other_file, "t.html");
  EXPECT_EQ(page.file, "t");
  const TuneOptions question = parse({"--explain", "allreduce", "--ranks", "96", "--ranks-per-node",
                                      "8", "--bytes", "8", "--fabric", "fdr"});
  EXPECT_EQ(question.mode, TuneMode::explain);
  EXPECT_EQ(question.explained.topology.rank_count, 96u);
  EXPECT_EQ(question.explained.topology.node_count(), 12u);
  EXPECT_EQ(question.explained.asked.reduction.element_type, ElementType::float64);
}

}  // namespace
}  // namespace tutti::bench
