// Promise: no TUTTI_* variable is ever ignored, and a bad one is explained.
#include "runtime/settings.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <tutti/tutti.hpp>

#include "runtime/tuning_table.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

class Settings : public testing::Test {
 protected:
  void set(const char* name, const char* value) {
    setenv(name, value, 1);
    set_.push_back(name);
  }
  ~Settings() override {
    for (const char* name : set_) unsetenv(name);
  }

  template <class Read>
  std::string error_of(Read&& read) {
    try {
      (void)read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  }

  void expect_refused(const char* name, const char* value, const char* hint) {
    set(name, value);
    const std::string text = error_of([] { return runtime::context_settings({}); });
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find(hint), std::string::npos) << text;
    unsetenv(name);
  }

 private:
  std::vector<const char*> set_;
};

TEST_F(Settings, values_are_read) {
  set("TUTTI_DEVICE", "soft0");
  set("TUTTI_ARENA_BYTES", "3M");
  set("TUTTI_CHECK", "local");
  set("TUTTI_PER_ROUND", "3,2,1");
  set("TUTTI_CHUNK_BYTES", "96K");
  set("TUTTI_SINGLE_COPY_BYTES", "5K");
  set("TUTTI_SETUP_TIMEOUT", "0.5");
  set("TUTTI_CONNECT", "cm");
  set("TUTTI_WAIT", "block");
  set("TUTTI_DETECTION_BOUND", "0.25");
  set("TUTTI_NOTIFY", "flag");
  set("TUTTI_SHARED_NOTIFICATIONS", "republished");
  set("TUTTI_REGISTER_BUFFERS", "1");
  set("TUTTI_SHRINKABLE", "1");
  set("TUTTI_RANKS_PER_NODE", "3,1");
  set("TUTTI_PLACEMENT", "random");
  set("TUTTI_DOMAINS_ABOVE", "5");
  set("TUTTI_CONNECTIONS_MAX", "40");
  set("TUTTI_RANKS_PER_DOMAIN", "4,2");
  set("TUTTI_TUNING", "first_call");
  set("TUTTI_TUNING_FILE", "/tmp/a.json");
  set("TUTTI_TUNING_BITS", "keep");
  set("TUTTI_TUNING_APPEND", "1");
  set("TUTTI_STRAGGLERS", "1");
  set("TUTTI_TRACE", "trace.%r.json");
  set("TUTTI_TRACE_BYTES", "64K");
  set("TUTTI_TRACE_SHORT_CALLS", "all");
  const runtime::ContextSettings options = runtime::context_settings({});
  EXPECT_TRUE(options.stragglers);
  EXPECT_EQ(options.trace_file, "trace.%r.json");
  EXPECT_EQ(options.trace_bytes, 64u << 10);
  EXPECT_FALSE(options.trace_samples);
  EXPECT_EQ(options.device, "soft0");
  EXPECT_EQ(options.arena_bytes, 3u << 20);
  EXPECT_EQ(options.check, CheckLevel::local);
  EXPECT_EQ(options.per_round, (std::vector<std::uint32_t>{3, 2, 1}));
  EXPECT_EQ(options.chunk_bytes, 96u << 10);
  EXPECT_EQ(options.single_copy_bytes, 5u << 10);
  EXPECT_EQ(options.setup_timeout, 500ms);
  EXPECT_EQ(options.detection_bound, 250ms);
  EXPECT_EQ(options.connect, ConnectBy::cm);
  EXPECT_EQ(options.wait, WaitPolicy::block);
  EXPECT_EQ(options.notify, Notify::flag);
  EXPECT_EQ(options.shared_notifications, SharedNotifications::republished);
  EXPECT_TRUE(options.register_buffers);
  EXPECT_TRUE(options.shrinkable);
  EXPECT_EQ(options.ranks_per_node, (std::vector<std::uint32_t>{3, 1}));
  EXPECT_EQ(options.placement, Placement::random);
  EXPECT_EQ(options.domains_above, 5u);
  EXPECT_EQ(options.connections_max, 40u);
  EXPECT_EQ(options.ranks_per_domain, (std::vector<std::uint32_t>{4, 2}));
  EXPECT_EQ(options.tuning, TuningMode::first_call);
  EXPECT_EQ(options.tuning_file, "/tmp/a.json");
  EXPECT_TRUE(options.tuning_keeps_bits);
  EXPECT_TRUE(options.tuning_appends);
  EXPECT_EQ(runtime::context_settings({.tuning_file = "b", .tuning = TuningMode::off}).tuning_file,
            "b");
  EXPECT_EQ(runtime::context_settings({.connect = ConnectBy::exchange}).connect,
            ConnectBy::exchange);
  ContextOptions given;
  given.shared_notifications = SharedNotifications::words;
  EXPECT_EQ(runtime::context_settings(given).shared_notifications, SharedNotifications::words);
}

