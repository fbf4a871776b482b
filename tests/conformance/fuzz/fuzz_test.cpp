// Promise: whatever two processes ask of the device, in whatever order, right or wrong, it does
// what the model says: calls succeed or fail, states change, completions come with the right status
// in the right order, events come once, and no byte of memory changes that should not.
//
// Seeds of which a division by 4 leaves 3 make datagrams, too.
//
// TUTTI_TEST_SECONDS (10) is for how long, TUTTI_TEST_SEEDS (400) how many seeds at most.  A
// divergence prints its seed and step; TUTTI_TEST_SEED=that runs this sequence alone, and
// TUTTI_TEST_TRACE=1 shows its commands.  Seeds that go where others seldom do are kept in
// tests/data/fuzz_seeds.txt, with a fingerprint of their commands, and come first: a seed that
// makes other commands than on the day it was kept is an error, as it may keep nothing any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "generator.hpp"
#include "harness.hpp"
#include "model.hpp"
#include "party.hpp"

namespace tutti::conformance::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned steps_per_sequence = 500;
constexpr auto patience = 20s;  // a busy machine, under a sanitizer

constexpr const char* verb_names[] = {
    "create_shared", "destroy_shared",  "create_pair",   "destroy_pair",
    "modify",        "query",           "post_send",     "post_receive",
    "post_shared",   "register_region", "deregister",    "poll",
    "arm",           "take_event",      "destroy_queue", "deallocate_domain",
    "scribble",      "show_memory",     "clear",         "end"};
static_assert(std::size(verb_names) == static_cast<std::size_t>(Verb::end) + 1);

bool is_post(Verb verb) {
  return verb == Verb::post_send || verb == Verb::post_receive || verb == Verb::post_shared;
}

std::string describe(const Command& command) {
  std::ostringstream text;
  text << verb_names[static_cast<std::size_t>(command.verb)] << " side " << command.side << " slot "
       << command.slot;
  if (command.verb == Verb::modify)
    text << " to " << command.attributes.qp_state << " mask " << std::hex << command.mask
         << " peer " << command.attributes.dest_qp_num << std::dec << " timeout "
         << int{command.attributes.timeout} << " rnr " << int{command.attributes.rnr_retry};
  if (command.verb == Verb::register_region)
    text << " at " << command.offset << "+" << command.bytes << " access " << command.access
         << " domain " << command.domain;
  if (command.verb == Verb::create_pair)
    text << " shared " << command.shared << " queues " << command.send_queue
         << command.receive_queue << " sends " << command.cap.max_send_wr << " receives "
         << command.cap.max_recv_wr << " domain " << command.domain;
  for (std::uint32_t index = 0; is_post(command.verb) && index < command.count; ++index) {
    const Work& work = command.works[index];
    text << "\n      " << std::hex << work.id << std::dec << " opcode " << work.opcode << " flags "
         << work.flags << " remote " << std::hex << work.remote << " key " << work.remote_key;
    for (std::uint32_t piece = 0; piece < work.count; ++piece)
      text << " [" << std::dec << work.pieces[piece].offset << "+" << work.pieces[piece].length
           << " key " << std::hex << work.pieces[piece].key << "]";
    text << std::dec;
  }
  return text.str();
}

class Fuzzer {
 public:
  Fuzzer(Line& line, bool traces) : line_(line), own_(Storage::shared_file), traces_(traces) {
    introductions_[0] = own_.introduction();
    introductions_[1] = line.get<Introduction>();
  }
  ~Fuzzer() { line_.put(Command{.verb = Verb::end}); }
  Fuzzer(const Fuzzer&) = delete;
  Fuzzer& operator=(const Fuzzer&) = delete;

  /// True if the device did as the model.
  bool run(std::uint64_t seed) {
    Generator generator(seed);
    model_ = {};
    divergence_.clear();
    fingerprint_ = 0;
    model_.lid = introductions_[0].lid;
    model_.has_datagrams = seed % 4 == 3;
    model_.any_request_may_wait = std::getenv("TUTTI_SOFT_TRANSPORT") != nullptr;
    for (std::uint32_t side = 0; side < 2; ++side) {
      model_.sides[side].base = introductions_[side].base;
      (void)execute({.verb = Verb::clear, .side = side});
    }
    unsigned step = 0;
    for (; step < steps_per_sequence && divergence_.empty(); ++step) take_step(generator, step);
    if (divergence_.empty()) rest();
    if (divergence_.empty()) return true;
    ADD_FAILURE() << divergence_ << "\nTUTTI_TEST_SEED=" << seed << ", step " << step - 1 << ": "
                  << describe(last_);
    return false;
  }
  /// A hash of the last sequence's commands, without the numbers and keys that the device chooses.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::uint64_t commands_count() const { return commands_count_; }
  std::uint64_t completions_count() const { return completions_count_; }

