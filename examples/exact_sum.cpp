// One sum over 1, 2, 3, 5 and 8 ranks, as plain doubles and as exact sums.  The numbers are the
// same each time, and are dealt out among as many ranks as there are.  The plain sums differ in
// their last digits, the exact ones are the same to the last bit.  Then: how long adding takes on
// this CPU.
//
//   exact_sum [NUMBERS]          how many numbers; 1000000 if it is not said
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using namespace std::chrono_literals;

std::vector<double> made_numbers(std::size_t count) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> exponents(0, 8);
  std::vector<double> numbers(count);
  for (double& number : numbers)
    number = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                        static_cast<int>(exponents(random)) - 63);
  return numbers;
}

/// Eight chains of additions of two numbers each, which keep the adders of a CPU busy.
double plain_sum(const std::vector<double>& numbers) {
  using Two = double __attribute__((vector_size(16)));
  Two chains[8] = {};
  std::size_t i = 0;
  for (; i + 16 <= numbers.size(); i += 16)
    for (std::size_t chain = 0; chain < 8; ++chain) {
      Two two;
      std::memcpy(&two, &numbers[i + 2 * chain], sizeof two);
      chains[chain] += two;
    }
  double sum = 0;
  for (; i < numbers.size(); ++i) sum += numbers[i];
  for (const Two& chain : chains) sum += chain[0] + chain[1];
  return sum;
}

double exact_sum(const std::vector<double>& numbers) {
  tutti::ExactSum sum;
  sum.add(numbers);
  return sum.value();
}

/// Prints both sums on rank 0.
int sum_over_ranks(tutti::Exchange& exchange, const std::vector<double>& numbers) {
  tutti::Context context;
  tutti::Communicator communicator(context, exchange);
  std::vector<double> part;
  for (std::size_t i = index_of(communicator.rank()); i < numbers.size();
       i += communicator.rank_count())
    part.push_back(numbers[i]);

  const double mine = plain_sum(part);
  double whole = 0;
  tutti::ExactSum exact_mine, exact_whole;
  exact_mine.add(part);
  auto plain = tutti::allreduce<double>(communicator, {&mine, 1}, {&whole, 1}, tutti::sum);
  auto exact = tutti::allreduce<tutti::ExactSum>(communicator, {&exact_mine, 1}, {&exact_whole, 1},
                                                 tutti::exact_addition());
  for (tutti::Operation* sum : {&plain, &exact})
    if (sum->start() != tutti::Status::ok || sum->wait(5s) != tutti::Status::ok) return 1;
  if (index_of(communicator.rank()) == 0)
    std::printf("%5u   %.17g   %.17g\n", communicator.rank_count(), whole, exact_whole.value());
  std::fflush(stdout);
  return 0;
}

/// Milliseconds, the median of 21 runs, which alternate.
void print_speed(const std::vector<double>& numbers) {
  std::vector<double> plain, exact;
  volatile double kept = 0;
  const auto timed = [&](std::vector<double>& times, double (*sum)(const std::vector<double>&)) {
    const auto begin = std::chrono::steady_clock::now();
    kept = sum(numbers);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  };
  for (int run = 0; run < 21; ++run) {
    timed(plain, plain_sum);
    timed(exact, exact_sum);
  }
  std::vector<double> ratios;
  for (std::size_t run = 0; run < plain.size(); ++run) ratios.push_back(exact[run] / plain[run]);
  const auto median = [](std::vector<double>& of) {
    std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
    return of[of.size() / 2];
  };
  std::printf("adding %zu numbers: plain %.3f ms, exact %.3f ms, ratio %.2f\n", numbers.size(),
              median(plain), median(exact), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 1000000;
  if (argc > 2 || count < 1 || count > 1000000000) {
    std::fprintf(stderr, "exact_sum: expected how many numbers to add, from 1 to 1000000000\n");
    return 2;
  }
  const std::vector<double> numbers = made_numbers(static_cast<std::size_t>(count));
  std::printf("ranks   plain sum              exact sum\n");
  std::fflush(stdout);
  for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 8u})
    for (const auto& rank : tutti::run_local({.rank_count = ranks}, [&](tutti::Exchange& exchange) {
           return sum_over_ranks(exchange, numbers);
         }))
      if (rank.signal != 0 || rank.exit_status != 0) return 1;
  print_speed(numbers);
  return 0;
}