TEST_F(Settings, tuning_is_one_of_a_few_words) {
  EXPECT_EQ(runtime::context_settings({}).tuning, TuningMode::file);
  EXPECT_EQ(runtime::context_settings({}).tuning_file, "");
  EXPECT_FALSE(runtime::context_settings({}).tuning_keeps_bits);
  EXPECT_FALSE(runtime::context_settings({}).tuning_appends);
  EXPECT_TRUE(runtime::context_settings({.tuning_appends = true}).tuning_appends);
  EXPECT_EQ(runtime::context_settings({.tuning = TuningMode::model}).tuning, TuningMode::model);
  EXPECT_EQ(runtime::context_settings({}).report_signal, 0);
  expect_refused("TUTTI_REPORT_SIGNAL", "7x", "expected the name of a signal, such as USR1");
  expect_refused("TUTTI_REPORT_SIGNAL", "KILL", "expected a signal after which a program goes on");
  for (const char* bad : {"-1", "0", "0.009", "3601", "1e300", "inf", "nan", "1s", "", " 1"})
    expect_refused("TUTTI_DETECTION_BOUND", bad, "expected seconds from 0.01 to 3600");
  expect_refused("TUTTI_TUNING", "on", "expected file, model, first_call or off");
  expect_refused("TUTTI_TUNING", "", "expected file, model, first_call or off");
  expect_refused("TUTTI_TUNING_BITS", "1", "expected free, or keep");
  expect_refused("TUTTI_TUNING_APPEND", "yes", "expected 0 or 1");
}

// Promise: files are looked for where the XDG Base Directory Specification says, and in /etc.
TEST_F(Settings, tuning_files_are_looked_for_in_two_places) {
  const char* const home = std::getenv("HOME");
  const std::string before = home != nullptr ? home : "";
  set("HOME", "/h");
  set("XDG_CONFIG_HOME", "/c");
  using Paths = std::vector<std::string>;
  EXPECT_EQ(runtime::tuning_paths(), (Paths{"/c/tutti/tuning.json", "/etc/tutti/tuning.json"}));
  for (const char* const none : {"", "relative"}) {
    set("XDG_CONFIG_HOME", none);
    EXPECT_EQ(runtime::tuning_paths(),
              (Paths{"/h/.config/tutti/tuning.json", "/etc/tutti/tuning.json"}));
  }
  set("HOME", "");
  EXPECT_EQ(runtime::tuning_paths(), (Paths{"/etc/tutti/tuning.json"}));
  set("HOME", before.c_str());
}

TEST_F(Settings, connections_are_a_number) {
  EXPECT_EQ(runtime::context_settings({}).connections_max, 0u) << "as the device allows";
  EXPECT_EQ(runtime::context_settings({.connections_max = 3}).connections_max, 3u);
  for (const char* const wrong : {"-1", "many", "4294967296", ""}) {
    set("TUTTI_CONNECTIONS_MAX", wrong);
    EXPECT_NE(error_of([] {
                return runtime::context_settings({});
              }).find("expected a number of connections"),
              std::string::npos)
        << wrong;
  }
}

// Rounded up, they would wrap to an arena of a page.
TEST_F(Settings, a_bound_in_code_goes_before_the_environment_and_is_refused_where_it_is_none) {
  set("TUTTI_DETECTION_BOUND", "2");
  EXPECT_EQ(runtime::context_settings({.detection_bound = 3s}).detection_bound, 3s);
  for (const Timeout good : {Timeout(10ms), Timeout(1h)})
    EXPECT_EQ(runtime::context_settings({.detection_bound = good}).detection_bound, good);
  for (const Timeout bad : {Timeout::zero(), -Timeout(1s), Timeout(10ms) - Timeout(1),
                            Timeout(1h) + Timeout(1), wait_forever}) {
    const std::string text =
        error_of([&] { return runtime::context_settings({.detection_bound = bad}); });
    EXPECT_NE(text.find("expected 10 ms to an hour"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(bad.count()) + " ns"), std::string::npos) << text;
  }
}

