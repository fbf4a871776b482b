// See report.hpp.  The solution is known before: x has pseudo-random numbers, and b = A x.  So the
// error is known, too.
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "aligned_vector.hpp"
#include "late_ranks.hpp"

namespace poisson {
namespace {

/// Between 0 and 1.  Depends on the number of the row alone, as the results of all ranks together
/// must not depend on how many they are.
double known_solution(std::size_t row) {
  const auto mixed = static_cast<std::uint32_t>(row + 1) * std::uint32_t{2654435761};
  return static_cast<double>(mixed) / 4294967296.0;
}

/// In microseconds per iteration, the mean of all ranks.  "Late" is the part of the time before it
/// that was waiting for ranks that had not begun.
struct Times {
  double all = 0, reductions = 0, reductions_late = 0, halo = 0, halo_late = 0;

  double communication() const { return reductions + halo; }
  double computing() const { return all - communication(); }
  double reductions_from_last() const { return reductions - reductions_late; }
  double halo_from_last() const { return halo - halo_late; }
};

double median(std::vector<double> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// `which` is a member of Times, or a function of it.
template <class Which>
double median(const std::vector<Times>& of, Which which) {
  std::vector<double> numbers;
  for (const Times& one : of) numbers.push_back(std::invoke(which, one));
  return median(std::move(numbers));
}

/// One solver over one communication.
class Run {
 public:
  Run(Communication& communication, const Matrix& matrix, const std::string& solver,
      const Options& options)
      : communication_(communication),
        limits_(options.limits),
        matrix_(communication, matrix),
        solver_(solver == "cg"
                    ? conjugate_gradient(matrix_, communication, options.arithmetic)
                    : pipelined_conjugate_gradient(matrix_, communication, options.arithmetic)),
        norms_(communication, 4, options.arithmetic),
        late_ranks_(communication),
        times_sum_(communication.sum(std::span<const double>(own_times_), sum_of_times_)) {
    for (std::size_t row = 0; row < matrix_.row_count(); ++row)
      known_.push_back(known_solution(matrix_.first_row() + row));
    right_.resize(known_.size());
    x_.resize(known_.size());
    matrix_.multiply(known_, right_);
  }

  std::string solver() const { return solver_->name(); }
  std::string communication() const { return communication_.name(); }
  const Solution& solution() const { return solution_; }
  const std::vector<Times>& times() const { return times_; }
  /// Whether that solve computed about as quickly as any.  A rank whose CPU is slower for a while,
  /// as a hardware thread is while its core's other one is busy, keeps the others waiting.
  bool undisturbed(std::size_t solve) const {
    return times_[solve].computing() <= 1.03 * least_computing_;
  }
  bool knows_late_ranks() const { return late_ranks_.are_comparable(); }

  void solve() {
    communication_.synchronize();
    solution_ = solver_->solve(right_, x_, limits_);
    own_times_[0] = solution_.seconds;
    own_times_[1] = solver_->reduction_times().seconds();
    own_times_[2] = late_ranks_.seconds_waited(solver_->reduction_times().calls(), all_ranks_);
    own_times_[3] = matrix_.halo_times().seconds();
    own_times_[4] = late_ranks_.seconds_waited(matrix_.halo_times().calls(), matrix_.halo_counts());
    times_sum_->run();
    const double per_iteration =
        1e6 / static_cast<double>(std::max<std::size_t>(solution_.iterations(), 1)) /
        communication_.rank_count();
    times_.push_back({.all = sum_of_times_[0] * per_iteration,
                      .reductions = sum_of_times_[1] * per_iteration,
                      .reductions_late = sum_of_times_[2] * per_iteration,
                      .halo = sum_of_times_[3] * per_iteration,
                      .halo_late = sum_of_times_[4] * per_iteration});
    least_computing_ = std::min(least_computing_, times_.back().computing());
  }

  /// Residual and error as they are, not as the recurrences have them; both relative.
  std::pair<double, double> check() {
    AlignedVector<double> difference(x_.size());
    matrix_.multiply(x_, difference);
    for (std::size_t i = 0; i < x_.size(); ++i) difference[i] = right_[i] - difference[i];
    norms_.set(0, difference, difference);
    norms_.set(1, right_, right_);
    for (std::size_t i = 0; i < x_.size(); ++i) difference[i] = x_[i] - known_[i];
    norms_.set(2, difference, difference);
    norms_.set(3, known_, known_);
    norms_.run();
    return {std::sqrt(norms_[0] / norms_[1]), std::sqrt(norms_[2] / norms_[3])};
  }

 private:
  Communication& communication_;
  Limits limits_;
  DistributedMatrix matrix_;
  std::unique_ptr<Solver> solver_;
  DotProducts norms_;
  LateRanks late_ranks_;
  const std::vector<std::size_t> all_ranks_ =
      std::vector<std::size_t>(communication_.rank_count(), 1);
  std::vector<double> own_times_ = std::vector<double>(5), sum_of_times_ = own_times_;
  std::unique_ptr<Collective> times_sum_;
  AlignedVector<double> known_, right_, x_;
  Solution solution_;
  std::vector<Times> times_;
  double least_computing_ = std::numeric_limits<double>::infinity();
};

using Runs = std::vector<std::unique_ptr<Run>>;

/// A number of microseconds, or "-" if it is not known.
std::string column(bool known, double microseconds) {
  char text[32] = "-";
  if (known) std::snprintf(text, sizeof(text), "%.2f", microseconds);
  return text;
}

void print_row(Run& run, bool here) {
  const auto [residual, error] = run.check();
  if (!here) return;
  std::printf(
      "%-10s %-14s %10zu  %.3e %.3e %.3e %10.2f %10.2f %9s %8.2f %9s %8.2f\n", run.solver().c_str(),
      run.communication().c_str(), run.solution().iterations(),
      run.solution().history.back().residual, residual, error, median(run.times(), &Times::all),
      median(run.times(), &Times::reductions),
      column(run.knows_late_ranks(), median(run.times(), &Times::reductions_from_last)).c_str(),
      median(run.times(), &Times::halo),
      column(run.knows_late_ranks(), median(run.times(), &Times::halo_from_last)).c_str(),
      median(run.times(), &Times::communication));
  if (!run.solution().failure.empty())
    std::printf("%s, %s: iteration %zu: %s\n", run.solver().c_str(), run.communication().c_str(),
                run.solution().iterations(), run.solution().failure.c_str());
}

/// How much longer the second one takes, by pairs of solves that followed each other.
template <class Which>
double ratio(const std::vector<Times>& first, const std::vector<Times>& second, Which which) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < first.size(); ++i)
    ratios.push_back(std::invoke(which, second[i]) / std::invoke(which, first[i]));
  return median(std::move(ratios));
}

void print_ratios(const Run& first, const Run& second) {
  const std::string solver = first.solver();
  const std::vector<Times>&one = first.times(), &other = second.times();
  std::printf(
      "%s: with %s, reductions take %.2f x, the halo %.2f x, both together %.2f x, an iteration "
      "%.2f x as long as with %s\n",
      solver.c_str(), second.communication().c_str(), ratio(one, other, &Times::reductions),
      ratio(one, other, &Times::halo), ratio(one, other, &Times::communication),
      ratio(one, other, &Times::all), first.communication().c_str());
  if (first.knows_late_ranks())
    std::printf("%s: from the last rank's arrival on, reductions take %.2f x, the halo %.2f x\n",
                solver.c_str(), ratio(one, other, &Times::reductions_from_last),
                ratio(one, other, &Times::halo_from_last));

  std::vector<Times> quick_one, quick_other;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (first.undisturbed(i) && second.undisturbed(i)) {
      quick_one.push_back(one[i]);
      quick_other.push_back(other[i]);
    }
  std::printf("%s: undisturbed were %zu of %zu pairs of solves", solver.c_str(), quick_one.size(),
              one.size());
  if (!quick_one.empty())
    std::printf(": reductions %.2f and %.2f, %.2f x, both together %.2f and %.2f, %.2f x",
                median(quick_one, &Times::reductions), median(quick_other, &Times::reductions),
                ratio(quick_one, quick_other, &Times::reductions),
                median(quick_one, &Times::communication),
                median(quick_other, &Times::communication),
                ratio(quick_one, quick_other, &Times::communication));
  std::printf("\n");
}

/// The one of MPI, with which the others of that solver are compared; nullptr if there is none.
const Run* find_mpi(const Runs& runs, std::size_t begin, std::size_t count) {
  const auto first = runs.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  const auto found =
      std::find_if(first, last, [](const auto& run) { return run->communication() == "MPI"; });
  return found == last ? nullptr : found->get();
}

/// The residuals also as hexadecimal numbers, which show every bit.
void write_history(const std::string& path, const Runs& runs) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error("--history: " + path + " cannot be written");
  std::fprintf(file, "solver,communication,iteration,residual,bits,milliseconds\n");
  for (const auto& run : runs)
    for (std::size_t i = 0; i < run->solution().history.size(); ++i) {
      const auto& [residual, seconds] = run->solution().history[i];
      std::fprintf(file, "%s,%s,%zu,%.6e,%a,%.6f\n", run->solver().c_str(),
                   run->communication().c_str(), i, residual, residual, seconds * 1e3);
    }
  if (std::fclose(file) != 0) throw std::runtime_error("--history: " + path + " cannot be written");
}

}  // namespace

