#include "microbench/tune_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tutti/status.hpp>

#include "runtime/file_change.hpp"
#include "tune/file_text.hpp"
#include "tune/json_text.hpp"

namespace tutti::bench {
namespace {

/// How long the ranks of a run that was killed may take to end and to give back its lock.
constexpr auto lock_patience = std::chrono::seconds(2);

/// The file that begins it, and as much again of findings.
constexpr std::size_t journal_bytes_max = 2 * tune::json_bytes_max;

[[noreturn]] void refuse_file(const std::string& name, int error, const char* advice) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {}; {}", name, std::strerror(error), advice), error);
}

constexpr const char* writable = "give a file that can be written (--out)";

/// JSON has line ends between values alone.
std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

AskedFor asked_of_machine(const tune::Fingerprint& machine, std::span<const Node> nodes) {
  std::string runs;
  for (std::size_t first = 0, end = 0; first < nodes.size(); first = end) {
    while (end < nodes.size() && nodes[end] == nodes[first]) ++end;
    runs += fmt::format("{}{}*{}", runs.empty() ? "" : ",", end - first, index_of(nodes[first]));
  }
  return {{"ranks", fmt::format("{}", nodes.size())},
          {"nodes", runs},
          {"device", machine.device},
          {"firmware", machine.firmware},
          {"link", machine.link},
          {"gigabits-per-second", fmt::format("{}", machine.gigabits_per_second)},
          {"mtu", fmt::format("{}", machine.mtu_bytes)},
          {"cpu", machine.cpu},
          {"registry", fmt::format("{}", machine.registry)}};
}

std::optional<std::string> text_of_file(const std::string& file) {
  try {
    return tune::text_of_file(file);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; give a tuning file that can be read", error.what()),
                error.system_errno());
  }
}

void take_rules_of(const std::string& file, tune::Tuning& tuning) {
  const std::optional<std::string> text = text_of_file(file);
  if (!text) return;
  try {
    tuning.rules = tune::parse_tuning(*text, file).rules;
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}; it was edited meanwhile and is left as it is; repair it and start "
                            "this run again: what was found is kept in {}.journal",
                            error.what(), file));
  }
}

TuneJournal::TuneJournal(const std::string& tuning_file, bool fresh)
    : file_(tuning_file), name_(tuning_file + ".journal") {
  struct stat status;
  if (::stat(file_.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: is no ordinary file; {}", file_, writable));
    if (::access(file_.c_str(), W_OK) != 0) refuse_file(file_, errno, writable);
  }
  runtime::LockedJournal journal = runtime::lock_journal(
      name_, lock_patience, writable,
      "wait until that tutti-tune, or first call, has ended, or give another file (--out)");
  descriptor_ = std::move(journal.descriptor);
  is_made_ = journal.is_made;
  if (!fresh) {
    read();
    return;
  }
  if (::ftruncate(descriptor_.get(), 0) != 0) refuse_file(name_, errno, writable);
  is_made_ = true;
}

TuneJournal::~TuneJournal() {
  if (descriptor_ && is_made_ && !is_begun_) ::unlink(name_.c_str());
}

void TuneJournal::read() {
  const std::string text = [&] {
    try {
      return tune::text_of_file(descriptor_.get(), name_, journal_bytes_max);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}; remove it to begin anew", error.what()));
    }
  }();
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  if (lines.size() < 2) return;  // it was killed before its network was written down
  try {
    const nlohmann::ordered_json asked = nlohmann::ordered_json::parse(lines[0]);
    for (const auto& [name, value] : asked.items())
      asked_.emplace_back(name, value.get<std::string>());
    tuning_ = tune::parse_tuning(lines[1], name_);
    for (std::size_t line = 2; line < lines.size(); ++line)
      findings_.push_back(tune::parse_finding(lines[line], name_, line + 1));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}:1: no journal of tutti-tune; remove it", name_));
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}; remove that file to begin anew", error.what()));
  }
  is_begun_ = true;
  const auto whole = static_cast<off_t>(begin);
  if (::ftruncate(descriptor_.get(), whole) != 0 ||
      ::lseek(descriptor_.get(), whole, SEEK_SET) != whole)
    refuse_file(name_, errno, writable);
}

void TuneJournal::require_same(const AskedFor& asked) const {
  const auto refuse = [&](const std::string& name, const std::string& then,
                          const std::string& now) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: a run that was interrupted had {}=\"{}\", this one has \"{}\"; "
                            "finish it with the same, forget it with --fresh, or give another file "
                            "(--out)",
                            name_, name, then, now));
  };
  const auto value_in = [](const AskedFor& all, const std::string& name) -> std::string {
    for (const auto& [other, value] : all)
      if (other == name) return value;
    return {};
  };
  for (const auto& [name, value] : asked)
    if (value_in(asked_, name) != value) refuse(name, value_in(asked_, name), value);
  for (const auto& [name, value] : asked_)
    if (value_in(asked, name) != value) refuse(name, value, value_in(asked, name));
}

void TuneJournal::begin(const AskedFor& asked, const tune::Tuning& tuning) {
  nlohmann::ordered_json first;
  for (const auto& [name, value] : asked) first[name] = value;
  if (::ftruncate(descriptor_.get(), 0) != 0 || ::lseek(descriptor_.get(), 0, SEEK_SET) != 0)
    throw Error(ErrorCode::system, fmt::format("{}: {}", name_, std::strerror(errno)), errno);
  findings_.clear();
  asked_ = asked;
  tuning_ = tuning;
  // If this fails, the journal has no finding yet that would be lost.
  write_line(first.dump() + '\n' + in_one_line(tune::text_of(tuning)),
             "make room, or give a file elsewhere (--out)");
  is_begun_ = true;
}

void TuneJournal::append(const tune::Finding& finding) {
  write_line(tune::line_of(finding),
             "make room and start it again with the same options: what was found before is kept "
             "there");
  findings_.push_back(finding);
}

void TuneJournal::write_line(const std::string& line, const std::string& advice) {
  try {
    runtime::write_all(descriptor_.get(), line + '\n', name_);
    runtime::sync_file(descriptor_.get(), name_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; {}", error.what(), advice), error.system_errno());
  }
}

void TuneJournal::finish(const tune::Tuning& tuning, const std::function<void()>& on_written) {
  runtime::replace_file(
      file_, tune::text_of(tuning),
      fmt::format("repair that and start it again with the same options: what was found is kept in "
                  "{}",
                  name_)
          .c_str());
  if (on_written) on_written();
  ::unlink(name_.c_str());
  runtime::sync_folder_of(file_);
  descriptor_ = {};
  is_begun_ = false;
}

}  // namespace tutti::bench
