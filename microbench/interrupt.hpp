// What a run of tutti-tune prints and leaves behind if a user ends it (SIGINT, SIGTERM): whether
// findings are kept and how to go on, or what was judged by then.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::bench {

/// How far a run is.  The program and the ranks that it forks share this stage.
enum class RunStage : std::uint32_t {
  before,   // nothing was written
  opened,   // this run has made the journal, and nothing was found
  begun,    // the journal has the findings so far
  written,  // the tuning file was replaced
};

/// From now on either signal ends this process and its forked ranks with status 128 and the
/// signal's number, after one line on standard error.  A journal in stage `opened` is removed.  A
/// signal that was ignored stays ignored.  Called once, before ranks are forked.  `says`: whether
/// this process prints; only one rank of a job does.
void end_with_words(const std::string& file, bool says);
/// Any process of the run may set the stage.
void note_stage(RunStage stage) noexcept;

/// While it exists, SIGINT and SIGTERM are only noted once each, so that a run can print what it
/// has; the same signal again ends the process.  The destructor restores the default action.
/// Ignored signals stay ignored.  It is not for programs that have called end_with_words().
class NotedSignals {
 public:
  NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  ~NotedSignals();

  /// The last signal that has come; 0: none.  Any thread may ask.
  int last() const noexcept;
};

}  // namespace tutti::bench
