#include "runtime/tuning_append.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/file_change.hpp"
#include "tune/file_text.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::runtime {
namespace {

constexpr const char* remedy = "make it a file that can be written, or unset TUTTI_TUNING_APPEND";
constexpr const char* remedy_if_locked =
    "wait until that tutti-tune, or another communicator's first call, has ended, and start again";
/// Others append within a millisecond; a tuner takes a minute, which no program waits for.
constexpr auto lock_patience = std::chrono::milliseconds(100);

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, file + ": " + why);
}

/// The lock of a tuning file, for as long as it lives.  Leaves no journal behind.
class Lock {
 public:
  explicit Lock(const std::string& file)
      : name_(file + ".journal"),
        journal_(lock_journal(name_, lock_patience, remedy, remedy_if_locked)) {
    struct stat status {};
    if (::fstat(journal_.descriptor.get(), &status) != 0 || status.st_size > 0)
      refuse(name_,
             "a run of tutti-tune was interrupted, and would forget what is appended now; "
             "finish it, or remove that file");
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::unlink(name_.c_str()); }  // not reached if the constructor has thrown

 private:
  std::string name_;
  LockedJournal journal_;
};

/// The file as it is; of this machine, whatever it says.
tune::Tuning tuning_to_append_to(const std::string& file, const tune::Fingerprint& here) {
  const std::optional<std::string> text = tune::text_of_file(file);
  if (!text) return {.made_on = here};
  tune::Tuning tuning = tune::parse_tuning(*text, file);
  if (tuning.made_on == tune::Fingerprint{}) {
    if (tuning != tune::Tuning{})
      refuse(file,
             "does not say on which machine it was made, so that what is found here would "
             "hold everywhere; name another file (TUTTI_TUNING_FILE)");
    tuning.made_on = here;
  }
  if (const tune::Applicability holds = tune::applicability(tuning.made_on, here);
      holds.applies != tune::Applies::yes)
    refuse(file, holds.why);
  return tuning;
}

}  // namespace

std::string file_to_append_to(const FoundTable& found) {
  if (found.table) return found.table->path;
  std::vector<std::string> paths = tuning_paths();
  if (paths.size() < 2)
    throw Error(
        ErrorCode::invalid_argument,
        "neither XDG_CONFIG_HOME nor HOME says where the user's tuning file is; set one, or "
        "unset TUTTI_TUNING_APPEND");
  return std::move(paths.front());
}

std::string append_finding(const std::string& file, const tune::Fingerprint& here,
                           const tune::Machine& priced_by, tune::Finding finding) {
  make_folder_of(file, remedy);
  const Lock lock(file);
  tune::Tuning tuning = tuning_to_append_to(file, here);
  const auto known =
      std::find_if(tuning.findings.begin(), tuning.findings.end(),
                   [&](const tune::Finding& one) { return one.is_about_same(finding); });
  const bool is_known = known != tuning.findings.end();
  // By a noisy one nobody chooses.
  if (is_known && (!known->is_noisy || finding.is_noisy))
    return file + " has a finding of this call";
  if (tune::is_described(tuning.machine) && tuning.machine != priced_by) {
    finding.winner.predicted = 0;
    for (tune::Timing& other : finding.others) other.predicted = 0;
  }
  if (is_known)
    *known = std::move(finding);
  else
    tuning.findings.push_back(std::move(finding));
  replace_file(file, tune::text_of(tuning), remedy);
  return "appended to " + file;
}

}  // namespace tutti::runtime