TEST_F(Settings, arenas_near_the_largest_number_are_refused) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 4095, runtime::arena_bytes_max + 1}) {
    const std::string text =
        error_of([&] { return runtime::context_settings({.arena_bytes = bytes}); });
    EXPECT_NE(text.find(std::to_string(bytes)), std::string::npos) << text;
    EXPECT_NE(text.find("at most 140737488355328 bytes"), std::string::npos) << text;
  }
  set("TUTTI_ARENA_BYTES", "17179869183G");
  EXPECT_NE(error_of([] { return runtime::context_settings({}); }).find("TUTTI_ARENA_BYTES"),
            std::string::npos);
  EXPECT_EQ(runtime::context_settings({.arena_bytes = runtime::arena_bytes_max}).arena_bytes,
            runtime::arena_bytes_max);
}

TEST_F(Settings, single_copies_may_be_switched_off) {
  set("TUTTI_SINGLE_COPY_BYTES", "never");
  EXPECT_EQ(runtime::context_settings({}).single_copy_bytes, SIZE_MAX);
  EXPECT_EQ(runtime::context_settings({.single_copy_bytes = 7}).single_copy_bytes, 7u);
  set("TUTTI_SINGLE_COPY_BYTES", "measured");
  EXPECT_EQ(runtime::context_settings({}).single_copy_bytes, std::nullopt);
  EXPECT_EQ(runtime::context_settings({.single_copy_bytes = 7}).single_copy_bytes, 7u);
  set("TUTTI_SINGLE_COPY_BYTES", "always");
  EXPECT_THROW(runtime::context_settings({}), Error);
}

TEST_F(Settings, domains_may_be_switched_off) {
  EXPECT_EQ(runtime::context_settings({}).domains_above, runtime::domains_above_ranks);
  set("TUTTI_DOMAINS_ABOVE", "never");
  EXPECT_EQ(runtime::context_settings({}).domains_above, SIZE_MAX);
  EXPECT_EQ(runtime::context_settings({.domains_above = 3}).domains_above, 3u);
  ContextOptions empty_domain;
  empty_domain.ranks_per_domain = {2, 0};
  EXPECT_NE(
      error_of([&] { return runtime::context_settings(empty_domain); }).find("ranks_per_domain"),
      std::string::npos);
}

TEST_F(Settings, whoever_emulates_a_network_gets_no_shared_memory) {
  EXPECT_TRUE(runtime::context_settings({}).ranks_per_node.empty());
  set("TUTTI_SOFT_FABRIC", "fdr");
  EXPECT_EQ(runtime::context_settings({}).ranks_per_node, std::vector<std::uint32_t>{1});
  ContextOptions imposed;
  imposed.ranks_per_node = {2};
  EXPECT_EQ(runtime::context_settings(imposed).ranks_per_node, std::vector<std::uint32_t>{2});
}

TEST_F(Settings, notifications_are_words_only_where_their_order_is_promised_and_time_is_real) {
  using enum SharedNotifications;
  const auto chosen = [](SharedNotifications asked, bool in_order, bool is_simulated) {
    return runtime::choose_shared_notifications(asked, in_order, is_simulated).in_force;
  };
  EXPECT_EQ(chosen(automatic, true, false), words);
  EXPECT_EQ(chosen(automatic, false, false), republished);
  EXPECT_EQ(chosen(automatic, true, true), republished);
  EXPECT_EQ(chosen(words, false, false), words);  // to be refused by who needs it
  EXPECT_EQ(chosen(republished, true, false), republished);
}

TEST_F(Settings, unknown_names_are_refused_with_the_valid_ones) {
  set("TUTTI_DEVCIE", "soft0");
  const std::string text = error_of([] { return runtime::context_settings({}); });
  EXPECT_NE(text.find("TUTTI_DEVCIE"), std::string::npos) << text;
  EXPECT_NE(text.find("TUTTI_DEVICE"), std::string::npos) << text;
}

