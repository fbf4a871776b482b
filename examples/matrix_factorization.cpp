// Matrix factorisation by gradient descent with stale-synchronous gradients: ratings of users for
// items are approximated by inner products of short vectors, one for each user and each item.  The
// users, with their ratings and vectors, are divided among the ranks; every rank has all item
// vectors, whose gradients are summed across the ranks in every iteration.
//
// One rank at a time is slow, each in turn: it sleeps in every iteration of its turn.  With slack 0
// all ranks wait for it every time; with slack, a result contains what the slow rank sent a little
// earlier.  (A rank that is always slow would hold up the others in the end, whatever the slack.)
//
//   matrix_factorization [--ranks N] [--iterations N] [--sleep-us N] [--ratings FILE]
//
// Prints for slack 0, 2, 8: lines of slack, iteration, milliseconds, error (root of the mean square
// over all ratings), staleness; at the end, iterations per second.  FILE has a rating in each line,
// as in MovieLens' u.data: user, item, rating, anything.  Without it, ratings are made from planted
// vectors, with noise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::size_t rank_of_factors = 4;

struct Options {
  std::uint32_t ranks = 4;
  std::uint32_t iterations = 320;
  std::uint32_t sleep_us = 2000;
  std::string ratings;
};

struct Rating {
  std::size_t user, item;
  double value;
};

struct Ratings {
  std::vector<Rating> all;
  std::size_t users = 0, items = 0;
};

Ratings planted() {
  constexpr std::size_t users = 400, items = 100;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> left(users * rank_of_factors), right(items * rank_of_factors);
  for (double& x : left) x = normal(random);
  for (double& x : right) x = normal(random);
  Ratings ratings{{}, users, items};
  for (std::size_t user = 0; user < users; ++user)
    for (std::size_t item = 0; item < items; ++item) {
      if (random() % 5 != 0) continue;
      double value = 0.1 * normal(random);
      for (std::size_t f = 0; f < rank_of_factors; ++f)
        value += left[user * rank_of_factors + f] * right[item * rank_of_factors + f];
      ratings.all.push_back({user, item, value});
    }
  return ratings;
}

Ratings read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("--ratings " + path + ": cannot be opened");
  Ratings ratings;
  std::string line;
  double sum = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Rating one{};
    if (!(words >> one.user >> one.item >> one.value))
      throw std::runtime_error("--ratings " + path + ": line " +
                               std::to_string(ratings.all.size() + 1) +
                               ": expected user, item and rating, got \"" + line + "\"");
    ratings.users = std::max(ratings.users, one.user + 1);
    ratings.items = std::max(ratings.items, one.item + 1);
    ratings.all.push_back(one);
    sum += one.value;
  }
  if (ratings.all.empty()) throw std::runtime_error("--ratings " + path + ": has no rating");
  for (Rating& one : ratings.all) one.value -= sum / static_cast<double>(ratings.all.size());
  return ratings;
}

/// One rank's users and its copy of the item vectors.
class Factors {
 public:
  Factors(const Ratings& ratings, std::uint32_t rank, std::uint32_t rank_count)
      : users_(ratings.users * rank_of_factors), items_(ratings.items * rank_of_factors) {
    for (const Rating& one : ratings.all)
      if (one.user % rank_count == rank) own_.push_back(one);
    std::mt19937 random(1);  // alike on every rank
    std::normal_distribution<double> normal(0, 0.3);
    for (double& x : users_) x = normal(random);
    for (double& x : items_) x = normal(random);
    std::vector<std::size_t> seen(ratings.items);
    for (const Rating& one : ratings.all) ++seen[one.item];
    for (const std::size_t count : seen)
      steps_.push_back(count == 0 ? 0 : item_step / static_cast<double>(count));
  }

  std::size_t size() const { return items_.size(); }
  std::size_t ratings() const { return own_.size(); }

