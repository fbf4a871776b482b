#include "verbs/soft/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <tutti/detail/enumerators.hpp>
#include <tutti/detail/number_in.hpp>
#include <tutti/status.hpp>

#include "verbs/soft/device_list.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::verbs::soft {
namespace {

/// Whether `value` is one of the names, which are those of the enumerators up to `last`.
template <auto last, std::size_t count>
bool read_name(const char* const (&names)[count], std::string_view value, decltype(last)& read) {
  for (const auto one : detail::enumerators<last>)
    if (value == detail::name_in<last>(names, one)) {
      read = one;
      return true;
    }
  return false;
}

bool read_transport(std::string_view value, Settings& settings) {
  return read_name<Transport::bounce>({"auto", "shared", "cma", "bounce"}, value,
                                      settings.transport);
}

bool read_log(std::string_view value, Settings& settings) {
  settings.logs_transports = value == "transport";
  return settings.logs_transports || value == "off";
}

bool read_promotion(std::string_view value, Settings& settings) {
  settings.promotes = value == "1";
  return settings.promotes || value == "0";
}

bool read_stores(std::string_view value, Settings& settings) {
  return read_name<detail::Stores::streaming>({"auto", "plain", "streaming"}, value,
                                              settings.stores);
}

/// The file may change later; its contents when the process opens the device are the ones that
/// count.
bool read_fabric(std::string_view value, Settings& settings) {
  settings.fabric = value;
  if (value.empty()) return true;
  try {
    (void)read_fabric_model(settings.fabric);
  } catch (const Error& error) {
    std::fprintf(stderr, "tutti: %s\n", error.what());
    return false;
  }
  return true;
}

bool read_place(std::string_view value, Settings& settings) {
  const auto place = detail::number_in<std::uint32_t>(value);
  settings.place = place.value_or(0);
  return place.has_value();
}

/// Accepts a setting that check_devices() reads.
bool leave(std::string_view, Settings&) {
  return true;
}

struct Known {
  std::string_view name;
  std::string_view expected;
  bool (*read)(std::string_view value, Settings& settings);  // false: the value is unknown
};
constexpr Known known_settings[] = {
    {"TUTTI_SOFT_TRANSPORT", "auto|shared|cma|bounce", read_transport},
    {"TUTTI_SOFT_LOG", "off|transport", read_log},
    {"TUTTI_SOFT_PROMOTE", "0|1", read_promotion},
    {"TUTTI_SOFT_STORES", "auto|plain|streaming", read_stores},
    {"TUTTI_SOFT_FABRIC", "qdr|fdr|edr|hdr|ndr|roce100|roce25|roce10|FILE", read_fabric},
    {"TUTTI_SOFT_PLACE", "a number from 0", read_place},
    {"TUTTI_SOFT_DEVICES", "name:ports,...", leave},
    {"TUTTI_SOFT_LINK_DOWN", "name:port,...", leave},
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
  if (const int error = check_devices()) return error;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("TUTTI_SOFT_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const Known* found = nullptr;
    for (const Known& known : known_settings)
      if (known.name == name) found = &known;
    if (!found) return refuse(text, "unknown setting", {});
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    if (!found->read(value, settings))
      return found->read == read_fabric ? EINVAL : refuse(text, "unknown value", name);
  }
  return 0;
}

}  // namespace tutti::verbs::soft
