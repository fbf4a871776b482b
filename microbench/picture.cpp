#include "microbench/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti::bench {
namespace {

/// By M. Okabe and K. Ito, Color Universal Design (2008): to be told apart by all people; without
/// the yellow, which cannot be seen on white, and the black.
constexpr std::array colours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                "#56b4e9", "#e69f00", "#8a8a8a"};

const char* name_of(Picture::Align align) {
  switch (align) {
    case Picture::Align::left:
      return "start";
    case Picture::Align::middle:
      return "middle";
    case Picture::Align::right:
      return "end";
  }
  return "start";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char character : text) switch (character) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += character;
    }
  return safe;
}

const char* colour(std::size_t number) {
  return colours[number % colours.size()];
}

double Axis::at(double value) const {
  const auto scaled = [&](double one) { return is_logarithmic ? std::log2(one) : one; };
  const double span = scaled(last) - scaled(first);
  return span == 0 ? (begin + end) / 2
                   : begin + (scaled(value) - scaled(first)) / span * (end - begin);
}

std::vector<Mark> round_marks(const Axis& axis) {
  std::vector<Mark> marks;
  if (axis.is_logarithmic) {
    const double decades = std::log10(axis.last / axis.first);
    for (int power = static_cast<int>(std::floor(std::log10(axis.first)));
         std::pow(10.0, power) <= axis.last; ++power)
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10.0, power);
        if (value < axis.first || value > axis.last || (decades > 3 && digit != 1.0)) continue;
        marks.push_back({value, fmt::format("{:g}", value)});
      }
    return marks;
  }
  const double rough = (axis.last - axis.first) / 5;
  if (!(rough > 0)) return {{axis.first, fmt::format("{:g}", axis.first)}};
  const double unit = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = unit * (rough / unit < 1.5 ? 1 : rough / unit < 3.5 ? 2 : 5);
  for (double value = std::ceil(axis.first / step) * step; value <= axis.last + step / 1000;
       value += step)
    marks.push_back({value, fmt::format("{:g}", std::abs(value) < step / 1000 ? 0 : value)});
  return marks;
}

Picture::Picture(double width, double height, std::string_view title)
    : text_(fmt::format("<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
                        "height=\"{1:.0f}\" role=\"img\" font-family=\"sans-serif\" "
                        "font-size=\"11\">\n<title>{2}</title>\n",
                        width, height, escaped(title))) {}

void Picture::line(Place from, Place to, double opacity) {
  text_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"currentColor\" "
      "stroke-opacity=\"{:.2f}\"/>\n",
      from.x, from.y, to.x, to.y, opacity);
}

void Picture::curve(const std::vector<Place>& places, const char* colour, bool is_dashed) {
  std::string points;
  for (const Place& place : places)
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", place.x, place.y);
  text_ +=
      fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{}/>\n",
                  points, colour, is_dashed ? " stroke-dasharray=\"4 3\"" : "");
}

void Picture::point(Place place, const char* colour, std::string_view says) {
  text_ += fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>\n",
      place.x, place.y, colour, escaped(says));
}

void Picture::box(Place corner, double width, double height, const char* colour, double opacity,
                  std::string_view says) {
  text_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
      "fill-opacity=\"{:.2f}\"><title>{}</title></rect>\n",
      corner.x, corner.y, width, height, colour, opacity, escaped(says));
}

void Picture::text(Place place, std::string_view text, Align align, bool is_bold) {
  text_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"currentColor\" text-anchor=\"{}\"{}>{}</text>\n",
      place.x, place.y, name_of(align), is_bold ? " font-weight=\"bold\"" : "", escaped(text));
}

void Picture::grid(const Axis& x, const std::vector<Mark>& x_marks, const Axis& y,
                   const std::vector<Mark>& y_marks) {
  const double bottom = std::max(y.begin, y.end), top = std::min(y.begin, y.end);
  for (const Mark& mark : x_marks) {
    line({x.at(mark.value), top}, {x.at(mark.value), bottom}, 0.1);
    text({x.at(mark.value), bottom + 14}, mark.label, Align::middle);
  }
  for (const Mark& mark : y_marks) {
    line({x.begin, y.at(mark.value)}, {x.end, y.at(mark.value)}, 0.2);
    text({x.begin - 5, y.at(mark.value) + 4}, mark.label, Align::right);
  }
}

std::string Picture::svg() const {
  return text_ + "</svg>\n";
}

}  // namespace tutti::bench
