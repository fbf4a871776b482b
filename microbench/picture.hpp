// Pictures as SVG, for pages that are read on light and on dark ground: lines and letters have the
// colour of the text around them, and what is told apart has colours that can be seen on both.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

/// Text in HTML and SVG, also in attributes.
std::string escaped(std::string_view text);

/// One of some colours; they repeat.
const char* colour(std::size_t number);

/// From values to places in a picture; logarithmic or linear.
struct Axis {
  double first = 0, last = 1;  // values at its ends, ...
  double begin = 0, end = 1;   // ... which are here
  bool is_logarithmic = false;
  double at(double value) const;
};

struct Mark {
  double value = 0;
  std::string label = {};
};
/// Some round values of an axis.
std::vector<Mark> round_marks(const Axis& axis);

class Picture {
 public:
  Picture(double width, double height, std::string_view title);

  struct Place {
    double x = 0, y = 0;
  };
  void line(Place from, Place to, double opacity = 0.2);
  void curve(const std::vector<Place>& places, const char* colour, bool is_dashed = false);
  /// `says` is shown where a pointer rests on it.
  void point(Place place, const char* colour, std::string_view says);
  void box(Place corner, double width, double height, const char* colour, double opacity,
           std::string_view says);
  enum class Align { left, middle, right };
  void text(Place place, std::string_view text, Align align = Align::left, bool is_bold = false);

  /// Lines at the marks, with their labels below (x) and on the left (y).
  void grid(const Axis& x, const std::vector<Mark>& x_marks, const Axis& y,
            const std::vector<Mark>& y_marks);

  std::string svg() const;

 private:
  std::string text_;
};

}  // namespace tutti::bench
