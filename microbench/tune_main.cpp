// tutti-tune: measures the network and the collectives of some ranks, and writes a tuning file.
// This file: from the command line to an exchange (forked ranks, tcp, MPI), and what needs none.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <tutti/bootstrap.hpp>
#include <utility>

#include "microbench/launch.hpp"
#include "microbench/mpi_side.hpp"
#include "microbench/placement.hpp"
#include "microbench/progress.hpp"
#include "microbench/tune_check.hpp"
#include "microbench/tune_explain.hpp"
#include "microbench/tune_options.hpp"
#include "microbench/tune_session.hpp"
#include "microbench/tune_show.hpp"
#include "microbench/verify_choices.hpp"
#include "microbench/verify_figures.hpp"
#include "runtime/settings.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

constexpr const char* program = "tutti-tune";
constexpr std::uint32_t verified_ranks_max = 768;
constexpr int status_missed = 3;  // of --verify, as of tutti-bench --expect

/// How a run that failed ends: 1 of --check says that the fabric has changed.
int failure_status(TuneMode mode) {
  return mode == TuneMode::check ? status_unknown : exit_failure;
}

int run_rank(const TuneOptions& options, const Launch& launch) {
  const Rank self = launch.exchange.self();
  // Ranks that were started separately have separate terminals.
  const bool separate = std::string_view(launch.bootstrap) == "tcp";
  bool has_failed = true;
  const int status = exit_status_of(program, self, self == Rank{0} || separate, [&] {
    if (!options.fabric.empty())
      ::setenv("TUTTI_SOFT_PLACE", fmt::format("{}", index_of(self)).c_str(), 1);
    const int result = run_tune_session(options, launch);
    has_failed = false;
    return result;
  });
  if (!has_failed || status != exit_failure) return status;
  // After a failure the other ranks may be stuck, and MPI_Finalize would wait for them for ever.
  const int failure = failure_status(options.mode);
  if (launch.mpi != nullptr) launch.mpi->abort(failure);
  return failure;
}

int run_forked(const TuneOptions& options) {
  std::optional<verbs::soft::VirtualTime> virtual_time;
  if (options.virtual_time)
    virtual_time.emplace(
        *options.local,
        nodes_in_virtual_time(*options.local, options.ranks_per_node, options.placement));
  const std::vector<LocalResult> results =
      run_local({.rank_count = *options.local}, [&](Exchange& exchange) {
        if (virtual_time) virtual_time->join(index_of(exchange.self()));
        return run_rank(options, {.bootstrap = "local", .exchange = exchange});
      });
  const bool was_ended = std::any_of(results.begin(), results.end(),
                                     [](const LocalResult& rank) { return rank.signal != 0; });
  const int status = exit_status_of(program, results);
  return was_ended ? failure_status(options.mode) : status;
}

int run_over_tcp(const TuneOptions& options) {
  const auto exchange = tcp_exchange(TcpOptions::from_environment());
  return run_rank(options, {.bootstrap = "tcp", .exchange = *exchange});
}

int run_under_mpi(const TuneOptions& options) {
  const std::unique_ptr<MpiSide> mpi = start_mpi();
  return run_rank(options, {.bootstrap = "mpi", .exchange = mpi->exchange(), .mpi = mpi.get()});
}

int run_ranks(const TuneOptions& options) {
  // A bad TUTTI_* variable is found once here instead of on every rank.
  static_cast<void>(runtime::context_settings({}));
  if (!options.fabric.empty()) ::setenv("TUTTI_SOFT_FABRIC", options.fabric.c_str(), 1);
  if (options.local) return run_forked(options);
  if (std::getenv("TUTTI_RANK") != nullptr) return run_over_tcp(options);
  return run_under_mpi(options);
}

/// Prints a text to standard output.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  print_reason(program, "standard output could not be written");
  return exit_failure;
}

