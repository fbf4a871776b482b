#include "microbench/curves.hpp"

#include <fmt/format.h>

#include <vector>

#include "microbench/command_line.hpp"
#include "microbench/words.hpp"
#include "tune/choose.hpp"
#include "tune/plan_time.hpp"

namespace tutti::bench {
namespace {

using tune::CollectiveRequest;

constexpr std::uint32_t paper_n_most = 7;
constexpr std::uint32_t ranks_limit = 1024;

/// The sizes of the paper: one and 255 doubles.
constexpr std::uint64_t sizes[] = {8, 255 * 8};

/// Rounds of n messages each, as many as cover the ranks.
plan::PerRound uniform(std::uint32_t n, std::uint32_t ranks) {
  plan::PerRound vector;
  for (std::uint64_t covered = 1; covered < ranks; covered *= n + 1) vector.push_back(n);
  return vector;
}

class Curves {
 public:
  Curves(const std::string& fabric, std::uint32_t ranks,
         const std::function<void(const CurvePoint&)>& take)
      : known_(tune::untuned(tune::machine_preset(fabric))),
        network_(known_.machine.network()),
        take_(take) {
    topology_.rank_count = ranks;
  }

  void barriers() {
    CollectiveRequest request{.collective = tune::Collective::barrier};
    add(request, "tutti", time_of(request));
    request.algorithm = Algorithm::dissemination;
    for (std::uint32_t n = 1; n <= paper_n_most; ++n) {
      request.per_round = uniform(n, topology_.rank_count);
      add(request, fmt::format("n = {}", n), time_of(request));
    }
    request = {.collective = tune::Collective::barrier};
    add(request, "reduce + broadcast", there_and_back(0));
  }

  void allreduces(std::uint64_t bytes) {
    CollectiveRequest request = sum_of(bytes);
    add(request, "tutti", time_of(request));
    request.agreement = Agreement::relaxed;
    add(request, "tutti, relaxed", time_of(request));
    request.algorithm = Algorithm::nway;
    for (std::uint32_t n = 1; n <= paper_n_most; ++n) {
      request.per_round = {n};
      add(request, fmt::format("n = {}", n), time_of(request));
    }
    request = sum_of(bytes);
    request.algorithm = Algorithm::recursive_multiplying;
    request.per_round = uniform(1, topology_.rank_count);
    add(request, "recursive doubling", time_of(request));
    request = sum_of(bytes);
    request.algorithm = Algorithm::ring;
    add(request, "ring", time_of(request));
    request = sum_of(bytes);
    add(request, "reduce + broadcast", there_and_back(bytes));
  }

 private:
  static CollectiveRequest sum_of(std::uint64_t bytes) {
    return {.collective = tune::Collective::allreduce,
            .element_count = bytes / 8,
            .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
  }

  /// 0: there is no such schedule for so many ranks.
  plan::Picoseconds time_of(const CollectiveRequest& request) const {
    try {
      const tune::Choice choice = tune::choose(request, topology_, known_);
      return tune::plan_time({request, topology_, network_},
                             [&](Rank self) { return choice.plan(self); });
    } catch (const Error&) {
      return 0;
    }
  }

  /// The root begins to send when it has everything.
  plan::Picoseconds there_and_back(std::uint64_t bytes) const {
    CollectiveRequest request = sum_of(bytes);
    request.collective = tune::Collective::reduce;
    request.root = Rank{0};
    request.tree = Tree::binomial;
    request.participant_count = topology_.rank_count;
    const plan::Picoseconds there = time_of(request);
    request.collective = tune::Collective::broadcast;
    const plan::Picoseconds back = time_of(request);
    return there > 0 && back > 0 ? there + back : 0;
  }

  void add(const CollectiveRequest& request, const std::string& curve,
           plan::Picoseconds time) const {
    if (time > 0)
      take_(
          {tune::name_of(request.collective), request.bytes(), curve, topology_.rank_count, time});
  }

  tune::Knowledge known_;
  plan::Network network_;
  tune::Topology topology_;
  const std::function<void(const CurvePoint&)>& take_;
};

}  // namespace

void curves(const std::string& fabric, std::uint32_t ranks_most,
            const std::function<void(const CurvePoint&)>& take) {
  for (std::uint32_t ranks = 2; ranks <= ranks_most; ++ranks) {
    Curves of(fabric, ranks, take);
    of.barriers();
    for (const std::uint64_t bytes : sizes) of.allreduces(bytes);
  }
}

std::string run_curves(std::span<const char* const> arguments) {
  std::string fabric = "fdr", ranks = "96";
  CommandLine line(
      "tutti-bench curves",
      "Latency of barriers and allreduces over the number of ranks, each a node of its\n"
      "own, by the model of a network: what tutti chooses, beside uniform n of 1 to 7,\n"
      "recursive doubling, binomial trees and the ring.  Prints CSV, in nanoseconds.");
  line.add("--fabric", fabric,
           "preset of a network: qdr, fdr, edr, hdr, ndr, roce100, roce25 or "
           "roce10; default fdr");
  line.add("--ranks", ranks, "from 2 to so many ranks; default 96");
  if (const std::optional<std::string> help = line.parse(arguments)) return *help;
  const auto most = parse_number<std::uint32_t>("--ranks", ranks, 2, ranks_limit);
  std::string text = "fabric,collective,bytes,curve,ranks,ns\n";
  curves(fabric, most, [&](const CurvePoint& point) {
    text += fmt::format("{},{},{},\"{}\",{},{:.3f}\n", fabric, point.collective, point.bytes,
                        point.curve, point.ranks, static_cast<double>(point.time) / 1000);
  });
  return text;
}

}  // namespace tutti::bench
