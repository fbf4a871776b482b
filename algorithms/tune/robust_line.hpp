// Lines through times that were measured: what noise adds to some of them does not move the line,
// and how far the line may be off is told by drawing it again (bootstrap).
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "tune/generator.hpp"

namespace tutti::tune {

struct Line {
  double base = 0, slope = 0;
  double at(double x) const { return base + slope * x; }
};

struct Point {
  double x, y;
};

/// What was measured at one x, several times; at least once.
struct Cell {
  double x = 0;
  std::vector<double> times = {};
};

/// The line through the least time of each cell, by Theil and Sen (H. Theil 1950, P. Sen 1968):
/// the median of the slopes between all pairs, weighted by their distance.  Where two lines fit far
/// better than one, as where a network changes its protocol, the base is that of the first and the
/// slope that of the last.
class RobustLine {
 public:
  /// In the order of x.
  explicit RobustLine(std::vector<Cell> cells);

  /// Whether there are two different x; what follows needs that.
  bool has_slope() const;
  Line line() const { return {line_.first.base, line_.last.slope}; }
  /// From which x on there is another line; infinite: there is one alone.
  double break_at() const { return line_.last_from; }

  /// How often each x was measured, at least.
  std::size_t times_min() const;

  /// A line that could as well have been measured.  A cell is as far off the line as any other is,
  /// relative to its time, to any side; and since noise adds time, its least sample is above the
  /// truth by as much as the least of half of its samples, drawn at random, is above the least of
  /// all (P. Bickel, F. Goetze, W. van Zwet, Statistica Sinica 1997: the bootstrap of a minimum has
  /// to draw fewer samples than there are).
  Line drawn(Generator& generator) const;

 private:
  /// Two lines do not have to meet.
  struct Bent {
    Line first = {}, last = {};
    double last_from = HUGE_VAL;
    double at(double x) const { return (x < last_from ? first : last).at(x); }
  };
  static Bent through(const std::vector<Point>& points, double last_from);
  static double misfit(const Bent& line, const std::vector<Point>& points);

  std::vector<Cell> cells_;
  std::vector<Point> points_ = {};
  Bent line_ = {};
  std::vector<double> off_ = {};  // how far points are off the line, as a share of their time
};

}  // namespace tutti::tune