 private:
  Reply execute(const Command& command) {
    if (command.side == 0) return own_.run(command);
    line_.put(command);
    return line_.get<Reply>();
  }

  void diverge(const std::string& how) {
    if (divergence_.empty()) divergence_ = how;
  }

  void take_step(Generator& generator, unsigned step) {
    Command command = generator.next(model_);
    // What is armed must not meet completions that are late, and a full ring delays requests; what
    // is destroyed takes its events along.
    if (command.verb == Verb::arm || command.verb == Verb::destroy_queue) rest();
    Model next = model_;
    std::uint32_t accepted = 0;
    const bool succeeds = next.apply(command, accepted);
    // Requests that wait for something may meet what has changed in any order.
    bool depends_on_order = next.is_ambiguous();
    if (model_.is_waiting() && !depends_on_order) {
      Model other = model_;
      other.goes_backward = true;
      (void)other.apply(command, accepted);
      depends_on_order = !next.agrees_with(other);
    }
    if (depends_on_order || !divergence_.empty()) return;
    last_ = command;
    for (const std::uint64_t value :
         {std::uint64_t{static_cast<std::uint32_t>(command.verb)}, std::uint64_t{command.side},
          std::uint64_t{command.slot}, std::uint64_t{command.count}, std::uint64_t{succeeds}})
      fingerprint_ = (fingerprint_ ^ value) * 0x100000001b3;  // as FNV-1 does
    if (traces_)
      std::cout << step << ": " << describe(command) << (succeeds ? "" : " (to be refused)")
                << std::endl;
    const Reply reply = execute(command);
    ++commands_count_;
    if ((reply.error == 0) != succeeds)
      diverge(succeeds ? "refused: " + std::string(std::strerror(reply.error)) : "not refused");
    if (is_post(command.verb) && reply.accepted != accepted)
      diverge(std::to_string(reply.accepted) + " requests accepted instead of " +
              std::to_string(accepted));
    learn(command, reply, next);
    model_ = next;
    if (command.verb == Verb::query && reply.state != static_cast<std::uint32_t>(state_of(command)))
      diverge("state " + std::to_string(reply.state) + " instead of " +
              std::to_string(state_of(command)));
    if (command.verb == Verb::poll) take(command.side, reply);
    if (model_.needs_rest() || generator.chance(30) || has_many_completions()) rest();
  }

  ibv_qp_state state_of(const Command& command) const {
    return model_.sides[command.side].pairs[command.slot].state;
  }

  /// What only the device knows: numbers and keys.
  void learn(const Command& command, const Reply& reply, Model& model) const {
    Side& side = model.sides[command.side];
    if (reply.error != 0) return;
    if (command.verb == Verb::create_pair) {
      side.pairs[command.slot].number = reply.number;
      side.pairs[command.slot].cap = reply.cap;
    }
    if (command.verb == Verb::register_region) side.regions[command.slot].key = reply.number;
  }

  void take(std::uint32_t side, const Reply& reply) {
    if (reply.count < 0) return diverge("poll failed");
    for (int index = 0; index < reply.count; ++index) {
      const ibv_wc& completion = reply.completions[static_cast<std::size_t>(index)];
      ++completions_count_;
      if (traces_)
        std::cout << "    side " << side << " completion " << std::hex << completion.wr_id
                  << std::dec << " " << ibv_wc_status_str(completion.status) << std::endl;
      const std::string wrong = model_.take(side, completion);
      if (!wrong.empty()) {
        std::ostringstream text;
        text << wrong << ": request " << std::hex << completion.wr_id << " of side " << side << ", "
             << ibv_wc_status_str(completion.status);
        return diverge(text.str());
      }
    }
  }

  bool has_many_completions() const {
    for (const Side& side : model_.sides)
      for (const Pair& pair : side.pairs)
        if (pair.receives_done.size() > 6) return true;
    return false;
  }

  /// Until all that must have happened has happened, and nothing else.
  void rest() {
    for (std::uint32_t side = 0; side < 2; ++side) {
      drain(side);
      take_events(side);
    }
    for (std::uint32_t side = 0; side < 2 && divergence_.empty(); ++side) expect_memory(side);
  }

  void drain(std::uint32_t side) {
    const auto deadline = Clock::now() + patience;
    for (bool again = true; again && divergence_.empty();) {
      again = false;
      for (std::uint32_t queue = 0; queue < queues_count; ++queue) {
        const Reply reply =
            execute({.verb = Verb::poll, .side = side, .slot = queue, .count = polled_max});
        take(side, reply);
        again |= reply.count > 0;
      }
      again |= model_.has_completions(side);
      if (again && Clock::now() > deadline) diverge("a completion has not come" + missing(side));
    }
  }

