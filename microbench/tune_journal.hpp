// What a run of tutti-tune has found so far, in a file beside the one that it will write: so a run
// that is ended loses at most the finding that it was about, and a later start goes on.
//
//   tuning.json           the file, replaced as a whole when the run has finished
//   tuning.json.journal   one JSON value a line:
//                           what is asked for    {"collectives": "barrier", "seed": "1", ...}
//                           the tuning as the run began, with the network that it has measured
//                           a finding            each is on the disk before the next race begins
//
// The journal is locked as long as a run writes it.  A line that a killed process has not finished
// does not count.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/descriptor.hpp>
#include <tutti/types.hpp>
#include <utility>
#include <vector>

#include "tune/tuning_file.hpp"

namespace tutti::bench {

/// What two runs need to have alike to share a journal: names and values.
using AskedFor = std::vector<std::pair<std::string, std::string>>;

/// What has to be alike of the machine, and of how ranks share nodes: "3*0,1*1" says that three
/// ranks of node 0 come first, then one of node 1.
AskedFor asked_of_machine(const tune::Fingerprint& machine, std::span<const Node> nodes);

class TuneJournal {
 public:
  /// Opens the journal of a tuning file, or makes it.  Throws Error{invalid_argument} if another
  /// process writes it, if either file cannot be written, or if the journal cannot be understood.
  /// With `fresh`, what a journal has is forgotten at once, whatever it is.
  explicit TuneJournal(const std::string& tuning_file, bool fresh = false);
  TuneJournal(const TuneJournal&) = delete;
  TuneJournal& operator=(const TuneJournal&) = delete;
  /// Leaves no journal behind that this run has made, and in which nothing was found.
  ~TuneJournal();

  /// Whether a run was interrupted.
  bool is_begun() const noexcept { return is_begun_; }
  /// Whether this run has made the journal, or the journal is to be forgotten.
  bool is_made() const noexcept { return is_made_; }
  /// The tuning as that run began.
  const tune::Tuning& tuning() const noexcept { return tuning_; }
  const std::vector<tune::Finding>& findings() const noexcept { return findings_; }
  /// Throws Error{invalid_argument}, which names the difference, if that run was about something
  /// else.
  void require_same(const AskedFor& asked) const;

  // The functions below throw Error{system} if the disk is full, and say what is kept.

  /// Begins anew: what was there is forgotten.
  void begin(const AskedFor& asked, const tune::Tuning& tuning);
  void append(const tune::Finding& finding);
  /// Replaces the tuning file, then removes the journal.  `on_written` is called in between, when
  /// both have what was found.
  void finish(const tune::Tuning& tuning, const std::function<void()>& on_written = {});

 private:
  void read();
  void write_line(const std::string& line, const std::string& advice);

  std::string file_, name_;
  detail::Descriptor descriptor_;
  bool is_begun_ = false;
  bool is_made_ = false;  // by this run
  AskedFor asked_ = {};
  tune::Tuning tuning_ = {};
  std::vector<tune::Finding> findings_ = {};
};

/// Takes the rules of the file as they are now, which people may have edited while a run went on.
/// Throws Error{invalid_argument}, which names the journal, if it is no tuning file any more.
void take_rules_of(const std::string& file, tune::Tuning& tuning);

/// The text of a file; nothing if there is none.  Throws Error{invalid_argument} if it is no
/// regular file, cannot be read, or is longer than a tuning file may be.
std::optional<std::string> text_of_file(const std::string& file);

}  // namespace tutti::bench
