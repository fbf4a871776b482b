#include "microbench/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "api/names.hpp"
#include "microbench/check.hpp"
#include "microbench/measure.hpp"
#include "microbench/placement.hpp"
#include "microbench/reference.hpp"
#include "microbench/report.hpp"
#include "microbench/statistics.hpp"
#include "microbench/together.hpp"
#include "microbench/wimm.hpp"

namespace tutti::bench {
namespace {

/// One row of the result: a probe, or one size of a collective with MPI's beside it.
struct Case {
  Collective collective;
  std::size_t bytes = 0;
  std::unique_ptr<Buffers> buffers = {};
  std::unique_ptr<Subject> subject = {};
  TuttiSubject* tutti = nullptr;  // the subject, unless it is a probe
  std::unique_ptr<Subject> mpi = {};
  std::size_t contestant = 0;      // index of the subject's samples
  std::size_t mpi_contestant = 0;  // of MPI's
  CheckOutcome outcome = {};
};

ContextOptions context_options(const Options& options) {
  ContextOptions context = ContextOptions::from_environment();
  if (options.check_level) context.check = *options.check_level;
  return context;
}

class Session {
 public:
  Session(const Options& options, const Launch& launch)
      : options_(options),
        launch_(launch),
        exchange_(launch.exchange),
        placement_(place_ranks(exchange_, options.bind)) {
    choose_collectives();
    open_output();
    together(exchange_,
             [&] { context_ = std::make_unique<Context>(context_options(options_)); });
    communicator_ = std::make_unique<Communicator>(*context_, exchange_);
    meeting_ = std::make_unique<Operation>(barrier(*communicator_));
    for (const Collective collective : collectives_) add_cases(collective);
  }

  int run() {
    schedule_ = schedule_for(options_.iterations, options_.warmup, placement_.oversubscribed);
    for (Case& one : cases_) enter_contest(one);
    measure(contestants_, schedule_, timer_);
    for (Case& one : cases_) check(one);
    Report report;
    for (const Case& one : cases_) report.rows.push_back(row_of(one));  // collective: medians of all
    if (is_rank_0()) {
      fill_header(report);
      fill_ratios(report);
      print(report);
    }
    return report_mismatch() ? 1 : 0;
  }

 private:
  bool is_rank_0() const { return exchange_.self() == Rank{0}; }

  // ---- set-up ----

