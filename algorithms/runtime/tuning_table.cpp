#include "runtime/tuning_table.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "tune/file_text.hpp"
#include "tune/tuning_file.hpp"
#include "tune/write_placement.hpp"
#include "verbs/connection.hpp"
#include "verbs/port_card.hpp"
#include "verbs/port_rate.hpp"

namespace tutti::runtime {
namespace {

constexpr const char* remedy = "; name another file, or set TUTTI_TUNING=off";

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

/// Throws Error.
std::string read_file(const std::string& path) {
  if (std::optional<std::string> text = tune::text_of_file(path)) return *std::move(text);
  throw Error(ErrorCode::invalid_argument, path + ": cannot be opened: " + std::strerror(ENOENT),
              ENOENT);
}

/// Puts a table or a remark into `found`.  Throws Error if the file cannot be read, or is refused.
void consider(const std::string& path, tune::Fingerprint machine, TuningMode mode,
              FoundTable& found) {
  TuningTable table{.path = path, .text = read_file(path)};
  table.tuning = tune::parse_tuning(table.text, path);
  table.placement_differs = tune::why_placement_differs(table.tuning.made_on, machine);
  // What a machine takes does not depend on which schedules there are.
  if (mode == TuningMode::model) machine.registry = table.tuning.made_on.registry;
  const tune::Applicability holds = tune::applicability(table.tuning.made_on, machine);
  switch (holds.applies) {
    case tune::Applies::no:
      found.remarks.push_back(path + ": " + holds.why);
      return;
    case tune::Applies::stale:
      if (mode != TuningMode::model || tune::is_described(table.tuning.machine))
        table.stale = holds.why;
      break;
    case tune::Applies::yes:
      break;
  }
  found.table = std::move(table);
}

FoundTable named_table(const std::string& path, const tune::Fingerprint& machine, TuningMode mode) {
  FoundTable found;
  try {
    consider(path, machine, mode, found);
  } catch (const Error& error) {
    found.refusal =
        Error(ErrorCode::invalid_argument,
              std::string("TUTTI_TUNING_FILE (or tuning_file in code): ") + error.what() + remedy);
  }
  return found;
}

bool is_there(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 || errno != ENOENT;
}

}  // namespace

tune::Fingerprint fingerprint_of(const verbs::Port& port, const ContextSettings& settings) {
  const bool is_simulated = port.driver().clock().is_simulated();
  tune::Fingerprint machine{
      .device = port.description.device,
      .firmware = {port.limits.fw_ver, ::strnlen(port.limits.fw_ver, sizeof port.limits.fw_ver)},
      .link = verbs::is_ethernet(verbs::card_of(port)) ? "Ethernet" : "InfiniBand",
      .gigabits_per_second = verbs::gigabits_of(port.description.attributes),
      .mtu_bytes = std::uint32_t{128} << port.description.attributes.active_mtu,
      .cpu = is_simulated ? "simulated" : cpu_model(),
      .registry = tune::registry_version};
  if (port.description.is_software() && !settings.emulated_fabric.empty())
    machine.device += " emulating " + settings.emulated_fabric;
  return machine;
}

verbs::PortCard port_card_of(const verbs::Port& port, const ContextSettings& settings) {
  verbs::PortCard card = verbs::card_of(port);
  if (port.description.is_software() && settings.emulated_fabric.empty())
    card.gigabits_per_second = 0;
  return card;
}

std::vector<std::string> tuning_paths() {
  std::vector<std::string> paths;
  const auto value_of = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  // A relative path is no directory of this variable (XDG Base Directory Specification 0.8).
  const std::string configuration = value_of("XDG_CONFIG_HOME"), home = value_of("HOME");
  if (configuration.starts_with('/'))
    paths.push_back(configuration + "/tutti/tuning.json");
  else if (home.starts_with('/'))
    paths.push_back(home + "/.config/tutti/tuning.json");
  paths.emplace_back("/etc/tutti/tuning.json");
  return paths;
}

FoundTable find_table(const ContextSettings& settings, const tune::Fingerprint& machine) {
  if (settings.tuning == TuningMode::off) return {};
  if (!settings.tuning_file.empty())
    return named_table(settings.tuning_file, machine, settings.tuning);
  FoundTable found;
  for (const std::string& path : tuning_paths()) {
    if (found.table || !is_there(path)) continue;
    try {
      consider(path, machine, settings.tuning, found);
    } catch (const Error& error) {
      found.remarks.push_back(error.what());
    }
  }
  return found;
}

FoundTable find_table(const ContextSettings& settings, const verbs::Port& port) {
  const std::vector<std::string> paths = tuning_paths();
  const bool is_any =
      !settings.tuning_file.empty() || std::any_of(paths.begin(), paths.end(), is_there);
  // The system's list of CPUs is long on large machines.
  if (settings.tuning == TuningMode::off || !is_any) return {};
  return find_table(settings, fingerprint_of(port, settings));
}

verbs::FoundPlacement found_placement(const FoundTable& found) {
  const auto nothing = [](const std::string& why) {
    return verbs::FoundPlacement{.lines = {.source = why}, .order = {.source = why}};
  };
  if (found.refusal) return nothing(found.refusal->what());
  if (!found.table || found.table->tuning.placement == tune::WritePlacement{}) return {};
  const TuningTable& table = *found.table;
  const std::string from = "by " + table.path + ", ";
  if (!table.placement_differs.empty())
    return nothing(from + "which looked at another device: " + table.placement_differs);
  const auto fact = [&](tune::Evidence evidence, const std::string& words) {
    using Says = verbs::FoundFact::Says;
    verbs::FoundFact made{.source = from + words};
    if (evidence == tune::Evidence::holds) made.says = Says::holds;
    if (evidence == tune::Evidence::violated) made.says = Says::violated;
    return made;
  };
  const tune::WritePlacement& seen = table.tuning.placement;
  return {.lines = fact(tune::evidence_for_lines(seen), tune::words_on_lines(seen)),
          .order = fact(tune::evidence_for_order(seen), tune::words_on_order(seen))};
}

bool promises_order(const verbs::Port& port) noexcept {
  return port.driver().places_writes_in_order && verbs::places_writes_in_order(port);
}

std::uint64_t chunk_bytes_before_words_max(const verbs::Port& port) noexcept {
  return port.driver().places_writes_in_order ? UINT64_MAX : tune::placed_chunk_bytes_max;
}

std::string contents_of(const tune::Tuning& tuning) {
  const auto counted = [](std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  return counted(tuning.findings.size(), "finding") + ", " + counted(tuning.rules.size(), "rule") +
         (tune::is_described(tuning.machine) ? ", machine " + tuning.machine.name : ", no machine");
}

}  // namespace tutti::runtime
