#include <fmt/format.h>

#include <algorithm>

#include "microbench/info.hpp"
#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

constexpr std::size_t columns_max = 100;

/// Labels that stand below each other, of all parts too, share a column.
std::size_t width_of(const InfoSection& section) {
  std::size_t width = 0;
  for (const auto& [label, value] : section.lines) width = std::max(width, label.size());
  for (const InfoSection& part : section.parts) width = std::max(width, width_of(part));
  return width;
}

std::string text_of(const InfoSection& section, std::size_t indent, std::size_t width) {
  std::string text = fmt::format("{:{}}{}\n", "", indent, section.title);
  for (const auto& [label, value] : section.lines)
    text += fmt::format("{:{}}{:<{}}  {}\n", "", indent + 2, label, width,
                        wrapped(value, columns_max, indent + 4 + width, indent + 4 + width));
  for (const InfoSection& part : section.parts) text += text_of(part, indent + 2, width);
  return text;
}

}  // namespace

std::string text_of(const std::vector<InfoSection>& sections) {
  std::string text;
  for (const InfoSection& section : sections)
    text += (text.empty() ? "" : "\n") + text_of(section, 0, width_of(section));
  return text;
}

}  // namespace tutti::bench
