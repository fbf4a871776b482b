// Numbers as tables of verifications print them.
#pragma once

#include <cstdio>
#include <string>

namespace tutti::bench {

/// Writes a number with so many digits after its point.
inline std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
inline std::string percent(double share, int digits) {
  return fixed(100 * share, digits) + " %";
}

}  // namespace tutti::bench
