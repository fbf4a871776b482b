#include "microbench/tune_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <set>

#include "microbench/device_stress.hpp"
#include "microbench/interrupt.hpp"
#include "microbench/network_probes.hpp"
#include "microbench/progress.hpp"
#include "microbench/results.hpp"
#include "microbench/session.hpp"
#include "microbench/together.hpp"
#include "microbench/tune_cells.hpp"
#include "microbench/tune_check.hpp"
#include "microbench/tune_explain.hpp"
#include "microbench/tune_journal.hpp"
#include "microbench/tune_race.hpp"
#include "microbench/tune_racers.hpp"
#include "microbench/tune_summary.hpp"
#include "runtime/communicator.hpp"
#include "runtime/file_change.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/plan_time.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::bench {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

constexpr const char* program = "tutti-tune";
constexpr const char* file_remedy = "give a file that can be written (--out)";
/// The share of the budget for the parameters of the network, and the most that they get.
constexpr double probes_share = 0.2;
constexpr Seconds probes_most{10};
/// Likewise for the stress of the device.
constexpr double stress_share = 1.0 / 30;
constexpr Seconds stress_most{2};
/// With everything around it, --check is to take two seconds.
constexpr Seconds check_probes{1.4};
/// A race takes about so many batches at most; longer ones tell smaller differences.
constexpr double samples_a_cell = 300, batch_ns_min = 1e5, batch_ns_max = 1e6;
/// The share of the budget that is kept for ending.
constexpr double ending_share = 0.02;

/// What rank 0 knows of the time that is left, on all ranks.
class Budget {
 public:
  Budget(Seconds total, Exchange& exchange) : exchange_(exchange), total_(total) {}

  Seconds spent() const { return Clock::now() - begin_; }
  Seconds left() const { return total_ * (1 - ending_share) - spent(); }
  /// Collective.
  bool has(Seconds wanted) const {
    return gather(exchange_, static_cast<char>(left() > wanted)).front() != 0;
  }
  /// Whether the whole budget is spent, with what is kept for the end; by this rank's clock.
  bool is_spent() const { return spent() > total_; }

 private:
  Exchange& exchange_;
  Clock::time_point begin_ = Clock::now();
  Seconds total_;
};

ContextOptions context_options(const TuneOptions& options) {
  ContextOptions context = context_options_of(options);
  context.tuning = TuningMode::off;  // of whatever file there is, nothing may enter
  return context;
}

std::unique_ptr<Context> make_context(const TuneOptions& options, Exchange& exchange) {
  std::unique_ptr<Context> context;
  together(exchange, [&] { context = std::make_unique<Context>(context_options(options)); });
  const std::string device = context->device_name();
  refuse_fabric_of_real_device(options, device, device.starts_with("soft"));
  return context;
}

void require_ranks(const Exchange& exchange) {
  if (exchange.rank_count() > 1) return;
  throw Error(ErrorCode::invalid_argument,
              "1 rank: expected 2 or more, between which messages travel; start tutti-tune --local "
              "2, or mpirun -n N tutti-tune");
}

class TuneRun {
 public:
  TuneRun(const TuneOptions& options, const Launch& launch)
      : options_(options),
        exchange_(launch.exchange),
        budget_(options.budget, launch.exchange),
        placement_(place_ranks(launch.exchange, options.bind)),
        context_(make_context(options, launch.exchange)),
        communicator_(*context_, launch.exchange),
        topology_(communicator_.implementation().topology()),
        meeting_(barrier(communicator_)),
        made_on_(runtime::fingerprint_of(context_->implementation().fabric.port(),
                                         context_->implementation().settings)),
        untuned_(communicator_.implementation().tuning->knowledge),
        progress_(is_first() ? stderr : nullptr, program) {}

  int tune() {
    const std::string untimed = placement_.one_machine || options_.network_only
                                    ? ""
                                    : remark_on_untimed(options_.collectives);
    if (!untimed.empty()) remarks_.push_back(untimed);
    begin();
    if (!is_resumed_) measure_network();
    share_begin();
    const tune::Knowledge machine = tune::untuned(tuning_.machine);
    race_cells(machine);
    price_kept(machine);
    finish();
    return 0;
  }