TEST_F(Settings, bad_values_are_refused_with_what_is_expected) {
  expect_refused("TUTTI_ARENA_BYTES", "lots", "16M");
  expect_refused("TUTTI_ARENA_BYTES", "99999999999G", "16M");
  expect_refused("TUTTI_CHECK", "maybe", "collective");
  expect_refused("TUTTI_CONNECT", "CM", "exchange");
  expect_refused("TUTTI_CONNECT", "", "rdma_cm");
  expect_refused("TUTTI_REGISTER_BUFFERS", "yes", "0 or 1");
  expect_refused("TUTTI_SHRINKABLE", "yes", "0 or 1");
  expect_refused("TUTTI_STRAGGLERS", "yes", "0 or 1");
  expect_refused("TUTTI_TRACE", "", "the path of a file");
  expect_refused("TUTTI_TRACE_BYTES", "many", "bytes, for example");
  expect_refused("TUTTI_TRACE_BYTES", "4095", "from 4K to 64G");
  expect_refused("TUTTI_TRACE_BYTES", "65G", "from 4K to 64G");
  expect_refused("TUTTI_TRACE_SHORT_CALLS", "none", "sampled or all");
  expect_refused("TUTTI_WAIT", "sleep", "automatic, spin, yield or block");
  expect_refused("TUTTI_NOTIFY", "word", "immediate or flag");
  expect_refused("TUTTI_SHARED_NOTIFICATIONS", "flags", "automatic, words or republished");
  expect_refused("TUTTI_PER_ROUND", "3,0", "3,2,1");
  expect_refused("TUTTI_PER_ROUND", "3,", "3,2,1");
  expect_refused("TUTTI_RANKS_PER_NODE", "2,0", "3,1,2");
  expect_refused("TUTTI_PLACEMENT", "near", "cyclic");
  expect_refused("TUTTI_DOMAINS_ABOVE", "always", "never");
  expect_refused("TUTTI_RANKS_PER_DOMAIN", "4,0", "3,1,2");
  expect_refused("TUTTI_PLACEMENT", "cyclic", "TUTTI_RANKS_PER_NODE");
  expect_refused("TUTTI_CHUNK_BYTES", "some", "bytes");
  expect_refused("TUTTI_SETUP_TIMEOUT", "-1", "seconds");
  expect_refused("TUTTI_SETUP_TIMEOUT", "nan", "seconds");
  expect_refused("TUTTI_SETUP_TIMEOUT", "0.00000000000000000001", "seconds");
}

TEST_F(Settings, tcp_rank_must_fit_its_size) {
  set("TUTTI_RANK", "4");
  set("TUTTI_SIZE", "4");
  set("TUTTI_RENDEZVOUS", "127.0.0.1:1");
  set("TUTTI_SECRET", "s");
  const std::string text = error_of(TcpOptions::from_environment);
  EXPECT_NE(text.find("TUTTI_RANK=\"4\""), std::string::npos) << text;
}

TEST_F(Settings, missing_tcp_setting_is_named) {
  set("TUTTI_RANK", "0");
  set("TUTTI_SIZE", "4");
  set("TUTTI_RENDEZVOUS", "127.0.0.1:1");
  const std::string text = error_of(TcpOptions::from_environment);
  EXPECT_NE(text.find("TUTTI_SECRET"), std::string::npos) << text;
  EXPECT_NE(text.find("TUTTI_SECRET_FILE"), std::string::npos) << text;
}

TEST_F(Settings, the_secret_may_come_from_a_file_or_a_descriptor) {
  set("TUTTI_RANK", "0");
  set("TUTTI_SIZE", "4");
  set("TUTTI_RENDEZVOUS", "127.0.0.1:1");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "horse\n", 6), 6);
  close(ends[1]);
  const std::string number = std::to_string(ends[0]);
  set("TUTTI_SECRET_FD", number.c_str());
  // A second communicator asks again.
  for (int time = 0; time < 2; ++time) EXPECT_EQ(TcpOptions::from_environment().secret, "horse");
  set("TUTTI_SECRET_FILE", "/nonexistent");
  std::string text = error_of(TcpOptions::from_environment);
  EXPECT_NE(text.find("unset all but one"), std::string::npos) << text;
  set("TUTTI_SECRET_FD", "three");
  unsetenv("TUTTI_SECRET_FILE");
  text = error_of(TcpOptions::from_environment);
  EXPECT_TRUE(text.starts_with("TUTTI_SECRET_FD=\"three\": expected")) << text;
  unsetenv("TUTTI_SECRET_FD");
  set("TUTTI_SECRET_FILE", "/nonexistent");
  text = error_of(TcpOptions::from_environment);
  EXPECT_TRUE(text.starts_with("TUTTI_SECRET_FILE=\"/nonexistent\": cannot be opened")) << text;
}

}  // namespace
}  // namespace tutti