  /// Moves the vectors of this rank's users, and computes the gradient of the items' vectors by its
  /// ratings.  Returns the sum of the squared errors before that.
  double descend(std::vector<double>& gradient) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    double squares = 0;
    for (const Rating& one : own_) {
      double* const user = &users_[one.user * rank_of_factors];
      const double* const item = &items_[one.item * rank_of_factors];
      double error = one.value;
      for (std::size_t f = 0; f < rank_of_factors; ++f) error -= user[f] * item[f];
      squares += error * error;
      for (std::size_t f = 0; f < rank_of_factors; ++f) {
        gradient[one.item * rank_of_factors + f] += error * user[f];
        user[f] += user_step * error * item[f];
      }
    }
    return squares;
  }

  void move_items(const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < items_.size(); ++i)
      items_[i] += steps_[i / rank_of_factors] * gradient[i];
  }

 private:
  static constexpr double user_step = 0.006, item_step = 0.04;
  std::vector<double> users_, items_;
  std::vector<double> steps_;  // of each item
  std::vector<Rating> own_;
};

bool run(tutti::Operation& operation) {
  return operation.start() == tutti::Status::ok && operation.wait(20s) == tutti::Status::ok;
}

int factorise(tutti::Communicator& communicator, const Ratings& ratings, const Options& options,
              std::uint32_t slack) {
  constexpr std::uint32_t turn = 8;  // iterations
  const std::uint32_t self = index_of(communicator.rank());
  Factors factors(ratings, self, communicator.rank_count());
  // The squared errors follow the gradients.
  std::vector<double> gradient(factors.size()), mine(factors.size() + 1), all(mine.size());
  auto sum = tutti::allreduce_ssp<double>(communicator, std::span<const double>(mine),
                                          std::span(all), tutti::sum, slack);
  communicator.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_ms = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  for (std::uint32_t iteration = 0; iteration < options.iterations; ++iteration) {
    mine.back() = factors.descend(gradient);
    std::copy(gradient.begin(), gradient.end(), mine.begin());
    if (iteration / turn % communicator.rank_count() == self)
      std::this_thread::sleep_for(std::chrono::microseconds(options.sleep_us));
    if (!run(sum)) return 1;
    std::copy_n(all.begin(), gradient.size(), gradient.begin());
    factors.move_items(gradient);
    if (self == 0 && iteration % 8 == 7)
      std::printf("%u,%u,%.3f,%.5f,%llu\n", slack, iteration + 1, elapsed_ms(),
                  std::sqrt(all.back() / static_cast<double>(ratings.all.size())),
                  static_cast<unsigned long long>(sum.staleness()));
  }
  if (self == 0) {
    std::printf("# slack %u: %.0f iterations per second\n", slack,
                options.iterations / elapsed_ms() * 1000);
    std::fflush(stdout);
  }
  return 0;
}

std::uint32_t number(const std::string& name, const char* text, long least) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > 1'000'000)
    throw std::runtime_error(name + " " + text + ": expected a number, " + std::to_string(least) +
                             " .. 1000000");
  return static_cast<std::uint32_t>(value);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 >= argc) throw std::runtime_error(name + ": expected a value");
    if (name == "--ranks")
      options.ranks = number(name, argv[i + 1], 1);
    else if (name == "--iterations")
      options.iterations = number(name, argv[i + 1], 1);
    else if (name == "--sleep-us")
      options.sleep_us = number(name, argv[i + 1], 0);
    else if (name == "--ratings")
      options.ratings = argv[i + 1];
    else
      throw std::runtime_error(name + ": expected --ranks, --iterations, --sleep-us or --ratings");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const Ratings ratings = options.ratings.empty() ? planted() : read(options.ratings);
  std::printf("slack,iteration,milliseconds,error,staleness\n");
  std::fflush(stdout);  // before ranks are forked
  const auto ranks =
      tutti::run_local({.rank_count = options.ranks}, [&](tutti::Exchange& exchange) {
        tutti::Context context;
        tutti::Communicator communicator(context, exchange);
        for (const std::uint32_t slack : {0u, 2u, 8u})
          if (factorise(communicator, ratings, options, slack) != 0) {
            std::fprintf(stderr, "rank %u: %s\n", index_of(exchange.self()),
                         communicator.failure().text);
            return 1;
          }
        communicator.synchronize();  // no rank leaves while another one still receives from it
        return 0;
      });
  for (const auto& rank : ranks)
    if (rank.signal != 0 || rank.exit_status != 0) return 1;
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "matrix_factorization: %s\n", error.what());
  return 2;
}