  std::string missing(std::uint32_t side) const {
    std::ostringstream text;
    text << std::hex;
    for (const Pair& pair : model_.sides[side].pairs)
      for (const auto* const queue : {&pair.sends_done, &pair.receives_done})
        for (const Expected& entry : *queue)
          text << "\n  " << entry.id << " of side " << side << ": "
               << ibv_wc_status_str(entry.status);
    return text.str();
  }

  void take_events(std::uint32_t side) {
    std::uint32_t& events = model_.sides[side].events;
    for (; events != 0 && divergence_.empty(); --events)
      if (execute({.verb = Verb::take_event, .side = side, .count = 1}).error != 0)
        diverge("an event has not come");
    if (execute({.verb = Verb::take_event, .side = side}).count != 0)
      diverge("an event that was not expected");
  }

  void expect_memory(std::uint32_t side) {
    const auto deadline = Clock::now() + patience;
    const Memory& expected = model_.sides[side].memory;
    for (;;) {
      if (side == 1) line_.put(Command{.verb = Verb::show_memory, .side = side});
      const Memory memory = side == 0 ? own_.memory() : line_.get<Memory>();
      if (memory == expected) return;
      if (Clock::now() < deadline) continue;  // an unsignaled write may be on its way
      const auto place = std::mismatch(memory.begin(), memory.end(), expected.begin());
      return diverge("memory of side " + std::to_string(side) + " differs at " +
                     std::to_string(place.first - memory.begin()));
    }
  }

  Line& line_;
  Party own_;
  bool traces_;
  std::array<Introduction, 2> introductions_{};
  Model model_;
  Command last_{};
  std::string divergence_;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t commands_count_ = 0;
  std::uint64_t completions_count_ = 0;
};

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// A line: the seed, its fingerprint, and after a # why it is kept.
bool run_kept_seeds(Fuzzer& fuzzer) {
  std::ifstream file(TUTTI_FUZZ_SEEDS);
  EXPECT_TRUE(file) << TUTTI_FUZZ_SEEDS;
  unsigned count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::uint64_t seed = 0, fingerprint = 0;
    std::istringstream(line) >> seed >> std::hex >> fingerprint;
    ++count;
    if (!fuzzer.run(seed)) return false;
    // With another transport other commands are left out, as their outcome depends on time.
    if (std::getenv("TUTTI_SOFT_TRANSPORT")) continue;
    EXPECT_EQ(fuzzer.fingerprint(), fingerprint)
        << "seed " << seed << " is stale: it makes commands of the fingerprint " << std::hex
        << fuzzer.fingerprint()
        << " now.  Look for one that does what its line says (TUTTI_TEST_TRACE=1)";
  }
  EXPECT_GT(count, 0u) << TUTTI_FUZZ_SEEDS;
  return !testing::Test::HasFailure();
}

TEST(Fuzz, two_processes_do_what_the_model_says) {
  if (!device_is_soft()) GTEST_SKIP() << "the model knows no packet numbers";
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "what orders a process's threads here runs through the other process";
#endif
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  const bool shared = transport && std::string(transport) == "shared";
  OtherProcess other([&](Line& line) {
    Party party(shared ? Storage::shared_file : Storage::private_pages);
    party.serve(line);
  });
  {
    Fuzzer fuzzer(other.line(), setting("TUTTI_TEST_TRACE", 0) != 0);
    const auto end = Clock::now() + std::chrono::seconds(setting("TUTTI_TEST_SECONDS", 10));
    if (const std::uint64_t seed = setting("TUTTI_TEST_SEED", 0); seed != 0) {
      (void)fuzzer.run(seed);
      std::cout << "fingerprint " << std::hex << fuzzer.fingerprint() << std::dec << "\n";
    } else if (run_kept_seeds(fuzzer)) {
      // Long runs go where short ones do not.
      const std::uint64_t first = setting("TUTTI_TEST_FIRST_SEED", 1'000'000);
      std::uint64_t next = first;
      const std::uint64_t last = first + setting("TUTTI_TEST_SEEDS", 400);
      while (next != last && Clock::now() < end && fuzzer.run(next)) ++next;
      std::cout << "seeds " << first << " to " << next - 1 << "\n";
    }
    std::cout << fuzzer.commands_count() << " commands, " << fuzzer.completions_count()
              << " completions\n";
  }
  if (!testing::Test::HasFailure()) other.expect_success();
}

}  // namespace
}  // namespace tutti::conformance::fuzz
