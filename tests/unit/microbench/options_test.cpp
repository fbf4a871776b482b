// Promise: a command line means what it says, and a bad one is refused in one line that names the
// value and what was expected.
#include "microbench/options.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

namespace tutti::bench {
namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-bench");
  return parse_options(arguments);
}

std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

/// Refused, in one line that contains all of `parts`.
void expect_refused(const std::vector<const char*>& arguments,
                    const std::vector<const char*>& parts) {
  const std::string text = refusal(arguments);
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Options, defaults_are_a_double_sum_with_identical_bits) {
  const Options options = parse({"barrier,allreduce"});
  EXPECT_EQ(options.collectives,
            (std::vector<Collective>{Collective::barrier, Collective::allreduce}));
  EXPECT_EQ(options.dtype, ElementType::float64);
  EXPECT_EQ(options.op, BuiltIn::sum);
  EXPECT_EQ(options.agreement, Agreement::identical);
  EXPECT_EQ(options.bytes.front(), 8u);
  EXPECT_EQ(options.bytes.back(), 16384u);
}

TEST(Options, agreement_is_identical_unless_asked_for) {
  EXPECT_EQ(parse({"allreduce", "--op", "max"}).agreement, Agreement::identical);
  EXPECT_EQ(parse({"allreduce", "--dtype", "int32"}).agreement, Agreement::identical);
  EXPECT_EQ(parse({"allreduce", "--agreement", "relaxed"}).agreement, Agreement::relaxed);
}

TEST(Options, the_users_operator_takes_its_own_type) {
  EXPECT_EQ(parse({"allreduce", "--op", "user"}).dtype, ElementType::uint64);
  expect_refused({"allreduce", "--op", "user", "--dtype", "int32"}, {"--dtype", "int32", "uint64"});
}

TEST(Options, lists_and_units_are_understood) {
  const Options options = parse({"allreduce", "--bytes", "0,8,1K,1M", "--per-round", "3,2,1",
                                 "--local", "13", "--iterations", "50", "--seed", "7"});
  EXPECT_EQ(options.bytes, (std::vector<std::size_t>{0, 8, 1024, 1048576}));
  EXPECT_EQ(options.per_round, (std::vector<std::uint32_t>{3, 2, 1}));
  EXPECT_EQ(options.local, 13u);
  EXPECT_EQ(options.iterations, 50u);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_FALSE(options.notify) << "the environment's";
  EXPECT_EQ(parse({"barrier", "--notify", "flag"}).notify, Notify::flag);
}

TEST(Options, all_leaves_probes_to_the_run) {
  const Options options = parse({"all"});
  EXPECT_TRUE(options.all);
  EXPECT_EQ(options.collectives.size(), 19u);
}

TEST(Options, options_without_a_feature_are_unknown) {
  for (const char* option : {"--tune", "--notification"})
    expect_refused({"allreduce", option, "x"}, {option, "--help"});
}

TEST(Options, bad_values_are_named_with_what_was_expected) {
  expect_refused({}, {"COLLECTIVE", "--help"});
  expect_refused({"gossip"}, {"gossip", "allreduce"});
  expect_refused({"barrier,barrier"}, {"barrier", "once"});
  expect_refused({"barrier,"}, {"COLLECTIVE"});
  expect_refused({"allreduce", "--dtype", "quad"}, {"--dtype", "quad", "int32"});
  expect_refused({"allreduce", "--op", "avg"}, {"--op", "avg", "sum"});
  expect_refused({"allreduce", "--op", "bor"}, {"--op", "bor", "double", "uint64"});
  expect_refused({"allreduce", "--bytes", "12"}, {"--bytes", "12", "multiple of 8"});
  expect_refused({"allreduce", "--bytes", "8,8"}, {"--bytes", "8,8", "once"});
  expect_refused({"allreduce", "--bytes", "x"}, {"--bytes", "x", "64K"});
  expect_refused({"allreduce", "--per-round", "0"}, {"--per-round", "0", "1 or more"});
  expect_refused({"allreduce", "--ranks-per-node", "0"}, {"--ranks-per-node", "0", "1 or more"});
  expect_refused({"broadcast", "--root", "-1"}, {"--root", "-1"});
  expect_refused({"allreduce", "--placement", "near"}, {"--placement", "near", "cyclic"});
  expect_refused({"allreduce", "--iterations", "0"}, {"--iterations", "0", "1"});
  expect_refused({"allreduce", "--local", "0"}, {"--local", "0", "1"});
  expect_refused({"allreduce", "--local", "-3"}, {"--local", "-3"});
  expect_refused({"allreduce", "--format", "xml"}, {"--format", "xml", "json"});
  expect_refused({"allreduce", "--bind", "all"}, {"--bind", "all", "auto"});
  expect_refused({"allreduce", "--algorithm", "gossip"}, {"--algorithm", "gossip", "automatic"});
  expect_refused({"allreduce", "--agreement", "loose"}, {"--agreement", "loose", "relaxed"});
  expect_refused({"allreduce", "--notify", "word"}, {"--notify", "word", "immediate", "flag"});
  expect_refused({"allreduce", "--check-level", "all"}, {"--check-level", "all", "local"});
  expect_refused({"allreduce", "--against", "nccl"}, {"--against", "nccl", "mpi"});
  expect_refused({"allreduce", "--against", "mpi", "--local", "2"}, {"--local", "mpirun"});
}

