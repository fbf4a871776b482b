// Command lines of tests that take numbers beside GoogleTest's own options: --runs=300.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

struct NumberOption {
  std::string_view name;  // with its dashes
  unsigned& number;
};

/// Reads the options that GoogleTest has left.  What cannot be read ends the program with status 2.
inline void read_options(int count, char** values, const std::vector<NumberOption>& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view word = values[i];
    bool is_read = false;
    for (const NumberOption& option : options) {
      if (!word.starts_with(option.name) || word.size() <= option.name.size() + 1) continue;
      const char* const begin = word.data() + option.name.size();
      const char* const end = word.data() + word.size();
      if (*begin != '=') continue;
      const auto [stop, error] = std::from_chars(begin + 1, end, option.number);
      is_read = stop == end && error == std::errc{};
    }
    if (is_read) continue;
    std::fprintf(stderr, "%s: expected", values[i]);
    for (const NumberOption& option : options)
      std::fprintf(stderr, " %.*s=N", static_cast<int>(option.name.size()), option.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
}

}  // namespace tutti::test