/// Judges choices over the grid, in an order that makes each part of it a sample of the whole.
Verdict verify_grid(const TuneOptions& options, Progress& progress) {
  const auto is_asked = [&](VerifiedPart part) {
    return std::find(options.verified.begin(), options.verified.end(), part) !=
           options.verified.end();
  };
  const std::vector<ChoiceCell> grid = grid_of_choices(verified_ranks_max);
  const std::vector<ChoiceCell> cells = sample_of_choices(grid, grid.size(), options.seed);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const VerifyOptions how{.seed = options.seed,
                          .model = is_asked(VerifiedPart::model),
                          .race = is_asked(VerifiedPart::race),
                          .neighbours = is_asked(VerifiedPart::neighbours),
                          .ranks_max = verified_ranks_max};
  const std::vector<CellResult> results = verify_choices(
      cells, how, [&](const CellResult& result, std::size_t done, std::size_t count) {
        const std::chrono::duration<double> spent = Clock::now() - begin;
        const double left = spent.count() * static_cast<double>(count - done) /
                            static_cast<double>(std::max<std::size_t>(done, 1));
        const double allowed = (options.verify_budget - spent).count();
        progress.show(done, count, std::min(left, allowed), result.cell.text());
        return allowed > 0;
      });
  Verdict verdict{.text = regret_table_of(results), .misses = misses_of(results)};
  if (is_asked(VerifiedPart::model)) verdict.text += "\n" + table_of(results);
  verdict.text += fmt::format("{} of {} cells\n", results.size(), cells.size());
  return verdict;
}

Verdict verify_part(VerifiedPart part, const TuneOptions& options, Progress& progress) {
  switch (part) {
    case VerifiedPart::model:
    case VerifiedPart::race:
    case VerifiedPart::neighbours:
      return verify_grid(options, progress);
    case VerifiedPart::fit: {
      constexpr std::uint32_t seeds = 200;
      return verify_fit(seeds, [&](const std::string& preset, std::size_t done, std::size_t count) {
        progress.show(done, count, 0, "fit of " + preset);
      });
    }
    case VerifiedPart::noise: {
      constexpr std::uint32_t races = 1000;
      return verify_noise(races);
    }
    case VerifiedPart::time:
      return verify_time();
  }
  return {};
}

/// All parts of the grid are looked at together, where the first of them is asked for.
int verify(const TuneOptions& options) {
  Progress progress(stderr, program);
  Verdict all;
  bool has_grid = false;
  for (const VerifiedPart part : options.verified) {
    if (is_about_grid(part) && std::exchange(has_grid, true)) continue;
    const Verdict verdict = verify_part(part, options, progress);
    all.text += (all.text.empty() ? "" : "\n") + verdict.text;
    all.misses += verdict.misses;
  }
  progress.end();
  const int status = print(
      all.text + (all.misses.empty() ? std::string() : "\nWhat misses a bound:\n" + all.misses));
  return status != 0 || all.misses.empty() ? status : status_missed;
}

/// Writes the page, and says where it is.
int report(const TuneOptions& options) {
  write_report(options.other_file, options.file);
  return print(fmt::format("page: {}\n", options.other_file));
}

/// Sets `mode` as soon as it is known.
int run_program(std::span<const char* const> arguments, TuneMode& mode) {
  const TuneOptions options = parse_tune_options(arguments);
  mode = options.mode;
  if (!options.help.empty()) return print(options.help);
  switch (options.mode) {
    case TuneMode::tune:
    case TuneMode::check:
      return run_ranks(options);
    case TuneMode::show:
      return print(show_tuning(read_tuning(options.file)));
    case TuneMode::explain:
      return print(explained(options));
    case TuneMode::verify:
      return verify(options);
    case TuneMode::diff:
      return print(compared(options.file, options.other_file));
    case TuneMode::report:
      return report(options);
  }
  return exit_failure;
}

}  // namespace
}  // namespace tutti::bench

int main(int argument_count, char** arguments) {
  using namespace tutti::bench;
  TuneMode mode = TuneMode::tune;
  bool has_failed = true;
  const int status = exit_status_of(program, [&] {
    const int result = run_program({arguments, static_cast<std::size_t>(argument_count)}, mode);
    has_failed = false;
    return result;
  });
  return has_failed && status == exit_failure ? failure_status(mode) : status;
}
