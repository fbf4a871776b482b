#include "tune/robust_line.hpp"

#include <algorithm>
#include <utility>

namespace tutti::tune {
namespace {

struct Weighted {
  double value, weight;
};

double weighted_median(std::vector<Weighted> values) {
  std::sort(values.begin(), values.end(),
            [](const Weighted& left, const Weighted& right) { return left.value < right.value; });
  double half = 0;
  for (const Weighted& one : values) half += one.weight / 2;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    half -= values[i].weight;
    if (half < 0) return values[i].value;
    if (half == 0) return (values[i].value + values[i + 1].value) / 2;
  }
  return values.back().value;
}

/// Noise grows with what is measured, so that a share of it is compared.  What a clock is too
/// coarse for may have taken no time.
double scale_of(const Point& point, double expected) {
  return std::max({point.y, expected, 1.0});
}

Line theil_sen(const std::vector<Point>& points) {
  constexpr double hardly_any = 1e-3;  // of the longest time
  double longest = 0;
  for (const Point& point : points) longest = std::max(longest, point.y);
  std::vector<Weighted> slopes, bases;
  for (std::size_t right = 0; right < points.size(); ++right)
    for (std::size_t left = 0; left < right; ++left)
      if (const double distance = points[right].x - points[left].x; distance > 0)
        slopes.push_back({(points[right].y - points[left].y) / distance, distance});
  const double slope = weighted_median(std::move(slopes));
  for (const Point& point : points)
    bases.push_back({point.y - slope * point.x, 1 / scale_of(point, hardly_any * longest)});
  return {weighted_median(std::move(bases)), slope};
}

double least_of(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

double least_of_half(const std::vector<double>& times, Generator& generator) {
  double least = HUGE_VAL;
  for (std::size_t drawn = 0; drawn < (times.size() + 1) / 2; ++drawn)
    least = std::min(least, times[generator.below(times.size())]);
  return least;
}

}  // namespace

RobustLine::RobustLine(std::vector<Cell> cells) : cells_(std::move(cells)) {
  for (const Cell& cell : cells_) points_.push_back({cell.x, least_of(cell.times)});
  if (!has_slope()) return;
  constexpr double worth_a_break = 0.02, far_better = 0.25;
  constexpr std::size_t points_min = 3;  // of each of two lines
  line_ = through(points_, HUGE_VAL);
  double least = misfit(line_, points_);
  if (least > worth_a_break) {
    least *= far_better;
    for (std::size_t i = points_min; i + points_min <= points_.size(); ++i) {
      const double x = points_[i].x;
      if (points_[i - 1].x == x || points_.front().x == points_[i - 1].x || points_.back().x == x)
        continue;
      const Bent bent = through(points_, x);
      if (const double left = misfit(bent, points_); left < least) line_ = bent, least = left;
    }
  }
  for (const Point& point : points_)
    off_.push_back((point.y - line_.at(point.x)) / scale_of(point, line_.at(point.x)));
}

bool RobustLine::has_slope() const {
  return !points_.empty() && points_.front().x < points_.back().x;
}

std::size_t RobustLine::times_min() const {
  std::size_t least = cells_.front().times.size();
  for (const Cell& cell : cells_) least = std::min(least, cell.times.size());
  return least;
}

RobustLine::Bent RobustLine::through(const std::vector<Point>& points, double last_from) {
  const auto middle = std::find_if(points.begin(), points.end(),
                                   [&](const Point& point) { return point.x >= last_from; });
  const Line first = theil_sen({points.begin(), middle});
  return {first, middle == points.end() ? first : theil_sen({middle, points.end()}), last_from};
}

double RobustLine::misfit(const Bent& line, const std::vector<Point>& points) {
  double sum = 0;
  for (const Point& point : points) {
    const double expected = line.at(point.x);
    sum += std::abs(point.y - expected) / scale_of(point, expected);
  }
  return sum / static_cast<double>(points.size());
}

Line RobustLine::drawn(Generator& generator) const {
  // The line was laid through the points, so that they are further off the truth than off it; and
  // how far off they can be, few of them do not show.
  const auto count = static_cast<double>(points_.size());
  const double widened = count > 2 ? count / (count - 2) : 1;
  std::vector<Point> points = points_;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double expected = line_.at(points_[i].x);
    const double off =
        widened * off_[generator.below(off_.size())] * scale_of(points_[i], expected);
    const double above = least_of_half(cells_[i].times, generator) - points_[i].y;
    points[i].y = expected + (generator.below(2) == 0 ? off : -off) - above;
  }
  const Bent bent = through(points, line_.last_from);
  return {bent.first.base, bent.last.slope};
}

}  // namespace tutti::tune