TEST(Options, cases_of_the_verbs_layer_are_a_run_of_their_own) {
  const Options options = parse({"latency,incast", "--bytes", "1,64K", "--local", "3"});
  EXPECT_EQ(options.verbs_cases, (std::vector<VerbsCase>{VerbsCase::latency, VerbsCase::incast}));
  EXPECT_TRUE(options.collectives.empty());
  EXPECT_EQ(options.bytes, (std::vector<std::size_t>{1, 65536}));
  EXPECT_FALSE(parse({"latency"}).has_bytes);
  EXPECT_TRUE(parse({"bandwidth", "--against", "perftest"}).against_perftest);
  EXPECT_EQ(parse({"verbs"}).verbs_cases.size(), 8u);
  EXPECT_EQ(parse({"verbs", "--virtual-time", "--local", "2"}).verbs_cases.size(), 6u)
      << "setting up takes no virtual time";
  expect_refused({"latency,allreduce"}, {"allreduce", "latency", "a run of their own"});
  expect_refused({"latency,latency"}, {"latency", "once"});
  expect_refused({"latency", "--bytes", "0"}, {"--bytes", "0", "1 to 256M"});
  expect_refused({"latency", "--bytes", "1G"}, {"--bytes", "1G", "1 to 256M"});
  expect_refused({"bandwidth", "--check"}, {"bandwidth", "--check", "leave one"});
  expect_refused({"bandwidth", "--dtype", "int32"}, {"bandwidth", "--dtype"});
  expect_refused({"bandwidth", "--against", "mpi"}, {"--against", "mpi", "perftest"});
  expect_refused({"allreduce", "--against", "perftest"}, {"--against", "perftest", "mpi"});
  expect_refused({"latency", "--against", "perftest", "--virtual-time", "--local", "2"},
                 {"--against", "perftest", "real time"});
  expect_refused({"registration", "--virtual-time", "--local", "2"},
                 {"--virtual-time", "registration", "leave it out"});
}

TEST(Options, virtual_time_needs_local_ranks_and_has_a_network) {
  const Options options = parse({"all", "--virtual-time", "--local", "3"});
  EXPECT_TRUE(options.virtual_time);
  EXPECT_EQ(options.fabric, "fdr");
  EXPECT_EQ(options.collectives.size(), 16u);
  for (const Collective one : options.collectives) EXPECT_FALSE(is_memory_probe(one));
  EXPECT_EQ(parse({"barrier", "--fabric", "hdr"}).fabric, "hdr");
  expect_refused({"barrier", "--virtual-time"}, {"--virtual-time", "--local"});
  expect_refused({"floor", "--virtual-time", "--local", "2"}, {"--virtual-time", "floor"});
  expect_refused({"barrier", "--fabric", "sdr"}, {"sdr", "qdr, fdr"});
}

TEST(Options, bounds_need_ten_blocks_of_real_time) {
  EXPECT_TRUE(parse({"barrier", "--expect", "x", "--tripwire", "--iterations", "2000"}).tripwire);
  expect_refused({"barrier", "--tripwire"}, {"--tripwire", "--expect FILE"});
  expect_refused({"barrier", "--expect", "x", "--iterations", "1999"},
                 {"--iterations", "1999", "2000", "10 alternating blocks"});
  expect_refused({"barrier", "--expect", "x", "--local", "2", "--virtual-time"},
                 {"--expect", "--virtual-time"});
}

TEST(Options, help_is_no_error) {
  EXPECT_NE(parse({"--help"}).help.find("--bytes"), std::string::npos);
}

TEST(Options, untuned_and_tuned_are_ways) {
  const Options options = parse({"barrier", "--tuning", "off,t.json,default"});
  ASSERT_EQ(options.ways.size(), 3u);
  EXPECT_EQ(options.ways[0].tuning, TuningMode::off);
  EXPECT_EQ(options.ways[1].tuning, TuningMode::file);
  EXPECT_EQ(options.ways[1].tuning_file, "t.json");
  EXPECT_EQ(options.ways[2].tuning, std::nullopt);
  EXPECT_EQ(parse({"barrier", "--tuning", "off", "--single-copy", "4K"}).ways[0].single_copy_bytes,
            4096u);
  expect_refused({"barrier", "--tuning", "off,off"},
                 {"--tuning=\"off,off\"", "off is there twice"});
  expect_refused({"barrier", "--tuning", "off,"}, {"--tuning=\"off,\"", "tuning file"});
  expect_refused({"barrier", "--tuning", "off", "--single-copy", "4K,8K"},
                 {"--tuning=\"off\"", "--single-copy", "leave one"});
  expect_refused({"barrier", "--tuning", "off,t.json", "--format", "json"}, {"--format", "table"});
}

}  // namespace
}  // namespace tutti::bench