int solve_and_report(const std::vector<std::unique_ptr<Communication>>& communications,
                     const Options& options, const Matrix& matrix) {
  const std::uint32_t rank = communications.front()->rank();
  const bool here = rank == 0;
  Runs runs;
  for (const std::string& solver : options.solvers)
    for (const auto& communication : communications)
      runs.push_back(std::make_unique<Run>(*communication, matrix, solver, options));
  for (std::uint32_t i = 0; i < options.repeat; ++i)
    for (const auto& run : runs) run->solve();

  if (here) {
    std::printf("%s: %zu unknowns, %u rank%s, %s dot products\n", matrix.description().c_str(),
                matrix.unknowns(), communications.front()->rank_count(),
                communications.front()->rank_count() == 1 ? "" : "s",
                options.arithmetic == Arithmetic::exact ? "exact" : "plain");
    std::printf("%47s %9s %9s %59s\n", "residual,", "residual,", "error",
                "microseconds per iteration");
    std::printf("%-10s %-14s %10s  %9s %9s %9s %10s %10s %9s %8s %9s %8s\n", "solver",
                "communication", "iterations", "updated", "b - A x", "of x", "all", "reductions",
                "from last", "halo", "from last", "both");
  }
  for (const auto& run : runs) print_row(*run, here);
  if (here)
    for (std::size_t i = 0; i < runs.size(); i += communications.size())
      if (const Run* const mpi = find_mpi(runs, i, communications.size()))
        for (std::size_t other = i; other < i + communications.size(); ++other)
          if (runs[other].get() != mpi) print_ratios(*runs[other], *mpi);
  if (here) {
    std::printf("from last: without waiting for ranks that had not yet begun the call%s\n",
                runs.front()->knows_late_ranks()
                    ? ""
                    : "; not known, as the ranks have no clock in common");
    std::printf("both: reductions and halo, waiting included\n");
    if (communications.size() > 1)
      std::printf(
          "undisturbed: computing took at most 3 %% longer than in the quickest solve of that "
          "row\n");
    std::fflush(stdout);
  }
  if (!options.history.empty())
    write_history(options.history + "." + std::to_string(rank) + ".csv", runs);
  communications.front()->synchronize();  // no rank leaves while another one still needs it
  return std::all_of(runs.begin(), runs.end(),
                     [](const auto& run) { return run->solution().failure.empty(); })
             ? 0
             : 1;
}

}  // namespace poisson
