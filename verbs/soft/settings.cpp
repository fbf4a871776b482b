// See settings.hpp.
#include "verbs/soft/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

namespace tutti::verbs::soft {
namespace {

bool read_transport(std::string_view value, Settings& settings) {
  if (value == "auto")
    settings.transport = Transport::automatic;
  else if (value == "shared")
    settings.transport = Transport::shared;
  else if (value == "cma")
    settings.transport = Transport::cma;
  else if (value == "bounce")
    settings.transport = Transport::bounce;
  else
    return false;
  return true;
}

bool read_log(std::string_view value, Settings& settings) {
  settings.logs_transports = value == "transport";
  return settings.logs_transports || value == "off";
}

bool read_promotion(std::string_view value, Settings& settings) {
  settings.promotes = value == "1";
  return settings.promotes || value == "0";
}

struct Known {
  std::string_view name;
  std::string_view expected;
  bool (*read)(std::string_view value, Settings& settings);  // false: an unknown value
};
constexpr Known known_settings[] = {
    {"TUTTI_SOFT_TRANSPORT", "auto|shared|cma|bounce", read_transport},
    {"TUTTI_SOFT_LOG", "off|transport", read_log},
    {"TUTTI_SOFT_PROMOTE", "0|1", read_promotion},
};

int refuse(std::string_view variable, const char* reason, std::string_view name) {
  std::string valid;
  for (const Known& known : known_settings)
    if (name.empty() || known.name == name)
      valid +=
          (valid.empty() ? "" : ", ") + std::string(known.name) + "=" + std::string(known.expected);
  std::fprintf(stderr, "tutti: %.*s: %s; valid: %s\n", static_cast<int>(variable.size()),
               variable.data(), reason, valid.c_str());
  return EINVAL;
}

}  // namespace

int read_settings(Settings& settings) {
  settings = {};
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("TUTTI_SOFT_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const Known* found = nullptr;
    for (const Known& known : known_settings)
      if (known.name == name) found = &known;
    if (!found) return refuse(text, "unknown setting", {});
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    if (!found->read(value, settings)) return refuse(text, "unknown value", name);
  }
  return 0;
}

}  // namespace tutti::verbs::soft