  /// Returns, on rank 0, status_changed if the network is not what the file says, status_unknown if
  /// nothing can be compared, else 0; on other ranks 0.
  int check() {
    together(exchange_, [&] {
      if (!is_first()) return;
      const tune::Tuning tuning =
          options_.is_default_file ? tuning_in_force() : read_tuning(options_.file);
      const tune::Applicability found = tune::applicability(tuning.made_on, made_on_);
      if (found.applies == tune::Applies::no)
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{}: {}; give the file of this fabric (--file)", options_.file, found.why));
      tuning_ = tuning;
    });
    if (!has_times()) {
      if (is_first())
        std::fputs(
            "Nothing can be compared: ranks share CPUs, so that no time says anything of the "
            "network; start at most as many ranks as CPUs.\n",
            stdout);
      std::fflush(stdout);
      return is_first() ? status_unknown : 0;
    }
    const std::vector<tune::Sample> samples =
        probe(check_probes, probes_to_check(topology_.is_one_node()));
    if (!is_first()) return 0;
    const NetworkCheck result =
        check_network(tuning_.machine, tune::fit(samples, untuned_.machine, options_.seed).machine);
    std::fputs(result.text.c_str(), stdout);
    std::fflush(stdout);
    if (result.has_changed) return status_changed;
    return result.compared > 0 ? 0 : status_unknown;
  }

 private:
  bool is_first() const { return exchange_.self() == Rank{0}; }

  /// The file that programs find here if none is named.
  tune::Tuning tuning_in_force() const {
    runtime::ContextSettings settings = context_->implementation().settings;
    settings.tuning = TuningMode::file;
    settings.tuning_file.clear();
    runtime::FoundTable found = runtime::find_table(settings, made_on_);
    if (found.table) return std::move(found.table->tuning);
    throw Error(ErrorCode::invalid_argument,
                found.remarks.empty()
                    ? fmt::format("there is no tuning file: looked for {}; give one (--file)",
                                  fmt::join(runtime::tuning_paths(), ", "))
                    : fmt::format("{}; give the file of this fabric (--file)",
                                  fmt::join(found.remarks, "; ")));
  }

  /// What has to be alike for two starts to be one run.
  AskedFor asked_for() {
    std::vector<const char*> collectives;
    for (const Collective one : options_.collectives) collectives.push_back(name_of(one));
    AskedFor asked{{"collectives", fmt::format("{}", fmt::join(collectives, ","))},
                   {"bytes", fmt::format("{}", fmt::join(options_.bytes, ","))},
                   {"seed", fmt::format("{}", options_.seed)},
                   {"fabric", options_.fabric},
                   {"virtual-time", options_.virtual_time ? "yes" : "no"},
                   {"network-only", options_.network_only ? "yes" : "no"}};
    const AskedFor machine =
        asked_of_machine(made_on_, communicator_.implementation().neighbours.nodes.node);
    asked.insert(asked.end(), machine.begin(), machine.end());
    return asked;
  }

  /// Opens the files, and finds out what is there already.
  void begin() {
    together(exchange_, [&] {
      if (!is_first()) return;
      if (options_.is_default_file) runtime::make_folder_of(options_.file, file_remedy);
      journal_.emplace(options_.file, options_.fresh);
      if (!journal_->is_begun() && journal_->is_made()) note_stage(RunStage::opened);
      const std::optional<std::string> text = text_of_file(options_.file);
      if (text) begin_with(*text);
      if (journal_->is_begun()) {
        journal_->require_same(asked_for());
        std::vector<tune::Rule> rules = std::move(tuning_.rules);  // may have changed meanwhile
        tuning_ = journal_->tuning();
        if (text) tuning_.rules = std::move(rules);
        for (const tune::Finding& finding : journal_->findings()) take_in(found_, finding);
        is_resumed_ = true;
        note_stage(RunStage::begun);
        progress_.say(fmt::format("goes on with {}.journal: {} findings are there", options_.file,
                                  found_.size()));
      }
    });
    is_resumed_ = gather(exchange_, static_cast<char>(is_resumed_)).front() != 0;
  }

