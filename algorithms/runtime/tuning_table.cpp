#include "runtime/tuning_table.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <tutti/detail/descriptor.hpp>
#include <utility>

#include "tune/tuning_file.hpp"
#include "verbs/port_card.hpp"
#include "verbs/port_rate.hpp"

namespace tutti::runtime {
namespace {

/// Far more than any tuner writes.
constexpr std::size_t file_bytes_max = std::size_t{16} << 20;

constexpr const char* remedy = "; name another file, or set TUTTI_TUNING=off";

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string text_of_errno(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

/// The bytes of a regular file.  Throws Error.  A pipe or a device of that name is not waited for.
std::string read_file(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, path + ": " + why);
  };
  const detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) refuse(text_of_errno("cannot be opened"));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse(text_of_errno("fstat"));
  if (!S_ISREG(status.st_mode)) refuse("is no regular file");
  std::string text;
  char block[64 << 10];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(text_of_errno("cannot be read"));
    if (count == 0) return text;
    text.append(block, static_cast<std::size_t>(count));
    if (text.size() > file_bytes_max)
      refuse("is longer than the " + std::to_string(file_bytes_max) + " bytes of a tuning file");
  }
}

/// Puts a table or a remark into `found`.  Throws Error if the file cannot be read, or is refused.
void consider(const std::string& path, const tune::Fingerprint& machine, FoundTable& found) {
  TuningTable table{.path = path, .text = read_file(path)};
  table.tuning = tune::parse_tuning(table.text, path);
  const tune::Applicability holds = tune::applicability(table.tuning.made_on, machine);
  switch (holds.applies) {
    case tune::Applies::no:
      found.remarks.push_back(path + ": " + holds.why);
      return;
    case tune::Applies::stale:
      table.stale = holds.why;
      break;
    case tune::Applies::yes:
      break;
  }
  found.table = std::move(table);
}

FoundTable named_table(const std::string& path, const tune::Fingerprint& machine) {
  FoundTable found;
  try {
    consider(path, machine, found);
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
  if (!settings.tuning_file.empty()) return named_table(settings.tuning_file, machine);
  FoundTable found;
  for (const std::string& path : tuning_paths()) {
    if (found.table || !is_there(path)) continue;
    try {
      consider(path, machine, found);
    } catch (const Error& error) {
      found.remarks.push_back(error.what());
    }
  }
  return found;
}

std::string contents_of(const tune::Tuning& tuning) {
  const auto counted = [](std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  return counted(tuning.findings.size(), "finding") + ", " + counted(tuning.rules.size(), "rule") +
         (tuning.machine == tune::Machine{} ? ", no machine" : ", machine " + tuning.machine.name);
}

}  // namespace tutti::runtime