  void choose_collectives() {
    const std::uint32_t ranks = exchange_.rank_count();
    for (const Collective collective : options_.collectives) {
      const bool needs_memory = collective == Collective::floor || collective == Collective::oneway;
      const bool possible = !is_probe(collective) ||
                            (ranks == 2 && (!needs_memory || placement_.one_machine));
      if (possible) collectives_.push_back(collective);
      else if (!options_.all && ranks != 2)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} needs exactly 2 ranks, this run has {}: start 2, or leave it out",
                                name_of(collective), ranks));
      else if (!options_.all)
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} needs both ranks on one machine: start both on one, or leave it "
                                "out",
                                name_of(collective)));
    }
  }

  /// Before anything is measured: a bad --out must not cost a run.
  void open_output() {
    together(exchange_, [&] {
      if (!is_rank_0() || options_.out.empty()) return;
      out_.reset(std::fopen(options_.out.c_str(), "w"));
      if (!out_)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("--out=\"{}\": {}; give a file that can be written", options_.out,
                                std::strerror(errno)));
    });
  }

  void add_cases(Collective collective) {
    switch (collective) {
      case Collective::floor:
        add_probe(collective, floor_probe(probe_memory().floor, exchange_.self()));
        break;
      case Collective::oneway:
        add_probe(collective, oneway_probe(probe_memory().oneway, exchange_.self()));
        break;
      case Collective::wimm:
        add_probe(collective, wimm_probe(exchange_, context_->options().device));
        break;
      case Collective::barrier:
        add_tutti({.collective = collective}, make_barrier(*communicator_, options_));
        if (options_.against_mpi) cases_.back().mpi = launch_.mpi->barrier();
        break;
      case Collective::allreduce:
        for (const std::size_t bytes : options_.bytes) add_allreduce(bytes);
        break;
    }
  }

  ProbeMemory& probe_memory() {
    if (launch_.probe_memory != nullptr) return *launch_.probe_memory;
    if (!probe_mapping_) probe_mapping_ = probe_memory_between(exchange_, placement_);
    return *reinterpret_cast<ProbeMemory*>(probe_mapping_.data());
  }

  void add_probe(Collective collective, std::unique_ptr<Subject> probe) {
    cases_.push_back({.collective = collective, .bytes = 8, .subject = std::move(probe)});
  }

  void add_tutti(Case&& made, Operation&& operation) {
    auto subject = std::make_unique<TuttiSubject>(*communicator_, std::move(operation), *meeting_);
    made.tutti = subject.get();
    made.subject = std::move(subject);
    cases_.push_back(std::move(made));
  }

  void add_allreduce(std::size_t bytes) {
    auto buffers = std::make_unique<Buffers>(bytes);
    const Reference reference({.type = options_.dtype,
                               .op = options_.op,
                               .rank_count = exchange_.rank_count(),
                               .seed = options_.seed});
    reference.contribution(index_of(exchange_.self()), 0, buffers->source_bytes());
    Operation operation = make_allreduce(*communicator_, options_, *buffers);
    add_tutti({.collective = Collective::allreduce, .bytes = bytes, .buffers = std::move(buffers)},
              std::move(operation));
    if (options_.against_mpi)
      cases_.back().mpi =
          launch_.mpi->allreduce(*cases_.back().buffers, options_.op, options_.dtype);
  }

  // ---- measuring and checking ----

  void enter_contest(Case& one) {
    const Effort effort =
        effort_for(one.bytes, options_.iterations, placement_.oversubscribed, schedule_);
    one.contestant = contestants_.size();
    contestants_.push_back({.subject = one.subject.get(), .effort = effort});
    if (!one.mpi) return;
    one.mpi_contestant = contestants_.size();
    contestants_.push_back({.subject = one.mpi.get(), .effort = effort});
  }

  void check(Case& one) {
    if (!options_.check || one.tutti == nullptr) return;
    const CheckPlan plan{.calls = options_.iterations.value_or(check_calls_default),
                         .delay_us = options_.delay_us,
                         .seed = options_.seed};
    one.outcome = one.collective == Collective::barrier
                      ? check_barrier(*one.tutti, exchange_, placement_, plan)
                      : check_allreduce(*one.tutti, *one.buffers, options_, exchange_, plan);
  }

  // ---- results ----

  const Samples& samples_of(const Case& one) const { return contestants_[one.contestant].samples; }

  Row row_of(const Case& one) {
    const Samples& samples = samples_of(one);
    const std::vector<double> medians = gather(exchange_, median(samples.batches));
    Row row{.collective = name_of(one.collective),
            .bytes = one.bytes,
            .ranks = exchange_.rank_count(),
            .nodes = exchange_.rank_count(),
            .seed = options_.seed,
            .iterations = schedule_.blocks * contestants_[one.contestant].effort.block_calls,
            .min_ns = smallest(samples.batches),
            .median_ns = median(samples.batches),
            .p99_ns = percentile(samples.singles, 99),
            .max_ns = largest(samples.singles),
            .correct = one.outcome.correct,
            .bound_ns = bound_of(one),
            .oversubscribed = placement_.oversubscribed,
            .bootstrap = launch_.bootstrap,
            .deviation_ns = median_absolute_deviation(samples.batches),
            .slowest_median_ns = *std::max_element(medians.begin(), medians.end())};
    if (one.collective == Collective::allreduce) {
      row.dtype = api::name_of(options_.dtype);
      row.op = api::name_of(options_.op);
      row.agreement = api::name_of(options_.agreement);
    }
    if (one.collective == Collective::wimm || one.tutti != nullptr) {
      row.device = context_->device_name();
      row.notify = "immediate";
      row.transport = transport();
    }
    if (one.tutti != nullptr) {
      row.algorithm = one.tutti->operation().algorithm();
      row.per_round = one.tutti->operation().per_round();
    }
    if (one.mpi) {
      const Samples& theirs = contestants_[one.mpi_contestant].samples;
      row.mpi = {.name = launch_.mpi->library_name(),
                 .median_ns = median(theirs.batches),
                 .p99_ns = percentile(theirs.singles, 99)};
    }
    return row;
  }

  const Case* find(Collective collective, std::size_t bytes) const {
    for (const Case& one : cases_)
      if (one.collective == collective && one.bytes == bytes) return &one;
    return nullptr;
  }

  /// What the row is measured against: the exchange of two lines for wimm, rounds of wimm for a
  /// collective of two ranks.  Payloads of more than wimm's 8 bytes have no bound here.
  std::optional<double> bound_of(const Case& one) const {
    const Case* below = nullptr;
    std::size_t rounds = 1;
    if (one.collective == Collective::wimm) below = find(Collective::floor, 8);
    if (one.tutti != nullptr && exchange_.rank_count() == 2 && one.bytes <= 8) {
      below = find(Collective::wimm, 8);
      rounds = one.tutti->operation().per_round().size();
    }
    if (below == nullptr) return {};
    return median(samples_of(*below).batches) * static_cast<double>(rounds);
  }

  /// The device does not tell; only what was demanded of it is known.
  std::optional<std::string> transport() const {
    const char* demanded = std::getenv("TUTTI_SOFT_TRANSPORT");
    const bool soft = context_->device_name().starts_with("soft");
    if (!soft || demanded == nullptr || std::strcmp(demanded, "auto") == 0) return {};
    return demanded;
  }

  void fill_header(Report& report) const {
    const auto add = [&](const char* label, std::string text) {
      report.header.emplace_back(label, std::move(text));
    };
    CpuSet cpus;
    for (const Whereabouts& rank : placement_.ranks)
      for (const unsigned cpu : rank.cpus.list()) cpus.add(cpu);
    add("machine", fmt::format("{}, CPUs allowed {}", cpu_model(), text_of(cpus)));
    add("build", build_text());
    add("device", context_->device_choice());
    if (transport()) add("transport", *transport());
    add("ranks", fmt::format("{}, each a node of its own, started by {}", exchange_.rank_count(),
                             launch_.bootstrap));
    add("binding", placement_.binding);
    add("timer", fmt::format("{}, {:.1f} ns a reading, not subtracted", timer_.name(),
                             timer_.cost_ns()));
    add("samples", fmt::format("{} alternating blocks; batches of {} calls at 8 bytes",
                               schedule_.blocks,
                               effort_for(8, options_.iterations, placement_.oversubscribed,
                                          schedule_)
                                   .batch));
    if (find_any(Collective::allreduce))
      add("allreduce", fmt::format("{} of {}, agreement {}", api::name_of(options_.op),
                                   api::name_of(options_.dtype), api::name_of(options_.agreement)));
    if (launch_.mpi != nullptr) add("MPI", launch_.mpi->library_name());
    if (options_.check)
      add("check", fmt::format("{} further calls of each row, delays up to {} us, seed {}",
                               options_.iterations.value_or(check_calls_default),
                               options_.delay_us, options_.seed));
    for (const Case& one : cases_)
      if (one.tutti != nullptr && options_.check && !one.outcome.correct)
        report.notes.push_back(one.outcome.what);
  }

  bool find_any(Collective collective) const {
    return std::any_of(cases_.begin(), cases_.end(),
                       [&](const Case& one) { return one.collective == collective; });
  }

  void fill_ratios(Report& report) const {
    const auto add = [&](const char* what, const Case* above, const Case* below) {
      if (above == nullptr || below == nullptr) return;
      report.ratios.push_back({.what = what,
                               .median = median_ratio(samples_of(*above).block_medians,
                                                      samples_of(*below).block_medians),
                               .blocks = schedule_.blocks});
    };
    const Case* wimm = find(Collective::wimm, 8);
    add("wimm / floor", wimm, find(Collective::floor, 8));
    add("barrier / wimm", find(Collective::barrier, 0), wimm);
    add("allreduce 8 B / wimm", find(Collective::allreduce, 8), wimm);
    for (const Case& one : cases_) {
      if (!one.mpi) continue;
      report.ratios.push_back(
          {.what = fmt::format("{}{} / MPI", name_of(one.collective),
                               one.collective == Collective::barrier
                                   ? ""
                                   : fmt::format(" {} B", one.bytes)),
           .median = median_ratio(samples_of(one).block_medians,
                                  contestants_[one.mpi_contestant].samples.block_medians),
           .blocks = schedule_.blocks});
    }
  }

  void print(const Report& report) const {
    std::string text;
    switch (options_.format) {
      case Format::table: text = as_table(report); break;
      case Format::json: text = as_json(report.rows); break;
      case Format::csv: text = as_csv(report.rows); break;
    }
    std::FILE* file = out_ ? out_.get() : stdout;
    const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (!complete || std::fflush(file) != 0)
      throw RunFailed(fmt::format("writing the results: {}", std::strerror(errno)));
  }

  /// Whether there was one; all ranks know the same outcomes, rank 0 tells.
  bool report_mismatch() const {
    for (const Case& one : cases_) {
      if (one.outcome.correct.value_or(true)) continue;
      if (is_rank_0())
        std::fputs(fmt::format("tutti-bench: wrong result: {}\n", one.outcome.what).c_str(), stderr);
      return true;
    }
    return false;
  }

  static constexpr std::size_t check_calls_default = 1000;

  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  const Options& options_;
  const Launch& launch_;
  Exchange& exchange_;
  Placement placement_;
  Timer timer_;  // calibrated after the binding
  std::vector<Collective> collectives_;
  std::unique_ptr<std::FILE, Close> out_;
  detail::Mapping probe_mapping_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Operation> meeting_;  // synchronises the ranks before blocks of tutti
  std::deque<Case> cases_;
  Schedule schedule_;
  std::vector<Contestant> contestants_;
};

}  // namespace

int run_session(const Options& options, const Launch& launch) {
  return Session(options, launch).run();
}

}  // namespace tutti::bench