  void begin_with(const std::string& text) {
    tuning_ = tune::parse_tuning(text, options_.file);
    if (tuning_.made_on != tune::Fingerprint{}) {  // else a file of rules alone
      const tune::Applicability found = tune::applicability(tuning_.made_on, made_on_);
      if (found.applies == tune::Applies::no && !options_.fresh)
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{}: {}; give another file (--out), or --fresh, which replaces what "
                        "was measured",
                        options_.file, found.why));
      const bool is_forgotten = found.applies == tune::Applies::stale && !options_.fresh;
      if (is_forgotten && !has_times())
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("{}: {}; nothing can be measured in its place where ranks share CPUs; "
                        "start at most as many ranks as CPUs, or give another file (--out), or "
                        "--fresh, which forgets what was measured",
                        options_.file, found.why));
      if (is_forgotten)
        progress_.say(fmt::format("{}: {}; its findings are forgotten and measured anew",
                                  options_.file, found.why));
      // What was found on another machine, or by another version of the registry, is not said of
      // this one.
      if (found.applies != tune::Applies::yes) forget_measured();
    }
    if (!why_placement_differs(tuning_.made_on, made_on_).empty()) tuning_.placement = {};
    if (options_.fresh) {
      forget_measured();
      tuning_.placement = {};
    }
  }

  void forget_measured() {
    tuning_.findings.clear();
    tuning_.probe_times.clear();
    tuning_.machine = {};
  }

  std::vector<tune::Sample> probe(Seconds most, std::vector<tune::Probe> only = {},
                                  std::function<void(tune::Probe)> on_untried = {}) {
    return probe_network(exchange_, communicator_.implementation().neighbours.nodes.node,
                         {.device = context_->implementation().settings.device,
                          .budget = std::chrono::duration_cast<Timeout>(most),
                          .only = std::move(only),
                          .on_untried = std::move(on_untried)});
  }

  /// Takes a share of the budget; in virtual time probes are exact at once.
  void measure_network() {
    std::optional<tune::Fit> fit;
    std::vector<tune::ProbeTime> probe_times;
    if (has_times()) {
      progress_.show(0, 1, budget_.left().count(), "probes of the network");
      std::set<tune::Probe> untried;
      const std::vector<tune::Sample> samples =
          probe(std::min(options_.budget * probes_share, probes_most), {},
                [&](tune::Probe one) { untried.insert(one); });
      fit = tune::fit(samples, untuned_.machine, options_.seed);
      probe_times = tune::probe_times_of(samples, fit->residuals);
      for (const std::string& line : lines_of_fit(fit->remarks, untried, untuned_.machine.name))
        progress_.say(line);
    }
    const tune::WritePlacement placement = stress();
    together(exchange_, [&] {
      if (!is_first()) return;
      // What earlier runs have seen of this device counts as well.
      tuning_.placement = sum_of(tuning_.placement, placement);
      tuning_.made_on = made_on_;
      if (fit) {
        tuning_.machine = std::move(fit->machine);
        tuning_.probe_times = std::move(probe_times);
      } else if (!tune::is_described(tuning_.machine)) {
        tuning_.machine = untuned_.machine;
      }
      journal_->begin(asked_for(), tuning_);
      note_stage(RunStage::begun);
    });
  }

  /// Whether times tell something about the network and schedules.  If ranks share CPUs, times only
  /// tell how long the scheduler lets ranks wait.
  bool has_times() const { return options_.virtual_time || !placement_.oversubscribed; }

  /// Where time is simulated, writes are what the simulation says.
  tune::WritePlacement stress() {
    if (options_.virtual_time || topology_.is_one_node()) return {};
    if (const std::string why = why_not_of_rank_0(exchange_, made_on_); !why.empty()) {
      remarks_.push_back("How devices place writes was not looked at: " + why + ".");
      return {};
    }
    progress_.show(0, 1, budget_.left().count(), "stress of the device");
    const Seconds most = std::min(options_.budget * stress_share, stress_most);
    return stress_device(exchange_, communicator_.implementation().neighbours.nodes.node,
                         {.device = context_->implementation().settings.device,
                          .time = std::chrono::duration_cast<Timeout>(most)});
  }

  /// Whatever rank 0 has of the file and of the journal, on all ranks.
  void share_begin() {
    tuning_ = tune::parse_tuning(share(exchange_, is_first() ? tune::text_of(tuning_) : ""),
                                 options_.file);
    tune::Tuning found;
    found.findings = found_;
    found_ = tune::parse_tuning(share(exchange_, is_first() ? tune::text_of(found) : ""),
                                options_.file + ".journal")
                 .findings;
  }

  /// Cells that have no finding yet, in the order of their importance; then those whose finding is
  /// noisy; then the others.
  std::vector<Cell> cells_in_order() const {
    std::vector<Cell> cells =
        cells_of(options_.collectives, options_.bytes, exchange_.rank_count());
    if (!placement_.one_machine)
      std::erase_if(cells, [](const Cell& cell) { return is_timed_from_root(cell.collective); });
    std::stable_sort(cells.begin(), cells.end(), [&](const Cell& left, const Cell& right) {
      return knowledge_of(left) < knowledge_of(right);
    });
    return cells;
  }
  int knowledge_of(const Cell& cell) const {
    for (const tune::Finding& finding : tuning_.findings)
      if (is_about(finding, cell)) return finding.is_noisy ? 1 : 2;
    return 0;
  }
  bool is_about(const tune::Finding& finding, const Cell& cell) const {
    return finding.collective == tuned_as(cell.collective) && finding.bytes == cell.bytes &&
           finding.agreement == cell.agreement && is_about_these_ranks(finding);
  }
  bool is_about_these_ranks(const tune::Finding& finding) const {
    return finding.nodes == topology_.node_count() &&
           finding.ranks_per_node == topology_.largest_node();
  }
  const tune::Finding* found(const Cell& cell) const {
    const auto one = std::find_if(found_.begin(), found_.end(), [&](const tune::Finding& finding) {
      return is_about(finding, cell);
    });
    return one == found_.end() ? nullptr : &*one;
  }
  bool is_found(const Cell& cell) const { return found(cell) != nullptr; }

  /// Whether a finding of this run takes the place of an older one.
  bool is_replaced(const tune::Finding& kept) const {
    return std::any_of(found_.begin(), found_.end(), [&](const tune::Finding& one) {
      return one.is_about_same(kept) && (kept.is_noisy || !one.is_noisy);
    });
  }

  RaceTrack track_on(const tune::Knowledge& machine) {
    return {.communicator = communicator_,
            .exchange = exchange_,
            .timer = timer_,
            .meeting = meeting_,
            .machine = machine,
            .untuned = untuned_,
            .is_virtual = options_.virtual_time,
            .has_faults = options_.virtual_time && has_faults()};
  }

  void race_cells(const tune::Knowledge& machine) {
    if (!has_times()) {
      remarks_.push_back(fmt::format(
          "Ranks share CPUs, so that no time says anything of the network, nor which schedule is "
          "faster: the model of the network decides alone, by {}, and nothing new is found.  Start "
          "at most as many ranks as CPUs.",
          tuning_.machine == untuned_.machine
              ? fmt::format("the figures of the preset {}", untuned_.machine.name)
              : std::string("the figures that the file had")));
      return;
    }
    if (options_.network_only) return;
    take_into_force(machine);
    const std::vector<Cell> cells = cells_in_order();
    RaceTrack track = track_on(machine);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t left = cells.size() - i;
      progress_.show(i, cells.size(), budget_.left().count(), text_of(cells[i]));
      if (is_found(cells[i])) {
        note_untuned(cells[i], track);
        continue;
      }
      if (!has_time()) {
        remarks_.push_back(
            fmt::format("The budget of {:g} s was too short for {} of {} cells; run tutti-tune "
                        "again, or with a longer --budget: what was found is kept.",
                        options_.budget.count(), left, cells.size()));
        break;
      }
      race_in_time(cells[i], left, track, true);
    }
    if (!options_.virtual_time) race_again(cells, track);
    progress_.end();
  }

  /// What was raced while the machine was noisy is raced again, as long as there is time.
  void race_again(const std::vector<Cell>& cells, RaceTrack& track) {
    for (int tries = 0; tries < noisy_tries; ++tries) {
      std::vector<Cell> noisy;
      for (const Cell& cell : cells)
        if (is_found(cell) && found(cell)->is_noisy) noisy.push_back(cell);
      for (std::size_t i = 0; i < noisy.size() && has_time(); ++i) {
        progress_.show(i, noisy.size(), budget_.left().count(), text_of(noisy[i]) + " again");
        race_in_time(noisy[i], noisy.size() - i, track, false);
      }
    }
  }

  /// Prices findings of earlier runs on the network as it is now, as long as there is time.
  void price_kept(const tune::Knowledge& machine) {
    const RaceTrack track = track_on(machine);
    std::size_t count = 0, unpriced = 0;
    for (tune::Finding& kept : tuning_.findings) {
      if (is_replaced(kept)) continue;
      ++count;
      // Rank 0 prices; the others take part only in findings about these ranks.
      const bool is_spent =
          is_about_these_ranks(kept)
              ? gather(exchange_, static_cast<char>(budget_.is_spent())).front() != 0
              : budget_.is_spent();
      if (is_spent)
        ++unpriced;
      else
        price_anew(kept, track,
                   budget_.left().count() > 0 ? tune::messages_of_finding_max
                                              : tune::messages_followed_max);
    }
    if (unpriced > 0)
      remarks_.push_back(
          fmt::format("The budget of {:g} s was too short to price {} of {} findings of earlier "
                      "runs on the network as it is now; they keep the prices that they had.",
                      options_.budget.count(), unpriced, count));
  }

  /// Whether there is time for another cell.  Collective.
  bool has_time() const { return budget_.has(1.5 * longest_); }

  void race_in_time(const Cell& cell, std::size_t cells_left, RaceTrack& track, bool may_copy) {
    track.seed = seed_of(cell);
    const double wanted_ns = 1e9 * share_of(cells_left).count() / samples_a_cell;
    track.batch_ns = gather(exchange_, std::clamp(wanted_ns, batch_ns_min, batch_ns_max)).front();
    const Seconds before = budget_.spent();
    const Seconds until = before + share_of(cells_left);
    race(cell, track, may_copy,
         [&] { return options_.virtual_time ? true : budget_.has(budget_left_at(until)); });
    longest_ = std::max(longest_, budget_.spent() - before);
  }

  /// From now on operations are chosen by this: names of candidates are those of this machine.
  void take_into_force(const tune::Knowledge& machine) {
    auto in_force =
        std::make_shared<runtime::TuningInForce>(*communicator_.implementation().tuning);
    in_force->knowledge = machine;
    communicator_.implementation().tuning = std::move(in_force);
  }

  /// What each of the cells that are left may take.
  Seconds share_of(std::size_t cells_left) const {
    return budget_.left() / static_cast<double>(cells_left);
  }
  /// What is left of the budget when so much is spent.
  Seconds budget_left_at(Seconds spent) const { return budget_.left() + budget_.spent() - spent; }

  void race(const Cell& cell, const RaceTrack& track, bool may_copy,
            const std::function<bool()>& may_go_on) {
    std::optional<tune::Finding> finding;
    try {
      const tune::CollectiveRequest request = request_of(cell, track);
      const Racers racers = racers_of(request, topology_, track.machine, track.untuned);
      untuned_of_[text_of(cell)] = racers.untuned;
      if (may_copy) finding = alike(cell, racers);
      if (!finding)
        finding = race_cell(cell, request, racers, track, may_go_on, [&](const std::string& text) {
          remarks_.push_back(fmt::format("{}: {}", text_of(cell), text));
        });
    } catch (const Error& error) {
      // All ranks alike: an operation that cannot be made here.
      if (communicator_.failure().status != Status::ok) throw;
      remarks_.push_back(fmt::format("{}: {}", text_of(cell), error.what()));
      return;
    }
    together(exchange_, [&] {
      if (is_first()) journal_->append(*finding);
    });
    take_in(found_, std::move(*finding));
  }

  /// Notes what is taken untuned for a cell that was raced before this run was interrupted.
  void note_untuned(const Cell& cell, const RaceTrack& track) {
    untuned_of_[text_of(cell)] = tune::choose(request_of(cell, track), topology_, untuned_).name();
  }

  bool has_faults() const {
    const verbs::soft::FabricModel::Faults faults =
        verbs::soft::read_fabric_model(options_.fabric).faults;
    return faults.delay_probability > 0 || faults.drop_probability > 0 ||
           faults.not_ready_probability > 0 || !faults.link_down.empty();
  }

  /// A finding about the same call with another agreement, where that has the same candidates.
  std::optional<tune::Finding> alike(const Cell& cell, const Racers& racers) const {
    for (const tune::Finding& one : found_) {
      Cell other = cell;
      other.agreement = one.agreement;
      if (!is_about(one, other) || one.others.size() + 1 != racers.choices.size()) continue;
      const auto has_raced = [&](const tune::Choice& choice) {
        const std::string name = choice.name();
        return one.winner.choice == name ||
               std::any_of(one.others.begin(), one.others.end(),
                           [&](const tune::Timing& rival) { return rival.choice == name; });
      };
      if (!std::all_of(racers.choices.begin(), racers.choices.end(), has_raced)) continue;
      tune::Finding same = one;
      same.agreement = cell.agreement;
      return same;
    }
    return {};
  }

  std::uint64_t seed_of(const Cell& cell) const {
    std::uint64_t seed = options_.seed;
    for (const char letter : text_of(cell))  // FNV-1a
      seed = (seed ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
    return seed;
  }

  void finish() {
    together(exchange_, [&] {
      if (!is_first()) return;
      tune::Tuning result = tuning_;
      for (const tune::Finding& finding : found_) take_in(result.findings, finding);
      take_rules_of(options_.file, result);
      journal_->finish(result, [] { note_stage(RunStage::written); });
      progress_.end();
      std::fputs(tune_summary({.options = options_,
                               .tuning = result,
                               .found = found_,
                               .untuned_of = untuned_of_,
                               .remarks = remarks_,
                               .device = context_->device_name(),
                               .rank_count = exchange_.rank_count(),
                               .node_count = communicator_.node_count(),
                               .seconds = budget_.spent().count()})
                     .c_str(),
                 stdout);
      std::fflush(stdout);
    });
  }

  const TuneOptions& options_;
  Exchange& exchange_;
  Budget budget_;
  Placement placement_;
  Timer timer_;  // calibrated on the CPU that will be used
  std::unique_ptr<Context> context_;
  Communicator communicator_;
  const tune::Topology topology_;
  Operation meeting_;
  tune::Fingerprint made_on_;
  tune::Knowledge untuned_;
  Progress progress_;
  std::optional<TuneJournal> journal_;             // of rank 0
  tune::Tuning tuning_;                            // as this run began
  Seconds longest_{0};                             // that a cell has taken
  std::vector<tune::Finding> found_;               // since then
  std::map<std::string, std::string> untuned_of_;  // the choice without a file, by cell
  std::vector<std::string> remarks_;
  bool is_resumed_ = false;
};

}  // namespace

void take_in(std::vector<tune::Finding>& findings, tune::Finding finding) {
  for (tune::Finding& one : findings) {
    if (!one.is_about_same(finding)) continue;
    if (one.is_noisy || !finding.is_noisy) one = std::move(finding);
    return;
  }
  findings.push_back(std::move(finding));
}

int run_tune_session(const TuneOptions& options, const Launch& launch) {
  require_ranks(launch.exchange);
  TuneRun run(options, launch);
  return options.mode == TuneMode::check ? run.check() : run.tune();
}

}  // namespace tutti::bench
