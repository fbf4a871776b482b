// The cases of the verbs layer: what ibv_post_send, ibv_poll_cq, ibv_reg_mr and ibv_create_qp take
// on the chosen device, without collectives.  Ranks 0 and one of another node (or rank 1) measure;
// incast and shared_port need more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "microbench/options.hpp"
#include "microbench/perftest.hpp"
#include "microbench/station.hpp"
#include "microbench/subject.hpp"
#include "microbench/timer.hpp"

namespace tutti::bench {

class VerbsSubject : public Subject {
 public:
  void synchronise() override {}  // ranks meet through their exchange
  /// Nanoseconds of one of so many calls.
  virtual double sample(std::size_t calls, const Timer& timer) {
    const std::uint64_t begin = timer.ticks();
    run(calls);
    return timer.nanoseconds(timer.ticks() - begin) / static_cast<double>(calls);
  }
};

/// What a row is about, which is what stands beside perftest.
enum class VerbsFigure : std::uint8_t { time, rate, bandwidth };

struct VerbsTest {
  std::string name;
  std::size_t bytes = 0;
  VerbsFigure figure = VerbsFigure::time;
  std::optional<std::uint32_t> queue_pairs = {};
  std::optional<std::uint32_t> senders = {};
  std::size_t bytes_together = 0;  // that go through a port in what is timed; 0: none
  bool needs_card = false;         // on an emulated device it is a model
  std::unique_ptr<VerbsSubject> subject = {};
  std::optional<PerftestCommand> perftest = {};
};

class VerbsCases {
 public:
  /// Collective.  `nodes`: of each rank; `device` as ContextOptions::device.  Throws Error, alike
  /// on all ranks, also for a case that these ranks cannot measure, unless all were asked for.
  VerbsCases(const Options& options, Exchange& exchange, std::span<const Node> nodes,
             const std::string& device);

  std::vector<VerbsTest>& all() noexcept { return tests_; }
  Station& station() noexcept { return *station_; }
  Rank partner() const noexcept { return partner_; }

 private:
  bool is_possible(VerbsCase which) const;
  std::uint32_t add_cable(Rank one, Rank other, std::uint32_t queue, std::uint32_t receives_max);
  void plan_cables();
  void add(VerbsCase which);
  void add_flow(VerbsTest&& test, const Flow& flow);
  void add_incast();
  void add_shared_port();
  void add_calls();
  void add_connection();
  std::vector<std::size_t> sizes(std::vector<std::size_t> by_default) const;
  /// How many bursts a call has: more in virtual time, where one call is a sample.
  std::size_t bursts_per_call() const { return options_.virtual_time ? 32 : 1; }

  const Options& options_;
  Exchange& exchange_;
  std::string device_;
  Rank self_;
  Rank partner_ = no_rank;
  std::vector<Rank> senders_, targets_;  // of the shared port; the first sender is rank 0
  std::vector<Rank> answerers_;          // of incast
  std::vector<VerbsCase> cases_;

  std::vector<Cable> cables_;
  std::uint32_t control_ = 0, main_ = 0;
  std::vector<std::uint32_t> fan_;
  std::vector<std::uint32_t> answers_;
  struct Lane {
    std::uint32_t control, data, told;  // told: by rank 0 of the node, if it is not rank 0
  };
  std::vector<Lane> lanes_;

  std::unique_ptr<Station> station_;
  std::vector<VerbsTest> tests_;
};

}  // namespace tutti::bench
